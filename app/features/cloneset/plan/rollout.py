"""One reconcile of a CloneSet: counts its Pods and combines the plans of scaling and updating. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from app.api import names
from app.features.cloneset.plan.scale import (
    DeletionOrder,
    Diff,
    PodCounts,
    ScalePlan,
    deletion_order,
    diff,
    plan_scale,
    topology_keys,
)
from app.features.cloneset.plan.settings import Limits, ResolvedSpec, Settings, limits
from app.features.cloneset.plan.status import Counts
from app.features.cloneset.plan.update import UpdateOrder, plan_update, released_pods, update_order
from app.pods.inplace.eligibility import Blocked
from app.pods.lifecycle import LifecycleState, may_cancel_deletion
from app.pods.revisions import short_hash
from app.pods.sorting import NodeLabels
from app.workloads.pods import InPlaceUpdates, PodFacts
from app.workloads.settings import Revisions, UpdatePolicy
from app.workloads.steps import Obstacle, StepKind, UpdatePlan

# The decisions of one reconcile, in the order in which they are made. Pure.
#
#     inputs = Inputs(resolved, pods, revisions, updates, now)
#     rollout = counted(inputs)
#     scaling = planned_scaling(inputs, rollout, node_labels)   # first; if that changes nothing:
#     updating = planned_update(inputs, rollout)
#
# The controller carries out the plans; `pykruise plan` and `pykruise explain` preview them with the same functions.

RECREATE: Final = StepKind.RECREATE


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
    to_update = _diff(pod_counts, numbers, settings, current == update, in_place_surge)
    scaling_counts = _counts_for_scaling(pods, settings, update, now) if preparing_update else pod_counts
    return RolloutState(
        settings=settings,
        pods=pods,
        current=current,
        update=update,
        now=now,
        limits=numbers,
        counts=Counts(len(pods), ready, available, updated, updated_ready, updated_available),
        pod_counts=scaling_counts,
        to_scale=_diff(scaling_counts, numbers, settings, current == update, in_place_surge)
        if preparing_update
        else to_update,
        to_update=to_update,
        next_available=next_available,
        in_place_surge=in_place_surge,
    )


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs to all decisions about one CloneSet. ``now`` is in POSIX seconds; ``updates`` caches in-place updates
    between the revisions and is extended on use."""

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


def planned_scaling(inputs: Inputs, rollout: RolloutState, node_labels: NodeLabels) -> ScalePlan:
    """Plan which Pods to create and delete. ``node_labels`` is needed only if :func:`asks_for_nodes` returns true.
    [CS-96 … CS-111]"""
    return scale(rollout, deletion_order(inputs.resolved.template, node_labels, rollout.now))


def asks_for_nodes(inputs: Inputs, rollout: RolloutState) -> bool:
    """Return whether the deletion order depends on node labels. [CS-114]"""
    return rollout.to_scale.delete > 0 and topology_keys(inputs.resolved.template)


def planned_update(inputs: Inputs, rollout: RolloutState) -> UpdatePlan:
    """Plan the update steps in order. Pods already marked to be recreated are skipped. [CS-123 … CS-132]"""
    target = inputs.revisions.update if rollout.to_update.update > 0 else inputs.revisions.current
    settings, ordered = inputs.resolved.settings, inputs.revisions.ordered
    plan = update(
        rollout,
        update_order(rollout.pods, inputs.resolved.strategy),
        lambda pod: inputs.updates.obstacle(pod, target, ordered, settings),
    )
    return replace(plan, steps=tuple(step for step in plan.steps if step.kind is not RECREATE or not step.pod.marked))


def _uses_in_place_surge(settings: Settings, revisions: Revisions, updates: InPlaceUpdates) -> bool:
    """Return whether the gate CloneSetInPlaceSurge is on and the update revision can be reached in place."""
    if not settings.gates.in_place_surge or settings.update_policy != UpdatePolicy.IN_PLACE_IF_POSSIBLE:
        return False
    at = short_hash(revisions.current.name)
    return not isinstance(updates.spec_between(at, revisions.update, revisions.ordered, settings), Blocked)


def scale(rollout: RolloutState, order: DeletionOrder) -> ScalePlan:
    """Plan which Pods to create and delete. ``order`` sorts Pods of one revision for deletion. [CS-96 … CS-111]"""
    settings = rollout.settings
    named = settings.pods_to_delete
    return plan_scale(
        rollout.pods,
        rollout.pod_counts,
        rollout.limits,
        rollout.to_scale,
        is_new=lambda pod: _is_new(pod, settings, rollout.update),
        is_marked=lambda pod: pod.marked or pod.name in named,
        available=rollout.counts.available,
        now=rollout.now,
        order=(lambda group: sorted(order(group), key=_was_updated_in_place)) if rollout.in_place_surge else order,
        may_cancel_deletion=may_cancel_deletion(settings.lifecycle),
    )


def update(rollout: RolloutState, order: UpdateOrder, obstacle: Obstacle) -> UpdatePlan:
    """Plan the update steps. ``obstacle`` returns why a Pod cannot be updated in place, or None. [CS-123 … CS-132]"""
    return plan_update(
        rollout.pods,
        rollout.to_update,
        rollout.settings,
        current=rollout.current,
        update=rollout.update,
        now=rollout.now,
        order=order,
        obstacle=obstacle,
    )


def released(rollout: RolloutState) -> frozenset[PodFacts]:
    """Return Pods in PreparingUpdate that no longer need an update."""
    return released_pods(rollout.pods, rollout.to_update, rollout.settings, update=rollout.update)


def _is_new(pod: PodFacts, settings: Settings, update: str) -> bool:
    """Return whether scaling counts the Pod as updated. [CS-83]"""
    return pod.revision == update or (
        settings.gates.preparing_update_as_update and pod.lifecycle == LifecycleState.PREPARING_UPDATE
    )


def _counts_for_scaling(pods: Sequence[PodFacts], settings: Settings, update: str, now: float) -> PodCounts:
    """Count Pods for scaling when the gate PreparingUpdateAsUpdate is on. [CS-87]"""
    pod_counts, named = PodCounts(), settings.pods_to_delete
    for pod in pods:
        pod_counts.count(
            new=_is_new(pod, settings, update),
            preparing_delete=pod.preparing_delete,
            marked=pod.marked or pod.name in named,
            available=pod.available(now),
        )
    return pod_counts


def _was_updated_in_place(pod: PodFacts) -> bool:
    return names.IN_PLACE_UPDATE_STATE in pod.pod.metadata.annotations


def _diff(
    pod_counts: PodCounts, numbers: Limits, settings: Settings, same_revision: bool, in_place_surge: bool
) -> Diff:
    return diff(
        pod_counts,
        numbers,
        same_revision=same_revision,
        rollback=settings.gates.partition_rollback,
        exclude_preparing_delete=settings.exclude_preparing_delete,
        in_place_surge=in_place_surge,
    )
