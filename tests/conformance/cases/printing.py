"""The smallest object of each kind: its defaults, its table row, and Pods in every state."""

from collections.abc import Sequence
from typing import Any

from tests.conformance.steps import POD, PODS, TABLE, Case, merge, pod, post, prepared

_TEMPLATE = {"metadata": {"labels": {"app": "a"}}, "spec": {"containers": [{"name": "main", "image": "app"}]}}
_SELECTOR = {"matchLabels": {"app": "a"}}
_JOB = {"template": {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "app:1"}]}}}
_NEGATIVE = dict.fromkeys(
    ("parallelism", "completions", "activeDeadlineSeconds", "backoffLimit", "ttlSecondsAfterFinished"), -1
)
_NAMED = {"metadata": {"name": "a"}}
_CLUSTER_NAMED = {"metadata": {"name": "o-{ns}"}}


def _apis(group: str, plural: str, version: str = "v1", *, namespaced: bool = True) -> str:
    root = f"/apis/{group}/{version}" if group else f"/api/{version}"
    return f"{root}/namespaces/{{ns}}/{plural}" if namespaced else f"{root}/{plural}"


def _one(group: str, plural: str, version: str = "v1", **fields: Any) -> tuple[str, dict[str, Any]]:
    return _apis(group, plural, version), {**_NAMED, **fields}


def _of_cluster(group: str, plural: str, **fields: Any) -> tuple[str, dict[str, Any]]:
    return _apis(group, plural, namespaced=False), {**_CLUSTER_NAMED, **fields}


