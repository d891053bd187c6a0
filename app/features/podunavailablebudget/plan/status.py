"""The status of a budget computed from its Pods, and an explanation of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from app.features.podunavailablebudget.kind import ProtectedOperation, protected_total
from app.features.podunavailablebudget.plan.judgement import (
    DISRUPTED_FOR,
    UNAVAILABLE_FOR,
    EntryState,
    Judgement,
    Seen,
    entry_state,
    holds,
    is_computed,
    judge,
    seconds_left,
    without_budget,
)
from app.features.podunavailablebudget.plan.pods import (
    UNKNOWN,
    Expected,
    PodFacts,
    allowed,
    desired_available,
    is_consistent,
    related_budget,
    unavailable_labels,
)
from app.features.podunavailablebudget.types import (
    PodUnavailableBudget,
    PodUnavailableBudgetSpec,
    PodUnavailableBudgetStatus,
)
from app.kube.objects import Pod
from app.pods.predicates import is_active, is_running_and_ready

# The status of a budget from what is observed (PUB-42, PUB-54 … PUB-58). Pure.

#: Seconds after which something overdue that was not looked at yet is looked at.
REQUEUE_DELAY: Final = 0.01
#: An entry is found overdue a moment after its time, not at it.
PAST: Final = 0.001


@dataclass(frozen=True, slots=True)
class Observed:
    """What a budget's status follows from. ``expected``: as its workloads have it.

    ``confirmed``: Pods whose entry is overdue, as the API server has them now; None: it has none, or another of that
    name.
    """

    pods: Mapping[str, PodFacts]
    expected: Expected
    now: datetime
    seen: Mapping[str, Seen] = field(default_factory=dict)
    confirmed: Mapping[str, PodFacts | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The status, and what follows from it."""

    status: PodUnavailableBudgetStatus
    #: Pods that were granted to be deleted, and are there all the same (PUB-55).
    not_deleted: tuple[str, ...] = ()
    #: Pods that have to be looked at before they count again.
    overdue: tuple[str, ...] = ()
    again_after: float | None = None


def recompute(budget: PodUnavailableBudget, observed: Observed) -> Recomputed:
    """The status of this copy of a budget. Raises ``IntOrPercentError``."""
    status = budget.status or PodUnavailableBudgetStatus()
    disrupted = _kept(status.disrupted_pods, observed, DISRUPTED_FOR)
    unavailable = _kept(status.unavailable_pods, observed, UNAVAILABLE_FOR, come_back=True)
    held = disrupted.entries.keys() | unavailable.entries.keys()
    # What was looked at just now counts as it was found.
    pods = (observed.confirmed.get(name, pod) for name, pod in observed.pods.items() if name not in held)
    current = sum(pod is not None and pod.active and pod.healthy for pod in pods)
    spec, total = budget.spec, protected_total(budget.spec.protect_total_replicas, budget.metadata.annotations)
    expected = observed.expected if total is None else Expected(total, gone=observed.expected.gone)
    desired = desired_available(spec.max_unavailable, spec.min_available, expected)
    computed = {
        "observed_generation": budget.metadata.generation,
        "disrupted_pods": disrupted.entries or None,
        "unavailable_pods": unavailable.entries or None,
        "unavailable_allowed": allowed(current, desired),
        "current_available": current,
        "desired_available": desired,
        "total_replicas": expected.replicas,
    }
    times = [left for one in (disrupted, unavailable) for left in one.left]
    overdue = (*disrupted.overdue, *unavailable.overdue)
    return Recomputed(
        status=_changed(status, computed),
        not_deleted=disrupted.lapsed,
        overdue=overdue,
        again_after=REQUEUE_DELAY if overdue else min(times) + PAST if times else None,
    )


@dataclass(slots=True)
class _Kept:
    entries: dict[str, str] = field(default_factory=dict)
    overdue: tuple[str, ...] = ()
    lapsed: tuple[str, ...] = ()
    left: list[float] = field(default_factory=list)


def _kept(entries: Mapping[str, str] | None, observed: Observed, lasts: timedelta, *, come_back: bool = False) -> _Kept:
    found = _Kept()
    for name, noted in (entries or {}).items():
        pod, seen = observed.pods.get(name), observed.seen.get(name)
        what = entry_state(noted, pod, seen, observed.now, lasts)
        if what is EntryState.OVERDUE and name in observed.confirmed:
            live = observed.confirmed[name]
            if live is not None and live.active:
                found.lapsed += (name,)
        elif what is EntryState.OVERDUE:
            found.entries[name] = noted
            found.overdue += (name,)
        elif what is EntryState.STAYS and not (come_back and _is_back(noted, pod, seen)):
            found.entries[name] = noted
            found.left.append(seconds_left(noted, observed.now, lasts))
    return found


def _is_back(noted: str, pod: PodFacts | None, seen: Seen | None) -> bool:
    """What was seen since an earlier grant says nothing about this one."""
    return pod is not None and seen is not None and seen.noted == noted and seen.is_back(pod)


def _changed(status: PodUnavailableBudgetStatus, computed: Mapping[str, Any]) -> PodUnavailableBudgetStatus:
    """PUB-58: the very same status where nothing differs; no map and an empty one are the same."""
    different = {name: value for name, value in computed.items() if (getattr(status, name) or None) != (value or None)}
    return status.model_copy(update=different) if different else status


