"""The lifecycle hooks of simulated workloads: two labels or two finalizers that hold a Pod."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

#: The label keys or finalizers that hold a Pod before deletion and before an in-place update.
DELETE_HOOK, UPDATE_HOOK = "example.com/drain", "example.com/weigh"
LABELS, FINALIZERS = "labels", "finalizers"
#: Label of Pods whose hooks are finalizers.
KIND = "example.com/hooks"


def lifecycle(kind: str, *, mark_not_ready: bool) -> Json | None:
    """Return the lifecycle of a workload with this kind of hooks; None if it has none."""
    if not kind:
        return None

    def hook(name: str) -> Json:
        found: Json = {"labelsHandler": {name: "true"}} if kind == LABELS else {"finalizersHandler": [name]}
        return found | ({"markPodNotReady": True} if mark_not_ready else {})

    return {"preDelete": hook(DELETE_HOOK), "inPlaceUpdate": hook(UPDATE_HOOK)}


def held_metadata(kind: str) -> Json:
    if kind == FINALIZERS:
        return {"finalizers": [DELETE_HOOK, UPDATE_HOOK], "labels": {KIND: FINALIZERS}}
    return {"labels": dict.fromkeys((DELETE_HOOK, UPDATE_HOOK), "true")} if kind == LABELS else {}


def is_held(pod: Json, hook: str) -> bool:
    metadata = pod["metadata"]
    return (metadata.get("labels") or {}).get(hook) == "true" or hook in (metadata.get("finalizers") or ())
