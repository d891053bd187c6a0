"""Kind definition of ContainerRecreateRequest: versions, conversion and columns."""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import datetime
from typing import Any, Final

from app.api import names
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted
from app.features.containerrecreate.types import (
    PRE_RECREATE_GRACE,
    ContainerRecreateRequest,
    ContainerRecreateRequestV1Alpha1,
)
from app.kube.jsonvalues import object_at, objects
from app.kube.objects import ObjectMeta
from app.pods.predicates import controller_reference

# Conversion: two annotations of v1alpha1 are status fields in v1beta1. The annotations are kept in both directions.
# app.api.conversion preserves data that either direction would lose. [CRR-1]

_SNAPSHOT: Final = "containerStatusSnapshot"
_FIELDS: Final = {"name": str, "ready": bool, "restartCount": int, "containerID": str}


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Copy the annotations to the status. Invalid values are skipped."""
    annotations = object_at(object_at(obj, "metadata") or {}, "annotations") or {}
    snapshot = parsed_snapshot(annotations.get(names.CRR_SYNC_CONTAINER_STATUSES))
    since = annotations.get(names.CRR_UNREADY_ACQUIRED)
    status = dict(object_at(obj, "status") or {})
    if snapshot is not None:
        status[_SNAPSHOT] = snapshot
    if isinstance(since, str) and is_time(since):
        others = [one for one in objects(status.get("conditions")) if one.get("type") != PRE_RECREATE_GRACE]
        status["conditions"] = [*others, grace_condition(since)]
    if status:
        obj["status"] = status
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Copy the status fields that v1alpha1 lacks to annotations."""
    status = object_at(obj, "status")
    if status is None:
        return obj
    shown: dict[str, str] = {}
    snapshot = status.pop(_SNAPSHOT, None)
    if isinstance(snapshot, list):
        shown[names.CRR_SYNC_CONTAINER_STATUSES] = snapshot_text(snapshot)
    since = grace_since(status)
    if since is not None:
        shown[names.CRR_UNREADY_ACQUIRED] = since
    status.pop("conditions", None)
    if not status:
        del obj["status"]
    if shown:
        metadata = obj.setdefault("metadata", {})
        metadata["annotations"] = {**(object_at(metadata, "annotations") or {}), **shown}
    return obj


def snapshot_text(snapshot: list[Any]) -> str:
    """Return a snapshot as annotation text: fields in OpenKruise's order, without spaces."""
    entries = [
        {field: entry[field] for field in _FIELDS if field in entry} for entry in snapshot if isinstance(entry, dict)
    ]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False)


def parsed_snapshot(text: Any) -> list[dict[str, Any]] | None:
    """Parse the snapshot annotation. Return None if it is missing or invalid."""
    if not isinstance(text, str):
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(found, list) or not all(map(_is_entry, found)):
        return None
    return [{"ready": False, "restartCount": 0, **entry} for entry in found]


def _is_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and bool(entry.get("name"))
        and entry.keys() <= _FIELDS.keys()
        and all(type(value) is _FIELDS[field] for field, value in entry.items())
    )


def is_time(text: str) -> bool:
    """Return whether ``text`` is a time in the API's format."""
    try:
        return "T" in text and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def grace_condition(since: str) -> dict[str, Any]:
    """Return the condition that records when the request took the Pod out of service."""
    return {
        "type": PRE_RECREATE_GRACE,
        "status": "True",
        "reason": PRE_RECREATE_GRACE,
        "message": "",
        "lastTransitionTime": since,
    }


def grace_since(status: dict[str, Any]) -> str | None:
    """Return the time when the request took the Pod out of service, or None if it did not."""
    for condition in objects(status.get("conditions")):
        if condition.get("type") == PRE_RECREATE_GRACE and condition.get("status") == "True":
            since = condition.get("lastTransitionTime")
            return since if isinstance(since, str) else None
    return None


_NODE: Final = ".metadata.labels." + names.CRR_NODE_NAME.replace(".", r"\.")
_COLUMNS: Final = (
    PrinterColumn("PHASE", "string", ".status.phase", "Phase of the request."),
    PrinterColumn("POD", "string", ".spec.podName", "Name of the Pod."),
    PrinterColumn("NODE", "string", _NODE, "Node of the Pod."),
    AGE,
)
_ANNOTATIONS: Final = noted(
    "metadata", "annotations", fields=(names.CRR_SYNC_CONTAINER_STATUSES, names.CRR_UNREADY_ACQUIRED), size=65536
)
_NOTED: Final = (
    *_ANNOTATIONS,
    *noted("status", fields=("containerStatusSnapshot", "conditions"), size=65536, depth=2),
)

CONTAINER_RECREATE_REQUEST: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="ContainerRecreateRequest",
    plural="containerrecreaterequests",
    access=Access("restarts containers of Pods in its namespace, which the edit role may delete", view=True, edit=True),
    short_names=("crr",),
    versions=(
        Version(names.V1BETA1, ContainerRecreateRequest, _COLUMNS, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            ContainerRecreateRequestV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            notes=_ANNOTATIONS,
        ),
    ),
)

REQUESTS: Final = CONTAINER_RECREATE_REQUEST.resource()
decode_request: Final = ContainerRecreateRequest.model_validate_json


def request_for(pod: ObjectMeta, name: str, containers: Iterable[str], **spec: Any) -> dict[str, Any]:
    """Return a request to recreate these containers of a Pod. The Pod owns the request."""
    owner = controller_reference("v1", "Pod", pod.name, pod.uid)
    return {
        "apiVersion": REQUESTS.api_version,
        "kind": REQUESTS.kind,
        "metadata": {"name": name, "namespace": pod.namespace, "ownerReferences": [owner]},
        "spec": {"podName": pod.name, "containers": [{"name": one} for one in containers], **spec},
    }
