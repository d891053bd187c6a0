"""Status conditions of workloads, and the patch from one status to the next. Pure. [CS-148 … CS-151]

A status is a JSON object, as stored. Setting a condition keeps those of all other types.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, TypeAlias

from app.kube.clock import rfc3339

Status: TypeAlias = Mapping[str, Any]

FAILED_SCALE: Final = "FailedScale"
FAILED_UPDATE: Final = "FailedUpdate"
#: In-place updates are waiting for the report of a node agent.
WAITING_FOR_AGENT: Final = "WaitingForNodeAgent"


def status_patch(present: Status, wanted: Status, *, required: Collection[str]) -> dict[str, Any]:
    """Return the merge patch from one status to the other; empty if they are equivalent. [CS-148]

    ``required`` lists the fields that the schema requires; others are omitted while empty.
    """
    patch: dict[str, Any] = {}
    for key, value in wanted.items():
        if not value and key not in required:
            if key in present and present[key] not in (None, 0, "", []):
                patch[key] = None
        elif key not in present or present[key] != value:
            patch[key] = value
    return patch


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to set. ``dated`` adds lastUpdateTime. [CS-151]"""

    type: str
    status: str
    reason: str
    message: str
    dated: bool = True


def condition(status: Status, type_: str) -> Mapping[str, Any] | None:
    """Return the condition of that type in a status."""
    for found in status.get("conditions") or ():
        if isinstance(found, Mapping) and found.get("type") == type_:
            return found
    return None


def with_condition(
    conditions: Sequence[Mapping[str, Any]], wanted: Condition, now: datetime, *, refresh: bool = False
) -> list[Mapping[str, Any]]:
    """Set a condition. An unchanged condition keeps its times but gets the new message. [CS-151]

    With ``refresh``, lastUpdateTime is always set to ``now``.
    """
    entry: dict[str, Any] = {"type": wanted.type, "status": wanted.status}
    time = rfc3339(now)
    old = next((found for found in conditions if found.get("type") == wanted.type), None)
    moved = old is None or old.get("status") != wanted.status
    if wanted.dated:
        same = not moved and old is not None and (old.get("reason") or "") == wanted.reason
        known = old.get("lastUpdateTime") if old is not None else None
        entry["lastUpdateTime"] = known if same and known and not refresh else time
    since = old.get("lastTransitionTime") if old is not None and not moved else None
    entry["lastTransitionTime"] = since or time
    if wanted.reason:
        entry["reason"] = wanted.reason
    if wanted.message:
        entry["message"] = wanted.message
    if old is None:
        return [*conditions, entry]
    return [entry if found is old else found for found in conditions]


def without_condition(conditions: Sequence[Mapping[str, Any]], type_: str) -> list[Mapping[str, Any]]:
    """Return all conditions except those of this type."""
    return [found for found in conditions if found.get("type") != type_]


def with_failures(
    conditions: Sequence[Mapping[str, Any]], failures: Mapping[str, str | None], now: datetime
) -> list[Mapping[str, Any]]:
    """Set the conditions in ``failures``, which maps types to messages; remove those whose message is None. [CS-149,
    CS-150]"""
    result = list(conditions)
    for type_, message in failures.items():
        if message is None:
            result = without_condition(result, type_)
        else:
            result = with_condition(result, Condition(type_, "True", "", message, dated=False), now)
    return result
