"""What a UnitedDeployment's status says (UD-46, UD-63 … UD-68). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.kube.clock import rfc3339

PROVISIONED: Final = "SubsetProvisioned"
UPDATED: Final = "SubsetUpdated"
UNITED_UPDATED: Final = "UnitedDeploymentUpdated"
SCHEDULABLE: Final = "Schedulable"
REQUIRED: Final = ("replicas", "updatedReplicas", "currentRevision")


@dataclass(frozen=True, slots=True)
class SubsetState:
    """One subset as it is now. ``schedulable``: its condition, where there is one."""

    name: str
    replicas: int
    partition: int
    pods: int = 0
    ready: int = 0
    schedulable: Mapping[str, Any] | None = None

    def entry(self) -> dict[str, Any]:
        """Its entry in the status; what is zero is left out."""
        counts = {"replicas": self.replicas, "readyReplicas": self.ready, "partition": self.partition}
        entry: dict[str, Any] = {"name": self.name, **{key: count for key, count in counts.items() if count}}
        return entry if self.schedulable is None else {**entry, "conditions": [dict(self.schedulable)]}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a reconcile. ``changed``: subsets were created or deleted; ``error``: what went wrong."""

    changed: bool = False
    error: str = ""


def status_of(
    present: Mapping[str, Any],
    subsets: Sequence[SubsetState],
    outcome: Outcome,
    *,
    updated_revision: str,
    updated: int,
    updated_ready: int,
    collisions: int,
    selector: str,
    generation: int,
    now: datetime,
) -> dict[str, Any]:
    """The whole status after a reconcile. ``updated``, ``updated_ready``: Pods at the updated revision."""
    pods = sum(one.pods for one in subsets)
    current = present.get("currentRevision") or updated_revision
    if updated_ready >= pods:
        current = updated_revision  # UD-46
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "replicas": pods,
        "readyReplicas": sum(one.ready for one in subsets),
        "updatedReplicas": updated,
        "updatedReadyReplicas": updated_ready,
        "currentRevision": current,
        "updatedRevision": updated_revision,
        "labelSelector": selector,
        "subsetStatuses": [one.entry() for one in subsets],
        "conditions": _conditions(present, outcome, updated_revision, current == updated_revision, now),
    }
    return {**status, "collisionCount": collisions} if collisions else status


def condition_of(status: Mapping[str, Any], subset: str) -> Mapping[str, Any] | None:
    """The condition Schedulable of a subset, as the status has it."""
    for entry in _objects(status.get("subsetStatuses")):
        if entry.get("name") == subset:
            found = (one for one in _objects(entry.get("conditions")) if one.get("type") == SCHEDULABLE)
            return next(found, None)
    return None


def with_condition(
    conditions: Sequence[Mapping[str, Any]],
    type_: str,
    status: str,
    now: datetime,
    *,
    reason: str = "",
    message: str = "",
) -> list[dict[str, Any]]:
    """The conditions with one set; its time moves only with its status or reason (UD-61)."""
    before = next((one for one in conditions if one.get("type") == type_), None)
    same = before is not None and (before.get("status"), before.get("reason") or "") == (status, reason)
    made: dict[str, Any] = {"type": type_, "status": status}
    made["lastTransitionTime"] = before.get("lastTransitionTime") if same and before is not None else rfc3339(now)
    if reason:
        made["reason"] = reason
    if message:
        made["message"] = message
    others = [dict(one) for one in conditions]
    if before is None:
        return [*others, made]
    return [made if one.get("type") == type_ else one for one in others]


def _conditions(
    present: Mapping[str, Any], outcome: Outcome, revision: str, finished: bool, now: datetime
) -> list[dict[str, Any]]:
    """UD-65."""
    found: Sequence[Mapping[str, Any]] = list(_objects(present.get("conditions")))
    known = next((one for one in found if one.get("type") == UNITED_UPDATED), None)
    wanted = "True" if finished else "False"
    if known is None or known.get("status") != wanted:
        verb = "Updated" if finished else "Updating"
        found = with_condition(
            found,
            UNITED_UPDATED,
            wanted,
            now,
            reason=f"UnitedDeploymentRevision{verb}",
            message=f"{verb.lower()} to revision {revision}",
        )
    if outcome.error:
        return with_condition(found, UPDATED, "False", now, reason="Error", message=outcome.error[:1024])
    if outcome.changed or not any(one.get("type") == PROVISIONED for one in found):
        found = with_condition(found, PROVISIONED, "True", now)
    return with_condition(found, UPDATED, "True", now)


def _objects(value: object) -> Sequence[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
