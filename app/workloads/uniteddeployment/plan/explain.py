"""What comes next for each subset, and how each stands, in words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app.api import names
from app.api.uniteddeployment.types import DEPLOYMENT
from app.kube.objects import Pod
from app.pods.predicates import is_active, is_ready
from app.workloads.uniteddeployment.plan.situation import Situation
from app.workloads.uniteddeployment.plan.subsets import SubsetWorkload, Wanted, needs_update, partition_of

COLUMNS: Final = ("subset", "workload", "wanted", "pods", "ready", "updated", "partition", "reserved", "share", "state")


def steps(
    here: Situation, wanted: Mapping[str, Wanted], surplus: Sequence[SubsetWorkload]
) -> list[tuple[str, str, str, str]]:
    """What is written next: subset, workload, action and why, in the order of the topology."""
    rows = []
    for subset in here.subsets:
        one, workload = wanted.get(subset.name), here.existing.get(subset.name)
        if one is None:
            continue
        if workload is None:
            rows.append((subset.name, "-", f"create with {one.replicas} Pods", "the topology names it"))
        elif needs_update(here.kind, workload, one):
            rows.append((subset.name, workload.metadata.name, *_change(here, workload, one)))
    for workload in surplus:
        named = any(one.name == workload.subset for one in here.subsets)
        why = "another workload is the subset's" if named else "the topology does not name it"
        rows.append((workload.subset, workload.metadata.name, f"delete with {workload.replicas} Pods", why))
    return rows


def _change(here: Situation, workload: SubsetWorkload, one: Wanted) -> tuple[str, str]:
    actions, reasons = [], []
    if workload.replicas != one.replicas:
        actions.append(f"scale {workload.replicas} to {one.replicas}")
        reasons.append(_why_so_many(here, one.name))
    metadata = workload.metadata
    held = f", {one.partition} Pods stay" if one.partition and here.kind != DEPLOYMENT else ""
    if metadata.labels.get(names.UNITED_REVISION_HASH) != one.labels[names.UNITED_REVISION_HASH]:
        actions.append(f"update{held}")
        reasons.append("the template changed")
    elif metadata.annotations.get(names.SUBSET_PATCH, "") != one.annotations[names.SUBSET_PATCH]:
        actions.append(f"update{held}")
        reasons.append("the subset's patch changed")
    elif here.kind != DEPLOYMENT and partition_of(here.kind, workload) != one.partition:
        actions.append(f"partition {partition_of(here.kind, workload)} to {one.partition}")
        reasons.append("manualUpdate.partitions says so")
    if not actions:
        actions.append("change maxUnavailable")
        reasons.append("Pods that find no node must not block the roll-out, or block it no longer")
    return ", ".join(actions), "; ".join(reasons)


def _why_so_many(here: Situation, subset: str) -> str:
    known = here.schedulable.get(subset)
    if known is not None and known.unschedulable:
        return "its Pods find no node"
    if any(one.unschedulable for one in here.schedulable.values()):
        return "Pods of other subsets find no node"
    return "its share of spec.replicas"


def explained(here: Situation, replicas: Mapping[str, int]) -> tuple[list[tuple[str, ...]], list[str], list[str]]:
    """A row per subset, what else there is to say, and what a person can do."""
    rows: list[tuple[str, ...]] = []
    notes, todo = [], []
    update = here.revisions.update.name
    for subset in here.subsets:
        workload = here.existing.get(subset.name)
        pods = [one for one in here.pods.get(subset.name, ()) if is_active(one)]
        new = [one for one in pods if one.metadata.labels.get(names.UNITED_REVISION_HASH) == update]
        count = replicas.get(subset.name)
        partition = here.partition(subset.name, count or 0)
        reserved = here.reserved_pods(subset.name)
        rows.append(
            (
                subset.name,
                workload.metadata.name if workload is not None else "-",
                "?" if count is None else str(count),
                str(len(pods)),
                str(sum(map(is_ready, pods))),
                str(len(new)),
                "-" if here.kind == DEPLOYMENT else str(partition),
                str(len(reserved)) if here.reserves else "-",
                _share(here, subset.name),
                _state(here, subset.name),
            )
        )
        late = [one.metadata.name for one in pods if one.metadata.uid in reserved]
        if late:
            notes.append(f"subset {subset.name}: others run in the place of {', '.join(sorted(late)[:5])}{_more(late)}")
        known = here.schedulable.get(subset.name)
        if known is not None and known.unschedulable:
            todo.append(
                f"make room for the Pods of subset {subset.name}, or change its nodeSelectorTerm and tolerations"
            )
        if partition and here.kind != DEPLOYMENT:
            notes.append(f"subset {subset.name}: its partition keeps {partition} Pods at the old revision")
    return rows, notes, todo


def _share(here: Situation, subset: str) -> str:
    one = next(one for one in here.subsets if one.name == subset)
    if one.replicas is not None:
        return f"exactly {one.replicas}"
    if one.min_replicas is not None or one.max_replicas is not None:
        most = "no limit" if one.max_replicas is None else one.max_replicas
        return f"{one.min_replicas or 0} to {most}"
    return "an equal part of the rest"


def _state(here: Situation, subset: str) -> str:
    if subset not in here.existing:
        return "to be created"
    if not here.adapts:
        return "-"
    known = here.schedulable.get(subset)
    if known is None or not known.unschedulable:
        return "schedulable"
    since = (known.condition or {}).get("lastTransitionTime", "now")
    again = f", looked at again in {known.again:.0f} s" if known.again else ""
    return f"unschedulable since {since}{again}"


def reserved_note(here: Situation, subset: str, pod: Pod) -> str:
    """What reservation means for a Pod."""
    if not here.reserves:
        return ""
    if pod.metadata.uid in here.reserved_pods(subset):
        return "; reserved: another runs in its place until it has been ready long enough"
    return ""


def _more(found: Sequence[str]) -> str:
    return f" and {len(found) - 5} more" if len(found) > 5 else ""
