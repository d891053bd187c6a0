"""``pykruise explain workloadspread NAME``: which subset the next Pod gets, and why."""

from __future__ import annotations

from typing import Any, Final

from pydantic import ValidationError

from app.api import names
from app.api.workloadspread import WORKLOAD_SPREAD, WorkloadSpread
from app.api.workloadspread.validation import group_of
from app.kube.client import Client
from app.kube.errors import Forbidden, NotFound
from app.kube.objects import OwnerReference
from app.kube.selectors import SelectorError
from app.kube.text import one_line
from app.placement.workloadspread.admission_lookups import ClusterLookups
from app.placement.workloadspread.controller import WATCHED
from app.placement.workloadspread.index import prepare_spread
from app.placement.workloadspread.plan.explain import explain, rows
from app.placement.workloadspread.plan.record import version_of, versioned_kinds
from app.placement.workloadspread.plan.replicas import ReplicasPathError
from app.placement.workloadspread.plan.whitelist import Whitelist
from app.placement.workloadspread.workloads import Caches, Workloads
from app.slices import Stores, Watched
from app.slices.commands import CommandError, Commands, Report, Stored, report, table
from app.slices.options import Enabled

#: What the manager is told by default; its flags are nobody's to read here.
_VERSIONED: Final = "deployment,replicaset"
_ALWAYS: Final = ("Pods", "ReplicaSets")


async def explain_object(client: Client, stored: Stored, _enabled: Enabled) -> Report:
    """How its subsets stand, and its Pods. Raises CommandError or KubeError."""
    try:
        spread = WorkloadSpread.model_validate(dict(stored))
        prepared = prepare_spread(spread)
    except (ValidationError, SelectorError) as error:
        raise CommandError(f"WorkloadSpread {(stored.get('metadata') or {}).get('name')}: {error}") from error
    whitelist = await _whitelist(client)
    versioned = versioned_kinds(_VERSIONED)
    stores = Stores(WATCHED)
    target = spread.spec.target_ref
    for one in WATCHED:
        kind = (one.resource.group, one.resource.kind)
        if one.name in _ALWAYS or kind == (group_of(target), target.kind):
            await _fill(client, one, stores, spread.metadata.namespace)
    caches = Caches(*map(stores, WATCHED))  # type: ignore[arg-type]
    try:
        found = await Workloads(client, caches, lambda: whitelist, versioned).find(prepared)
    except ReplicasPathError as error:
        raise CommandError(f"WorkloadSpread {spread.name}: {error}") from error
    pods = [
        (pod, version_of((pod.metadata.controller or OwnerReference()).kind, pod.metadata.labels, versioned))
        for pod in sorted(found.pods, key=lambda pod: pod.metadata.name)
    ]
    explained = explain(spread, pods, found.wanted, found.latest)
    tables = rows(explained)
    head = f"WorkloadSpread {spread.name}: {target.kind} {target.name} wants {found.wanted} Pods"
    parts = [one_line(head), table(tables["subsets"]), one_line(explained.next)]
    whole = "\n".join([*parts, "", table(tables["pods"])] if pods else parts)
    return report(whole, explained.todo)


async def _fill(client: Client, one: Watched[Any], stores: Stores, namespace: str) -> None:
    try:
        listed = await client.list(one.resource, namespace, decode=one.decode)
    except NotFound:
        return  # the kind is not installed
    stores(one).replace(listed.items)


async def _whitelist(client: Client) -> Whitelist:
    try:
        return await ClusterLookups(client, names.MANAGER_NAMESPACE).whitelist()
    except Forbidden:
        return Whitelist()


COMMANDS: Final = Commands(WORKLOAD_SPREAD, explain_object=explain_object, pausable=False, history=False)
