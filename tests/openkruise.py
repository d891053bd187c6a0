"""What a running OpenKruise leaves in a cluster: tests/data/openkruise."""

import functools
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import orjson

from app.api.conversion import convert
from app.kube.client import Client
from app.kube.resources import CONFIGMAPS, CONTROLLERREVISIONS, JOBS, PERSISTENTVOLUMECLAIMS, PODS
from app.manager.features import kinds
from tests.kit.cluster import served

FOLDER = Path(__file__).parent / "data" / "openkruise"
#: Recorded objects of every served kind, besides the installation itself.
RECORDED = (
    "01-created-v1beta1.json",
    "10-statefulset.json",
    "11-daemonset-jobs.json",
    "12-placement-protection.json",
    "13-node-agent.json",
    "14-united-distribution.json",
)
_NATIVE = (PODS, CONTROLLERREVISIONS, PERSISTENTVOLUMECLAIMS, CONFIGMAPS, JOBS)


def installed() -> list[dict[str, Any]]:
    """Return new copies of the objects of the installation."""
    return _items("00-installed.json")


def recorded() -> list[dict[str, Any]]:
    """Return new copies of the recorded objects."""
    return [item for name in RECORDED for item in _items(name)]


def owners_first(items: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return each object once, after its owners; NodeImages, whose tags have owners, last."""
    found = {item["metadata"]["uid"]: item for item in items}

    def depth(item: dict[str, Any]) -> int:
        owners = (found.get(one["uid"]) for one in item["metadata"].get("ownerReferences", ()))
        return 1 + max((depth(owner) for owner in owners if owner), default=0)

    return sorted(found.values(), key=lambda item: (item["kind"] == "NodeImage", depth(item)))


def _items(name: str) -> list[dict[str, Any]]:
    return list(orjson.loads(_content(name))["items"])


@functools.cache
def _content(name: str) -> bytes:
    return (FOLDER / name).read_bytes()


def deployment() -> dict[str, Any]:
    arguments = [
        "--enable-leader-election",
        "--metrics-addr=:8080",
        "--health-probe-addr=:8000",
        "--logtostderr=true",
        "--leader-election-namespace=kruise-system",
        "--v=4",
        "--feature-gates=ImagePullJobGate=true",
        "--sync-period=0",
    ]
    container = {
        "name": "manager",
        "image": "openkruise/kruise-manager:v1.8.0",
        "command": ["/manager"],
        "args": arguments,
        "env": [{"name": "POD_NAMESPACE", "valueFrom": {"fieldRef": {"fieldPath": "metadata.namespace"}}}],
        "resources": {"limits": {"cpu": "200m", "memory": "512Mi"}, "requests": {"cpu": "100m", "memory": "256Mi"}},
    }
    labels = {"control-plane": "controller-manager"}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "kruise-controller-manager", "namespace": "kruise-system", "labels": labels},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"serviceAccountName": "kruise-manager", "containers": [container]},
            },
        },
    }


def daemon_set() -> dict[str, Any]:
    labels = {"control-plane": "daemon"}
    container = {
        "name": "daemon",
        "image": "openkruise/kruise-manager:v1.8.0",
        "command": ["/kruise-daemon"],
        "args": ["--logtostderr=true", "-v=4", "--addr=:10221", "--feature-gates=ImagePullJobGate=true"],
        "env": [{"name": "NODE_NAME", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 10221}, "initialDelaySeconds": 60},
        "resources": {"limits": {"cpu": "50m", "memory": "128Mi"}, "requests": {"cpu": "0", "memory": "0"}},
        "volumeMounts": [{"name": "runtime-socket", "mountPath": "/hostvarrun", "readOnly": True}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "kruise-daemon", "namespace": "kruise-system", "labels": labels},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "10%"}},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "serviceAccountName": "kruise-daemon",
                    "hostNetwork": True,
                    "terminationGracePeriodSeconds": 10,
                    "tolerations": [{"operator": "Exists"}],
                    "containers": [container],
                    "volumes": [{"name": "runtime-socket", "hostPath": {"path": "/var/run"}}],
                },
            },
        },
    }


def bare(item: dict[str, Any]) -> dict[str, Any]:
    """Return an object without fields that only an API server writes."""
    own = ("name", "namespace", "labels", "annotations", "finalizers")
    metadata = {key: value for key, value in item["metadata"].items() if key in own}
    spec = item.get("spec")
    if item["kind"] == "Service" and spec:
        item = {**item, "spec": {"ports": spec["ports"], "selector": spec["selector"]}}
    return {key: value for key, value in {**item, "metadata": metadata}.items() if key != "status"}


async def leave(client: Client, items: Iterable[dict[str, Any]], namespace: str = "") -> None:
    """Create the objects, owners first, with their statuses and under the uids that this API server gives.

    ``namespace``: instead of their own. An owner that is not among them is left out.
    """
    resources = {one.kind: one for one in _NATIVE} | {kind.kind: kind.resource() for kind in kinds()}
    uids: dict[str, str] = {}
    for item in items:
        text = json.dumps(item)
        for old, new in uids.items():
            text = text.replace(old, new)
        item, resource = json.loads(text), resources[item["kind"]]
        if resource not in _NATIVE:
            await served(client, resource)
        if item["apiVersion"] != resource.api_version:
            item = convert(item, resource.api_version)
        metadata, body = item["metadata"], bare(item)
        if owners := [one for one in metadata.get("ownerReferences", ()) if one["uid"] in uids.values()]:
            body["metadata"]["ownerReferences"] = owners
        there = (namespace or metadata["namespace"]) if resource.namespaced else ""
        body["metadata"] |= {"namespace": there} if there else {}
        # A Pod cannot be created with ephemeral containers; they are added afterwards.
        added = body["spec"].pop("ephemeralContainers", None) if resource == PODS else None
        made = await client.create(resource, body, there)
        uids[metadata["uid"]] = made["metadata"]["uid"]
        if added:
            patch = {"spec": {"ephemeralContainers": added}}
            await client.patch(resource, metadata["name"], patch, there, subresource="ephemeralcontainers")
        if status := item.get("status"):
            if "observedGeneration" in status:
                status["observedGeneration"] = made["metadata"]["generation"]
            await client.patch(resource, metadata["name"], {"status": status}, there, subresource="status")
