"""Reports about a workload: previews, explanations and status conditions. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from math import inf
from typing import Any, Final, TypeAlias

from app.api import names
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.pods.lifecycle import Hook, Lifecycle, LifecycleState
from app.workloads.pods import PodFacts

# Preview of a rollout: what would happen to each Pod, in which order and why, with wording shared by all workloads.
# Pure.


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
    #: Short hash of its revision afterwards, and its node, if the workload's preview reports them.
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
    return "next: nothing to do"


# Status conditions, and the patch from one status to the next. Pure. A status is the JSON object as stored; conditions
# of other types are kept. [CS-148 … CS-151]

Status: TypeAlias = Mapping[str, Any]

FAILED_SCALE: Final = "FailedScale"
FAILED_UPDATE: Final = "FailedUpdate"
#: In-place updates are waiting for the report of a node agent.
WAITING_FOR_AGENT: Final = "WaitingForNodeAgent"


def status_patch(present: Status, wanted: Status, *, required: Collection[str]) -> dict[str, Any]:
    """Return the merge patch from one status to the other; empty if they are equivalent. [CS-148]

    ``required`` lists the fields that the schema requires; others are omitted while empty.
    """
    patch: dict[str, Any] = {}
    for key, value in wanted.items():
        if not value and key not in required:
            if key in present and present[key] not in (None, 0, "", []):
                patch[key] = None
        elif key not in present or present[key] != value:
            patch[key] = value
    return patch


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition to set. ``dated`` adds lastUpdateTime. [CS-151]"""

    type: str
    status: str
    reason: str
    message: str
    dated: bool = True


def condition(status: Status, type_: str) -> Mapping[str, Any] | None:
    """Return the condition of that type in a status."""
    for found in status.get("conditions") or ():
        if isinstance(found, Mapping) and found.get("type") == type_:
            return found
    return None


def with_condition(
    conditions: Sequence[Mapping[str, Any]], wanted: Condition, now: datetime, *, refresh: bool = False
) -> list[Mapping[str, Any]]:
    """Set a condition. An unchanged condition keeps its times [CS-151] but gets the new message.

    With ``refresh``, lastUpdateTime is set even then.
    """
    entry: dict[str, Any] = {"type": wanted.type, "status": wanted.status}
    time = rfc3339(now)
    old = next((found for found in conditions if found.get("type") == wanted.type), None)
    moved = old is None or old.get("status") != wanted.status
    if wanted.dated:
        same = not moved and old is not None and (old.get("reason") or "") == wanted.reason
        known = old.get("lastUpdateTime") if old is not None else None
        entry["lastUpdateTime"] = known if same and known and not refresh else time
    since = old.get("lastTransitionTime") if old is not None and not moved else None
    entry["lastTransitionTime"] = since or time
    if wanted.reason:
        entry["reason"] = wanted.reason
    if wanted.message:
        entry["message"] = wanted.message
    if old is None:
        return [*conditions, entry]
    return [entry if found is old else found for found in conditions]


def without_condition(conditions: Sequence[Mapping[str, Any]], type_: str) -> list[Mapping[str, Any]]:
    """Return the conditions without that type."""
    return [found for found in conditions if found.get("type") != type_]


def with_failures(
    conditions: Sequence[Mapping[str, Any]], failures: Mapping[str, str | None], now: datetime
) -> list[Mapping[str, Any]]:
    """Set the failure conditions: a message by type, None for success; other types are unchanged. [CS-149, CS-150]"""
    result = list(conditions)
    for type_, message in failures.items():
        if message is None:
            result = without_condition(result, type_)
        else:
            result = with_condition(result, Condition(type_, "True", "", message, dated=False), now)
    return result
