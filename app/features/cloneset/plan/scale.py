"""Scaling of a CloneSet: how many Pods are missing or surplus, which to create and delete now, and in which order.
Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, TypeAlias

from app.features.cloneset.plan.settings import Limits, Settings, limits
from app.features.cloneset.plan.status import Counts
from app.kube.objects import Pod
from app.pods.lifecycle import LifecycleState, may_cancel_deletion
from app.pods.sorting import NodeLabels, in_deletion_order, ranks_of
from app.workloads.pods import MAX_CREATIONS, PodFacts

# Counts of Pods to create, delete and update, and of Pods that may be unavailable [CS-87 … CS-95]. ``old`` means every
# Pod that is not at the update revision. The worked examples in the tests use these names. Pure.


@dataclass(slots=True)
class PodCounts:
    """Counts of active Pods. Each Pod counts as preparing for deletion, marked for deletion, unavailable, or none of
    these. [CS-87]"""

    old: int = 0
    new: int = 0
    preparing_delete_old: int = 0
    preparing_delete_new: int = 0
    marked_old: int = 0
    marked_new: int = 0
    unavailable_old: int = 0
    unavailable_new: int = 0

    @property
    def total(self) -> int:
        return self.old + self.new

    @property
    def preparing_delete(self) -> int:
        """Number of Pods waiting for their preDelete hook."""
        return self.preparing_delete_old + self.preparing_delete_new

    @property
    def active_old(self) -> int:
        return self.old - self.preparing_delete_old

    @property
    def active_new(self) -> int:
        return self.new - self.preparing_delete_new

    @property
    def marked(self) -> int:
        """Number of Pods whose deletion was requested."""
        return self.marked_old + self.marked_new

    @property
    def unavailable(self) -> int:
        """Number of unavailable Pods (U). Marked Pods are not included, even if they are broken. [CS-88]"""
        return self.preparing_delete + self.unavailable_old + self.unavailable_new

    def count(self, *, new: bool, preparing_delete: bool, marked: bool, available: bool) -> None:
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
        elif not available:
            if new:
                self.unavailable_new += 1
            else:
                self.unavailable_old += 1


@dataclass(frozen=True, slots=True)
class Diff:
    """Difference between the counts and the desired state. ``update`` is the number of Pods to move to the update
    revision; a negative number moves Pods back to the current revision."""

    create: int = 0
    #: Number of Pods to create at the current revision; may exceed ``create``.
    create_old: int = 0
    create_limit: int = 0
    delete: int = 0
    #: Number of old Pods among those to delete; may exceed ``delete``.
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
    """Compare the counts with the limits. [CS-89 … CS-95]

    ``same_revision``: the current and the update revision are the same. ``rollback``: the gate
    CloneSetPartitionRollback is on. ``in_place_surge``: Pods are updated in place, and surge Pods are deleted after the
    update.
    """
    replicas, partition = limits.replicas, limits.partition
    unavailable, marked = pods.unavailable, pods.marked
    old_surplus = pods.active_old - partition
    new_surplus = pods.active_new - (replicas - partition)
    if same_revision or not rollback:  # [CS-89]
        old_surplus, new_surplus = max(old_surplus, 0), min(new_surplus, 0)
    surge, surge_old = _surge(pods, limits, old_surplus, new_surplus)
    surging_in_place = in_place_surge and limits.surge > 0 and old_surplus >= 0
    if surging_in_place:
        surge, surge_old = _in_place_surge(pods, limits, old_surplus), 0
    total, total_old = pods.total, pods.old
    if exclude_preparing_delete:  # [CS-91]
        total -= pods.preparing_delete
        total_old -= pods.preparing_delete_old
    want, want_old = replicas + surge, partition + surge_old
    create = max(want - total, 0)  # [CS-92]
    delete = max(total - marked - want, 0)  # [CS-93]
    # Number of Pods that may be unavailable: those beyond replicas - maxUnavailable. [CS-94]
    spare = limits.max_unavailable + pods.total - replicas
    update = old_surplus if surging_in_place or abs(old_surplus) <= abs(new_surplus) else -new_surplus  # [CS-95]
    if old_surplus < 0 and new_surplus < 0:
        # Both old and new Pods are missing and will be created. Updating an old Pod would leave fewer old Pods than the
        # partition keeps.
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
    """Return the number of surge Pods for an in-place update: as many as maxSurge allows and the update can use. They
    are kept until all updated Pods are available."""
    if not old_surplus and not pods.unavailable_new:
        return 0
    return min(limits.surge, max(old_surplus, pods.total - limits.replicas, 0))


def _surge(pods: PodCounts, limits: Limits, old_surplus: int, new_surplus: int) -> tuple[int, int]:
    """Return the number of Pods to run beyond ``replicas``, and how many of them are at the current revision.
    [CS-90]"""
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


@dataclass(frozen=True, slots=True)
class RolloutState:
    """Counts of the active Pods of one CloneSet. ``current`` and ``update`` are short hashes; ``now`` is in POSIX
    seconds."""

    settings: Settings
    pods: Sequence[PodFacts]
    current: str
    update: str
    now: float
    limits: Limits
    counts: Counts
    pod_counts: PodCounts
    #: The difference used for scaling and the one used for updates. [CS-83]
    to_scale: Diff
    to_update: Diff
    #: Time at which the next Pod becomes available if nothing else changes; inf if none will.
    next_available: float
    in_place_surge: bool = False

    def is_new(self, pod: PodFacts) -> bool:
        """Return whether scaling counts the Pod as updated. [CS-83]"""
        early = self.settings.gates.preparing_update_as_update
        return pod.revision == self.update or (early and pod.lifecycle == LifecycleState.PREPARING_UPDATE)

    def is_marked(self, pod: PodFacts) -> bool:
        """Return whether deletion of the Pod was requested."""
        return pod.marked or pod.name in self.settings.pods_to_delete


def rollout_state(
    pods: Sequence[PodFacts], settings: Settings, current: str, update: str, now: float, *, in_place_surge: bool = False
) -> RolloutState:
    """Count the Pods and compare them with the desired state. [CS-87, CS-144]

    ``in_place_surge``: the gate CloneSetInPlaceSurge is on, and the update revision can be reached in place.
    """
    pod_counts, named = PodCounts(), settings.pods_to_delete
    ready = available = updated = updated_ready = updated_available = preparing_update = 0
    next_available = inf
    for pod in pods:
        is_available = pod.available_after < now
        is_new = pod.revision == update
        if is_available:
            available += 1
            updated_available += is_new
        elif pod.available_after < next_available:
            next_available = pod.available_after
        ready += pod.update_ready
        if is_new:
            updated += 1
            updated_ready += pod.update_ready
        elif pod.lifecycle == LifecycleState.PREPARING_UPDATE:
            preparing_update += settings.gates.preparing_update_as_update
        if is_available and not pod.marked and not named:
            # Fast path for most Pods.
            if is_new:
                pod_counts.new += 1
            else:
                pod_counts.old += 1
            continue
        pod_counts.count(
            new=is_new,
            preparing_delete=pod.preparing_delete,
            marked=pod.marked or pod.name in named,
            available=is_available,
        )
    numbers = limits(settings)
    compared = partial(
        diff,
        limits=numbers,
        same_revision=current == update,
        rollback=settings.gates.partition_rollback,
        exclude_preparing_delete=settings.exclude_preparing_delete,
        in_place_surge=in_place_surge,
    )
    to_update = compared(pod_counts)
    scaling_counts = _counts_for_scaling(pods, named, update, now) if preparing_update else pod_counts
    return RolloutState(
        settings=settings,
        pods=pods,
        current=current,
        update=update,
        now=now,
        limits=numbers,
        counts=Counts(len(pods), ready, available, updated, updated_ready, updated_available),
        pod_counts=scaling_counts,
        to_scale=compared(scaling_counts) if preparing_update else to_update,
        to_update=to_update,
        next_available=next_available,
        in_place_surge=in_place_surge,
    )


def _counts_for_scaling(pods: Sequence[PodFacts], named: Collection[str], update: str, now: float) -> PodCounts:
    """Count Pods for scaling when the gate PreparingUpdateAsUpdate is on. [CS-87]"""
    pod_counts = PodCounts()
    for pod in pods:
        pod_counts.count(
            new=pod.revision == update or pod.lifecycle == LifecycleState.PREPARING_UPDATE,
            preparing_delete=pod.preparing_delete,
            marked=pod.marked or pod.name in named,
            available=pod.available(now),
        )
    return pod_counts


# Which Pods a CloneSet creates and deletes now [CS-96 … CS-111]. The steps have a fixed order, and only the first one
# that applies is planned: the next reconcile starts from its result. Pure.

#: Sorts Pods of one revision into deletion order. [CS-112]
DeletionOrder: TypeAlias = Callable[[Sequence[PodFacts]], Sequence[PodFacts]]


@dataclass(frozen=True, slots=True)
class Removal:
    """A Pod to delete. If ``prepare`` is set, its preDelete hook must complete first. [CS-105]"""

    pod: PodFacts
    prepare: bool


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """Pods to keep, create or delete. At most one of the three is non-empty."""

    #: Pods preparing for deletion that are needed again. [CS-97]
    cancel_deletion: tuple[PodFacts, ...] = ()
    create_current: int = 0
    create_update: int = 0
    remove: tuple[Removal, ...] = ()
    #: Number of Pods that may be created, if fewer than are missing. [CS-99]
    limited_to: int | None = None

    @property
    def create(self) -> int:
        """Number of Pods to create at either revision."""
        return self.create_current + self.create_update


def plan_scale(rollout: RolloutState, order: DeletionOrder) -> ScalePlan:
    """Plan which Pods to create and delete. [CS-96 … CS-104]"""
    pods, pod_counts, limits, difference = rollout.pods, rollout.pod_counts, rollout.limits, rollout.to_scale
    # Skip the scan if the counts show that no Pod is leaving. [CS-194]
    marked = [pod for pod in pods if rollout.is_marked(pod)] if pod_counts.marked or pod_counts.preparing_delete else []
    preparing = [pod for pod in pods if pod.preparing_delete] if pod_counts.preparing_delete else []
    leaving = len(marked) + sum(1 for pod in preparing if not rollout.is_marked(pod))
    wanted = _wanted_again(rollout, leaving) if may_cancel_deletion(rollout.settings.lifecycle) else 0
    if wanted > 0 and (back := [pod for pod in preparing if not rollout.is_marked(pod)]):
        return ScalePlan(cancel_deletion=_deletions_to_cancel(rollout, back, wanted))
    limited = difference.create_limit if difference.create > difference.create_limit else None
    if difference.create_limit:  # [CS-93, CS-100]
        create = min(difference.create_limit, MAX_CREATIONS)  # [CS-195]
        current = min(create, difference.create_old)
        return ScalePlan(create_current=current, create_update=create - current, limited_to=limited)
    # Deletions proceed even if creations are limited.
    removals = [Removal(pod, prepare=False) for pod in preparing if not pod.delete_hooked]  # [CS-102]
    if not removals:
        spare = rollout.counts.available - max(0, limits.replicas - limits.max_unavailable)
        budget = _Budget(difference.delete_ready_limit, spare, rollout.now)
        victims = [pod for pod in marked if not pod.preparing_delete]  # [CS-103]
        if not leaving and difference.delete:  # [CS-104]
            victims = _victims(rollout, order)
        # A Pod without its initial conditions enters PreparingDelete only after it has them.
        victims = [pod for pod in victims if not (pod.awaits_initial_conditions and pod.delete_hooked)]
        removals = [Removal(pod, prepare=pod.delete_hooked) for pod in victims if budget.allows(pod)]
    return ScalePlan(remove=tuple(removals), limited_to=limited)


@dataclass(slots=True)
class _Budget:
    """Number of ready Pods that may be deleted. ``spare`` is the number of available Pods beyond the required minimum;
    it is lower than ``limit`` only if marked Pods are broken, because the limit ignores those. A Pod that is ready but
    not yet available does not reduce ``spare``. [CS-94]"""

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


def _wanted_again(rollout: RolloutState, leaving: int) -> int:
    """Return how many Pods preparing for deletion are needed again, without exceeding the surge. [CS-97]"""
    replicas, pods = rollout.limits.replicas, rollout.pod_counts
    return replicas - pods.total + min(leaving, rollout.to_scale.surge + pods.preparing_delete)


def _deletions_to_cancel(rollout: RolloutState, back: Sequence[PodFacts], wanted: int) -> tuple[PodFacts, ...]:
    """Choose the Pods to keep: first as many old Pods as the partition is missing, then new Pods, then the other old
    Pods."""
    if wanted < len(back):
        old, new = ([pod for pod in back if rollout.is_new(pod) is want] for want in (False, True))
        first = max(0, rollout.limits.partition - rollout.pod_counts.active_old)
        back = [*old[:first], *new, *old[first:]]
    return tuple(back[:wanted])


def _victims(rollout: RolloutState, order: DeletionOrder) -> list[PodFacts]:
    """Choose the Pods to delete: the number per revision follows from the difference, the Pods from the deletion order.
    [CS-104]"""
    difference = rollout.to_scale
    old = [pod for pod in rollout.pods if not rollout.is_new(pod)]
    new = [pod for pod in rollout.pods if rollout.is_new(pod)]
    from_old = min(difference.delete_old, difference.delete)
    return [*_first(old, from_old, order), *_first(new, difference.delete - from_old, order)]


def _first(pods: Sequence[PodFacts], count: int, order: DeletionOrder) -> Sequence[PodFacts]:
    if not count:
        return ()
    # Skip the sort if all Pods are deleted. [CS-194]
    return pods if count >= len(pods) else order(pods)[:count]


# The deletion order [CS-112 … CS-114]. Pure.


def deletion_order(
    template: Mapping[str, Any], node_labels: NodeLabels, now: float
) -> Callable[[Sequence[PodFacts]], list[PodFacts]]:
    """Return a function that sorts Pods of one revision for deletion. Ranks are computed within the group. [CS-112]"""

    def ordered(group: Sequence[PodFacts]) -> list[PodFacts]:
        facts = {one.pod.metadata.uid: one for one in group}
        pods = [one.pod for one in group]
        ranks = ranks_of(pods, template, node_labels)

        def available(pod: Pod) -> bool:
            return facts[pod.metadata.uid].available(now)

        return [facts[pod.metadata.uid] for pod in in_deletion_order(pods, available=available, ranks=ranks)]

    return ordered


def topology_keys(template: Mapping[str, Any]) -> bool:
    """Return whether the deletion order depends on node labels. [CS-114]"""
    return bool((template.get("spec") or {}).get("topologySpreadConstraints"))
