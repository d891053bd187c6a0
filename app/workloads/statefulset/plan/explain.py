"""Why a Pod of a StatefulSet is as it is, and what comes next for it, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from math import inf
from typing import Final

from app.api import names
from app.pods.lifecycle import Hook, LifecycleState
from app.pods.ordinals import ordinal_of
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.preview import Action, Preview
from app.workloads.statefulset.plan.replicas import Replica, is_marked
from app.workloads.statefulset.plan.resolved import ResolvedSpec

_PASSIVE: Final = {
    Action.IN_PLACE: "updated in place",
    Action.RECREATE: "recreated",
    Action.CREATE: "created",
    Action.DELETE: "deleted",
}
_READINESS: Final = ("Ready", names.KRUISE_POD_READY, names.IN_PLACE_UPDATE_READY)


def explain(facts: PodFacts, resolved: ResolvedSpec, coming: Preview, *, update: str, now: float) -> list[str]:
    """Everything worth knowing about one Pod, one line each. ``coming``: what happens from here; ``update``: the short
    hash of the update revision; ``now``: POSIX seconds."""
    owner = resolved.owner.name
    pod = Replica(ordinal_of(owner, facts.name), facts)
    if pod.ordinal < 0 or not resolved.selector.matches(facts.pod.metadata.labels):
        return [f"does not count: StatefulSet {owner} has no Pod of this name with these labels"]
    lines = [_slot_line(pod, resolved)]
    if pod.is_at(update):
        lines.append(f"revision: {facts.revision}, the update revision")
    else:
        lines.append(f"revision: {facts.revision or 'none'}, older than the update revision {update}")
    return [*lines, *_readiness_lines(pod, resolved, now), *_hook_lines(pod, resolved), *_coming_lines(pod, coming)]


def _slot_line(pod: Replica, resolved: ResolvedSpec) -> str:
    slots, settings = resolved.settings.slots, resolved.settings
    rank = slots.rank(pod.ordinal)
    if not rank:
        return f"ordinal {pod.ordinal}: not wanted any more, by the replicas or because it is reserved"
    kept = not settings.unordered and not settings.on_delete and rank <= settings.partition
    partition = f"; the partition of {settings.partition} keeps it at its revision" if kept else ""
    return f"ordinal {pod.ordinal}: number {rank} of {len(slots)}{partition}"


def _readiness_lines(pod: Replica, resolved: ResolvedSpec, now: float) -> Iterator[str]:
    facts = pod.facts
    state = facts.lifecycle or "none"
    if pod.terminating:
        yield "it is being deleted; its ordinal stays free until it is gone"
        return
    if pod.usable(now):
        yield f"available; lifecycle state {state}"
        return
    yield f"not available; lifecycle state {state}"
    if facts.pod.status.phase != "Running":
        where = f" on node {facts.pod.spec.node_name}" if facts.pod.spec.node_name else ", on no node yet"
        yield f"  its phase is {facts.pod.status.phase or 'not reported'}{where}"
    for type_ in _READINESS:
        condition = facts.pod.condition(type_)
        if condition is not None and condition.status != "True":
            said = condition.message or condition.reason
            yield f"  condition {type_} is {condition.status}{f': {said}' if said else ''}"
    if now <= facts.available_after < inf:
        rest = timedelta(seconds=round(facts.available_after - now))
        yield f"  ready, and counts as available in {rest} (minReadySeconds {resolved.settings.min_ready_seconds})"
    if facts.in_grace:
        yield "  it is out of service until the grace period of its update ends"
    elif not facts.update_complete:
        yield "  its update in place goes on: its containers have not changed yet"


def _hook_lines(pod: Replica, resolved: ResolvedSpec) -> Iterator[str]:
    lifecycle = resolved.settings.lifecycle
    if lifecycle is None:
        return
    state, hook, what = pod.facts.lifecycle, None, ""
    if state == LifecycleState.PREPARING_DELETE:
        hook, what = lifecycle.pre_delete, "its deletion"
    elif state == LifecycleState.PREPARING_UPDATE:
        hook, what = lifecycle.in_place_update, "its update"
    if hook is not None and (holds := _holds(hook, pod)):
        yield f"  {what} waits until these are taken away: {', '.join(holds)}"


def _holds(hook: Hook, pod: Replica) -> list[str]:
    metadata = pod.facts.pod.metadata
    found = [f"finalizer {name}" for name in hook.finalizers if name in metadata.finalizers]
    return found + [f"label {key}={value}" for key, value in hook.labels.items() if metadata.labels.get(key) == value]


def _coming_lines(pod: Replica, coming: Preview) -> Iterator[str]:
    if is_marked(pod):
        yield f"somebody asked to have it deleted (label {names.SPECIFIED_DELETE})"
    turn = coming.of(pod.name)
    if turn is not None:
        steps = max(one.step for one in coming.steps)
        reason = f": {turn.reason}" if turn.reason else ""
        yield f"next: will be {_PASSIVE[turn.action]} in step {turn.step} of {steps}{reason}"
    elif pod.name in coming.rest:
        yield f"next: stays at its revision ({coming.ends})" if coming.ends else "next: stays at its revision"
    elif coming.ends.startswith("OrderedReady"):
        yield f"next: nothing, until this ends: {coming.ends}"
    else:
        yield "next: nothing is to be done about it"
