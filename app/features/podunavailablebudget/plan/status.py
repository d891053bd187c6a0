"""Computes the status of a budget from its Pods, and explains it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from app.features.podunavailablebudget.kind import ProtectedOperation, protected_total
from app.features.podunavailablebudget.plan.disruption import (
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

# The status of a budget. [PUB-42, PUB-54 … PUB-58]

#: Seconds until a budget with unconfirmed overdue entries is requeued.
REQUEUE_DELAY: Final = 0.01
#: Margin after an entry's timeout, so that it is overdue when checked.
PAST: Final = 0.001


@dataclass(frozen=True, slots=True)
class Observed:
    """Inputs to a budget's status.

    ``confirmed`` holds Pods with an overdue entry as read from the API server; None means gone or replaced.
    """

    pods: Mapping[str, PodFacts]
    expected: Expected
    now: datetime
    seen: Mapping[str, Seen] = field(default_factory=dict)
    confirmed: Mapping[str, PodFacts | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recomputed:
    """The computed status and the follow-up work."""

    status: PodUnavailableBudgetStatus
    #: Pods whose deletion was granted but did not happen. [PUB-55]
    not_deleted: tuple[str, ...] = ()
    #: Pods that must be read from the API server before they count again.
    overdue: tuple[str, ...] = ()
    again_after: float | None = None


def recompute(budget: PodUnavailableBudget, observed: Observed) -> Recomputed:
    """Compute the status of a budget. Raises ``IntOrPercentError``."""
    status = budget.status or PodUnavailableBudgetStatus()
    disrupted = _kept(status.disrupted_pods, observed, DISRUPTED_FOR)
    unavailable = _kept(status.unavailable_pods, observed, UNAVAILABLE_FOR, come_back=True)
    held = disrupted.entries.keys() | unavailable.entries.keys()
    # Pods just read from the API server override the cache.
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
    """Return whether the Pod is available again. Observations that belong to an earlier grant do not count."""
    return pod is not None and seen is not None and seen.noted == noted and seen.is_back(pod)


def _changed(status: PodUnavailableBudgetStatus, computed: Mapping[str, Any]) -> PodUnavailableBudgetStatus:
    """Return the same status object if nothing differs. A missing map equals an empty one. [PUB-58]"""
    different = {name: value for name, value in computed.items() if (getattr(status, name) or None) != (value or None)}
    return status.model_copy(update=different) if different else status


# Output of ``pykruise explain pub``: the state of a budget, which Pods count and why, and how the next request for each
# Pod would be judged.


@dataclass(frozen=True, slots=True)
class JudgedRequests:
    """The operations whose gate is on, and the gates that affect resizes."""

    operations: Sequence[ProtectedOperation]
    resize_is_update: bool
    vertical_scaling: bool


@dataclass(frozen=True, slots=True)
class Explanation:
    """Sentences about the budget, and a row per Pod: its name, whether it counts, the outcome per operation, and the
    reason."""

    sentences: Sequence[str]
    pods: Sequence[tuple[str, ...]]


#: Operations shown for each Pod, and their column headings.
OPERATIONS: Final[Mapping[ProtectedOperation, str]] = {
    ProtectedOperation.DELETE: "DELETION",
    ProtectedOperation.EVICT: "EVICTION",
    ProtectedOperation.UPDATE: "UPDATE",
}


def explain(
    budget: PodUnavailableBudget, pods: Iterable[Pod], expected: Expected, now: datetime, judging: JudgedRequests
) -> Explanation:
    """Explain a budget. ``pods`` are the Pods it covers."""
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
    return (
        pod.metadata.name,
        counts(budget, pod, now, judging),
        *words,
        reasons[0] if reasons else "no gate is on",
    )


def judgement_of(
    budget: PodUnavailableBudget, pod: Pod, operation: ProtectedOperation, now: datetime, judging: JudgedRequests
) -> Judgement:
    """Return the judgement on a request made now."""
    settled = without_budget(pod, vertical_scaling=judging.vertical_scaling)
    return settled or judge(budget, pod, operation, now, resize_is_update=judging.resize_is_update).answer


def counts(budget: PodUnavailableBudget, pod: Pod, now: datetime, judging: JudgedRequests) -> str:
    """Return "yes", or why the Pod does not count as available. [PUB-42]"""
    status = budget.status or PodUnavailableBudgetStatus()
    name, metadata = pod.metadata.name, pod.metadata
    related = related_budget(metadata.annotations)
    if metadata.deletion_timestamp is not None:
        text = "no: it is being deleted"
    elif not is_active(pod):
        text = "no: it has terminated"
    elif marked := sorted(unavailable_labels(metadata.labels)):
        text = f"no: label {marked[0]}"
    elif not is_running_and_ready(pod):
        text = "no: it is not ready"
    elif not is_consistent(pod, vertical_scaling=judging.vertical_scaling):
        text = "no: its containers do not run the current spec yet"
    elif holds((status.disrupted_pods or {}).get(name), now, DISRUPTED_FOR):
        text = "no: its removal was granted"
    elif holds((status.unavailable_pods or {}).get(name), now, UNAVAILABLE_FOR):
        text = "no: its update was granted"
    else:
        text = "yes"
    if related == budget.name:
        return text
    return f"{text}; protected by {related}" if related else f"{text}; not annotated yet"


def rule(spec: PodUnavailableBudgetSpec, of: str = "") -> str:
    """Describe maxUnavailable or minAvailable. ``of`` describes the Pods that it refers to."""
    if spec.max_unavailable is not None:
        return f"at most {spec.max_unavailable}{of} may be unavailable"
    return f"at least {spec.min_available}{of} must stay available"


def _sentences(budget: PodUnavailableBudget, expected: Expected) -> list[str]:
    spec, status = budget.spec, budget.status or PodUnavailableBudgetStatus()
    total = protected_total(spec.protect_total_replicas, budget.metadata.annotations)
    if expected.gone and spec.target_ref is not None:
        wanted = f"{spec.target_ref.kind} {spec.target_ref.name} does not exist or is being deleted; {rule(spec)}"
    elif total is not None:
        wanted = rule(spec, f" of {total} Pods (protectTotalReplicas)")
    elif expected.replicas == UNKNOWN:
        wanted = rule(spec, " of an unknown number of desired Pods")
    else:
        wanted = rule(spec, f" of {expected.replicas} desired Pods")
    first = f"PodUnavailableBudget {budget.name}: {wanted}."
    if budget.deleting:
        return [first, "It is being deleted and refuses nothing."]
    if not is_computed(budget):
        return [
            first,
            "Its status does not reflect its spec yet: until it does, requests that need its permission are refused.",
        ]
    if status.desired_available == 0:
        return [first, "No Pods are required to stay available: every request is granted."]
    going = len(status.disrupted_pods or ()) + len(status.unavailable_pods or ())
    flight = f", {going} granted but not done yet" if going else ""
    stand = f"{status.current_available} are available, {status.desired_available} must stay available{flight}"
    allowed = status.unavailable_allowed
    if allowed <= 0:
        return [first, f"{stand}: the next request is refused."]
    return [first, f"{stand}: {allowed} more may be disrupted."]
