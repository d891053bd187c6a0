"""ContainerRecreateRequest between its versions: two annotations of v1alpha1 are fields of v1beta1's status (CRR-1).

The annotations stay where they are in both directions. Each direction may lose something; app.api.conversion notices
and remembers it.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any, Final

from app.api import names
from app.api.containerrecreate.types import PRE_RECREATE_GRACE

_SNAPSHOT: Final = "containerStatusSnapshot"
_FIELDS: Final = {"name": str, "ready": bool, "restartCount": int, "containerID": str}


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """What the annotations say, said by the status too. What cannot be read is left out there."""
    annotations = _object(_object(obj, "metadata") or {}, "annotations") or {}
    snapshot = parsed_snapshot(annotations.get(names.CRR_SYNC_CONTAINER_STATUSES))
    since = annotations.get(names.CRR_UNREADY_ACQUIRED)
    status = dict(_object(obj, "status") or {})
    if snapshot is not None:
        status[_SNAPSHOT] = snapshot
    if isinstance(since, str) and is_time(since):
        others = [one for one in _conditions(status) if one.get("type") != PRE_RECREATE_GRACE]
        status["conditions"] = [*others, grace_condition(since)]
    if status:
        obj["status"] = status
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """What the status says beyond v1alpha1's, said by annotations."""
    status = _object(obj, "status")
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
        metadata["annotations"] = {**(_object(metadata, "annotations") or {}), **shown}
    return obj


def snapshot_text(snapshot: list[Any]) -> str:
    """A snapshot as its annotation has it: fields in OpenKruise's order, without spaces."""
    entries = [
        {field: entry[field] for field in _FIELDS if field in entry} for entry in snapshot if isinstance(entry, dict)
    ]
    return json.dumps(entries, separators=(",", ":"), ensure_ascii=False)


def parsed_snapshot(text: Any) -> list[dict[str, Any]] | None:
    """The snapshot in an annotation; None if there is none, or none that can be read."""
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
    """Whether ``text`` is a time as the API writes it."""
    try:
        return "T" in text and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def grace_condition(since: str) -> dict[str, Any]:
    """The condition that says since when the Pod is not ready because of the request."""
    return {
        "type": PRE_RECREATE_GRACE,
        "status": "True",
        "reason": PRE_RECREATE_GRACE,
        "message": "",
        "lastTransitionTime": since,
    }


def grace_since(status: dict[str, Any]) -> str | None:
    """Since when the Pod is not ready because of the request, if it is."""
    for condition in _conditions(status):
        if condition.get("type") == PRE_RECREATE_GRACE and condition.get("status") == "True":
            since = condition.get("lastTransitionTime")
            return since if isinstance(since, str) else None
    return None


def _conditions(status: dict[str, Any]) -> list[dict[str, Any]]:
    found = status.get("conditions")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _object(parent: dict[str, Any], key: str) -> dict[str, Any] | None:
    value = parent.get(key)
    return value if isinstance(value, dict) else None
