"""Previews of a rollout and explanations of a Pod, with wording shared by all workloads. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from math import inf
from typing import Final

from app.api import names
from app.kube.objects import Pod
from app.pods.lifecycle import Hook, Lifecycle, LifecycleState
from app.workloads.pods import PodFacts


class Action(StrEnum):
    """What would happen to a Pod."""

    IN_PLACE = "update in place"
    RECREATE = "recreate"
    CREATE = "create"
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class PreviewStep:
    """One Pod in a preview. Steps count from 1; Pods with the same step are changed together."""

    step: int
    action: Action
    pod: str
    reason: str = ""
    #: Short hash of the Pod's revision after the step, and the Pod's node, if the workload's preview reports them.
    revision: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class Preview:
    """All steps. ``rest`` lists the Pods (nodes for a DaemonSet) that keep another revision; ``ends`` is why the
    rollout stops before all are updated."""

    steps: tuple[PreviewStep, ...]
    rest: tuple[str, ...]
    ends: str

    def of(self, pod: str) -> PreviewStep | None:
        return next((one for one in self.steps if one.pod == pod), None)


PASSIVE: Final = {
    Action.IN_PLACE: "updated in place",
    Action.RECREATE: "recreated",
    Action.CREATE: "created",
    Action.DELETE: "deleted",
}
_READINESS: Final = ("Ready", names.KRUISE_POD_READY, names.IN_PLACE_UPDATE_READY)


def revision_line(facts: PodFacts, update: str) -> str:
    """Return the line about the Pod's revision. ``update`` is the short hash of the update revision."""
    if facts.revision == update:
        return f"revision: {facts.revision}, the update revision"
    return f"revision: {facts.revision or 'none'}, older than the update revision {update}"


def readiness_lines(facts: PodFacts, now: float, min_ready_seconds: int, *, available: bool) -> Iterator[str]:
    """Yield lines that say whether the Pod is available and, if not, why. ``now`` is in POSIX seconds."""
    state = facts.lifecycle or "none"
    if available:
        yield f"available; lifecycle state {state}"
        return
    yield f"not available; lifecycle state {state}"
    pod = facts.pod
    if pod.status.phase != "Running":
        where = f" on node {pod.spec.node_name}" if pod.spec.node_name else ", not scheduled yet"
        yield f"  its phase is {pod.status.phase or 'not reported'}{where}"
    for type_ in _READINESS:
        condition = pod.condition(type_)
        if condition is not None and condition.status != "True":
            detail = condition.message or condition.reason
            yield f"  condition {type_} is {condition.status}{f': {detail}' if detail else ''}"
    if now <= facts.available_after < inf:
        rest = timedelta(seconds=round(facts.available_after - now))
        yield f"  ready; available in {rest} (minReadySeconds {min_ready_seconds})"
    if facts.in_grace:
        yield "  it is out of service until the grace period of its update ends"


def held_lines(facts: PodFacts, lifecycle: Lifecycle | None) -> Iterator[str]:
    """Yield the line that says which hook holds up the Pod's deletion or update."""
    hook, what = None, ""
    if lifecycle is not None and facts.lifecycle == LifecycleState.PREPARING_DELETE:
        hook, what = lifecycle.pre_delete, "its deletion"
    elif lifecycle is not None and facts.lifecycle == LifecycleState.PREPARING_UPDATE:
        hook, what = lifecycle.in_place_update, "its update"
    if hook is not None and (holds := hook_members(hook, facts.pod, present=True)):
        yield f"  {what} waits until these are removed: {', '.join(holds)}"


def hook_members(hook: Hook, pod: Pod, *, present: bool) -> list[str]:
    """Return the finalizers and labels of the hook that the Pod has (``present``) or lacks."""
    finalizers, labels = pod.metadata.finalizers, pod.metadata.labels
    found = [f"finalizer {name}" for name in hook.finalizers if (name in finalizers) is present]
    return found + [
        f"label {key}={value}" for key, value in hook.labels.items() if (labels.get(key) == value) is present
    ]


def next_line(pod: str, coming: Preview) -> str:
    """Return the line about the next step of the named Pod."""
    turn = coming.of(pod)
    if turn is not None:
        steps = max(one.step for one in coming.steps)
        reason = f": {turn.reason}" if turn.reason else ""
        return f"next: will be {PASSIVE[turn.action]} in step {turn.step} of {steps}{reason}"
    if pod in coming.rest:
        return f"next: stays at its revision ({coming.ends})" if coming.ends else "next: stays at its revision"
    return "next: no change"
