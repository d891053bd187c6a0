"""Objects as an API server stores them, or decoded as controllers read them, with the usual values by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from app.kube.admission import GroupVersionKind, GroupVersionResource, Operation, Review
from app.kube.objects import Pod, decode_pod

Json = dict[str, Any]


def owner_of(obj: Json) -> Json:
    """Return the reference that makes an object the controller of another."""
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
    """A Pod in namespace shop. ``ready``: its Ready condition, None for none; ``containers``: names and images of
    running ones; ``spec``, ``status``: more fields; ``metadata``: None leaves a field out."""
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
