"""The lifecycle hooks of workloads here: two labels, or two finalizers, that hold a Pod."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

#: What holds a Pod before it is deleted and before it is updated in place: a label's key, or a finalizer.
DELETE_HOOK, UPDATE_HOOK = "example.com/drain", "example.com/weigh"
LABELS, FINALIZERS = "labels", "finalizers"
#: The label by which Pods are known whose hooks are finalizers: none may be left.
KIND = "example.com/hooks"


def lifecycle(kind: str, *, mark_not_ready: bool) -> Json:
    """The lifecycle of a workload whose hooks are of that kind."""

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
