"""How a budget stands, which of its Pods count and why not, and what the next request about each would be told.

Pure; the words are those of ``pykruise explain pub``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from app.api.podunavailablebudget import (
    PodUnavailableBudget,
    PodUnavailableBudgetSpec,
    PodUnavailableBudgetStatus,
    ProtectedOperation,
    protected_total,
)
from app.kube.objects import Pod
from app.pods.predicates import is_active, is_running_and_ready
from app.protection.podunavailablebudget.inflight import DISRUPTED_FOR, UNAVAILABLE_FOR, holds
from app.protection.podunavailablebudget.judgement import Judgement, is_computed, judge, without_budget
from app.protection.podunavailablebudget.numbers import UNKNOWN, Expected
from app.protection.podunavailablebudget.podstate import is_consistent, related_budget, unavailable_labels


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
