"""Compares the Pods of a CloneSet with its spec: how many to create, delete and update. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf

from app.features.cloneset.plan.settings import Limits, ResolvedSpec, Settings, limits
from app.features.cloneset.plan.status import Counts
from app.pods.inplace.eligibility import Blocked
from app.pods.lifecycle import LifecycleState
from app.pods.revisions import short_hash
from app.workloads.pods import InPlaceUpdates, PodFacts
from app.workloads.settings import Revisions, UpdatePolicy

# The decisions of one reconcile, in the order in which they are made:
#
#     inputs = Inputs(resolved, pods, revisions, updates, now)
#     rollout = counted(inputs)
#     scaling = planned_scaling(inputs, rollout, node_labels)   # plan/scale; if this changes nothing:
#     updating = planned_update(inputs, rollout)                # plan/update
#
# The controller carries out the plans; `pykruise plan` and `pykruise explain` preview them with the same functions.


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs to all decisions about one CloneSet. ``now`` is in POSIX seconds; ``updates`` caches in-place updates
    between the revisions and is filled on demand."""

    resolved: ResolvedSpec
    pods: Sequence[PodFacts]
    revisions: Revisions
    updates: InPlaceUpdates
    now: float


def counted(inputs: Inputs) -> RolloutState:
    """Count the Pods and compare them with the desired state."""
    settings, revisions = inputs.resolved.settings, inputs.revisions
    return rollout_state(
        inputs.pods,
        settings,
        short_hash(revisions.current.name),
        short_hash(revisions.update.name),
        inputs.now,
        in_place_surge=_uses_in_place_surge(settings, revisions, inputs.updates),
    )


def _uses_in_place_surge(settings: Settings, revisions: Revisions, updates: InPlaceUpdates) -> bool:
    """Return whether the gate CloneSetInPlaceSurge is on and the update revision can be reached in place."""
    if not settings.gates.in_place_surge or settings.update_policy != UpdatePolicy.IN_PLACE_IF_POSSIBLE:
        return False
    at = short_hash(revisions.current.name)
    return not isinstance(updates.spec_between(at, revisions.update, revisions.ordered, settings), Blocked)


# Counts of Pods to create, delete and update, and of Pods that may be unavailable [CS-87 … CS-95]. ``old`` means every
# Pod that is not at the update revision. The worked examples in the tests use these names.


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
