"""Which Pods a CloneSet creates and deletes now (CS-96 … CS-111). Pure.

The steps stand in a fixed order and the first that changes something ends the pass: the next one sees what came of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from app.workloads.cloneset.plan.diff import Diff, PodCounts
from app.workloads.cloneset.plan.limits import Limits
from app.workloads.engine.creation import MAX_CREATIONS
from app.workloads.engine.pods import PodFacts

#: Pods of one group in the order in which they are deleted (CS-112).
DeletionOrder: TypeAlias = Callable[[Sequence[PodFacts]], Sequence[PodFacts]]


class Shortfall(StrEnum):
    """Why a CloneSet has fewer Pods than it wants, or does not replace one, for now."""

    SCALE_UP_LIMITED = "ScaleUpLimited"
    """scaleStrategy.maxUnavailable holds new Pods back until others are available (CS-92)."""
    CREATION_REFUSED = "CreationRefused"
    """The API server did not take a Pod (CS-157)."""
    WAITING_FOR_INSTANCE = "WaitingForInstance"
    """A terminating Pod holds the name, and with it the claims, of the one to come (CS-119)."""
    PREPARING_DELETE = "PreparingDelete"
    """A Pod that waits for its preDelete hook is not replaced before it is gone (CS-137)."""
    HELD_BY_GATE = "HeldByGate"
    """An expectation that was not met in time, and gate ForceDeleteTimeoutExpectationGate is off (CS-52)."""


@dataclass(frozen=True, slots=True)
class Removal:
    """A Pod to delete; ``prepare``: its preDelete hook must be waited for first (CS-105)."""

    pod: PodFacts
    prepare: bool


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """What to do, in this order; all but one of the three are empty."""

    #: CS-97: these are wanted after all.
    cancel_deletion: tuple[PodFacts, ...] = ()
    create_current: int = 0
    create_update: int = 0
    remove: tuple[Removal, ...] = ()
    #: CS-99: so many may be created though more are missing.
    limited_to: int | None = None
    shortfall: Shortfall | None = None

    @property
    def create(self) -> int:
        """Pods to create at either revision."""
        return self.create_current + self.create_update


def plan_scale(
    pods: Sequence[PodFacts],
    pod_counts: PodCounts,
    limits: Limits,
    difference: Diff,
    *,
    is_new: Callable[[PodFacts], bool],
    is_marked: Callable[[PodFacts], bool],
    available: int,
    now: float,
    order: DeletionOrder,
    may_cancel_deletion: bool,
) -> ScalePlan:
    """CS-96 … CS-104. ``available``: how many Pods are available at ``now`` (POSIX seconds), marked ones included."""
    # CS-194: where nobody leaves, that is known from the count.
    marked = [pod for pod in pods if is_marked(pod)] if pod_counts.marked or pod_counts.preparing_delete else []
    preparing = [pod for pod in pods if pod.preparing_delete] if pod_counts.preparing_delete else []
    leaving = len(marked) + sum(1 for pod in preparing if not is_marked(pod))
    wanted = _wanted_again(pod_counts, limits, difference, leaving) if may_cancel_deletion else 0
    if wanted > 0 and (back := [pod for pod in preparing if not is_marked(pod)]):
        return ScalePlan(
            cancel_deletion=_deletions_to_cancel(back, wanted, limits.partition - pod_counts.active_old, is_new)
        )
    limited = difference.create_limit if difference.create > difference.create_limit else None
    shortfall = Shortfall.SCALE_UP_LIMITED if limited is not None else None
    if difference.create_limit:  # CS-100, CS-108
        create = min(difference.create_limit, MAX_CREATIONS)  # CS-195
        current = min(create, difference.create_old)
        return ScalePlan(
            create_current=current,
            create_update=create - current,
            limited_to=limited,
            shortfall=shortfall,
        )
    if (
        shortfall is None
        and pod_counts.preparing_delete
        and pod_counts.total - pod_counts.preparing_delete < limits.replicas
    ):
        shortfall = Shortfall.PREPARING_DELETE
    # B-7: that nothing may be created is no reason to keep what should go.
    removals = [Removal(pod, prepare=False) for pod in preparing if not pod.delete_hooked]  # CS-102
    if not removals:
        spare = available - max(0, limits.replicas - limits.max_unavailable)
        budget = _Budget(difference.delete_ready_limit, spare, now)
        victims = [pod for pod in marked if not pod.preparing_delete]  # CS-103
        if not leaving and difference.delete:  # CS-104
            victims = _victims(pods, difference, is_new, order)
        # A Pod that is just arriving says that it waits for its hook once it is there.
        victims = [pod for pod in victims if not (pod.awaits_initial_conditions and pod.delete_hooked)]
        removals = [Removal(pod, prepare=pod.delete_hooked) for pod in victims if budget.allows(pod)]
    return ScalePlan(remove=tuple(removals), limited_to=limited, shortfall=shortfall)


@dataclass(slots=True)
class _Budget:
    """How many Pods that serve may be deleted (CS-109). ``spare``: available Pods beyond what must stay; it is less
    than ``limit`` only where marked Pods are broken, which the limit does not count. A Pod that is ready, but not for
    minReadySeconds yet, takes none of it."""

    limit: int
    spare: int
    now: float

    def allows(self, pod: PodFacts) -> bool:
        if not pod.delete_ready:
            return True
        available = pod.available(self.now)
        if self.limit <= 0 or (available and self.spare <= 0):
            return False
        self.limit -= 1
        self.spare -= available
        return True


def _wanted_again(pod_counts: PodCounts, limits: Limits, difference: Diff, leaving: int) -> int:
    """CS-97: how many Pods on their way out are needed; never so many that more are active than the surge allows."""
    active = pod_counts.total - pod_counts.preparing_delete
    return min(limits.replicas - pod_counts.total + leaving, limits.replicas + difference.surge - active)


def _deletions_to_cancel(
    back: Sequence[PodFacts], wanted: int, missing_old: int, is_new: Callable[[PodFacts], bool]
) -> tuple[PodFacts, ...]:
    """Whom of those that may come back: old Pods that the partition lacks, then new ones, then any."""
    if wanted < len(back):
        old, new = ([pod for pod in back if is_new(pod) is want] for want in (False, True))
        first = max(0, missing_old)
        back = [*old[:first], *new, *old[first:]]
    return tuple(back[:wanted])


def _victims(
    pods: Sequence[PodFacts], difference: Diff, is_new: Callable[[PodFacts], bool], order: DeletionOrder
) -> list[PodFacts]:
    """CS-104: from which revision, and of each the first in deletion order."""
    old = [pod for pod in pods if not is_new(pod)]
    new = [pod for pod in pods if is_new(pod)]
    from_old = min(difference.delete_old, difference.delete)
    return [*_first(old, from_old, order), *_first(new, difference.delete - from_old, order)]


def _first(pods: Sequence[PodFacts], count: int, order: DeletionOrder) -> Sequence[PodFacts]:
    if not count:
        return ()
    # CS-194: whom the order puts first does not matter when all go.
    return pods if count >= len(pods) else order(pods)[:count]
