"""Why a Pod is as it is, and what comes next for it, as every workload's ``explain`` says it. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from math import inf
from typing import Final

from app.api import names
from app.kube.objects import Pod
from app.pods.lifecycle import Hook, Lifecycle, LifecycleState
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.preview import Action, Preview

_PASSIVE: Final = {
    Action.IN_PLACE: "updated in place",
    Action.RECREATE: "recreated",
    Action.CREATE: "created",
    Action.DELETE: "deleted",
}
_READINESS: Final = ("Ready", names.KRUISE_POD_READY, names.IN_PLACE_UPDATE_READY)


def revision_line(facts: PodFacts, update: str) -> str:
    """``update``: the short hash of the update revision."""
    if facts.revision == update:
        return f"revision: {facts.revision}, the update revision"
    return f"revision: {facts.revision or 'none'}, older than the update revision {update}"


def readiness_lines(facts: PodFacts, now: float, min_ready_seconds: int, *, available: bool) -> Iterator[str]:
    """Whether it is available, and what it lacks for that. ``now``: POSIX seconds."""
    state = facts.lifecycle or "none"
    if available:
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
    if now <= facts.available_after < inf:
        rest = timedelta(seconds=round(facts.available_after - now))
        yield f"  ready, and counts as available in {rest} (minReadySeconds {min_ready_seconds})"
    if facts.in_grace:
        yield "  it is out of service until the grace period of its update ends"


def held_lines(facts: PodFacts, lifecycle: Lifecycle | None) -> Iterator[str]:
    """Which hook holds its deletion or its update."""
    hook, what = None, ""
    if lifecycle is not None and facts.lifecycle == LifecycleState.PREPARING_DELETE:
        hook, what = lifecycle.pre_delete, "its deletion"
    elif lifecycle is not None and facts.lifecycle == LifecycleState.PREPARING_UPDATE:
        hook, what = lifecycle.in_place_update, "its update"
    if hook is not None and (holds := hook_members(hook, facts.pod, present=True)):
        yield f"  {what} waits until these are taken away: {', '.join(holds)}"


def hook_members(hook: Hook, pod: Pod, *, present: bool) -> list[str]:
    """The finalizers and labels of the hook that the Pod has, or those it lacks."""
    finalizers, labels = pod.metadata.finalizers, pod.metadata.labels
    found = [f"finalizer {name}" for name in hook.finalizers if (name in finalizers) is present]
    return found + [
        f"label {key}={value}" for key, value in hook.labels.items() if (labels.get(key) == value) is present
    ]


def next_line(pod: str, coming: Preview) -> str:
    """What comes next for a Pod, by its name."""
    turn = coming.of(pod)
    if turn is not None:
        steps = max(one.step for one in coming.steps)
        reason = f": {turn.reason}" if turn.reason else ""
        return f"next: will be {_PASSIVE[turn.action]} in step {turn.step} of {steps}{reason}"
    if pod in coming.rest:
        return f"next: stays at its revision ({coming.ends})" if coming.ends else "next: stays at its revision"
    return "next: nothing is to be done about it"
