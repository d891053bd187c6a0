"""The smallest object of each kind: its defaults, its table row, and Pods in every state."""

from typing import Any

from tests.conformance.steps import MERGE_PATCH, PODS, TABLE, Case, patch, pod, post, prepared

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


#: By name: path, and the smallest valid object.
_SMALLEST: dict[str, tuple[str, dict[str, Any]]] = {
    "deployment": (_apis("apps", "deployments"), {**_NAMED, "spec": {"selector": _SELECTOR, "template": _TEMPLATE}}),
    "replica-set": (_apis("apps", "replicasets"), {**_NAMED, "spec": {"selector": _SELECTOR, "template": _TEMPLATE}}),
    "stateful-set": (
        _apis("apps", "statefulsets"),
        {
            **_NAMED,
            "spec": {
                "selector": _SELECTOR,
                "template": _TEMPLATE,
                "volumeClaimTemplates": [
                    {
                        "metadata": {"name": "data"},
                        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
                    }
                ],
            },
        },
    ),
    "daemon-set": (_apis("apps", "daemonsets"), {**_NAMED, "spec": {"selector": _SELECTOR, "template": _TEMPLATE}}),
    "controller-revision": (
        _apis("apps", "controllerrevisions"),
        {**_NAMED, "revision": 3, "data": {"spec": {"a": 1}}},
    ),
    "job": (_apis("batch", "jobs"), {**_NAMED, "spec": _JOB}),
    "job-suspended": (
        _apis("batch", "jobs"),
        {**_NAMED, "spec": {**_JOB, "suspend": True, "completions": 3, "parallelism": 2}},
    ),
    "cron-job": (
        _apis("batch", "cronjobs"),
        {**_NAMED, "spec": {"schedule": "*/5 * * * *", "jobTemplate": {"spec": _JOB}}},
    ),
    "pod-template": (_apis("", "podtemplates"), {**_NAMED, "template": _TEMPLATE}),
    "replication-controller": (
        _apis("", "replicationcontrollers"),
        {**_NAMED, "spec": {"replicas": 0, "selector": {"app": "a"}, "template": _TEMPLATE}},
    ),
    "config-map": (_apis("", "configmaps"), {**_NAMED, "data": {"a": "b"}, "binaryData": {"c": "ZA=="}}),
    "secret": (_apis("", "secrets"), {**_NAMED, "stringData": {"a": "b"}, "data": {"c": "ZA=="}}),
    "secret-tls": (
        _apis("", "secrets"),
        {**_NAMED, "type": "kubernetes.io/tls", "data": {"tls.crt": "ZA==", "tls.key": "ZA=="}},
    ),
    "service-account": (_apis("", "serviceaccounts"), _NAMED),
    "service": (_apis("", "services"), {**_NAMED, "spec": {"selector": {"app": "a"}, "ports": [{"port": 80}]}}),
    "service-headless": (
        _apis("", "services"),
        {**_NAMED, "spec": {"clusterIP": "None", "ports": [{"port": 80, "name": "web", "targetPort": "http"}]}},
    ),
    "service-external": (
        _apis("", "services"),
        {**_NAMED, "spec": {"type": "ExternalName", "externalName": "example.com"}},
    ),
    "endpoints": (
        _apis("", "endpoints"),
        {
            **_NAMED,
            "subsets": [
                {
                    "addresses": [{"ip": "10.1.1.1"}, {"ip": "10.1.1.2"}],
                    "ports": [{"port": 80}, {"port": 81, "name": "b"}],
                }
            ],
        },
    ),
    "endpoint-slice": (
        _apis("discovery.k8s.io", "endpointslices"),
        {**_NAMED, "addressType": "IPv4", "endpoints": [{"addresses": ["10.1.1.1"]}], "ports": [{"port": 80}]},
    ),
    "claim": (
        _apis("", "persistentvolumeclaims"),
        {**_NAMED, "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}},
    ),
    "limit-range": (
        _apis("", "limitranges"),
        {**_NAMED, "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}}]}},
    ),
    "resource-quota": (_apis("", "resourcequotas"), {**_NAMED, "spec": {"hard": {"pods": "100"}}}),
    "event": (
        _apis("", "events"),
        {
            **_NAMED,
            "involvedObject": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
            "reason": "Why",
            "message": "because ",
            "type": "Normal",
            "source": {"component": "me", "host": "here"},
            "count": 3,
            "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:00:00Z",
        },
    ),
    "new-event": (
        _apis("events.k8s.io", "events"),
        {
            **_NAMED,
            "regarding": {"kind": "Pod", "name": "p", "namespace": "{ns}"},
            "reason": "Why",
            "note": "because",
            "type": "Warning",
            "action": "Act",
            "eventTime": "2026-01-01T00:00:00.000000Z",
            "reportingController": "example.com/me",
            "reportingInstance": "me-1",
        },
    ),
    "lease": (
        _apis("coordination.k8s.io", "leases"),
        {**_NAMED, "spec": {"holderIdentity": "me", "leaseDurationSeconds": 15}},
    ),
    "budget": (
        _apis("policy", "poddisruptionbudgets"),
        {**_NAMED, "spec": {"minAvailable": "50%", "selector": _SELECTOR}},
    ),
    "role": (
        _apis("rbac.authorization.k8s.io", "roles"),
        {**_NAMED, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]},
    ),
    "role-binding": (
        _apis("rbac.authorization.k8s.io", "rolebindings"),
        {
            **_NAMED,
            "roleRef": {"kind": "Role", "name": "a", "apiGroup": "rbac.authorization.k8s.io"},
            "subjects": [
                {"kind": "User", "name": "jane"},
                {"kind": "ServiceAccount", "name": "default", "namespace": "{ns}"},
                {"kind": "Group", "name": "staff"},
            ],
        },
    ),
    "cluster-role": (
        _apis("rbac.authorization.k8s.io", "clusterroles", namespaced=False),
        {**_CLUSTER_NAMED, "rules": []},
    ),
    "cluster-role-binding": (
        _apis("rbac.authorization.k8s.io", "clusterrolebindings", namespaced=False),
        {**_CLUSTER_NAMED, "roleRef": {"kind": "ClusterRole", "name": "a"}},
    ),
    "ingress": (
        _apis("networking.k8s.io", "ingresses"),
        {
            **_NAMED,
            "spec": {
                "rules": [
                    {
                        "host": "a.example.com",
                        "http": {
                            "paths": [
                                {
                                    "path": "/",
                                    "pathType": "Prefix",
                                    "backend": {"service": {"name": "s", "port": {"number": 80}}},
                                }
                            ]
                        },
                    }
                ]
            },
        },
    ),
    "network-policy": (_apis("networking.k8s.io", "networkpolicies"), {**_NAMED, "spec": {"podSelector": _SELECTOR}}),
    "autoscaler": (
        _apis("autoscaling", "horizontalpodautoscalers", "v2"),
        {
            **_NAMED,
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}},
        },
    ),
    "autoscaler-v1": (
        _apis("autoscaling", "horizontalpodautoscalers"),
        {
            **_NAMED,
            "spec": {
                "maxReplicas": 3,
                "targetCPUUtilizationPercentage": 50,
                "scaleTargetRef": {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"},
            },
        },
    ),
    "namespace": (_apis("", "namespaces", namespaced=False), {"metadata": {"name": "{ns}-more", "labels": {"a": "b"}}}),
    "node": (
        _apis("", "nodes", namespaced=False),
        {
            "metadata": {"name": "o-{ns}", "labels": {"node-role.kubernetes.io/worker": ""}},
            "spec": {"unschedulable": True},
        },
    ),
    "volume": (
        _apis("", "persistentvolumes", namespaced=False),
        {
            **_CLUSTER_NAMED,
            "spec": {
                "capacity": {"storage": "1024Mi"},
                "accessModes": ["ReadWriteMany", "ReadWriteOnce"],
                "hostPath": {"path": "/tmp"},
            },
        },
    ),
    "storage-class": (
        _apis("storage.k8s.io", "storageclasses", namespaced=False),
        {**_CLUSTER_NAMED, "provisioner": "example.com/p"},
    ),
    "priority-class": (_apis("scheduling.k8s.io", "priorityclasses", namespaced=False), {**_CLUSTER_NAMED, "value": 7}),
    "runtime-class": (_apis("node.k8s.io", "runtimeclasses", namespaced=False), {**_CLUSTER_NAMED, "handler": "h"}),
    "ingress-class": (
        _apis("networking.k8s.io", "ingressclasses", namespaced=False),
        {**_CLUSTER_NAMED, "spec": {"controller": "example.com/c"}},
    ),
}
#: Invalid objects; only the messages are compared.
_WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "deployment-empty": (_SMALLEST["deployment"][0], _NAMED),
    "deployment-selector": (
        _SMALLEST["deployment"][0],
        {**_NAMED, "spec": {"selector": {"matchLabels": {"app": "b"}}, "template": _TEMPLATE}},
    ),
    "deployment-replicas": (
        _SMALLEST["deployment"][0],
        {**_NAMED, "spec": {"replicas": -1, "selector": _SELECTOR, "template": _TEMPLATE}},
    ),
    "deployment-surge": (
        _SMALLEST["deployment"][0],
        {
            **_NAMED,
            "spec": {
                "selector": _SELECTOR,
                "template": _TEMPLATE,
                "strategy": {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}},
            },
        },
    ),
    "deployment-restart-policy": (
        _SMALLEST["deployment"][0],
        {
            **_NAMED,
            "spec": {
                "selector": _SELECTOR,
                "template": {**_TEMPLATE, "spec": {**_TEMPLATE["spec"], "restartPolicy": "Never"}},
            },
        },
    ),
    "stateful-set-empty": (_SMALLEST["stateful-set"][0], {**_NAMED, "spec": {}}),
    "daemon-set-empty": (_SMALLEST["daemon-set"][0], {**_NAMED, "spec": {}}),
    "job-restart-policy": (
        _SMALLEST["job"][0],
        {**_NAMED, "spec": {"template": {"spec": {"containers": [{"name": "a", "image": "b"}]}}}},
    ),
    "cron-job-schedule": (
        _SMALLEST["cron-job"][0],
        {**_NAMED, "spec": {"schedule": "whenever", "jobTemplate": {"spec": _JOB}}},
    ),
    "service-port": (_SMALLEST["service"][0], {**_NAMED, "spec": {"ports": [{"port": 0}]}}),
    "service-no-ports": (_SMALLEST["service"][0], {**_NAMED, "spec": {}}),
    "service-name": (_SMALLEST["service"][0], {"metadata": {"name": "1a"}, "spec": {"ports": [{"port": 80}]}}),
    "job-negative": (_SMALLEST["job"][0], {**_NAMED, "spec": {**_JOB, **_NEGATIVE}}),
    "cron-job-negative": (
        _SMALLEST["cron-job"][0],
        {**_NAMED, "spec": {"schedule": "@daily", "jobTemplate": {"spec": {**_JOB, **_NEGATIVE}}}},
    ),
    "service-unnamed-ports": (_SMALLEST["service"][0], {**_NAMED, "spec": {"ports": [{"port": 80}, {"port": 81}]}}),
    "secret-type": (_SMALLEST["secret"][0], {**_NAMED, "type": "kubernetes.io/tls", "data": {}}),
    "secret-key": (_SMALLEST["secret"][0], {**_NAMED, "data": {"a b": "ZA=="}}),
    "claim-empty": (_SMALLEST["claim"][0], {**_NAMED, "spec": {}}),
    "budget-both": (_SMALLEST["budget"][0], {**_NAMED, "spec": {"minAvailable": 1, "maxUnavailable": 1}}),
    "role-empty-rule": (_SMALLEST["role"][0], {**_NAMED, "rules": [{"verbs": ["get"]}]}),
    "lease-duration": (_SMALLEST["lease"][0], {**_NAMED, "spec": {"leaseDurationSeconds": 0}}),
    "priority-class-large": (_SMALLEST["priority-class"][0], {**_CLUSTER_NAMED, "value": 2000000000}),
    "namespace-name": (_SMALLEST["namespace"][0], {"metadata": {"name": "a.b"}}),
    "autoscaler-empty": (_SMALLEST["autoscaler"][0], _NAMED),
    "ingress-empty": (_SMALLEST["ingress"][0], {**_NAMED, "spec": {}}),
    "pod-empty": (PODS, _NAMED),
    "pod-no-containers": (PODS, {**_NAMED, "spec": {"containers": []}}),
    "pod-container-name": (PODS, pod("a", containers=[{"name": "A_", "image": "a"}])),
    "pod-no-image": (PODS, pod("a", containers=[{"name": "a"}])),
    "pod-two-containers-same-name": (
        PODS,
        pod("a", containers=[{"name": "a", "image": "a"}, {"name": "a", "image": "b"}]),
    ),
    "pod-restart-policy": (PODS, pod("a", restartPolicy="Sometimes")),
    "pod-dns-policy": (PODS, pod("a", dnsPolicy="Magic")),
    "pod-volume-mount": (
        PODS,
        pod("a", containers=[{"name": "a", "image": "a", "volumeMounts": [{"name": "none", "mountPath": "/x"}]}]),
    ),
    "pod-quantity": (
        PODS,
        pod("a", containers=[{"name": "a", "image": "a", "resources": {"limits": {"cpu": "lots"}}}]),
    ),
    "pod-request-above-limit": (
        PODS,
        pod(
            "a",
            containers=[{"name": "a", "image": "a", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}],
        ),
    ),
    "pod-port": (PODS, pod("a", containers=[{"name": "a", "image": "a", "ports": [{"containerPort": 70000}]}])),
    "pod-env": (PODS, pod("a", containers=[{"name": "a", "image": "a", "env": [{"name": "", "value": "x"}]}])),
    "pod-probe": (PODS, pod("a", containers=[{"name": "a", "image": "a", "livenessProbe": {"periodSeconds": 1}}])),
    "pod-type": (PODS, pod("a", containers="none")),
    "pod-number": (PODS, pod("a", terminationGracePeriodSeconds="soon")),
    "pod-node-selector": (PODS, pod("a", nodeSelector={"a b": "c"})),
    "pod-account": (PODS, pod("a", serviceAccountName="nobody")),
    "pod-priority-class": (PODS, pod("a", priorityClassName="nothing")),
}


