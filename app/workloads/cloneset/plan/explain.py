"""Why a Pod of a CloneSet is as it is, and what comes next for it, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from math import inf

from app.api import names
from app.kube.objects import Pod
from app.pods.inplace import GraceError, RefreshAction, StateError, refresh
from app.pods.lifecycle import Hook, LifecycleState
from app.pods.predicates import is_active
from app.pods.ranking import NodeLabels
from app.pods.revisions import Revision, short_hash
from app.workloads.cloneset.plan.orders import deletion_order
from app.workloads.cloneset.plan.resolved import ResolvedSpec
from app.workloads.cloneset.plan.rollout import RolloutState
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.preview import Action, Preview

_PASSIVE = {
    Action.IN_PLACE: "updated in place",
    Action.RECREATE: "recreated",
    Action.CREATE: "created",
    Action.DELETE: "deleted",
}
_READINESS = ("Ready", names.KRUISE_POD_READY, names.IN_PLACE_UPDATE_READY)


def explain(
    pod: Pod, resolved: ResolvedSpec, rollout: RolloutState, coming: Preview, update: Revision, node_labels: NodeLabels
) -> list[str]:
    """Everything worth knowing about one Pod of the CloneSet, one line each.

    ``seen``: all its active Pods; ``coming``: what the roll-out would do from here.
    """
    facts = next((one for one in rollout.pods if one.pod.metadata.uid == pod.metadata.uid), None)
    if facts is None:
        return [_not_counted(pod, resolved)]
    lines = [_revision_line(facts, update), *_readiness_lines(facts, resolved, rollout), *_hook_lines(facts, resolved)]
    lines += _coming_lines(facts, rollout, coming)
    return [*lines, _scale_in_line(facts, resolved, rollout, node_labels)]


def _not_counted(pod: Pod, resolved: ResolvedSpec) -> str:
    if not is_active(pod):
        ended = pod.status.phase in ("Succeeded", "Failed")
        return "does not count: it is terminating" if not ended else f"does not count: its phase is {pod.status.phase}"
    if not resolved.selector.matches(pod.metadata.labels):
        return f"does not count: its labels do not match the selector {resolved.selector}"
    return "does not count: another object controls it"


def _revision_line(facts: PodFacts, update: Revision) -> str:
    if facts.revision == short_hash(update.name):
        return f"revision: {facts.revision}, the update revision"
    return f"revision: {facts.revision or 'none'}, older than the update revision {short_hash(update.name)}"


def _readiness_lines(facts: PodFacts, resolved: ResolvedSpec, rollout: RolloutState) -> Iterator[str]:
    state = facts.lifecycle or "none"
    if facts.available(rollout.now):
        yield f"available; lifecycle state {state}"
        return
    yield f"not available; lifecycle state {state}"
    pod = facts.pod
    if pod.status.phase != "Running":
        where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ", on no node yet"
        yield f"  its phase is {pod.status.phase or 'not reported'}{where}"
    for type_ in _READINESS:
        condition = pod.condition(type_)
        if condition is not None and condition.status != "True":
            said = condition.message or condition.reason
            yield f"  condition {type_} is {condition.status}{f': {said}' if said else ''}"
    if facts.available_after != inf and facts.available_after >= rollout.now:
        rest = timedelta(seconds=round(facts.available_after - rollout.now))
        yield f"  ready, and counts as available in {rest} (minReadySeconds {resolved.settings.min_ready_seconds})"
    if facts.in_grace:
        yield "  it is out of service until the grace period of its update ends"
    yield from _update_line(facts, resolved, rollout)


def _hook_lines(facts: PodFacts, resolved: ResolvedSpec) -> Iterator[str]:
    lifecycle = resolved.settings.lifecycle
    if lifecycle is None:
        return
    hook: Hook | None = None
    if facts.lifecycle in (LifecycleState.PREPARING_NORMAL, LifecycleState.UPDATED):
        awaits_initial_conditions = facts.lifecycle == LifecycleState.PREPARING_NORMAL
        hook = lifecycle.pre_normal if awaits_initial_conditions else lifecycle.in_place_update
        lacks = _members(hook, facts.pod, present=False) if hook is not None else []
        if lacks:
            yield f"  it comes into service once it has these: {', '.join(lacks)}"
        return
    if facts.lifecycle == LifecycleState.PREPARING_DELETE:
        hook, what = lifecycle.pre_delete, "its deletion"
    elif facts.lifecycle == LifecycleState.PREPARING_UPDATE:
        hook, what = lifecycle.in_place_update, "its update"
    if hook is None:
        return
    holds = _members(hook, facts.pod, present=True)
    if holds:
        yield f"  {what} waits until these are taken away: {', '.join(holds)}"


def _members(hook: Hook, pod: Pod, *, present: bool) -> list[str]:
    """The finalizers and labels of the hook that the Pod has, or those it lacks."""
    finalizers, labels = pod.metadata.finalizers, pod.metadata.labels
    found = [f"finalizer {name}" for name in hook.finalizers if (name in finalizers) is present]
    return found + [
        f"label {key}={value}" for key, value in hook.labels.items() if (labels.get(key) == value) is present
    ]


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
    turn = coming.of(facts.name)
    if turn is not None:
        steps = max(one.step for one in coming.steps)
        reason = f": {turn.reason}" if turn.reason else ""
        yield f"next: will be {_PASSIVE[turn.action]} in step {turn.step} of {steps}{reason}"
    elif facts.name in coming.rest:
        yield f"next: stays at its revision ({coming.ends})" if coming.ends else "next: stays at its revision"
    else:
        yield "next: nothing is to be done about it"


def _scale_in_line(facts: PodFacts, resolved: ResolvedSpec, rollout: RolloutState, node_labels: NodeLabels) -> str:
    order = deletion_order(resolved.template, node_labels, rollout.now)(list(rollout.pods))
    place = order.index(facts) + 1
    return f"scale-in: number {place} of {len(order)} in the order of deletion"
