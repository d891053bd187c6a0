"""How many Pods are missing, too many or to be updated, and how many may be unavailable (CS-87 … CS-95). Pure.

``old`` is every Pod that is not at the update revision. The worked examples of the tests follow these names.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.workloads.cloneset.plan.limits import Limits


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
