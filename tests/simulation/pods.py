"""Pods as JSON: predicates and invariants that the judges of all workloads share."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

import orjson

from app.api import names
from tests.kit.virtualtime import EPOCH
from tests.simulation import invariants
from tests.simulation.lifecycle import DELETE_HOOK, UPDATE_HOOK, is_held

Json = dict[str, Any]

HASH_LABEL = names.CONTROLLER_REVISION_HASH
#: Lifecycle state → states that never follow it.
_NEVER_NEXT = {
    "PreparingDelete": ("Normal", "PreparingUpdate", "Updating", "Updated"),
    "Updating": ("PreparingNormal", "PreparingUpdate"),
    "Normal": ("PreparingNormal", "Updated"),
}


def is_alive(pod: Json) -> bool:
    """Return whether a Pod has not ended and is not being deleted."""
    return not has_ended(pod) and not pod["metadata"].get("deletionTimestamp")


def is_active(pod: Json) -> bool:
    """Return whether a Pod is alive and is not waiting for its preDelete hook."""
    return is_alive(pod) and state_of(pod) != "PreparingDelete"


def has_ended(pod: Json) -> bool:
    return (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")


def is_available(pod: Json, at: float, min_ready: float) -> bool:
    """Return whether a Pod is active, Normal and has been Ready for at least ``min_ready`` virtual seconds. [CS-87]"""
    if (
        not is_active(pod)
        or state_of(pod) != "Normal"
        or invariants.condition(pod, names.IN_PLACE_UPDATE_READY) == "False"
    ):
        return False
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Ready":
            if one.get("status") != "True":
                return False
            since = (datetime.fromisoformat(one["lastTransitionTime"]) - EPOCH).total_seconds() if min_ready else 0.0
            return since + min_ready <= at
    return False


def is_marked(pod: Json) -> bool:
    return names.SPECIFIED_DELETE in (pod["metadata"].get("labels") or {})


def none_marked(owner: str, pods: Iterable[Json]) -> Iterator[str]:
    """At rest, every marked Pod has been replaced."""
    if marked := sum(map(is_marked, pods)):
        yield f"{owner} at rest: {marked} Pods are marked and not replaced"


def held_back(before: Json, after: Json) -> Iterator[str]:
    """No Pod is deleted or changed while its hook holds it."""
    deleted = bool(after["metadata"].get("deletionTimestamp")) and not before["metadata"].get("deletionTimestamp")
    if deleted and is_held(before, DELETE_HOOK):
        yield "was deleted before its hook was released"
    if main_image(before) != main_image(after) and is_held(before, UPDATE_HOOK):
        yield "was updated before its hook was released"


def updated_again(before: Json, after: Json) -> Iterator[str]:
    """No update starts while one to the same revision is in progress."""
    old, new = _update(before), _update(after)
    if old is None or new is None or old.get("updateTimestamp") == new.get("updateTimestamp"):
        return
    if old.get("revision") == new.get("revision") and hash_of(before) == hash_of(after):
        yield f"is updated twice at once to {new.get('revision')}"


def ready_too_early(before: Json, after: Json) -> Iterator[str]:
    """A Pod that is updated in place becomes available only when its container runs the new image."""
    gates = [invariants.condition(pod, names.IN_PLACE_UPDATE_READY) for pod in (before, after)]
    if gates[0] == "True" or gates[1] != "True" or _update(after) is None:
        return
    name = invariants.name(after)
    if names.IN_PLACE_UPDATE_GRACE in (after["metadata"].get("annotations") or {}):
        yield f"Pod {name} is available again although its update waits for the grace period"
    runs = invariants.statuses(after).get("main", {}).get("image")
    if runs is not None and not str(runs).endswith(main_image(after)):
        yield f"Pod {name} is available again although it runs {runs}, not {main_image(after)}"


def strange_step(before: Json, after: Json) -> Iterator[str]:
    """A Pod in PreparingDelete returns only through PreparingNormal, and only if it is not being updated. [CS-135]"""
    old, new = state_of(before), state_of(after)
    if old != new and new in _NEVER_NEXT.get(old, ()):
        yield f"Pod {invariants.name(after)} went from {old} to {new}"


def _update(pod: Json) -> Json | None:
    text = (pod["metadata"].get("annotations") or {}).get(names.IN_PLACE_UPDATE_STATE)
    return orjson.loads(text) if text else None


def hash_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(HASH_LABEL, ""))


def main_image(pod: Json) -> str:
    return next(str(one["image"]) for one in pod["spec"]["containers"] if one["name"] == "main")


def state_of(pod: Json) -> str:
    return str((pod["metadata"].get("labels") or {}).get(names.LIFECYCLE_STATE, "Normal"))
