"""Status of a UnitedDeployment, and its reserved Pods. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.api import names
from app.features.uniteddeployment.plan.allocation import RESCHEDULE, Schedulability, pending_seconds
from app.features.uniteddeployment.plan.subsets import WorkloadCondition
from app.kube.clock import rfc3339
from app.kube.jsonvalues import objects
from app.kube.objects import Pod
from app.pods.predicates import is_active, is_ready, ready_since

# Status of a UnitedDeployment. [UD-46, UD-63 … UD-70]

PROVISIONED: Final = "SubsetProvisioned"
UPDATED: Final = "SubsetUpdated"
UNITED_UPDATED: Final = "UnitedDeploymentUpdated"
SCHEDULABLE: Final = "Schedulable"
FAILURE: Final = "SubsetFailure"
AVAILABLE: Final = "Available"
PROGRESSING: Final = "Progressing"
#: Maximum length of messages in the status.
LONGEST_MESSAGE: Final = 1024
#: Conditions in which workloads report that a Pod could not be created or updated.
_FAILURES: Final = frozenset({"ReplicaFailure", "FailedScale", "FailedUpdate", "FailedCreatePod", "FailedUpdatePod"})
REQUIRED: Final = ("replicas", "updatedReplicas", "currentRevision")


@dataclass(frozen=True, slots=True)
class SubsetState:
    """Current state of one subset. ``schedulable`` is its condition Schedulable, if set."""

    name: str
    replicas: int
    partition: int
    pods: int = 0
    ready: int = 0
    schedulable: Mapping[str, Any] | None = None
    #: Number of Pods replaced in other subsets.
    reserved: int = 0
    #: Failure that the workload reports, and the reason its rollout does not progress.
    failure: str = ""
    halted: str = ""

    def entry(self) -> dict[str, Any]:
        """Entry of the subset in the status; zeros are omitted."""
        counts = {"replicas": self.replicas, "readyReplicas": self.ready, "partition": self.partition}
        counts["reservedPods"] = self.reserved
        entry: dict[str, Any] = {"name": self.name, **{key: count for key, count in counts.items() if count}}
        return entry if self.schedulable is None else {**entry, "conditions": [dict(self.schedulable)]}


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of a reconcile. ``changed``: subsets were created or deleted. ``error``: all errors. ``unprovisioned``:
    only the errors in creating and deleting subsets."""

    changed: bool = False
    error: str = ""
    unprovisioned: str = ""


@dataclass(frozen=True, slots=True)
class Updated:
    """Counts of Pods at the updated revision: all, ready ones, and ready ones not replaced elsewhere."""

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
    """Return the status after a reconcile. ``revision`` is the updated revision; ``replicas`` is spec.replicas."""
    reserved = sum(one.reserved for one in subsets)
    pods = sum(max(0, one.pods - one.reserved) for one in subsets)  # [UD-63]
    ready = sum(one.ready for one in subsets)
    current = present.get("currentRevision") or revision
    if updated.settled >= pods:
        current = revision  # [UD-46]
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
        # Autoscalers must not count reserved Pods. [UD-64]
        "labelSelector": f"{selector},{names.UNITED_RESERVED_POD}=false" if reserves else selector,
        "subsetStatuses": [one.entry() for one in subsets],
        "conditions": conditions,
    }
    return {**status, "collisionCount": collisions} if collisions else status


def trouble_of(conditions: Iterable[WorkloadCondition]) -> tuple[str, str]:
    """Return the failure that a workload reports, and the reason its rollout does not progress; "" if none."""
    failure = halted = ""
    for one in conditions:
        if one.type in _FAILURES and one.status == "True":
            failure = failure or one.message or one.reason or one.type
        elif one.type == PROGRESSING and one.status == "False":
            halted = one.message or one.reason
    return failure, halted


def schedulable_conditions(status: Mapping[str, Any]) -> dict[str, Mapping[str, Any] | None]:
    """Return the condition Schedulable of each subset in the status."""
    found: dict[str, Mapping[str, Any] | None] = {}
    for entry in objects(status.get("subsetStatuses")):
        conditions = (one for one in objects(entry.get("conditions")) if one.get("type") == SCHEDULABLE)
        found.setdefault(str(entry.get("name")), next(conditions, None))
    return found


