"""The status of the subsets, and which Pods are moved on (WS-60 … WS-69). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from app.features.workloadspread.plan.places import (
    by_name,
    limit_of,
    missing_of,
    parse_time,
    record_of,
    remaining,
    schedulable,
)
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
from app.kube.clock import rfc3339
from app.kube.objects import ObjectMeta, Pod
from app.pods.predicates import is_active

#: Seconds in which an admitted Pod is created, and one whose deletion was admitted begins to go (WS-61).
CREATED_WITHIN: Final = 30.0
DELETED_WITHIN: Final = 15.0
#: Seconds for which a subset that Pods were moved from takes no new ones (WS-66).
SHUT_FOR: Final = 300.0
#: Seconds after which a Pod is looked for again that was created, and that the cache does not show.
UNSEEN_AGAIN: Final = 5.0

#: Pods by subset.
Groups: TypeAlias = Mapping[str, Sequence[Pod]]


@dataclass(frozen=True, slots=True)
class Missed:
    """A Pod that did not come, or did not go, as was expected. ``pod``: its name, or the uid it was counted by."""

    pod: str
    coming: bool


@dataclass(slots=True)
class Outcome:
    """What the status is to be, and what follows."""

    status: WorkloadSpreadStatus = field(default_factory=WorkloadSpreadStatus)
    missed: list[Missed] = field(default_factory=list)
    #: Subsets that take Pods again.
    recovered: list[str] = field(default_factory=list)
    #: Pods that found no node in time, by subset.
    moved_on: list[tuple[str, Pod]] = field(default_factory=list)
    #: Seconds until something runs out; None: nothing does.
    again_after: float | None = None

    def look_again(self, seconds: float) -> None:
        """Not later than then."""
        if seconds > 0:
            self.again_after = min(seconds, self.again_after) if self.again_after is not None else seconds


def critical_seconds(spread: WorkloadSpread) -> int:
    """WS-64: after how many seconds a Pod without a node is moved on; 0 for never."""
    strategy = spread.strategy
    if strategy.type != ADAPTIVE or strategy.adaptive is None:
        return 0
    return max(0, strategy.adaptive.reschedule_critical_seconds or 0)


def compute(
    spread: WorkloadSpread,
    versions: Mapping[str, Groups],
    wanted: int,
    now: datetime,
    absent: Collection[str] | None = None,
) -> Outcome:
    """The status of the WorkloadSpread as it is now, given its Pods by version and subset.

    ``absent``: the keys of Pods to come that the API server does not have; None: no Pod that is late is there.
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
    # What a newer version of us, or a user, wrote beyond the known fields stays.
    outcome.status = former.model_copy(
        update={
            "observed_generation": spread.metadata.generation,
            "subset_statuses": subset_statuses,
            "versioned_subset_statuses": versioned,
        }
    )
    return outcome


class _Statuses:
    """Makes the statuses of one computation."""

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
        """Of all versions together, or of one. ``overall``: the former status of all."""
        subsets = self._spread.spec.subsets
        found = []
        for index, subset in enumerate(subsets):
            pods = groups.get(subset.name, ())
            before = former.get(subset.name)
            # WS-68: a version that comes takes over what is known.
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

    # ---- Pods to come and to go

    def _entries(self, pods: Sequence[Pod], before: SubsetStatus) -> tuple[dict[str, str], dict[str, str]]:
        """WS-61: the entries that still hold."""
        creating: dict[str, str] = {}
        deleting: dict[str, str] = {}
        if before.creating_pods:
            for key, since in before.creating_pods.items():
                if key in self._seen:
                    continue
                left = remaining(since, CREATED_WITHIN, self._now)
                if left > 0:
                    creating[key] = since
                    self._outcome.look_again(left)
                elif self._absent is None or key in self._absent:
                    self._outcome.missed.append(Missed(key, coming=True))
                else:
                    # It is the cache that is late, or the clock of whoever let it in.
                    creating[key] = since
                    self._outcome.look_again(UNSEEN_AGAIN)
        if before.deleting_pods:
            active = {pod.metadata.name for pod in pods if is_active(pod)}
            for key, since in before.deleting_pods.items():
                if key not in active:
                    continue
                left = remaining(since, DELETED_WITHIN, self._now)
                if left > 0:
                    deleting[key] = since
                    self._outcome.look_again(left)
                else:
                    self._outcome.missed.append(Missed(key, coming=False))
        return creating, deleting

    # ---- Pods without a node

    def _condition(
        self, subset: str, pods: Sequence[Pod], former: SubsetCondition | None, *, last: bool, is_overall: bool
    ) -> SubsetCondition | None:
        """WS-64 … WS-67."""
        if not self._critical:
            return None
        if last:
            return self._schedulable(former)
        late = self._late(pods)
        if is_overall:
            self._outcome.moved_on += [(subset, pod) for pod in late]
        was_shut = former is not None and former.status == "False"
        if late:
            if was_shut:
                return former
            return SubsetCondition(
                type=SCHEDULABLE,
                status="False",
                last_transition_time=rfc3339(self._now),
                reason=UNSCHEDULABLE_REASON,
                message="",
            )
        if was_shut and former is not None:
            left = self._shut_for(former)
            if left > 0:
                self._outcome.look_again(left)
                return former
            if is_overall:
                self._outcome.recovered.append(subset)
        return self._schedulable(former)

    def _schedulable(self, former: SubsetCondition | None) -> SubsetCondition:
        if former is not None and former.status == "True":
            return former
        return SubsetCondition(
            type=SCHEDULABLE,
            status="True",
            last_transition_time=rfc3339(self._now),
            reason=SCHEDULABLE_REASON,
            message="",
        )

    def _shut_for(self, condition: SubsetCondition) -> float:
        since = parse_time(condition.last_transition_time)
        if since is None:
            return 0.0
        # Whatever the clock of the one who wrote it, nobody is shut out for longer.
        return (min(since, self._now) + timedelta(seconds=SHUT_FOR) - self._now).total_seconds()

    def _late(self, pods: Sequence[Pod]) -> list[Pod]:
        """WS-65: those that wait for a node for too long."""
        late = []
        for pod in pods:
            if not is_unschedulable(pod) or pod.metadata.creation_timestamp is None:
                continue
            left = (pod.metadata.creation_timestamp + timedelta(seconds=self._critical) - self._now).total_seconds()
            if left < 0:
                late.append(pod)
            else:
                # Late is who has waited for longer; a clock that counts in floats needs a moment more.
                self._outcome.look_again(left + _MOMENT)
        return late


_MOMENT: Final = 0.01


def is_unschedulable(pod: Pod) -> bool:
    """WS-65: whether the scheduler found no node for a Pod that waits for one."""
    condition = pod.condition("PodScheduled")
    return (
        pod.metadata.deletion_timestamp is None
        and pod.status.phase == "Pending"
        and not pod.spec.node_name
        and condition is not None
        and condition.status == "False"
        and condition.reason == "Unschedulable"
    )


def entry_keys(pods: Iterable[Pod]) -> set[str]:
    """By what entries of these Pods may be filed."""
    return {key for pod in pods for key in keys_of(pod.metadata)}


def keys_of(metadata: ObjectMeta) -> Iterator[str]:
    """By what an entry of this Pod may be filed."""
    if metadata.deletion_timestamp is None:  # else another of its name may be on its way
        yield metadata.name
    record = record_of(metadata.annotations)
    if record is not None and record.uid:
        yield record.uid
