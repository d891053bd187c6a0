"""How many Pods are missing or too many, and which are created and deleted now. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from app.features.cloneset.plan.settings import Limits
from app.workloads.pods import MAX_CREATIONS, PodFacts

# How many Pods are missing, too many or to be updated, and how many may be unavailable (CS-87 … CS-95). Pure.
#
# ``old`` is every Pod that is not at the update revision. The worked examples of the tests follow these names.


@dataclass(slots=True)
class PodCounts:
    """Active Pods counted (CS-87): each is preparing its deletion, or active; of the active each is marked for
    deletion, or unavailable, or neither."""

    old: int = 0
    new: int = 0
    preparing_delete_old: int = 0
    preparing_delete_new: int = 0
    marked_old: int = 0
    marked_new: int = 0
    unavailable_old: int = 0
    unavailable_new: int = 0
    #: Of the marked ones those that are unavailable anyhow.
    marked_unavailable: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return self.old + self.new

    @property
    def preparing_delete(self) -> int:
        """Pods whose preDelete hook is waited for."""
        return self.preparing_delete_old + self.preparing_delete_new

    @property
    def active_old(self) -> int:
        """Old Pods that do not prepare their deletion."""
        return self.old - self.preparing_delete_old

    @property
    def active_new(self) -> int:
        """New Pods that do not prepare their deletion."""
        return self.new - self.preparing_delete_new

    @property
    def marked(self) -> int:
        """Pods somebody asked to have deleted."""
        return self.marked_old + self.marked_new

    @property
    def unavailable(self) -> int:
        """CS-88 (U): marked Pods do not count, even if they are broken."""
        return self.preparing_delete + self.unavailable_old + self.unavailable_new

    def count(self, *, new: bool, preparing_delete: bool, marked: bool, available: bool) -> None:
        """One more Pod."""
        if new:
            self.new += 1
        else:
            self.old += 1
        if preparing_delete:
            if new:
                self.preparing_delete_new += 1
            else:
                self.preparing_delete_old += 1
        elif marked:
            if new:
                self.marked_new += 1
            else:
                self.marked_old += 1
            self.marked_unavailable += not available
        elif not available:
            if new:
                self.unavailable_new += 1
            else:
                self.unavailable_old += 1


@dataclass(frozen=True, slots=True)
class Diff:
    """What the counts come to. ``update``: Pods to take to the update revision; negative: back to the current one."""

    create: int = 0
    #: Of those to create, how many would have to be at the current revision; may be more than ``create``.
    create_old: int = 0
    create_limit: int = 0
    delete: int = 0
    #: Of those to delete, how many should be old; may be more than ``delete``.
    delete_old: int = 0
    delete_ready_limit: int = 0
    surge: int = 0
    surge_old: int = 0
    update: int = 0
    update_max: int = 0


def diff(
    pods: PodCounts,
    limits: Limits,
    *,
    same_revision: bool,
    rollback: bool = False,
    exclude_preparing_delete: bool = False,
    in_place_surge: bool = False,
) -> Diff:
    """CS-89 … CS-95. ``same_revision``: current and update revision are one; ``rollback``: the gate is on.

    ``in_place_surge``: the update goes in place; what the surge adds only stands in meanwhile and is taken away again.
    """
    replicas, partition = limits.replicas, limits.partition
    unavailable, marked = pods.unavailable, pods.marked
    old_surplus = pods.active_old - partition
    new_surplus = pods.active_new - (replicas - partition)
    if same_revision or not rollback:  # CS-89
        old_surplus, new_surplus = max(old_surplus, 0), min(new_surplus, 0)
    surge, surge_old = _surge(pods, limits, old_surplus, new_surplus)
    surging_in_place = in_place_surge and limits.surge > 0 and old_surplus >= 0
    if surging_in_place:
        surge, surge_old = _in_place_surge(pods, limits, old_surplus), 0
    total, total_old = pods.total, pods.old
    if exclude_preparing_delete:  # CS-91
        total -= pods.preparing_delete
        total_old -= pods.preparing_delete_old
    want, want_old = replicas + surge, partition + surge_old
    create = max(want - total, 0)  # CS-92
    delete = max(total - marked - want, 0)  # CS-93
    # CS-94: what is available beyond replicas - maxUnavailable.
    spare = limits.max_unavailable + pods.total - replicas
    update = old_surplus if surging_in_place or abs(old_surplus) <= abs(new_surplus) else -new_surplus  # CS-95
    if old_surplus < 0 and new_surplus < 0:
        # Pods of both kinds are missing. They are created; moving one over would leave less than the partition keeps.
        update = 0
    return Diff(
        create=create,
        create_old=max(want_old - total_old, 0) if create else 0,
        create_limit=min(create, max(limits.scale_max_unavailable - unavailable, 0)),
        delete=delete,
        delete_old=max(total_old - pods.marked_old - want_old, 0) if delete else 0,
        delete_ready_limit=max(spare - unavailable, 0) if marked or delete else 0,
        surge=surge,
        surge_old=surge_old,
        update=update,
        update_max=spare if update else 0,
    )


def _in_place_surge(pods: PodCounts, limits: Limits, old_surplus: int) -> int:
    """As many as the surge allows and the update can use, kept until all that was updated is available."""
    if not old_surplus and not pods.unavailable_new:
        return 0
    return min(limits.surge, max(old_surplus, pods.total - limits.replicas, 0))


def _surge(pods: PodCounts, limits: Limits, old_surplus: int, new_surplus: int) -> tuple[int, int]:
    """CS-90: how many Pods more than ``replicas``, and how many of those at the current revision."""
    if not limits.surge:
        return 0, 0
    scale_surge = min(max(pods.unavailable + pods.marked - limits.max_unavailable, 0), pods.marked)
    scale_surge_old = max(scale_surge - pods.marked_new, 0)
    update_surge = update_surge_old = 0
    if old_surplus * new_surplus < 0:
        if abs(old_surplus) <= abs(new_surplus):
            update_surge = abs(old_surplus)
            update_surge_old = update_surge if old_surplus < 0 else 0
        else:
            update_surge = abs(new_surplus)
            update_surge_old = update_surge if new_surplus > 0 else 0
    if scale_surge >= update_surge:
        surge, part_old = min(limits.surge, scale_surge), scale_surge_old
    else:
        surge, part_old = min(limits.surge, update_surge), update_surge_old
    return surge, min(surge, part_old)


# Which Pods a CloneSet creates and deletes now (CS-96 … CS-111). Pure.
#
# The steps stand in a fixed order and the first that changes something ends the pass: the next one sees what came of
# it.

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
