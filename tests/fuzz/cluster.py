"""Valid objects of every kind that controllers watch: one small cluster whose objects refer to one another.

Objects that OpenKruise stored come from the recorded samples; the others are written here. Objects of our other kinds
are filled in from their schemas. All namespaced objects are in NAMESPACE, so that references between them are valid.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final

from app.api import names
from app.kube.resources import Resource
from app.manager.features import kinds
from tests.fuzz import objects, targets

NAMESPACE: Final = "default"
NODE: Final = "node1"
_STARTED: Final = "2026-11-22T10:00:00Z"
_TEMPLATE: Final = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main", "image": "registry.example/main:1"}]},
}
_READY: Final = [{"type": "Ready", "status": "True"}]


def _container_status(name: str, **state: Any) -> objects.Json:
    given = state or {"running": {"startedAt": _STARTED}}
    return {
        "name": name,
        "image": "registry.example/main:1",
        "containerID": f"containerd://{name}",
        "restartCount": 0,
        "started": True,
        "ready": "running" in given,
        "state": given,
    }


def _pod() -> objects.Json:
    """A Pod that every Pod controller handles: it waits for conditions, its launch order and sidecars."""
    pod = objects.pod()
    name = pod["metadata"]["name"]
    probe = {"httpGet": {"path": "/", "port": 80}}
    pod["metadata"]["labels"] |= {names.SUBSET_NAME: "subset-a", names.UNITED_REVISION_HASH: "sample-1"}
    pod["metadata"]["annotations"][names.CONTAINER_PROBE_CONTEXT] = json.dumps(
        [{"name": "main", "livenessProbe": probe}]
    )
    spec = pod["spec"]
    spec |= {"nodeName": NODE, "restartPolicy": "Never"}
    spec["readinessGates"] = [{"conditionType": names.KRUISE_POD_READY}]
    key = {"name": name + names.BARRIER_CONFIG_MAP_SUFFIX, "key": f"{names.BARRIER_KEY_PREFIX}1"}
    barrier = {"name": names.ENV_CONTAINER_BARRIER, "valueFrom": {"configMapKeyRef": key}}
    sidecar = {"name": names.ENV_TERMINATE_SIDECAR, "value": "true"}
    spec["containers"][1]["env"] = [barrier, sidecar]
    pod["status"] = {
        "phase": "Running",
        "podIP": "10.0.0.1",
        "startTime": _STARTED,
        "conditions": [
            {"type": "Initialized", "status": "True"},
            {"type": "Ready", "status": "False"},
            {"type": "SidecarsMissing", "status": "True", "message": "created without SidecarSet sample"},
        ],
        "containerStatuses": [
            _container_status("main", terminated={"exitCode": 0, "startedAt": _STARTED, "finishedAt": _STARTED}),
            _container_status("second") | {"ready": False},
        ],
    }
    return pod


def serving_pod() -> objects.Json:
    """The same Pod, ready and owned by a workload that keeps it running."""
    pod = _pod()
    pod["spec"]["restartPolicy"] = "Always"
    types = ("PodScheduled", "Initialized", "ContainersReady", "Ready", names.KRUISE_POD_READY)
    pod["status"]["conditions"] = [{"type": type_, "status": "True"} for type_ in types]
    pod["status"]["containerStatuses"] = [_container_status("main"), _container_status("second")]
    return pod


def _united() -> objects.Json:
    """A UnitedDeployment whose only subset has no workload yet."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"template": copy.deepcopy(_TEMPLATE)}}
    topology = {"subsets": [{"name": "subset-a", "replicas": 1}]}
    selector = {"matchLabels": {"app": "web"}}
    spec = {"replicas": 1, "selector": selector, "template": {"cloneSetTemplate": template}, "topology": topology}
    return {"metadata": {"name": "united", "labels": {"a": "b"}, "annotations": {"a": "b"}}, "spec": spec}


def _native(kind: str) -> Callable[[], objects.Json]:
    spec: objects.Json = {
        "replicas": 2,
        "selector": {"matchLabels": {"app": "web"}},
        "template": copy.deepcopy(_TEMPLATE),
    }

    def make() -> objects.Json:
        status = {"observedGeneration": 1, "replicas": 2, "readyReplicas": 2, "updateRevision": "web-1"}
        labels = {"app": "web", names.SUBSET_NAME: "subset-a", "pod-template-hash": "abc"}
        metadata = {"name": "web", "labels": labels, "annotations": {"deployment.kubernetes.io/revision": "1"}}
        return {"metadata": metadata, "spec": copy.deepcopy(spec), "status": {**status, "conditions": []}}

    make.__name__ = kind
    return make


def _node() -> objects.Json:
    resources = {"cpu": "4", "memory": "8Gi", "pods": "110"}
    status = {"conditions": copy.deepcopy(_READY), "allocatable": resources, "capacity": dict(resources)}
    taints = [{"key": "example.com/none", "effect": "PreferNoSchedule"}]
    return {"metadata": {"name": NODE, "labels": {"zone": "a"}}, "spec": {"taints": taints}, "status": status}


def _revision() -> objects.Json:
    labels = {"app": "web", names.CONTROLLER_HASH: "1", names.SIDECARSET_NAME: "sample"}
    data = {"spec": {"template": {**copy.deepcopy(_TEMPLATE), "$patch": "replace"}}}
    return {"metadata": {"name": "web-1", "labels": labels, "annotations": {"a": "b"}}, "revision": 1, "data": data}


def _claim() -> objects.Json:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    labels = {"app": "web", names.CLONESET_INSTANCE_ID: "aaaaa"}
    return {"metadata": {"name": "own-web-aaaaa", "labels": labels}, "spec": spec, "status": {"phase": "Bound"}}


