"""Which subset a new Pod gets, and which place a Pod that goes gives back (WS-25 … WS-29, WS-41 … WS-43). Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from app.api.workloadspread import SubsetStatus, WorkloadSpread
from app.kube.rulings import Ruling
from app.placement.workloadspread.plan.places import (
    UNLIMITED,
    by_name,
    places_of,
    schedulable,
    version_statuses,
    with_version,
)

_ORDINAL: Final = re.compile(r"-([0-9]{1,10})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a subset. ``counted``: by an entry under this key."""

    subset: str
    counted: str = ""


@dataclass(frozen=True, slots=True)
class NewPod:
    """A Pod to be created: its version, under which key it is counted, and how many Pods the workload wants by now."""

    version: str
    key: str
    wanted: int
    #: As the status writes a time.
    now: str


def sole_subset(spread: WorkloadSpread) -> str:
    """WS-25: the subset of a spread that has only one, for any number of Pods; else ''."""
    subsets = spread.spec.subsets
    return subsets[0].name if len(subsets) == 1 and subsets[0].max_replicas is None else ""


def by_ordinal(spread: WorkloadSpread, pod_name: str) -> str:
    """WS-26: the subset of a StatefulSet's Pod; '' for none. Subsets that are not schedulable take no ordinals."""
    found = _ORDINAL.search(pod_name)
    ordinal = int(found[1]) if found else -1
    statuses = by_name(spread.status.subset_statuses if spread.status is not None else None)
    threshold = 0
    for subset in spread.spec.subsets:
        if _is_shut(statuses.get(subset.name)):
            continue
        if subset.max_replicas is None:
            return subset.name
        # Percentages are refused for StatefulSets: without a number there is no place.
        threshold += subset.max_replicas if isinstance(subset.max_replicas, int) else 0
        if ordinal < threshold:
            return subset.name
    return ""


def choose(spread: WorkloadSpread | None, pod: NewPod) -> Ruling[WorkloadSpread, Place | None]:
    """WS-27 … WS-29: the first subset of the spec that has a place, and the status that says the place is taken."""
    if spread is None or spread.deleting:
        return Ruling(None)
    statuses = version_statuses(spread, pod.version, pod.wanted)
    names = {subset.name for subset in spread.spec.subsets}
    for status in statuses:
        if status.name in names and _has(status.creating_pods, pod.key):
            return Ruling(Place(status.name, pod.key))
    # One of the same name is on its way out: the place that was given back with it is taken first.
    order = sorted(range(len(spread.spec.subsets)), key=lambda index: not _has(statuses[index].deleting_pods, pod.key))
    for index in order:
        subset, status = spread.spec.subsets[index], statuses[index]
        if _is_shut(status):
            continue
        places = places_of(subset, status, pod.wanted)
        if places == UNLIMITED:
            # Nothing is taken that could be given twice.
            return Ruling(Place(subset.name), provisional=True)
        if places > 0:
            update: dict[str, object] = {
                "missing_replicas": places - 1,
                "creating_pods": {**(status.creating_pods or {}), pod.key: pod.now},
            }
            if _has(status.deleting_pods, pod.key):
                going = {key: since for key, since in (status.deleting_pods or {}).items() if key != pod.key}
                update["deleting_pods"] = going or None
            statuses[index] = status.model_copy(update=update)
            return Ruling(Place(subset.name, pod.key), with_version(spread, pod.version, statuses))
    return Ruling(None)


def give_back(
    spread: WorkloadSpread | None, version: str, subset: str, pod_name: str, now: str
) -> Ruling[WorkloadSpread, bool]:
    """WS-43: whether the place of a Pod that goes was given back, and the status that says so."""
    if spread is None or spread.deleting or spread.status is None:
        return Ruling(False, provisional=True)
    statuses: Sequence[SubsetStatus] = (spread.status.versioned_subset_statuses or {}).get(version) or ()
    if any(_has(one.creating_pods, pod_name) or _has(one.deleting_pods, pod_name) for one in statuses):
        return Ruling(False, provisional=True)
    changed = list(statuses)
    for index, one in enumerate(statuses):
        if one.name != subset:
            continue
        if one.missing_replicas == UNLIMITED:
            break
        after = one.model_copy(update={"deleting_pods": {**(one.deleting_pods or {}), pod_name: now}})
        missing = one.missing_replicas + 1
        for known in spread.spec.subsets:
            # Of a percentage nobody looks here what it is of: whoever takes a place does.
            if known.name == subset and isinstance(known.max_replicas, int):
                missing = places_of(known, after, 0)
        changed[index] = after.model_copy(update={"missing_replicas": missing})
        return Ruling(True, with_version(spread, version, changed))
    return Ruling(False, provisional=True)


def _is_shut(status: SubsetStatus | None) -> bool:
    condition = schedulable(status)
    return condition is not None and condition.status == "False"


def _has(entries: dict[str, str] | None, key: str) -> bool:
    return entries is not None and key in entries