_WORKLOAD = {"selector": _SELECTOR, "template": _TEMPLATE}
_CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
_TARGET = {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}}
_ADDRESSES = {
    "addresses": [{"ip": "10.1.1.1"}, {"ip": "10.1.1.2"}],
    "ports": [{"port": 80}, {"port": 81, "name": "b"}],
}
_BACKEND = {"path": "/", "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}}
_INVOLVED = {"kind": "Pod", "name": "p", "namespace": "{ns}"}
_SUBJECTS = [
    {"kind": "User", "name": "jane"},
    {"kind": "ServiceAccount", "name": "default", "namespace": "{ns}"},
    {"kind": "Group", "name": "staff"},
]
_RBAC = "rbac.authorization.k8s.io"
#: By name: path, and the smallest valid object.
_SMALLEST: dict[str, tuple[str, dict[str, Any]]] = {
    "deployment": _one("apps", "deployments", spec=_WORKLOAD),
    "replica-set": _one("apps", "replicasets", spec=_WORKLOAD),
    "stateful-set": _one(
        "apps",
        "statefulsets",
        spec={**_WORKLOAD, "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": _CLAIM}]},
    ),
    "daemon-set": _one("apps", "daemonsets", spec=_WORKLOAD),
    "controller-revision": _one("apps", "controllerrevisions", revision=3, data={"spec": {"a": 1}}),
    "job": _one("batch", "jobs", spec=_JOB),
    "job-suspended": _one("batch", "jobs", spec={**_JOB, "suspend": True, "completions": 3, "parallelism": 2}),
    "cron-job": _one("batch", "cronjobs", spec={"schedule": "*/5 * * * *", "jobTemplate": {"spec": _JOB}}),
    "pod-template": _one("", "podtemplates", template=_TEMPLATE),
    "replication-controller": _one(
        "", "replicationcontrollers", spec={"replicas": 0, "selector": {"app": "a"}, "template": _TEMPLATE}
    ),
    "config-map": _one("", "configmaps", data={"a": "b"}, binaryData={"c": "ZA=="}),
    "secret": _one("", "secrets", stringData={"a": "b"}, data={"c": "ZA=="}),
    "secret-tls": _one("", "secrets", type="kubernetes.io/tls", data={"tls.crt": "ZA==", "tls.key": "ZA=="}),
    "service-account": _one("", "serviceaccounts"),
    "service": _one("", "services", spec={"selector": {"app": "a"}, "ports": [{"port": 80}]}),
    "service-headless": _one(
        "", "services", spec={"clusterIP": "None", "ports": [{"port": 80, "name": "web", "targetPort": "http"}]}
    ),
    "service-external": _one("", "services", spec={"type": "ExternalName", "externalName": "example.com"}),
    "endpoints": _one("", "endpoints", subsets=[_ADDRESSES]),
    "endpoint-slice": _one(
        "discovery.k8s.io",
        "endpointslices",
        addressType="IPv4",
        endpoints=[{"addresses": ["10.1.1.1"]}],
        ports=[{"port": 80}],
    ),
    "claim": _one("", "persistentvolumeclaims", spec=_CLAIM),
    "limit-range": _one("", "limitranges", spec={"limits": [{"type": "Container", "default": {"cpu": "1"}}]}),
    "resource-quota": _one("", "resourcequotas", spec={"hard": {"pods": "100"}}),
    "event": _one(
        "",
        "events",
        involvedObject=_INVOLVED,
        reason="Why",
        message="because ",
        type="Normal",
        source={"component": "me", "host": "here"},
        count=3,
        firstTimestamp="2026-01-01T00:00:00Z",
        lastTimestamp="2026-01-01T00:00:00Z",
    ),
    "new-event": _one(
        "events.k8s.io",
        "events",
        regarding=_INVOLVED,
        reason="Why",
        note="because",
        type="Warning",
        action="Act",
        eventTime="2026-01-01T00:00:00.000000Z",
        reportingController="example.com/me",
        reportingInstance="me-1",
    ),
    "lease": _one("coordination.k8s.io", "leases", spec={"holderIdentity": "me", "leaseDurationSeconds": 15}),
    "budget": _one("policy", "poddisruptionbudgets", spec={"minAvailable": "50%", "selector": _SELECTOR}),
    "role": _one(_RBAC, "roles", rules=[{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]),
    "role-binding": _one(
        _RBAC, "rolebindings", roleRef={"kind": "Role", "name": "a", "apiGroup": _RBAC}, subjects=_SUBJECTS
    ),
    "cluster-role": _of_cluster(_RBAC, "clusterroles", rules=[]),
    "cluster-role-binding": _of_cluster(_RBAC, "clusterrolebindings", roleRef={"kind": "ClusterRole", "name": "a"}),
    "ingress": _one(
        "networking.k8s.io", "ingresses", spec={"rules": [{"host": "a.example.com", "http": {"paths": [_BACKEND]}}]}
    ),
    "network-policy": _one("networking.k8s.io", "networkpolicies", spec={"podSelector": _SELECTOR}),
    "autoscaler": _one("autoscaling", "horizontalpodautoscalers", "v2", spec=_TARGET),
    "autoscaler-v1": _one(
        "autoscaling", "horizontalpodautoscalers", spec={**_TARGET, "targetCPUUtilizationPercentage": 50}
    ),
    "namespace": _of_cluster("", "namespaces", metadata={"name": "{ns}-more", "labels": {"a": "b"}}),
    "node": _of_cluster(
        "",
        "nodes",
        metadata={"name": "o-{ns}", "labels": {"node-role.kubernetes.io/worker": ""}},
        spec={"unschedulable": True},
    ),
    "volume": _of_cluster(
        "",
        "persistentvolumes",
        spec={
            "capacity": {"storage": "1024Mi"},
            "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
            "hostPath": {"path": "/tmp"},
        },
    ),
    "storage-class": _of_cluster("storage.k8s.io", "storageclasses", provisioner="example.com/p"),
    "priority-class": _of_cluster("scheduling.k8s.io", "priorityclasses", value=7),
    "runtime-class": _of_cluster("node.k8s.io", "runtimeclasses", handler="h"),
    "ingress-class": _of_cluster("networking.k8s.io", "ingressclasses", spec={"controller": "example.com/c"}),
}


