"""``pykruise explain`` for budgets, and their dashboard section."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pydantic import ValidationError

from app.api import names
from app.features.podunavailablebudget.budgets import RESIZE_GATE, VERTICAL_SCALING
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET, ProtectedOperation, protected_total
from app.features.podunavailablebudget.plan.denials import Judgement, judge, without_budget
from app.features.podunavailablebudget.plan.pods import is_consistent, related_budget, unavailable_labels
from app.features.podunavailablebudget.plan.status import (
    DISRUPTED_FOR,
    UNAVAILABLE_FOR,
    UNKNOWN,
    Expected,
    holds,
    is_computed,
)
from app.features.podunavailablebudget.pod_admission import DELETE_GATE, UPDATE_GATE
from app.features.podunavailablebudget.targets import WATCHED, Caches, UnknownWorkloadError, Workloads, listed_workloads
from app.features.podunavailablebudget.types import (
    PodUnavailableBudget,
    PodUnavailableBudgetSpec,
    PodUnavailableBudgetStatus,
)
from app.framework.commands import Commands, Report, Stored, report, table
from app.framework.dashboard import DashboardSection, Row, Shown, mapping, number, text
from app.framework.options import Enabled
from app.framework.watched import Scope, Stores, Watched
from app.kube.client import Client, get_or_none
from app.kube.errors import CommandError, Forbidden, NotFound
from app.kube.objects import Pod
from app.kube.resources import ObjectKey
from app.kube.text import one_line
from app.pods.not_ready_reasons import ways_out
from app.pods.predicates import is_active, is_running_and_ready

_GATES: Final = {
    ProtectedOperation.DELETE: DELETE_GATE,
    ProtectedOperation.EVICT: DELETE_GATE,
    ProtectedOperation.UPDATE: UPDATE_GATE,
}


async def explain_object(client: Client, stored: Stored, enabled: Enabled) -> Report:
    """Explain a budget and its Pods. Raises CommandError or KubeError."""
    name = (stored.get("metadata") or {}).get("name")
    try:
        budget = PodUnavailableBudget.model_validate(dict(stored))
    except ValidationError as error:
        raise CommandError(f"PodUnavailableBudget {name}: {error}") from error
    stores = Stores(WATCHED)
    for one in WATCHED:
        await _fill(client, one, stores, budget.metadata.namespace)
    caches = Caches.of(stores)
    try:
        listed = listed_workloads(caches.configuration, names.MANAGER_NAMESPACE)
        members = await Workloads(client, caches, listed).members(budget)
    except UnknownWorkloadError as error:
        raise CommandError(f"PodUnavailableBudget {name}: {error}") from error
    sentences = map(one_line, _sentences(budget, members.expected))
    if not members.pods:
        return report([*sentences, "It has no Pods."])
    now, judging = client.clock.now(), _judging(enabled)
    rows = [_row(budget, pod, now, judging) for pod in sorted(members.pods, key=lambda pod: pod.metadata.name)]
    pods = table([("POD", "AVAILABLE", *OPERATIONS.values(), "BECAUSE"), *rows])
    return report([*sentences, "", *pods.split("\n")], ways_out(members.pods))


async def explain_any(client: Client, pod: Pod, enabled: Enabled) -> Sequence[str]:
    """Explain the budget of a Pod, and how it would judge requests now. Raises KubeError."""
    name = related_budget(pod.metadata.annotations)
    if not name:
        return ()
    budget = await get_or_none(
        client,
        POD_UNAVAILABLE_BUDGET.resource(),
        name,
        pod.metadata.namespace,
        decode=PodUnavailableBudget.model_validate_json,
    )
    if budget is None:
        return (f"budget      {name}: does not exist, so it refuses nothing",)
    now, judging = client.clock.now(), _judging(enabled)
    lines = [f"budget      {name}; the Pod counts as available: {counts(budget, pod, now, judging)}"]
    for operation, word in OPERATIONS.items():
        if operation in judging.operations:
            judgement = judgement_of(budget, pod, operation, now, judging)
            verdict = "granted" if judgement.allowed else "refused"
            lines.append(f"{word.lower():<12}{verdict}: {judgement.why}")
        else:
            lines.append(f"{word.lower():<12}not checked: gate {_GATES[operation]} is off")
    return lines


def _judging(enabled: Enabled) -> JudgedRequests:
    return JudgedRequests(
        tuple(operation for operation, gate in _GATES.items() if enabled(gate)),
        resize_is_update=not enabled(RESIZE_GATE),
        vertical_scaling=enabled(VERTICAL_SCALING),
    )


async def _fill(client: Client, one: Watched[Any], stores: Stores, namespace: str) -> None:
    own = one.scope is Scope.OWN
    try:
        listed = await client.list(
            one.resource,
            names.MANAGER_NAMESPACE if own else namespace,
            field_selector=one.field_selector,
            decode=one.decode,
        )
    except NotFound:
        return  # the CRD is not installed
    except Forbidden:
        if not own:
            raise
        return  # the user may not read the manager's namespace
    stores(one).replace(listed.items)


# Explains a budget: its state, which Pods count and why, and how the next request for each Pod would be judged.


@dataclass(frozen=True, slots=True)
class JudgedRequests:
    """The operations whose gate is on, and the gates that affect resizes."""

    operations: Sequence[ProtectedOperation]
    resize_is_update: bool
    vertical_scaling: bool


#: Operations shown for each Pod, and their column headings.
OPERATIONS: Final[Mapping[ProtectedOperation, str]] = {
    ProtectedOperation.DELETE: "DELETION",
    ProtectedOperation.EVICT: "EVICTION",
    ProtectedOperation.UPDATE: "UPDATE",
}


def _row(budget: PodUnavailableBudget, pod: Pod, now: datetime, judging: JudgedRequests) -> tuple[str, ...]:
    """Return the name of a Pod, whether it counts, the outcome per operation, and the reason."""
    answers = {
        operation: judgement_of(budget, pod, operation, now, judging) if operation in judging.operations else None
        for operation in OPERATIONS
    }
    words = ("not checked" if one is None else "granted" if one.allowed else "refused" for one in answers.values())
    judged = [one for one in answers.values() if one is not None]
    refused = [one for one in judged if not one.allowed]
    reasons = [one.why for one in (*refused, *judged)]
    return (
        pod.metadata.name,
        counts(budget, pod, now, judging),
        *words,
        reasons[0] if reasons else "no feature gate is enabled",
    )


def judgement_of(
    budget: PodUnavailableBudget, pod: Pod, operation: ProtectedOperation, now: datetime, judging: JudgedRequests
) -> Judgement:
    """Return how a request would be judged now."""
    settled = without_budget(pod, vertical_scaling=judging.vertical_scaling)
    return settled or judge(budget, pod, operation, now, resize_is_update=judging.resize_is_update).answer


def counts(budget: PodUnavailableBudget, pod: Pod, now: datetime, judging: JudgedRequests) -> str:
    """Return "yes", or why the Pod does not count as available. [PUB-42]"""
    status = budget.status or PodUnavailableBudgetStatus()
    name, metadata = pod.metadata.name, pod.metadata
    related = related_budget(metadata.annotations)
    if metadata.deletion_timestamp is not None:
        answer = "no: it is being deleted"
    elif not is_active(pod):
        answer = "no: it has terminated"
    elif marked := sorted(unavailable_labels(metadata.labels)):
        answer = f"no: label {marked[0]}"
    elif not is_running_and_ready(pod):
        answer = "no: it is not ready"
    elif not is_consistent(pod, vertical_scaling=judging.vertical_scaling):
        answer = "no: its containers do not run the current spec yet"
    elif holds((status.disrupted_pods or {}).get(name), now, DISRUPTED_FOR):
        answer = "no: its removal was granted"
    elif holds((status.unavailable_pods or {}).get(name), now, UNAVAILABLE_FOR):
        answer = "no: its update was granted"
    else:
        answer = "yes"
    if related == budget.name:
        return answer
    return f"{answer}; protected by {related}" if related else f"{answer}; not annotated yet"


def rule(spec: PodUnavailableBudgetSpec, of: str = "") -> str:
    """Describe maxUnavailable or minAvailable. ``of`` names the total, such as " of 5 desired Pods"."""
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
    flight = f", {going} granted but not carried out yet" if going else ""
    stand = f"{status.current_available} are available, {status.desired_available} must stay available{flight}"
    allowed = status.unavailable_allowed
    if allowed <= 0:
        return [first, f"{stand}: the next request is refused."]
    return [first, f"{stand}: {allowed} more may be disrupted."]


COMMANDS: Final = Commands(
    POD_UNAVAILABLE_BUDGET, explain_object=explain_object, explain_any=explain_any, pausable=False, history=False
)


class BudgetRow(Row):
    """A PodUnavailableBudget, and how it would judge the next disruption."""

    available: int
    desired: int
    total: int
    allowed: int
    verdict: str


def row(stored: Stored, _lacking: Collection[ObjectKey]) -> BudgetRow:
    """Return the dashboard row of a budget."""
    metadata, status = mapping(stored, "metadata"), mapping(stored, "status")
    allowed = number(status, "unavailableAllowed")
    available, desired = number(status, "currentAvailable"), number(status, "desiredAvailable")
    total, namespace = number(status, "totalReplicas"), text(metadata, "namespace")
    if number(status, "observedGeneration") < number(metadata, "generation"):
        verdict = "not computed yet"
    elif allowed > 0:
        verdict = f"disruptions allowed: {allowed}"
    else:
        verdict = f"refuses the next disruption: {available} available, {desired} required"
    return BudgetRow(
        namespace=namespace,
        name=text(metadata, "name"),
        shown=Shown(
            about=namespace,
            tone="good" if allowed > 0 else "busy",
            message=verdict,
            detail=f"{available} of {total} available, {desired} required",
        ),
        available=available,
        desired=desired,
        total=total,
        allowed=allowed,
        verdict=verdict,
    )


#: Exhausted budgets come first.
SECTION: Final = DashboardSection(
    "budgets",
    "Budgets",
    POD_UNAVAILABLE_BUDGET,
    BudgetRow,
    row,
    place=lambda one: (one.allowed > 0, one.namespace, one.name),
)
