"""Status of the subsets. Pure. [WS-60 … WS-69]"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from app.features.workloadspread.plan.placement import by_name, limit_of, missing_of, record_of, remaining, schedulable
from app.features.workloadspread.types import (
    ADAPTIVE,
    SCHEDULABLE,
    SCHEDULABLE_REASON,
    UNSCHEDULABLE_REASON,
    SubsetCondition,
    SubsetStatus,
    WorkloadSpread,
    WorkloadSpreadStatus,
)
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.objects import ObjectMeta, Pod
from app.pods.predicates import is_active, is_unschedulable

#: Seconds within which an admitted Pod must appear, and an admitted deletion must begin. [WS-61]
CREATED_WITHIN: Final = 30.0
DELETED_WITHIN: Final = 15.0
#: Seconds until the cache is checked again for a Pod that exists on the API server.
UNSEEN_AGAIN: Final = 5.0

#: Pods by subset.
Groups: TypeAlias = Mapping[str, Sequence[Pod]]


@dataclass(frozen=True, slots=True)
class Missed:
    """A creation or deletion that did not happen in time. ``pod`` is the entry key, a name or UID."""

    pod: str
    coming: bool


@dataclass(slots=True)
class Outcome:
    """The new status and the follow-up work."""

    status: WorkloadSpreadStatus = field(default_factory=WorkloadSpreadStatus)
    missed: list[Missed] = field(default_factory=list)
    #: Subsets that are schedulable again.
    recovered: list[str] = field(default_factory=list)
    #: Unschedulable Pods to delete, with their subset.
    moved_on: list[tuple[str, Pod]] = field(default_factory=list)
    #: Seconds until the next entry or condition expires, if any.
    again_after: float | None = None

    def requeue_within(self, seconds: float) -> None:
        """Requeue after at most this many seconds."""
        if seconds > 0:
            self.again_after = min(seconds, self.again_after) if self.again_after is not None else seconds


def compute(
    spread: WorkloadSpread,
    versions: Mapping[str, Groups],
    wanted: int,
    now: datetime,
    absent: Collection[str] | None = None,
) -> Outcome:
    """Compute the status from the Pods by version and subset.

    ``absent`` holds the entry keys of late Pods that the API server does not have. If it is None, all late Pods are
    treated as absent.
    """
    outcome = Outcome()
    former = spread.status or WorkloadSpreadStatus()
    overall: dict[str, list[Pod]] = {}
    for groups in versions.values():
        for name, pods in groups.items():
            overall.setdefault(name, []).extend(pods)
    known = by_name(former.subset_statuses)
    seen = entry_keys(pod for pods in overall.values() for pod in pods)
    statuses = _Statuses(spread, wanted, now, outcome, seen, absent)
    subset_statuses = statuses.of(overall, known, known, is_overall=True)
    versioned: dict[str, list[SubsetStatus]] = {}
    former_versions = former.versioned_subset_statuses or {}
    for version in sorted({*versions, *former_versions}):
        before = by_name(former_versions.get(version))
        found = statuses.of(versions.get(version, {}), before, known, is_overall=False)
        if version in versions or any(one.replicas or one.creating_pods or one.deleting_pods for one in found):
            versioned[version] = found
    # Preserve unknown fields, which users or newer versions may have written.
    outcome.status = former.model_copy(
        update={
            "observed_generation": spread.metadata.generation,
            "subset_statuses": subset_statuses,
            "versioned_subset_statuses": versioned,
        }
    )
    return outcome


class _Statuses:
    def __init__(
        self,
        spread: WorkloadSpread,
        wanted: int,
        now: datetime,
        outcome: Outcome,
        seen: Collection[str],
        absent: Collection[str] | None,
    ) -> None:
        self._spread = spread
        self._wanted = wanted
        self._now = now
        self._outcome = outcome
        self._critical = critical_seconds(spread)
        self._seen = seen
        self._absent = absent

    def of(
        self,
        groups: Groups,
        former: Mapping[str, SubsetStatus],
        overall: Mapping[str, SubsetStatus],
        *,
        is_overall: bool,
    ) -> list[SubsetStatus]:
        """Return the statuses for one version, or across all versions. ``overall`` are the former statuses across all
        versions."""
        subsets = self._spread.spec.subsets
        found = []
        for index, subset in enumerate(subsets):
            pods = groups.get(subset.name, ())
            before = former.get(subset.name)
            # A new version inherits the subset's overall condition. [WS-68]
            condition = schedulable(before) if before is not None else schedulable(overall.get(subset.name))
            after = self._condition(subset.name, pods, condition, last=index == len(subsets) - 1, is_overall=is_overall)
            creating, deleting = ({}, {}) if is_overall or before is None else self._entries(pods, before)
            replicas = sum(map(is_active, pods))
            limit = limit_of(subset, self._wanted)
            status = SubsetStatus(
                name=subset.name,
                replicas=replicas,
                missing_replicas=missing_of(limit, replicas, len(creating), len(deleting)),
            )
            update: dict[str, object] = {}
            if after is not None:
                update["conditions"] = [after]
            if creating:
                update["creating_pods"] = creating
            if deleting:
                update["deleting_pods"] = deleting
            found.append(status.model_copy(update=update) if update else status)
        return found

    def _entries(self, pods: Sequence[Pod], before: SubsetStatus) -> tuple[dict[str, str], dict[str, str]]:
        """Return the creating and deleting entries that are still valid. [WS-61]"""
        creating: dict[str, str] = {}
        deleting: dict[str, str] = {}
        if before.creating_pods:
            for key, since in before.creating_pods.items():
                if key in self._seen:
                    continue
                left = remaining(since, CREATED_WITHIN, self._now)
                if left > 0:
                    creating[key] = since
                    self._outcome.requeue_within(left)
                elif self._absent is None or key in self._absent:
                    self._outcome.missed.append(Missed(key, coming=True))
                else:
                    # The cache lags, or the clock of the replica that admitted the Pod differs.
                    creating[key] = since
                    self._outcome.requeue_within(UNSEEN_AGAIN)
        if before.deleting_pods:
            active = {pod.metadata.name for pod in pods if is_active(pod)}
            for key, since in before.deleting_pods.items():
                if key not in active:
                    continue
                left = remaining(since, DELETED_WITHIN, self._now)
                if left > 0:
                    deleting[key] = since
                    self._outcome.requeue_within(left)
                else:
                    self._outcome.missed.append(Missed(key, coming=False))
        return creating, deleting

    def _condition(
        self, subset: str, pods: Sequence[Pod], former: SubsetCondition | None, *, last: bool, is_overall: bool
    ) -> SubsetCondition | None:
        """Return the Schedulable condition of a subset. [WS-64 … WS-67]"""
        if not self._critical:
            return None
        judged = judge(pods, former, critical=self._critical, last=last, now=self._now)
        for seconds in judged.waits:
            self._outcome.requeue_within(seconds)
        if is_overall:
            self._outcome.moved_on += [(subset, pod) for pod in judged.late]
            if judged.recovered:
                self._outcome.recovered.append(subset)
        return judged.condition


def entry_keys(pods: Iterable[Pod]) -> set[str]:
    """Return the possible entry keys of these Pods."""
    return {key for pod in pods for key in keys_of(pod.metadata)}


def keys_of(metadata: ObjectMeta) -> Iterator[str]:
    """Yield the possible entry keys of the Pod."""
    if metadata.deletion_timestamp is None:  # a replacement with the same name may be created soon
        yield metadata.name
    record = record_of(metadata.annotations)
    if record is not None and record.uid:
        yield record.uid


# Unschedulable Pods: which of them are deleted, and which subsets temporarily accept no new Pods. [WS-64 … WS-67]

#: Seconds for which an unschedulable subset accepts no new Pods. [WS-66]
SHUT_FOR: Final = 300.0
#: A Pod is late only after the limit has passed; the margin absorbs the rounding of floats.
_MOMENT: Final = 0.01


@dataclass(frozen=True, slots=True)
class Judged:
    """The Schedulable condition of a subset, and what follows from it."""

    condition: SubsetCondition
    #: Pods to delete, so that they are recreated in the next subset.
    late: Sequence[Pod] = ()
    #: Whether the subset accepts new Pods again.
    recovered: bool = False
    #: Seconds until the result may change.
    waits: Sequence[float] = ()


def critical_seconds(spread: WorkloadSpread) -> int:
    """Return the seconds after which an unschedulable Pod is deleted, or 0 for never. [WS-64]"""
    strategy = spread.strategy
    if strategy.type != ADAPTIVE or strategy.adaptive is None:
        return 0
    return max(0, strategy.adaptive.reschedule_critical_seconds or 0)


def judge(pods: Sequence[Pod], former: SubsetCondition | None, *, critical: int, last: bool, now: datetime) -> Judged:
    """Evaluate the Pods of a subset. The ``last`` subset is always schedulable: there is no next one."""
    if last:
        return Judged(_schedulable(former, now))
    late, waits = _late(pods, critical, now)
    shut = former if former is not None and former.status == "False" else None
    if late:
        return Judged(shut or _changed("False", UNSCHEDULABLE_REASON, now), late, waits=waits)
    if shut is None:
        return Judged(_schedulable(former, now), waits=waits)
    left = _shut_for(shut, now)
    if left > 0:
        return Judged(shut, waits=(*waits, left))
    return Judged(_schedulable(shut, now), recovered=True, waits=waits)


def _late(pods: Sequence[Pod], critical: int, now: datetime) -> tuple[list[Pod], list[float]]:
    """Return the Pods that have been unschedulable for too long, and the seconds left for each of the others.
    [WS-65]"""
    late, waits = [], []
    for pod in pods:
        if not is_unschedulable(pod) or pod.metadata.creation_timestamp is None:
            continue
        left = (pod.metadata.creation_timestamp + timedelta(seconds=critical) - now).total_seconds()
        if left < 0:
            late.append(pod)
        else:
            waits.append(left + _MOMENT)
    return late, waits


def _shut_for(condition: SubsetCondition, now: datetime) -> float:
    since = parsed_rfc3339(condition.last_transition_time)
    if since is None:
        return 0.0
    # If the clock of the process that wrote the condition is ahead, this must not extend the time.
    return (min(since, now) + timedelta(seconds=SHUT_FOR) - now).total_seconds()


def _schedulable(former: SubsetCondition | None, now: datetime) -> SubsetCondition:
    if former is not None and former.status == "True":
        return former
    return _changed("True", SCHEDULABLE_REASON, now)


def _changed(status: str, reason: str, now: datetime) -> SubsetCondition:
    return SubsetCondition(
        type=SCHEDULABLE, status=status, last_transition_time=rfc3339(now), reason=reason, message=""
    )