def with_condition(
    conditions: Sequence[Mapping[str, Any]],
    type_: str,
    status: str,
    now: datetime,
    *,
    reason: str = "",
    message: str = "",
) -> list[dict[str, Any]]:
    """Return the conditions with one replaced. Its transition time changes only with its status or reason. [UD-61]"""
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
    """Return the conditions after a reconcile. [UD-65]"""
    found: Sequence[Mapping[str, Any]] = list(objects(present.get("conditions")))
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
    """Set the condition for failures that workloads report, or remove it. [UD-65]"""
    said = "; ".join(f"{one.name}: {one.failure}" for one in subsets if one.failure)
    if not said:
        return [one for one in conditions if one.get("type") != FAILURE]
    return with_condition(conditions, FAILURE, "True", now, reason="SubsetFailed", message=said[:LONGEST_MESSAGE])


def _with_progress(
    conditions: list[dict[str, Any]], subsets: Sequence[SubsetState], finished: bool, ready: bool, now: datetime
) -> list[dict[str, Any]]:
    """Add the conditions Available and Progressing. [UD-70]"""
    if ready:
        status, reason, message = "True", "MinimumReplicasAvailable", "the desired number of Pods is ready"
    else:
        status, reason, message = "False", "MinimumReplicasUnavailable", "fewer Pods are ready than desired"
    conditions = with_condition(conditions, AVAILABLE, status, now, reason=reason, message=message)
    halted = "; ".join(f"{one.name}: {one.halted}" for one in subsets if one.halted)
    if halted:
        status, reason, message = "False", "SubsetNotProgressing", halted[:LONGEST_MESSAGE]
    elif finished and ready:
        status, reason, message = "True", "UnitedDeploymentAvailable", "all Pods are updated and ready"
    else:
        status, reason, message = "True", "UnitedDeploymentProgressing", "Pods are being created or updated"
    return with_condition(conditions, PROGRESSING, status, now, reason=reason, message=message)


# Decide which Pods are kept while substitutes run in other subsets. [UD-56, UD-57, UD-62]

CREATED: Final = "created"
FOUND: Final = "reserved pods found"
NONE_FOUND: Final = "no reserved pods"
SCALED_UP: Final = "subset just recovered scaled up"
#: Delay added to timers, so that the deadline has passed when they fire.
TIMER_TOLERANCE: Final = 0.001


@dataclass(frozen=True, slots=True)
class Limits:
    """The values of rescheduleCriticalSeconds and unschedulableDuration."""

    critical: int
    duration: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """Reserved Pods of one subset."""

    #: Pods whose label must be written, each with the label's value.
    labels: Sequence[tuple[Pod, bool]] = ()
    #: UIDs of the reserved Pods.
    uids: frozenset[str] = frozenset()
    #: Number of ready Pods that a stuck rollout should have replaced by now. [UD-58]
    overdue: int = 0
    #: Number of Pods at an old revision in excess of the partition.
    outdated: int = 0
    #: Number of Pods that are neither finished nor terminating.
    active: int = 0
    #: Seconds until the result changes without an event; 0 if only events change it.
    again: float = 0.0

    @property
    def reserved(self) -> int:
        return len(self.uids)


def reservation(
    pods: Sequence[Pod],
    *,
    update: str,
    held: int | None,
    unschedulable: bool,
    updating_since: datetime,
    limits: Limits,
    now: datetime,
    written: Mapping[str, bool],
) -> Reservation:
    """Decide which Pods of a subset are reserved. [UD-56]

    ``update``: the updated revision. ``held``: number of Pods that stay at an old revision, or None for all.
    ``unschedulable``: whether the subset was unschedulable before. ``updating_since``: when the rollout began.
    ``written``: label values, by Pod UID, that the cache does not show yet.
    """
    active = [pod for pod in pods if is_active(pod)]
    late = {pod.metadata.uid: pending_seconds(pod, limits.critical, now) for pod in active}
    old = [pod for pod in active if pod.metadata.labels.get(names.UNITED_REVISION_HASH) != update]
    old.sort(key=lambda pod: (_label(pod, written) is True, not is_ready(pod), pod.metadata.name))
    # Pods that the partition keeps at their revision do not count as outdated. [UD-62]
    outdated = {pod.metadata.uid for pod in (old[held:] if held is not None else ())}
    # A rollout is stuck only if new Pods are unschedulable; otherwise it is just slow. [UD-62]
    blocked = any(
        (late[pod.metadata.uid] or 0) < 0
        for pod in active
        if pod.metadata.labels.get(names.UNITED_REVISION_HASH) == update
    )
    overdue_in = limits.critical - (now - updating_since).total_seconds()
    labels: list[tuple[Pod, bool]] = []
    uids: set[str] = set()
    times: list[float] = []
    overdue = 0
    for pod in active:
        left, label = late[pod.metadata.uid], _label(pod, written)
        is_outdated = pod.metadata.uid in outdated
        ready_in = _settled_in(pod, limits.duration, now)
        if label is True or (label is None and unschedulable):
            settled = not is_outdated and ready_in is not None and ready_in < 0
            reserved = not settled
            if reserved and ready_in is not None and not is_outdated:
                times.append(ready_in + TIMER_TOLERANCE)
        elif not is_outdated:
            reserved = left is not None and left < 0
            if left is not None and not reserved:
                times.append(left + TIMER_TOLERANCE)
        else:
            stuck = blocked or (left is not None and left < 0)
            reserved = stuck and overdue_in < 0
            if not reserved and (blocked or left is not None):
                times += [max(one, 0.0) + TIMER_TOLERANCE for one in (overdue_in, left or 0.0) if one > 0]
        if reserved:
            uids.add(pod.metadata.uid)
        overdue += reserved and is_outdated and is_ready(pod)
        if label is not reserved:
            labels.append((pod, reserved))
    return Reservation(labels, frozenset(uids), overdue, len(outdated), len(active), min(times, default=0.0))


def schedulability(
    before: Mapping[str, Any] | None, found: Reservation, wanted: int, now: datetime
) -> tuple[Schedulability, int]:
    """Return whether a subset is schedulable, and how many of its ``wanted`` Pods may be unable to run. [UD-57]

    In an unschedulable subset, missing Pods count as reserved, because they will be reserved once created. [UD-40]
    """
    marked = is_marked(before)
    missing = max(0, wanted - found.active) if marked else 0
    unschedulable = bool(found.reserved or missing)
    if missing and not found.reserved:
        return Schedulability(True, before, found.again), missing
    condition = marked_condition(before, unschedulable, FOUND if unschedulable else NONE_FOUND, now)
    return Schedulability(unschedulable, condition, found.again), found.reserved + missing


def is_marked(condition: Mapping[str, Any] | None) -> bool:
    """Return whether the condition marks the subset as unschedulable."""
    return condition is not None and condition.get("status") == "False"


def marked_condition(
    before: Mapping[str, Any] | None, unschedulable: bool, message: str, now: datetime, *, reason: str = RESCHEDULE
) -> Mapping[str, Any]:
    """Return the condition Schedulable, replaced only if its status or reason changes. [UD-61]"""
    known = [before] if before is not None else []
    if known and (known[0].get("status") == "False") is unschedulable and known[0].get("reason") == reason:
        return known[0]
    status = "False" if unschedulable else "True"
    return with_condition(known, SCHEDULABLE, status, now, reason=reason, message=message)[0]


def _label(pod: Pod, written: Mapping[str, bool]) -> bool | None:
    """Return whether the Pod's label marks it as reserved, or None if the label is missing or invalid."""
    known = written.get(pod.metadata.uid)
    if known is not None:
        return known
    return {"true": True, "false": False}.get(pod.metadata.labels.get(names.UNITED_RESERVED_POD, ""))


def _settled_in(pod: Pod, seconds: int, now: datetime) -> float | None:
    """Return the seconds until the Pod has been ready for ``seconds``, negative afterwards; None if it is not ready."""
    if pod.status.phase != "Running" or not is_ready(pod):
        return None
    return seconds - (now - (ready_since(pod) or now)).total_seconds()
