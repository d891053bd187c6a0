"""What a UnitedDeployment's status says (UD-46, UD-63 … UD-70). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.api import names
from app.kube.clock import rfc3339
from app.workloads.uniteddeployment.plan.subsets import WorkloadCondition

PROVISIONED: Final = "SubsetProvisioned"
UPDATED: Final = "SubsetUpdated"
UNITED_UPDATED: Final = "UnitedDeploymentUpdated"
SCHEDULABLE: Final = "Schedulable"
FAILURE: Final = "SubsetFailure"
AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
#: Longer texts are cut: a status is no log.
LONGEST_MESSAGE: Final = 1024
#: Conditions by which the kinds of workloads say that a Pod could not be made or changed.
_FAILURES: Final = frozenset({"ReplicaFailure", "FailedScale", "FailedUpdate", "FailedCreatePod", "FailedUpdatePod"})
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
    #: Pods in whose place others run.
    reserved: int = 0
    #: What its workload says went wrong, and what holds its roll-out up.
    failure: str = ""
    halted: str = ""

    def entry(self) -> dict[str, Any]:
        """Its entry in the status; what is zero is left out."""
        counts = {"replicas": self.replicas, "readyReplicas": self.ready, "partition": self.partition}
        counts["reservedPods"] = self.reserved
        entry: dict[str, Any] = {"name": self.name, **{key: count for key, count in counts.items() if count}}
        return entry if self.schedulable is None else {**entry, "conditions": [dict(self.schedulable)]}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of a reconcile. ``changed``: subsets were created or deleted; ``error``: what went wrong;
    ``unprovisioned``: what of that concerns their creation and deletion."""

    changed: bool = False
    error: str = ""
    unprovisioned: str = ""


@dataclass(frozen=True, slots=True)
class Updated:
    """Pods at the updated revision: all, those that are ready, and of these those in whose place no others run."""

    pods: int = 0
    ready: int = 0
    settled: int = 0


def status_of(
    present: Mapping[str, Any],
    subsets: Sequence[SubsetState],
    outcome: Outcome,
    updated: Updated,
    *,
    revision: str,
    replicas: int,
    collisions: int,
    selector: str,
    reserves: bool,
    generation: int,
    now: datetime,
) -> dict[str, Any]:
    """The whole status after a reconcile. ``revision``: the updated one; ``replicas``: spec.replicas."""
    reserved = sum(one.reserved for one in subsets)
    pods = sum(max(0, one.pods - one.reserved) for one in subsets)  # UD-63
    ready = sum(one.ready for one in subsets)
    current = present.get("currentRevision") or revision
    if updated.settled >= pods:
        current = revision  # UD-46
    finished = current == revision
    conditions = _conditions(present, outcome, revision, finished, now)
    conditions = _with_failure(conditions, subsets, now)
    conditions = _with_progress(conditions, subsets, finished, ready >= replicas, now)
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "replicas": pods,
        "readyReplicas": ready,
        "updatedReplicas": updated.pods,
        "updatedReadyReplicas": updated.ready,
        "reservedPods": reserved,
        "currentRevision": current,
        "updatedRevision": revision,
        # UD-64: an autoscaler sees the Pods that work.
        "labelSelector": f"{selector},{names.UNITED_RESERVED_POD}=false" if reserves else selector,
        "subsetStatuses": [one.entry() for one in subsets],
        "conditions": conditions,
    }
    return {**status, "collisionCount": collisions} if collisions else status


def trouble_of(conditions: Iterable[WorkloadCondition]) -> tuple[str, str]:
    """What a workload says went wrong, and what holds its roll-out up; empty if nothing does."""
    failure = halted = ""
    for one in conditions:
        if one.type in _FAILURES and one.status == "True":
            failure = failure or one.message or one.reason or one.type
        elif one.type == PROGRESSING and one.status == "False":
            halted = one.message or one.reason
    return failure, halted


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
    known = next((one for one in found if one.get("type") == PROVISIONED), None)
    if outcome.unprovisioned:
        found = with_condition(
            found, PROVISIONED, "False", now, reason="Error", message=outcome.unprovisioned[:LONGEST_MESSAGE]
        )
    elif not outcome.error and (outcome.changed or known is None or known.get("status") == "False"):
        found = with_condition(found, PROVISIONED, "True", now)
    if outcome.error:
        return with_condition(found, UPDATED, "False", now, reason="Error", message=outcome.error[:LONGEST_MESSAGE])
    return with_condition(found, UPDATED, "True", now)


def _with_failure(
    conditions: list[dict[str, Any]], subsets: Sequence[SubsetState], now: datetime
) -> list[dict[str, Any]]:
    """UD-65: what the workloads report as failed."""
    said = "; ".join(f"{one.name}: {one.failure}" for one in subsets if one.failure)
    if not said:
        return [one for one in conditions if one.get("type") != FAILURE]
    return with_condition(conditions, FAILURE, "True", now, reason="SubsetFailed", message=said[:LONGEST_MESSAGE])


def _with_progress(
    conditions: list[dict[str, Any]], subsets: Sequence[SubsetState], finished: bool, ready: bool, now: datetime
) -> list[dict[str, Any]]:
    """UD-70: whether there are as many ready Pods as asked for, and whether the roll-out moves."""
    if ready:
        status, reason, message = "True", "MinimumReplicasAvailable", "as many Pods are ready as asked for"
    else:
        status, reason, message = "False", "MinimumReplicasUnavailable", "fewer Pods are ready than asked for"
    conditions = with_condition(conditions, AVAILABLE, status, now, reason=reason, message=message)
    halted = "; ".join(f"{one.name}: {one.halted}" for one in subsets if one.halted)
    if halted:
        status, reason, message = "False", "SubsetNotProgressing", halted[:LONGEST_MESSAGE]
    elif finished and ready:
        status, reason, message = "True", "UnitedDeploymentAvailable", "all Pods are updated and ready"
    else:
        status, reason, message = "True", "UnitedDeploymentProgressing", "Pods are being made or updated"
    return with_condition(conditions, PROGRESSING, status, now, reason=reason, message=message)


def _objects(value: object) -> Sequence[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []
