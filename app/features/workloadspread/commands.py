"""``pykruise explain`` for WorkloadSpreads, and their dashboard section."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from app.api import names
from app.features.workloadspread.index import prepare_spread
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.features.workloadspread.plan.placement import (
    UNLIMITED,
    VERSION_IGNORED,
    limit_of,
    places_of,
    schedulable,
    version_of,
    version_statuses,
    versioned_kinds,
)
from app.features.workloadspread.plan.subsets import NO_SUBSET, recorded_subset
from app.features.workloadspread.plan.targets import ReplicasPathError, Whitelist
from app.features.workloadspread.reconcile import WATCHED
from app.features.workloadspread.targets import Caches, Workloads
from app.features.workloadspread.types import WorkloadSpread
from app.features.workloadspread.webhooks import SpreadLookups
from app.framework.commands import Commands, Report, Stored, report, table
from app.framework.dashboard import SHOWN, DashboardModel, DashboardSection, Row, Shown, mapping, number, text
from app.framework.options import Enabled
from app.framework.watched import Stores, Watched
from app.kube.client import Client
from app.kube.errors import CommandError, Forbidden, NotFound
from app.kube.objects import OwnerReference, Pod
from app.kube.resources import ObjectKey
from app.kube.selector_query import SelectorError
from app.kube.text import one_line
from app.pods.predicates import is_active

# Output of ``pykruise explain workloadspread``: the state of each subset, the subset of the next Pod, and the deletion
# cost of each Pod.


#: Headings of the two tables.
_SUBSETS: Final = ("SUBSET", "LIMIT", "PODS", "CREATING", "DELETING", "FREE", "NEXT POD")
_PODS: Final = ("POD", "VERSION", "SUBSET", "COST", "BECAUSE")


@dataclass(frozen=True, slots=True)
class Explanation:
    """Explanation of a WorkloadSpread: a row for each subset and each Pod, and suggestions for the user. ``next``
    describes what happens to the next Pod."""

    subsets: Sequence[tuple[str, ...]]
    next: str
    pods: Sequence[tuple[str, ...]]
    todo: Sequence[str]


def explain(spread: WorkloadSpread, pods: Iterable[tuple[Pod, str]], wanted: int, latest: str) -> Explanation:
    """Explain a WorkloadSpread. ``pods`` holds each Pod with its version; ``wanted`` is the number of replicas of the
    target."""
    version = latest or VERSION_IGNORED
    ordinals = spread.spec.target_ref.kind == "StatefulSet"
    found, chosen, todo = _subsets(spread, version, wanted, ordinals=ordinals)
    if ordinals:
        sentence = "Pods are assigned by ordinal, in the order of the subsets."
    elif chosen:
        sentence = f"The next Pod{'' if version == VERSION_IGNORED else f' of version {version}'} goes into {chosen}."
    else:
        sentence = "The next Pod gets no subset because all are full. It is created unchanged."
        todo.append("to assign all Pods, raise maxReplicas of a subset or add a subset without maxReplicas")
    return Explanation(found, sentence, [_pod(spread, pod, of) for pod, of in pods], todo)


def _subsets(
    spread: WorkloadSpread, version: str, wanted: int, *, ordinals: bool
) -> tuple[list[tuple[str, ...]], str, list[str]]:
    """Return a row per subset, the subset that gets the next Pod, and suggestions."""
    statuses = version_statuses(spread, version, wanted)
    found: list[tuple[str, ...]] = []
    todo = []
    chosen, first = "", 0
    for subset, status in zip(spread.spec.subsets, statuses, strict=False):
        limit, places = limit_of(subset, wanted), places_of(subset, status, wanted)
        condition = schedulable(status)
        if condition is not None and condition.status == "False":
            # The scheduler found no node for the subset's Pods, so new Pods skip the subset for a while.
            todo.append(f"free up capacity for subset {subset.name}: its Pods are unschedulable")
            what = f"skipped: its Pods have been unschedulable since {condition.last_transition_time}"
        elif ordinals:
            what = f"ordinals from {first}" if limit is None else f"ordinals {first} to {first + limit - 1}"
            what, first = ("no ordinals" if limit == 0 else what), first + (limit or 0)
        elif chosen:
            what = f"not considered: {chosen} comes first"
        elif places == 0:
            what = "skipped: it is full"
        else:
            what, chosen = "chosen", subset.name
        takes = "any number" if limit is None else str(limit)
        if isinstance(subset.max_replicas, str):
            takes = f"{subset.max_replicas} of {wanted}: {takes}"
        counts = (status.replicas, len(status.creating_pods or ()), len(status.deleting_pods or ()))
        shown = "any number" if places == UNLIMITED else str(places)
        found.append((subset.name, takes, *map(str, counts), shown, what))
    return found, chosen, todo


def _pod(spread: WorkloadSpread, pod: Pod, version: str) -> tuple[str, ...]:
    subset = recorded_subset(spread, pod)
    cost = pod.metadata.annotations.get(names.POD_DELETION_COST, "-")
    if not is_active(pod):
        why = "not counted: it has terminated or is being deleted"
    elif subset is None:
        why = "it has no subset: none fits the node it runs on" if pod.spec.node_name else "it has no subset yet"
    elif subset == NO_SUBSET:
        why = "its subset was removed, so the Pod is deleted first"
    elif cost.startswith("-") and cost != "-":
        why = "beyond maxReplicas of its subset, so the Pod is deleted before others"
    else:
        why = "-"
    shown = "-" if subset in (None, NO_SUBSET) else str(subset)
    return pod.metadata.name, "-" if version == VERSION_IGNORED else version, shown, cost, why


#: Default of the manager's flag. The command does not know the flag's actual value.
_VERSIONED: Final = "deployment,replicaset"
_ALWAYS: Final = ("Pods", "ReplicaSets")


async def explain_object(client: Client, stored: Stored, _enabled: Enabled) -> Report:
    """Explain a WorkloadSpread and its Pods. Raises CommandError or KubeError."""
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
        if one.name in _ALWAYS or kind == target.group_kind:
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
    head = f"WorkloadSpread {spread.name}: {target.kind} {target.name} wants {found.wanted} Pods"
    parts = [one_line(head), table([_SUBSETS, *explained.subsets]), one_line(explained.next)]
    if pods:
        parts += ["", table([_PODS, *explained.pods])]
    return report("\n".join(parts), explained.todo)


async def _fill(client: Client, one: Watched[Any], stores: Stores, namespace: str) -> None:
    try:
        listed = await client.list(one.resource, namespace, decode=one.decode)
    except NotFound:
        return  # the CRD is not installed
    stores(one).replace(listed.items)


async def _whitelist(client: Client) -> Whitelist:
    try:
        return await SpreadLookups(client, Stores(()), names.MANAGER_NAMESPACE).whitelist()
    except Forbidden:
        return Whitelist()


COMMANDS: Final = Commands(WORKLOAD_SPREAD, explain_object=explain_object, pausable=False, history=False)


class SubsetRow(DashboardModel):
    """A subset of a WorkloadSpread. ``missing`` is -1 without maxReplicas."""

    name: str
    replicas: int
    missing: int

    def __str__(self) -> str:
        return f"{self.name}: {self.replicas}" + ("" if self.missing < 0 else f" (room for {self.missing})")


class SpreadRow(Row):
    """Dashboard row of a WorkloadSpread."""

    target: str
    subsets: list[SubsetRow]


def row(stored: Stored, _lacking: Collection[ObjectKey]) -> SpreadRow:
    """Return the dashboard row of a WorkloadSpread."""
    metadata, target = mapping(stored, "metadata"), mapping(mapping(stored, "spec"), "targetRef")
    statuses = mapping(stored, "status").get("subsetStatuses")
    found = [one for one in statuses if isinstance(one, Mapping)] if isinstance(statuses, list) else []
    subsets = [
        SubsetRow(name=text(one, "name"), replicas=number(one, "replicas"), missing=number(one, "missingReplicas"))
        for one in found[:SHOWN]
    ]
    namespace, named = text(metadata, "namespace"), f"{text(target, 'kind')} {text(target, 'name')}".strip()
    listed = " · ".join(map(str, subsets)) or "no subset yet"
    return SpreadRow(
        namespace=namespace,
        name=text(metadata, "name"),
        shown=Shown(about=f"{named} in {namespace}", message=listed),
        target=named,
        subsets=subsets,
    )


SECTION: Final = DashboardSection("spreads", "Spreads", WORKLOAD_SPREAD, SpreadRow, row)