def _job() -> objects.Json:
    conditions = [{"type": "Complete", "status": "True"}]
    metadata = {"name": "web-1", "annotations": {names.SCHEDULED_AT: _STARTED}}
    return {"metadata": metadata, "spec": {"parallelism": 1}, "status": {"conditions": conditions, "active": 1}}


def _configuration() -> objects.Json:
    listed = {"workloads": [{"apiVersion": "example.com/v1", "kind": "Thing", "replicasPath": "spec.replicas"}]}
    keys = (names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY, names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY)
    data = {key: json.dumps(listed) for key in keys}
    return {"metadata": {"name": "kruise-configuration", "annotations": {"a": "b"}}, "data": data}


def _secret() -> objects.Json:
    annotations = {"a": "b"}
    return {"metadata": {"name": "registry", "labels": {"a": "b"}, "annotations": annotations}, "type": "Opaque"}


def _request() -> objects.Json:
    labels = {names.CRR_POD_UID: "uid-pod", names.CRR_NODE_NAME: NODE}
    spec = {
        "podName": "sample",
        "containers": [{"name": "main"}],
        "strategy": {"failurePolicy": "Fail", "unreadyGracePeriodSeconds": 3},
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 10,
    }
    states = [{"name": "main", "phase": "Recreating", "isKilled": True}]
    status = {"phase": "Recreating", "containerRecreateStates": states}
    metadata = {"name": "restart", "labels": labels | {names.CRR_ACTIVE: "true"}, "annotations": {"a": "b"}}
    return {"metadata": metadata, "spec": spec, "status": status}


def _node_pod_probe() -> objects.Json:
    probe = {"httpGet": {"path": "/", "port": 80, "scheme": "HTTP"}, "periodSeconds": 3}
    probes = [{"name": f"{marker}#healthy", "containerName": "main", "probe": probe} for marker in ("kruise/liveness",)]
    pod = {"name": "sample", "namespace": NAMESPACE, "uid": "uid-pod"}
    states = [{"name": "kruise/liveness#main-0", "state": "Failed", "lastProbeTime": "2026-11-22T10:00:09Z"}]
    return {
        "metadata": {"name": NODE},
        "spec": {"podProbes": [{**pod, "IP": "10.0.0.1", "probes": probes}]},
        "status": {"podProbeStatuses": [{**pod, "probeStates": states}]},
    }


def _target(kind: str, api_version: str = f"{names.APPS_GROUP}/v1beta1", name: str = "web") -> objects.Json:
    return {"apiVersion": api_version, "kind": kind, "name": name}


_WRITTEN: Final[Mapping[tuple[str, str], Callable[[], objects.Json]]] = {
    ("", "Pod"): _pod,
    ("", "Node"): _node,
    ("", "Namespace"): lambda: {"metadata": {"name": NAMESPACE, "labels": {"kubernetes.io/metadata.name": NAMESPACE}}},
    ("", "PersistentVolumeClaim"): _claim,
    ("", "ConfigMap"): _configuration,
    ("", "Secret"): _secret,
    ("apps", "ControllerRevision"): _revision,
    ("apps", "Deployment"): _native("Deployment"),
    ("apps", "ReplicaSet"): _native("ReplicaSet"),
    ("apps", "StatefulSet"): _native("StatefulSet"),
    ("batch", "Job"): _job,
    (names.APPS_GROUP, "CloneSet"): objects.clone_set,
    (names.APPS_GROUP, "SidecarSet"): objects.sidecar_set,
    (names.APPS_GROUP, "UnitedDeployment"): _united,
    (names.APPS_GROUP, "ContainerRecreateRequest"): _request,
    (names.APPS_GROUP, "NodePodProbe"): _node_pod_probe,
}
#: Fields that name another object, set to the name of one of these objects.
_LINKS: Final[Mapping[str, tuple[str, objects.Json]]] = {
    "WorkloadSpread": ("targetRef", _target("CloneSet")),
    "PodUnavailableBudget": ("targetRef", _target("CloneSet")),
    "PersistentPodState": ("targetRef", _target("StatefulSet", "apps/v1")),
}


def right(random: Random, resource: Resource) -> objects.Json | None:
    """Return a valid object of a resource as the API server would store it; None for an unknown resource."""
    make = _WRITTEN.get((resource.group, resource.kind))
    obj = make() if make is not None else targets.recorded(random, resource, resource.version)
    if obj is None:
        kind = next((one for one in kinds() if one.resource() == resource), None)
        if kind is None:
            return None
        schema = kind.version(resource.api_version)
        obj = targets.filled(random, schema.schema, resource.api_version, kind.kind) if schema is not None else None
    if obj is None:
        return None
    link = _LINKS.get(resource.kind)
    if link is not None:
        spec = obj.setdefault("spec", {})
        spec[link[0]] = copy.deepcopy(link[1])
        spec.pop("selector", None)
    metadata = {
        "name": "sample",
        "resourceVersion": "7",
        "generation": 1,
        "creationTimestamp": "2026-11-22T09:00:00Z",
        **(obj.get("metadata") or {}),
        "uid": f"uid-{resource.kind.lower()}{'-native' if '.' not in resource.group else ''}",
    }
    if resource.kind == "Pod":
        metadata["uid"] = "uid-pod"
    metadata.pop("ownerReferences", None)
    metadata.pop("namespace", None)
    if resource.namespaced:
        metadata["namespace"] = NAMESPACE
    return {**obj, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}


def controller_reference(owner: objects.Json, **other: str) -> objects.Json:
    """Return the controller reference to an object; ``other``: fields with wrong values."""
    fields = {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
    fields |= {key: owner["metadata"][key] for key in ("name", "uid")}
    return {**fields, **other, "controller": True}
