"""How the subsets of a WorkloadSpread stand, which one the next Pod gets and why, and why each Pod costs what it costs.

Pure; the words are those of ``pykruise explain workloadspread``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from app.api import names
from app.api.workloadspread import WorkloadSpread
from app.kube.objects import Pod
from app.placement.workloadspread.plan.grouping import NO_SUBSET, recorded_subset
from app.placement.workloadspread.plan.places import UNLIMITED, limit_of, places_of, schedulable, version_statuses
from app.placement.workloadspread.plan.record import VERSION_IGNORED
from app.pods.predicates import is_active


@dataclass(frozen=True, slots=True)
class Subset:
    """How a subset stands for new Pods of the latest version, and what that means for the next one."""

    name: str
    takes: str
    pods: int
    coming: int
    going: int
    places: str
    next: str
    #: Pods found no node there, and others go elsewhere for a while.
    unschedulable: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """All of it. ``next``: a sentence."""

    subsets: Sequence[Subset]
    next: str
    #: Pod, version, subset, deletion cost, and what there is to say.
    pods: Sequence[tuple[str, str, str, str, str]]
    #: What a person can do.
    todo: Sequence[str] = ()


def explain(spread: WorkloadSpread, pods: Iterable[tuple[Pod, str]], wanted: int, latest: str) -> Explanation:
    """``pods``: with their versions; ``wanted``: how many Pods the target wants."""
    version = latest or VERSION_IGNORED
    ordinals = spread.spec.target_ref.kind == "StatefulSet"
    found, chosen = _subsets(spread, version, wanted, ordinals=ordinals)
    todo = [f"make room for the Pods of subset {one.name}: no node took one" for one in found if one.unschedulable]
    if ordinals:
        sentence = "Pods are placed by their ordinals, in the order of the subsets."
    elif chosen:
        sentence = f"The next Pod{'' if version == VERSION_IGNORED else f' of version {version}'} goes into {chosen}."
    else:
        sentence = "The next Pod goes into no subset: none has a place. It is created as its workload has it."
        todo.append("raise maxReplicas of a subset, or add one without it, if all Pods shall have a subset")
    return Explanation(found, sentence, [_pod(spread, pod, of) for pod, of in pods], todo)


def _subsets(spread: WorkloadSpread, version: str, wanted: int, *, ordinals: bool) -> tuple[list[Subset], str]:
    statuses = version_statuses(spread, version, wanted)
    found: list[Subset] = []
    chosen, first = "", 0
    for subset, status in zip(spread.spec.subsets, statuses, strict=False):
        limit, places = limit_of(subset, wanted), places_of(subset, status, wanted)
        condition = schedulable(status)
        unschedulable = condition is not None and condition.status == "False"
        if condition is not None and unschedulable:
            what = f"passed over: Pods found no node there, since {condition.last_transition_time}"
        elif ordinals:
            what = f"ordinals from {first}" if limit is None else f"ordinals {first} to {first + limit - 1}"
            what, first = ("no ordinals" if limit == 0 else what), first + (limit or 0)
        elif chosen:
            what = f"not asked: {chosen} comes first"
        elif places == 0:
            what = "passed over: it is full"
        else:
            what, chosen = "chosen", subset.name
        takes = "any number" if limit is None else str(limit)
        if isinstance(subset.max_replicas, str):
            takes = f"{subset.max_replicas} of {wanted}: {takes}"
        coming, going = len(status.creating_pods or ()), len(status.deleting_pods or ())
        shown = "any number" if places == UNLIMITED else str(places)
        found.append(Subset(subset.name, takes, status.replicas, coming, going, shown, what, unschedulable))
    return found, chosen


def _pod(spread: WorkloadSpread, pod: Pod, version: str) -> tuple[str, str, str, str, str]:
    subset = recorded_subset(spread, pod)
    cost = pod.metadata.annotations.get(names.POD_DELETION_COST, "-")
    if not is_active(pod):
        why = "it has ended or is being deleted, and is not counted"
    elif subset is None:
        why = "it has no subset: none fits the node it runs on" if pod.spec.node_name else "it has no subset yet"
    elif subset == NO_SUBSET:
        why = "its subset was removed: it goes first"
    elif cost.startswith("-") and cost != "-":
        why = "more than its subset takes: it goes before others"
    else:
        why = "-"
    shown = "-" if subset in (None, NO_SUBSET) else str(subset)
    return pod.metadata.name, "-" if version == VERSION_IGNORED else version, shown, cost, why


def rows(found: Explanation) -> Mapping[str, list[tuple[str, ...]]]:
    """Both tables, with their headings."""
    subsets: list[tuple[str, ...]] = [("SUBSET", "TAKES", "PODS", "COMING", "GOING", "PLACES", "NEXT POD")]
    subsets += [
        (one.name, one.takes, str(one.pods), str(one.coming), str(one.going), one.places, one.next)
        for one in found.subsets
    ]
    pods: list[tuple[str, ...]] = [("POD", "VERSION", "SUBSET", "COST", "BECAUSE"), *found.pods]
    return {"subsets": subsets, "pods": pods}
