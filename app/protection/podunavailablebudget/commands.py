"""``pykruise explain pub NAME``, and what ``pykruise explain pod NAME`` says of the Pod's budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from pydantic import ValidationError

from app.api import names
from app.api.podunavailablebudget import POD_UNAVAILABLE_BUDGET, PodUnavailableBudget, ProtectedOperation
from app.kube.client import Client
from app.kube.errors import Forbidden, NotFound
from app.kube.lookup import get_or_none
from app.kube.objects import Pod
from app.kube.text import one_line
from app.pods.obstacles import ways_out
from app.protection.podunavailablebudget.explain import OPERATIONS, JudgedRequests, counts, explain, judgement_of
from app.protection.podunavailablebudget.guard import DELETE_GATE, UPDATE_GATE
from app.protection.podunavailablebudget.keeper import RESIZE_GATE, VERTICAL_SCALING
from app.protection.podunavailablebudget.podstate import related_budget
from app.protection.podunavailablebudget.workloads import WATCHED, Caches, UnknownKindError, Workloads, listed_workloads
from app.slices import Scope, Stores, Watched
from app.slices.commands import CommandError, Commands, Report, Stored, report, table
from app.slices.options import Enabled

_GATES: Final = {
    ProtectedOperation.DELETE: DELETE_GATE,
    ProtectedOperation.EVICT: DELETE_GATE,
    ProtectedOperation.UPDATE: UPDATE_GATE,
}


async def explain_object(client: Client, stored: Stored, enabled: Enabled) -> Report:
    """How it stands, and its Pods. Raises CommandError or KubeError."""
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
    """The budget of a Pod, and what it says now. Raises KubeError."""
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
        return (f"budget      {name}: does not exist, so it holds nothing back",)
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
        return  # the kind is not installed
    except Forbidden:
        if not own:
            raise
        return  # what an operator listed is not everybody's to read
    stores(one).replace(listed.items)


COMMANDS: Final = Commands(
    POD_UNAVAILABLE_BUDGET, explain_object=explain_object, explain_any=explain_any, pausable=False, history=False
)
