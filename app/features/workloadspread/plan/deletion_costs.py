"""Deletion costs: which Pods are deleted first when the workload scales down. Pure. [WS-54 … WS-58]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.api import names
from app.features.workloadspread.plan.placement import VERSION_IGNORED, limit_of
from app.features.workloadspread.plan.subsets import NO_SUBSET, leaves_others_alone
from app.features.workloadspread.types import WorkloadSpread
from app.kube.objects import Pod
from app.pods.predicates import is_active, is_ready, ready_since

#: Kinds that respect deletion costs. [WS-54]
PRICED: Final = frozenset({(names.APPS_GROUP, "CloneSet"), ("apps", "Deployment"), ("apps", "ReplicaSet")})
_STEP: Final = 100
_PHASES: Final = {"Pending": 0, "Unknown": 1, "Running": 2}


@dataclass(frozen=True, slots=True)
class Cost:
    """A new deletion cost for a Pod."""

    pod: Pod
    subset: str
    cost: str


def is_priced(spread: WorkloadSpread) -> bool:
    """Return whether the target respects deletion costs. [WS-54]"""
    return spread.spec.target_ref.group_kind in PRICED


def first_costs(spread: WorkloadSpread) -> Mapping[str, str]:
    """Return the deletion cost of a new Pod by subset. [WS-55]

    The cost is that of a Pod within maxReplicas and of the latest version; the controller updates the cost if
    this is no longer true. The map is empty for kinds that ignore deletion costs.
    """
    subsets = spread.spec.subsets
    if not is_priced(spread):
        return {}
    return {subset.name: str(_STEP * (len(subsets) - index)) for index, subset in enumerate(subsets)}


def costs(
    spread: WorkloadSpread, groups: Mapping[str, Mapping[str, Sequence[Pod]]], latest: str, wanted: int
) -> list[Cost]:
    """Return the costs to write. ``groups`` are the Pods by version and subset. [WS-55, WS-56, WS-59]"""
    found: list[Cost] = []
    subsets = spread.spec.subsets
    for version, pods in groups.items():
        for index, subset in enumerate(subsets):
            place = index if version == (latest or VERSION_IGNORED) else len(subsets) - 1 - index
            kept, surplus = _STEP * (len(subsets) - place), -_STEP * (place + 1)
            active = [pod for pod in pods.get(subset.name, ()) if is_active(pod)]
            limit = limit_of(subset, wanted)
            beyond = _beyond(active, limit)
            found += [Cost(pod, subset.name, str(surplus if pod.metadata.uid in beyond else kept)) for pod in active]
        if leaves_others_alone(spread):
            continue
        nowhere = str(-_STEP * (len(subsets) + 1))
        found += [Cost(pod, NO_SUBSET, nowhere) for pod in pods.get(NO_SUBSET, ()) if is_active(pod)]
    return [one for one in found if one.pod.metadata.annotations.get(names.POD_DELETION_COST) != one.cost]


def _beyond(active: Sequence[Pod], limit: int | None) -> frozenset[str]:
    """Return the UIDs of Pods beyond the limit of the subset. [WS-55]"""
    if limit is None or len(active) <= limit:
        return frozenset()
    return frozenset(pod.metadata.uid for pod in sorted(active, key=_first_to_go)[: len(active) - limit])


def _first_to_go(pod: Pod) -> tuple[Any, ...]:
    ready = is_ready(pod)
    restarts = max((one.restart_count for one in pod.status.container_statuses), default=0)
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase, 1),
        ready,
        _newest_first(ready_since(pod)) if ready else 0.0,
        -restarts,
        _newest_first(pod.metadata.creation_timestamp),
        pod.metadata.name,
    )


def _newest_first(moment: datetime | None) -> float:
    return -moment.timestamp() if moment is not None else float("-inf")
