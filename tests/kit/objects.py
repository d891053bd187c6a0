"""Objects as an API server stores them or as controllers decode them, with common default values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from app.kube.admission import GroupVersionKind, GroupVersionResource, Operation, Review
from app.kube.objects import Pod, decode_pod
from app.kube.resources import Resource

Json = dict[str, Any]
#: Subresources of a kind with replicas.
SCALED: Json = {
    "status": {},
    "scale": {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    },
}


def owner_of(obj: Json) -> Json:
    metadata = obj["metadata"]
    return reference(obj["apiVersion"], obj["kind"], metadata["name"], metadata["uid"])


def reference(api_version: str, kind: str, name: str, uid: str = "") -> Json:
    return {"apiVersion": api_version, "kind": kind, "name": name, "uid": uid or f"uid-{name}", "controller": True}


def pod_json(
    name: str = "web-0",
    *,
    node: str = "",
    phase: str = "Running",
    ready: bool | None = None,
    conditions: Sequence[Json] = (),
    containers: Mapping[str, str] | None = None,
    spec: Json | None = None,
    status: Json | None = None,
    **metadata: Any,
) -> Json:
    """Return a Pod in namespace shop. ``ready``: its Ready condition, None for none; ``containers``: names and images
    of its running containers; ``spec``, ``status``: more fields; ``metadata``: None leaves a field out."""
    known = {"name": name, "namespace": "shop", "uid": f"uid-{name}", **metadata}
    running = [
        {"name": one, "image": image, "imageID": f"id of {image}", "ready": True}
        for one, image in (containers or {}).items()
    ]
    told = [*conditions, *([] if ready is None else [{"type": "Ready", "status": str(ready)}])]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {key: value for key, value in known.items() if value is not None},
        "spec": {
            "nodeName": node,
            "containers": [{"name": one, "image": image} for one, image in (containers or {}).items()],
            **(spec or {}),
        },
        "status": {"phase": phase, "conditions": told, "containerStatuses": running, **(status or {})},
    }


def pod(name: str = "web-0", **given: Any) -> Pod:
    """Return the object as controllers decode it."""
    return decode_pod(orjson.dumps(pod_json(name, **given)))


def kubeconfig(server: str, **user: Any) -> Json:
    """The content of a kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user}],
    }


def workload_spec(replicas: int = 1, **labels: str) -> Json:
    """The spec of a workload whose Pods have one container and these labels, by default ``app=web``."""
    labels = labels or {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx:1"}]}}
    return {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}


def definition(plural: str, kind: str, *versions: Json, group: str, **spec: Any) -> Json:
    """A CustomResourceDefinition; its names follow from the kind."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"plural": plural, "kind": kind},
            "scope": "Namespaced",
            "versions": list(versions),
            **spec,
        },
    }


def version(name: str = "v1", schema: Json | None = None, **more: Any) -> Json:
    """A version of a CustomResourceDefinition; without a schema its objects may have any fields."""
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "name": name,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": free if schema is None else schema},
        **more,
    }


def defined(resource: Resource, **more: Any) -> Json:
    """The CustomResourceDefinition of a resource whose objects may have any fields."""
    return definition(resource.plural, resource.kind, version(resource.version, **more), group=resource.group)


def pod_review(operation: Operation, obj: Json | None = None, old: Json | None = None, **fields: Any) -> Review:
    """Return the review of a request for a Pod, or for one of its subresources."""
    metadata = (old or obj or {}).get("metadata")
    name = metadata.get("name", "") if isinstance(metadata, dict) else ""
    return Review(
        operation=operation,
        kind=GroupVersionKind("", "v1", "Pod"),
        resource=GroupVersionResource("", "v1", "pods"),
        object=obj,
        old_object=old,
        **{"uid": "uid", "name": name, **fields},
    )
