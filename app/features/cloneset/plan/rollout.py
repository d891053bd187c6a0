"""One reconcile of a CloneSet: counts its Pods and combines the plans of scaling and updating. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from app.api import names
from app.features.cloneset.plan.scale import (
    RolloutState,
    ScalePlan,
    deletion_order,
    plan_scale,
    rollout_state,
    topology_keys,
)
from app.features.cloneset.plan.settings import ResolvedSpec, Settings
from app.features.cloneset.plan.update import plan_update, update_order
from app.pods.inplace.eligibility import Blocked
from app.pods.revisions import short_hash
from app.pods.sorting import NodeLabels
from app.workloads.pods import InPlaceUpdates, PodFacts
from app.workloads.settings import Revisions, UpdatePolicy
from app.workloads.steps import UpdatePlan

# The decisions of one reconcile, in the order in which they are made. Pure.
#
#     inputs = Inputs(resolved, pods, revisions, updates, now)
#     rollout = counted(inputs)
#     scaling = planned_scaling(inputs, rollout, node_labels)   # first; if that changes nothing:
#     updating = planned_update(inputs, rollout)
#
# The controller carries out the plans; `pykruise plan` and `pykruise explain` preview them with the same functions.


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
    order = deletion_order(inputs.resolved.template, node_labels, rollout.now)
    if rollout.in_place_surge:
        # Pods updated in place are kept, and the surge Pods are deleted.
        return plan_scale(rollout, lambda group: sorted(order(group), key=_was_updated_in_place))
    return plan_scale(rollout, order)


def _was_updated_in_place(pod: PodFacts) -> bool:
    return names.IN_PLACE_UPDATE_STATE in pod.pod.metadata.annotations


def asks_for_nodes(inputs: Inputs, rollout: RolloutState) -> bool:
    """Return whether the deletion order depends on node labels. [CS-114]"""
    return rollout.to_scale.delete > 0 and topology_keys(inputs.resolved.template)


def planned_update(inputs: Inputs, rollout: RolloutState) -> UpdatePlan:
    """Plan the update steps. [CS-123 … CS-132]"""
    target = inputs.revisions.update if rollout.to_update.update > 0 else inputs.revisions.current
    settings, ordered = inputs.resolved.settings, inputs.revisions.ordered
    return plan_update(
        rollout,
        update_order(rollout.pods, inputs.resolved.strategy),
        lambda pod: inputs.updates.obstacle(pod, target, ordered, settings),
    )


def _uses_in_place_surge(settings: Settings, revisions: Revisions, updates: InPlaceUpdates) -> bool:
    """Return whether the gate CloneSetInPlaceSurge is on and the update revision can be reached in place."""
    if not settings.gates.in_place_surge or settings.update_policy != UpdatePolicy.IN_PLACE_IF_POSSIBLE:
        return False
    at = short_hash(revisions.current.name)
    return not isinstance(updates.spec_between(at, revisions.update, revisions.ordered, settings), Blocked)