def _status(**status: Any) -> dict[str, Any]:
    return {"status": status}


def _container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "main", "image": "app:1", "imageID": "", "ready": False, "restartCount": 0, "state": state, **more}


_RUNNING = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
_DONE = {"terminated": {"exitCode": 0, "reason": "Completed"}}
_READY = [{"type": "Ready", "status": "True"}]
_LAST = {"terminated": {"exitCode": 1, "finishedAt": "2020-01-01T00:00:00Z"}}
_STATES: dict[str, dict[str, Any]] = {
    "pending": _status(phase="Pending"),
    "running": _status(
        phase="Running",
        containerStatuses=[_container(_RUNNING, ready=True)],
        conditions=_READY,
        podIPs=[{"ip": "10.9.9.9"}],
        podIP="10.9.9.9",
    ),
    "not-ready": _status(phase="Running", containerStatuses=[_container(_RUNNING)]),
    "waiting": _status(phase="Pending", containerStatuses=[_container({"waiting": {"reason": "ImagePullBackOff"}})]),
    "crashing": _status(
        phase="Running",
        containerStatuses=[_container({"waiting": {"reason": "CrashLoopBackOff"}}, restartCount=4, lastState=_LAST)],
    ),
    "restarted": _status(phase="Running", containerStatuses=[_container(_RUNNING, ready=True, restartCount=2)]),
    "completed": _status(phase="Succeeded", containerStatuses=[_container(_DONE)]),
    "failed": _status(
        phase="Failed", containerStatuses=[_container({"terminated": {"exitCode": 3, "reason": "Error"}})]
    ),
    "exit-code": _status(phase="Failed", containerStatuses=[_container({"terminated": {"exitCode": 3}})]),
    "signal": _status(phase="Failed", containerStatuses=[_container({"terminated": {"exitCode": 137, "signal": 9}})]),
    "evicted": _status(phase="Failed", reason="Evicted", message="no room"),
    "creating": _status(phase="Pending", containerStatuses=[_container({"waiting": {"reason": "ContainerCreating"}})]),
    "gated": _status(
        phase="Pending", conditions=[{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]
    ),
    "nominated": _status(phase="Pending", nominatedNodeName="n1"),
}
_INIT = {"initContainers": [{"name": "first", "image": "i"}, {"name": "side", "image": "s", "restartPolicy": "Always"}]}


def _init(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "first", "image": "i", "imageID": "", "ready": False, "restartCount": 0, "state": state, **more}


_SIDE = {
    "name": "side",
    "image": "s",
    "imageID": "",
    "ready": True,
    "started": True,
    "restartCount": 1,
    "state": _RUNNING,
}
_INIT_STATES: dict[str, dict[str, Any]] = {
    "init-waiting": _status(phase="Pending", initContainerStatuses=[_init({"waiting": {"reason": "PodInitializing"}})]),
    "init-pulling": _status(phase="Pending", initContainerStatuses=[_init({"waiting": {"reason": "ErrImagePull"}})]),
    "init-running": _status(phase="Pending", initContainerStatuses=[_init(_RUNNING)]),
    "init-failed": _status(
        phase="Pending",
        initContainerStatuses=[_init({"terminated": {"exitCode": 2, "reason": "Error"}}, restartCount=2)],
    ),
    "init-exit-code": _status(phase="Pending", initContainerStatuses=[_init({"terminated": {"exitCode": 2}})]),
    "init-signal": _status(
        phase="Pending", initContainerStatuses=[_init({"terminated": {"exitCode": 2, "signal": 9}})]
    ),
    "init-done-sidecar-up": _status(
        phase="Running",
        initContainerStatuses=[_init(_DONE), _SIDE],
        containerStatuses=[_container(_RUNNING, ready=True)],
        conditions=[{"type": "Initialized", "status": "True"}, *_READY],
    ),
    "sidecar-starting": _status(
        phase="Pending", initContainerStatuses=[_init(_DONE), {**_SIDE, "started": False, "ready": False}]
    ),
    "completed-but-sidecar-runs": _status(
        phase="Running",
        initContainerStatuses=[_init(_DONE), _SIDE],
        containerStatuses=[_container(_DONE)],
        conditions=[{"type": "Initialized", "status": "True"}],
    ),
}
_TWO = {"containers": [{"name": "main", "image": "app:1"}, {"name": "other", "image": "app:1"}]}
_TWO_STATES: dict[str, dict[str, Any]] = {
    "one-completed-one-runs": _status(
        phase="Running", containerStatuses=[_container(_DONE), {**_container(_RUNNING, ready=True), "name": "other"}]
    ),
    "one-completed-one-runs-ready": _status(
        phase="Running",
        containerStatuses=[_container(_DONE), {**_container(_RUNNING, ready=True), "name": "other"}],
        conditions=_READY,
    ),
    "two-waiting": _status(
        phase="Pending",
        containerStatuses=[
            _container({"waiting": {"reason": "First"}}),
            {**_container({"waiting": {"reason": "Second"}}), "name": "other"},
        ],
    ),
}


def _shown(id: str, status: dict[str, Any], **spec: Any) -> Case:
    return Case(
        f"pod-{id}",
        *prepared(PODS, pod("a", **spec)),
        patch(
            MERGE_PATCH, f"{PODS}/a/status", status, accept=TABLE, keep=["rows.*.cells", "rows.*.conditions", "message"]
        ),
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
    Case("object-pod", post(PODS, pod("a"))),
    Case(
        "object-pod-with-a-token",
        post(
            PODS,
            {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "main", "image": "app"}]}},
            drop=["spec.volumes.0.name", "spec.containers.0.volumeMounts.0.name"],
        ),
    ),
    Case(
        "object-pod-with-much",
        post(
            PODS,
            pod(
                "a",
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
        ),
    ),
    Case(
        "object-pod-priority",
        *prepared(
            _SMALLEST["priority-class"][0], {"metadata": {"name": "p-{ns}"}, "value": 7, "preemptionPolicy": "Never"}
        ),
        post(PODS, pod("a", priorityClassName="p-{ns}"), keep=["spec.priority", "spec.preemptionPolicy"]),
    ),
    Case(
        "object-pod-tolerations",
        post(
            PODS,
            pod("a", tolerations=[{"key": "node.kubernetes.io/not-ready", "operator": "Exists"}]),
            keep=["spec.tolerations"],
        ),
    ),
    Case(
        "object-pod-quality",
        post(
            PODS,
            pod(
                "a",
                containers=[
                    {
                        "name": "m",
                        "image": "a",
                        "resources": {
                            "requests": {"cpu": "100m", "memory": "1Mi"},
                            "limits": {"cpu": "0.1", "memory": "1Mi"},
                        },
                    }
                ],
            ),
            keep=["status.qosClass", "spec.containers.0.resources"],
        ),
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