# How a budget stands, which of its Pods count and why not, and what the next request about each would be told.
#
# Pure; the words are those of ``pykruise explain pub``.


@dataclass(frozen=True, slots=True)
class JudgedRequests:
    """What a manager judges: the operations whose gate is on, and what counts as a resize."""

    operations: Sequence[ProtectedOperation]
    resize_is_update: bool
    vertical_scaling: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Sentences about the budget, and a row per Pod: its name, whether it counts, what each operation is told, why."""

    sentences: Sequence[str]
    pods: Sequence[tuple[str, ...]]


#: The operations that a Pod is asked about, and what a person calls them.
OPERATIONS: Final[Mapping[ProtectedOperation, str]] = {
    ProtectedOperation.DELETE: "DELETION",
    ProtectedOperation.EVICT: "EVICTION",
    ProtectedOperation.UPDATE: "UPDATE",
}


def explain(
    budget: PodUnavailableBudget, pods: Iterable[Pod], expected: Expected, now: datetime, judging: JudgedRequests
) -> Explanation:
    """``pods``: those that count for it; ``expected``: as its workloads have it."""
    found = sorted(pods, key=lambda pod: pod.metadata.name)
    return Explanation(_sentences(budget, expected), [_row(budget, pod, now, judging) for pod in found])


def _row(budget: PodUnavailableBudget, pod: Pod, now: datetime, judging: JudgedRequests) -> tuple[str, ...]:
    answers = {
        operation: judgement_of(budget, pod, operation, now, judging) if operation in judging.operations else None
        for operation in OPERATIONS
    }
    words = ("not judged" if one is None else "granted" if one.allowed else "refused" for one in answers.values())
    judged = [one for one in answers.values() if one is not None]
    refused = [one for one in judged if not one.allowed]
    reasons = [one.why for one in (*refused, *judged)]
    return (pod.metadata.name, counts(budget, pod, now, judging), *words, reasons[0] if reasons else "no gate is on")


def judgement_of(
    budget: PodUnavailableBudget, pod: Pod, operation: ProtectedOperation, now: datetime, judging: JudgedRequests
) -> Judgement:
    """What a request of now would be told."""
    settled = without_budget(pod, vertical_scaling=judging.vertical_scaling)
    return settled or judge(budget, pod, operation, now, resize_is_update=judging.resize_is_update).answer


def counts(budget: PodUnavailableBudget, pod: Pod, now: datetime, judging: JudgedRequests) -> str:
    """Whether the Pod counts as available, and if not why (PUB-42)."""
    status = budget.status or PodUnavailableBudgetStatus()
    name, metadata = pod.metadata.name, pod.metadata
    related = related_budget(metadata.annotations)
    if metadata.deletion_timestamp is not None:
        text = "no: it is on its way out"
    elif not is_active(pod):
        text = "no: it has ended"
    elif marked := sorted(unavailable_labels(metadata.labels)):
        text = f"no: label {marked[0]}"
    elif not is_running_and_ready(pod):
        text = "no: it is not ready"
    elif not is_consistent(pod, vertical_scaling=judging.vertical_scaling):
        text = "no: its containers do not run what its spec says yet"
    elif holds((status.disrupted_pods or {}).get(name), now, DISRUPTED_FOR):
        text = "no: its removal was granted"
    elif holds((status.unavailable_pods or {}).get(name), now, UNAVAILABLE_FOR):
        text = "no: its update was granted"
    else:
        text = "yes"
    if related == budget.name:
        return text
    return f"{text}; judged by {related}" if related else f"{text}; not annotated yet"


def rule(spec: PodUnavailableBudgetSpec) -> str:
    """What the budget asks for, in words."""
    if spec.max_unavailable is not None:
        return f"at most {spec.max_unavailable} may be unavailable"
    return f"at least {spec.min_available} have to stay available"


def _sentences(budget: PodUnavailableBudget, expected: Expected) -> list[str]:
    spec, status = budget.spec, budget.status or PodUnavailableBudgetStatus()
    total = protected_total(spec.protect_total_replicas, budget.metadata.annotations)
    if expected.gone and spec.target_ref is not None:
        wanted = f"{spec.target_ref.kind} {spec.target_ref.name} is not there, or on its way out;"
    elif total is not None:
        wanted = f"of {total} Pods, as the budget says itself,"
    elif expected.replicas == UNKNOWN:
        wanted = "of Pods whose workload does not say how many it wants"
    else:
        wanted = f"of {expected.replicas} Pods that are wanted"
    first = f"PodUnavailableBudget {budget.name}: {wanted} {rule(spec)}."
    if budget.deleting:
        return [first, "It is on its way out and holds nothing back."]
    if not is_computed(budget):
        return [
            first,
            "Its numbers are not those of its present spec: until the controller has written them, nothing "
            "is let through that needs them.",
        ]
    if status.desired_available == 0:
        return [first, "No Pod has to stay: nothing is refused."]
    going = len(status.disrupted_pods or ()) + len(status.unavailable_pods or ())
    flight = f", {going} granted and not seen done yet" if going else ""
    stand = f"{status.current_available} are available, {status.desired_available} have to stay{flight}"
    allowed = status.unavailable_allowed
    if allowed <= 0:
        return [first, f"{stand}: the next one is refused."]
    return [first, f"{stand}: {allowed} more may go."]
