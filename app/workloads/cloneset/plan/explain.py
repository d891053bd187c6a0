"""Why a Pod of a CloneSet is as it is, and what comes next for it, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

from app.api import names
from app.kube.objects import Pod
from app.pods.inplace import GraceError, RefreshAction, StateError, refresh
from app.pods.lifecycle import LifecycleState
from app.pods.predicates import is_active
from app.pods.ranking import NodeLabels
from app.pods.revisions import Revision, short_hash
from app.workloads.cloneset.plan.orders import deletion_order
from app.workloads.cloneset.plan.resolved import ResolvedSpec
from app.workloads.cloneset.plan.rollout import RolloutState
from app.workloads.engine.explain import held_lines, hook_members, next_line, readiness_lines, revision_line
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.preview import Preview


def explain(
    pod: Pod, resolved: ResolvedSpec, rollout: RolloutState, coming: Preview, update: Revision, node_labels: NodeLabels
) -> list[str]:
    """Everything worth knowing about one Pod of the CloneSet, one line each.

    ``seen``: all its active Pods; ``coming``: what the roll-out would do from here.
    """
    facts = next((one for one in rollout.pods if one.pod.metadata.uid == pod.metadata.uid), None)
    if facts is None:
        return [_not_counted(pod, resolved)]
    lines = [
        revision_line(facts, short_hash(update.name)),
        *_readiness_lines(facts, resolved, rollout),
        *_hook_lines(facts, resolved),
    ]
    lines += _coming_lines(facts, rollout, coming)
    return [*lines, _scale_in_line(facts, resolved, rollout, node_labels)]


def _not_counted(pod: Pod, resolved: ResolvedSpec) -> str:
    if not is_active(pod):
        ended = pod.status.phase in ("Succeeded", "Failed")
        return "does not count: it is terminating" if not ended else f"does not count: its phase is {pod.status.phase}"
    if not resolved.selector.matches(pod.metadata.labels):
        return f"does not count: its labels do not match the selector {resolved.selector}"
    return "does not count: another object controls it"


def _readiness_lines(facts: PodFacts, resolved: ResolvedSpec, rollout: RolloutState) -> Iterator[str]:
    available = facts.available(rollout.now)
    yield from readiness_lines(facts, rollout.now, resolved.settings.min_ready_seconds, available=available)
    if not available:
        yield from _update_line(facts, resolved, rollout)


def _hook_lines(facts: PodFacts, resolved: ResolvedSpec) -> Iterator[str]:
    lifecycle = resolved.settings.lifecycle
    if lifecycle is not None and facts.lifecycle in (LifecycleState.PREPARING_NORMAL, LifecycleState.UPDATED):
        awaits_initial_conditions = facts.lifecycle == LifecycleState.PREPARING_NORMAL
        hook = lifecycle.pre_normal if awaits_initial_conditions else lifecycle.in_place_update
        if hook is not None and (lacks := hook_members(hook, facts.pod, present=False)):
            yield f"  it comes into service once it has these: {', '.join(lacks)}"
        return
    yield from held_lines(facts, lifecycle)


def _update_line(facts: PodFacts, resolved: ResolvedSpec, rollout: RolloutState) -> Iterator[str]:
    """What an update in place that is under way waits for."""
    scaling = resolved.settings.gates.vertical_scaling
    try:
        step = refresh(facts.pod, datetime.fromtimestamp(rollout.now, UTC), vertical_scaling=scaling)
    except (StateError, GraceError) as error:
        yield f"  its update in place cannot go on: {error}"
        return
    if step.action is RefreshAction.INCOMPLETE:
        yield f"  its update in place goes on: {step.reason}"


def _coming_lines(facts: PodFacts, rollout: RolloutState, coming: Preview) -> Iterator[str]:
    if facts.marked or facts.name in rollout.settings.pods_to_delete:
        why = f"label {names.SPECIFIED_DELETE}" if facts.marked else "podsToDelete"
        yield f"somebody asked to have it deleted ({why})"
    yield next_line(facts.name, coming)


def _scale_in_line(facts: PodFacts, resolved: ResolvedSpec, rollout: RolloutState, node_labels: NodeLabels) -> str:
    order = deletion_order(resolved.template, node_labels, rollout.now)(list(rollout.pods))
    place = order.index(facts) + 1
    return f"scale-in: number {place} of {len(order)} in the order of deletion"
