"""What to do about the Pods of a CloneSet now: everything that is decided comes together here. Pure.

    seen = survey(pods, settings, current, update, now)
    scaling = scale(seen)           # first; if that changes nothing:
    updating = update(seen, ...)

The shell carries it out; `pykruise plan` and `pykruise explain` show it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from app.api import names
from app.pods.lifecycle import LifecycleState, may_cancel_deletion
from app.workloads.cloneset.diff import Diff, Tally, diff
from app.workloads.cloneset.limits import Limits, limits
from app.workloads.cloneset.pods import PodFacts
from app.workloads.cloneset.scale import DeletionOrder, ScalePlan, plan_scale
from app.workloads.cloneset.settings import Settings
from app.workloads.cloneset.status import Counts
from app.workloads.cloneset.update import Obstacle, UpdateOrder, UpdatePlan, plan_update, released_pods


@dataclass(frozen=True, slots=True)
class Survey:
    """The active Pods of one CloneSet, counted. ``current`` and ``update`` are short hashes, ``now`` POSIX seconds."""

    settings: Settings
    pods: Sequence[PodFacts]
    current: str
    update: str
    now: float
    limits: Limits
    counts: Counts
    tally: Tally
    #: As scaling sees it, and as updating does (CS-83).
    to_scale: Diff
    to_update: Diff
    #: When the next Pod becomes available by the passing of time; inf: none will.
    next_available: float
    keeps_pods: bool = False


def survey(
    pods: Sequence[PodFacts], settings: Settings, current: str, update: str, now: float, *, keeps_pods: bool = False
) -> Survey:
    """Count the Pods (CS-87, CS-144) and compare with what is wanted.

    ``keeps_pods``: gate CloneSetInPlaceSurge is on, and the way to the update revision can be gone in place.
    """
    tally, named = Tally(), settings.pods_to_delete
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
            # Nearly all Pods, nearly always.
            if is_new:
                tally.new += 1
            else:
                tally.old += 1
            continue
        tally.count(
            new=is_new,
            preparing_delete=pod.preparing_delete,
            marked=pod.marked or pod.name in named,
            available=is_available,
        )
    numbers = limits(settings)
    to_update = _diff(tally, numbers, settings, current == update, keeps_pods)
    scale_view = _scale_view(pods, settings, update, now) if preparing_update else tally
    return Survey(
        settings=settings,
        pods=pods,
        current=current,
        update=update,
        now=now,
        limits=numbers,
        counts=Counts(len(pods), ready, available, updated, updated_ready, updated_available),
        tally=scale_view,
        to_scale=_diff(scale_view, numbers, settings, current == update, keeps_pods) if preparing_update else to_update,
        to_update=to_update,
        next_available=next_available,
        keeps_pods=keeps_pods,
    )


def scale(seen: Survey, order: DeletionOrder) -> ScalePlan:
    """CS-96 … CS-111. ``order``: of Pods of one group, in which they are deleted."""
    settings = seen.settings
    named = settings.pods_to_delete
    return plan_scale(
        seen.pods,
        seen.tally,
        seen.limits,
        seen.to_scale,
        is_new=lambda pod: _is_new(pod, settings, seen.update),
        is_marked=lambda pod: pod.marked or pod.name in named,
        available=seen.counts.available,
        now=seen.now,
        order=(lambda group: sorted(order(group), key=_was_updated_in_place)) if seen.keeps_pods else order,
        may_revive=may_cancel_deletion(settings.lifecycle),
    )


def update(seen: Survey, order: UpdateOrder, obstacle: Obstacle) -> UpdatePlan:
    """CS-123 … CS-132. ``obstacle``: why a Pod cannot be updated in place, if it cannot."""
    return plan_update(
        seen.pods,
        seen.to_update,
        seen.settings,
        current=seen.current,
        update=seen.update,
        now=seen.now,
        order=order,
        obstacle=obstacle,
    )


def released(seen: Survey) -> frozenset[PodFacts]:
    """Pods in PreparingUpdate that need not be updated any more."""
    return released_pods(seen.pods, seen.to_update, seen.settings, update=seen.update)


def _is_new(pod: PodFacts, settings: Settings, update: str) -> bool:
    """CS-83, as scaling sees it."""
    return pod.revision == update or (
        settings.gates.preparing_update_as_update and pod.lifecycle == LifecycleState.PREPARING_UPDATE
    )


def _scale_view(pods: Sequence[PodFacts], settings: Settings, update: str, now: float) -> Tally:
    """CS-87 with the gate PreparingUpdateAsUpdate on."""
    tally, named = Tally(), settings.pods_to_delete
    for pod in pods:
        tally.count(
            new=_is_new(pod, settings, update),
            preparing_delete=pod.preparing_delete,
            marked=pod.marked or pod.name in named,
            available=pod.available(now),
        )
    return tally


def _was_updated_in_place(pod: PodFacts) -> bool:
    return names.IN_PLACE_UPDATE_STATE in pod.pod.metadata.annotations


def _diff(tally: Tally, numbers: Limits, settings: Settings, same_revision: bool, keeps_pods: bool) -> Diff:
    return diff(
        tally,
        numbers,
        same_revision=same_revision,
        rollback=settings.gates.partition_rollback,
        exclude_preparing_delete=settings.exclude_preparing_delete,
        keeps_pods=keeps_pods,
    )