def _wrong(kind: str, spec: Any) -> tuple[str, dict[str, Any]]:
    return _SMALLEST[kind][0], {**_NAMED, "spec": spec}


def _wrong_deployment(**spec: Any) -> tuple[str, dict[str, Any]]:
    return _wrong("deployment", {"selector": _SELECTOR, "template": _TEMPLATE, **spec})


def _wrong_container(**container: Any) -> tuple[str, dict[str, Any]]:
    return PODS, pod("a", containers=[{"name": "a", "image": "a", **container}])


#: Invalid objects; only the messages are compared.
_WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "deployment-empty": (_SMALLEST["deployment"][0], _NAMED),
    "deployment-selector": _wrong_deployment(selector={"matchLabels": {"app": "b"}}),
    "deployment-replicas": _wrong_deployment(replicas=-1),
    "deployment-surge": _wrong_deployment(strategy={"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}}),
    "deployment-restart-policy": _wrong_deployment(
        template={**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}}
    ),
    "stateful-set-empty": _wrong("stateful-set", {}),
    "daemon-set-empty": _wrong("daemon-set", {}),
    "job-restart-policy": _wrong("job", {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}),
    "cron-job-schedule": _wrong("cron-job", {"schedule": "whenever", "jobTemplate": {"spec": _JOB}}),
    "service-port": _wrong("service", {"ports": [{"port": 0}]}),
    "service-no-ports": _wrong("service", {}),
    "service-name": (_SMALLEST["service"][0], {"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 80}]}}),
    "job-negative": _wrong("job", {**_JOB, **_NEGATIVE}),
    "cron-job-negative": _wrong("cron-job", {"schedule": "@daily", "jobTemplate": {"spec": {**_JOB, **_NEGATIVE}}}),
    "service-unnamed-ports": _wrong("service", {"ports": [{"port": 80}, {"port": 81}]}),
    "secret-type": (_SMALLEST["secret"][0], {**_NAMED, "type": "kubernetes.io/tls", "data": {}}),
    "secret-key": (_SMALLEST["secret"][0], {**_NAMED, "data": {"a b": "ZA=="}}),
    "claim-empty": _wrong("claim", {}),
    "budget-both": _wrong("budget", {"minAvailable": 1, "maxUnavailable": 1}),
    "role-empty-rule": (_SMALLEST["role"][0], {**_NAMED, "rules": [{"verbs": ["get"]}]}),
    "lease-duration": _wrong("lease", {"leaseDurationSeconds": 0}),
    "priority-class-large": (_SMALLEST["priority-class"][0], {**_CLUSTER_NAMED, "value": 2000000000}),
    "namespace-name": (_SMALLEST["namespace"][0], {"metadata": {"name": "a.b"}}),
    "autoscaler-empty": (_SMALLEST["autoscaler"][0], _NAMED),
    "ingress-empty": _wrong("ingress", {}),
    "pod-empty": (PODS, _NAMED),
    "pod-no-containers": (PODS, {**_NAMED, "spec": {"containers": []}}),
    "pod-container-name": _wrong_container(name="A_"),
    "pod-no-image": (PODS, pod("a", containers=[{"name": "a"}])),
    "pod-two-containers-same-name": (
        PODS,
        pod("a", containers=[{"name": "a", "image": "a"}, {"name": "a", "image": "b"}]),
    ),
    "pod-restart-policy": (PODS, pod("a", restartPolicy="Sometimes")),
    "pod-dns-policy": (PODS, pod("a", dnsPolicy="Magic")),
    "pod-volume-mount": _wrong_container(volumeMounts=[{"name": "none", "mountPath": "/x"}]),
    "pod-quantity": _wrong_container(resources={"limits": {"cpu": "lots"}}),
    "pod-request-above-limit": _wrong_container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
    "pod-port": _wrong_container(ports=[{"containerPort": 70000}]),
    "pod-env": _wrong_container(env=[{"name": "", "value": "x"}]),
    "pod-probe": _wrong_container(livenessProbe={"periodSeconds": 1}),
    "pod-type": (PODS, pod("a", containers="none")),
    "pod-number": (PODS, pod("a", terminationGracePeriodSeconds="soon")),
    "pod-node-selector": (PODS, pod("a", nodeSelector={"a b": "c"})),
    "pod-account": (PODS, pod("a", serviceAccountName="nobody")),
    "pod-priority-class": (PODS, pod("a", priorityClassName="nothing")),
}


def _status(**status: Any) -> dict[str, Any]:
    return {"status": status}


def _phase(phase: str, *containers: Any, init: Sequence[Any] = (), **more: Any) -> dict[str, Any]:
    """A status with these statuses of containers and init containers."""
    lists = {"containerStatuses": list(containers), "initContainerStatuses": list(init)}
    return _status(phase=phase, **{name: found for name, found in lists.items() if found}, **more)


def _container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "app:1", "imageID": "", "ready": False, "restartCount": 0, "state": state, **more}


def _waiting(reason: str) -> dict[str, Any]:
    return {"waiting": {"reason": reason}}


def _ended(code: int, **more: Any) -> dict[str, Any]:
    return {"terminated": {"exitCode": code, **more}}


_RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
_DONE = _ended(0, reason="Completed")
_READY = [{"type": "Ready", "status": "True"}]
_INITIALIZED = {"type": "Initialized", "status": "True"}
_LAST = _ended(1, finishedAt="2020-01-01T00:00:00Z")
_UP = _container(_RUNNING, ready=True)
_STATES: dict[str, dict[str, Any]] = {
    "pending": _phase("Pending"),
    "running": _phase("Running", _UP, conditions=_READY, podIPs=[{"ip": "10.9.9.9"}], podIP="10.9.9.9"),
    "not-ready": _phase("Running", _container(_RUNNING)),
    "waiting": _phase("Pending", _container(_waiting("ImagePullBackOff"))),
    "crashing": _phase("Running", _container(_waiting("CrashLoopBackOff"), restartCount=4, lastState=_LAST)),
    "restarted": _phase("Running", _container(_RUNNING, ready=True, restartCount=2)),
    "completed": _phase("Succeeded", _container(_DONE)),
    "failed": _phase("Failed", _container(_ended(3, reason="Error"))),
    "exit-code": _phase("Failed", _container(_ended(3))),
    "signal": _phase("Failed", _container(_ended(137, signal=9))),
    "evicted": _phase("Failed", reason="Evicted", message="no room"),
    "creating": _phase("Pending", _container(_waiting("ContainerCreating"))),
    "gated": _phase("Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]),
    "nominated": _phase("Pending", nominatedNodeName="n1"),
}
_INIT = {"initContainers": [{"name": "first", "image": "i"}, {"name": "side", "image": "s", "restartPolicy": "Always"}]}


def _init(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return _container(state, name="first", image="i", **more)


_SIDE = _container(_RUNNING, name="side", image="s", ready=True, started=True, restartCount=1)
_SIDE_STARTS = {**_SIDE, "started": False, "ready": False}
_INIT_STATES: dict[str, dict[str, Any]] = {
    "init-waiting": _phase("Pending", init=[_init(_waiting("PodInitializing"))]),
    "init-pulling": _phase("Pending", init=[_init(_waiting("ErrImagePull"))]),
    "init-running": _phase("Pending", init=[_init(_RUNNING)]),
    "init-failed": _phase("Pending", init=[_init(_ended(2, reason="Error"), restartCount=2)]),
    "init-exit-code": _phase("Pending", init=[_init(_ended(2))]),
    "init-signal": _phase("Pending", init=[_init(_ended(2, signal=9))]),
    "init-done-sidecar-up": _phase("Running", _UP, init=[_init(_DONE), _SIDE], conditions=[_INITIALIZED, *_READY]),
    "sidecar-starting": _phase("Pending", init=[_init(_DONE), _SIDE_STARTS]),
    "completed-but-sidecar-runs": _phase(
        "Running", _container(_DONE), init=[_init(_DONE), _SIDE], conditions=[_INITIALIZED]
    ),
}
_TWO = {"containers": [{"name": "main", "image": "app:1"}, {"name": "other", "image": "app:1"}]}
_ONE_RUNS = (_container(_DONE), _container(_RUNNING, ready=True, name="other"))
_TWO_STATES: dict[str, dict[str, Any]] = {
    "one-completed-one-runs": _phase("Running", *_ONE_RUNS),
    "one-completed-one-runs-ready": _phase("Running", *_ONE_RUNS, conditions=_READY),
    "two-waiting": _phase("Pending", _container(_waiting("First")), _container(_waiting("Second"), name="other")),
}


_GUARANTEED = {"requests": {"cpu": "100m", "memory": "1Mi"}, "limits": {"cpu": "0.1", "memory": "1Mi"}}


def _pod(id: str, *keep: str, **spec: Any) -> Case:
    return Case(f"object-pod-{id}".rstrip("-"), post(PODS, pod("a", **spec), keep=keep))


def _shown(id: str, status: dict[str, Any], **spec: Any) -> Case:
    return Case(
        f"pod-{id}",
        *prepared(PODS, pod("a", **spec)),
        merge(f"{POD}/status", status, accept=TABLE, keep=["rows.*.cells", "rows.*.conditions", "message"]),
    )


CASES = [
    *(Case(f"object-{id}", post(path, body)) for id, (path, body) in _SMALLEST.items()),
    *(
        Case(
            f"row-{id}",
            post(
                path,
                body,
                accept=TABLE,
                keep=["columnDefinitions.*.name", "columnDefinitions.*.priority", "rows.*.cells"],
            ),
        )
        for id, (path, body) in _SMALLEST.items()
    ),
    *(Case(f"wrong-{id}", post(path, body)) for id, (path, body) in _WRONG.items()),
    _pod(""),
    Case(
        "object-pod-with-a-token",
        post(
            PODS,
            {**_NAMED, "spec": _TEMPLATE["spec"]},
            drop=["spec.volumes.0.name", "spec.containers.0.volumeMounts.0.name"],
        ),
    ),
    _pod(
        "with-much",
        volumes=[
            {"name": "v", "emptyDir": {}},
            {"name": "c", "configMap": {"name": "x"}},
            {"name": "h", "hostPath": {"path": "/tmp"}},
        ],
        hostNetwork=True,
        containers=[
            {
                "name": "main",
                "image": "app:latest",
                "ports": [{"containerPort": 80}],
                "env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}],
                "livenessProbe": {"httpGet": {"port": 80}},
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}},
                "lifecycle": {"preStop": {"exec": {"command": ["x"]}}},
            }
        ],
    ),
    Case(
        "object-pod-priority",
        *prepared(
            _SMALLEST["priority-class"][0], {"metadata": {"name": "p-{ns}"}, "value": 7, "preemptionPolicy": "Never"}
        ),
        post(PODS, pod("a", priorityClassName="p-{ns}"), keep=["spec.priority", "spec.preemptionPolicy"]),
    ),
    _pod(
        "tolerations", "spec.tolerations", tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]
    ),
    _pod(
        "quality",
        *("status.qosClass", "spec.containers.0.resources"),
        containers=[{"name": "m", "image": "a", "resources": _GUARANTEED}],
    ),
    *(_shown(id, status) for id, status in _STATES.items()),
    *(_shown(id, status, **_INIT) for id, status in _INIT_STATES.items()),
    *(_shown(id, status, **_TWO) for id, status in _TWO_STATES.items()),
    _shown(
        "readiness-gates",
        _status(conditions=[{"type": "example.com/one", "status": "True"}]),
        readinessGates=[{"conditionType": "example.com/one"}, {"conditionType": "example.com/two"}],
    ),
]
