"""``pykruise explain`` for budgets, and their dashboard section."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, Final

from pydantic import ValidationError

from app.api import names
from app.features.podunavailablebudget.budgets import RESIZE_GATE, VERTICAL_SCALING
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET, ProtectedOperation
from app.features.podunavailablebudget.plan.pods import related_budget
from app.features.podunavailablebudget.plan.status import OPERATIONS, JudgedRequests, counts, explain, judgement_of
from app.features.podunavailablebudget.pod_admission import DELETE_GATE, UPDATE_GATE
from app.features.podunavailablebudget.targets import WATCHED, Caches, UnknownKindError, Workloads, listed_workloads
from app.features.podunavailablebudget.types import PodUnavailableBudget
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
    except UnknownKindError as error:
        raise CommandError(f"PodUnavailableBudget {name}: {error}") from error
    found = explain(budget, members.pods, members.expected, client.clock.now(), _judging(enabled))
    sentences = map(one_line, found.sentences)
    if not found.pods:
        return report([*sentences, "It has no Pods."])
    pods = table([("POD", "AVAILABLE", *OPERATIONS.values(), "BECAUSE"), *found.pods])
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
    lines = [f"budget      {name}; counts as available: {counts(budget, pod, now, judging)}"]
    for operation, word in OPERATIONS.items():
        if operation in judging.operations:
            judgement = judgement_of(budget, pod, operation, now, judging)
            verdict = "granted" if judgement.allowed else "refused"
            lines.append(f"{word.lower():<12}{verdict}: {judgement.why}")
        else:
            lines.append(f"{word.lower():<12}not judged: gate {_GATES[operation]} is off")
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
        return  # the user may lack access to the operator's list
    stores(one).replace(listed.items)


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
