"""How many places a subset has: what it takes, less the Pods that are in it or on their way (WS-27, WS-62). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from app.api.workloadspread import (
    SCHEDULABLE,
    SubsetCondition,
    SubsetStatus,
    WorkloadSpread,
    WorkloadSpreadStatus,
    WorkloadSpreadSubset,
)
from app.kube.intorpercent import IntOrPercentError, scaled

#: A subset that takes any number of Pods.
UNLIMITED: Final = -1


def limit_of(subset: WorkloadSpreadSubset, wanted: int) -> int | None:
    """How many Pods it takes, of as many as the workload wants; None: any number.

    What admission would have refused takes none: nobody stumbles over it.
    """
    if subset.max_replicas is None:
        return None
    try:
        return max(0, scaled(subset.max_replicas, max(0, wanted), round_up=True))
    except IntOrPercentError:
        return 0


def has_percentage(spread: WorkloadSpread) -> bool:
    """Whether it matters how many Pods the workload wants."""
    return any(isinstance(subset.max_replicas, str) for subset in spread.spec.subsets)


def missing_of(limit: int | None, replicas: int, creating: int, deleting: int) -> int:
    """WS-62: the places left."""
    if limit is None:
        return UNLIMITED
    return min(limit, max(0, limit - (replicas + creating - deleting)))


def places_of(subset: WorkloadSpreadSubset, status: SubsetStatus, wanted: int) -> int:
    """The places left in a subset as its status has it."""
    return missing_of(
        limit_of(subset, wanted), status.replicas, len(status.creating_pods or ()), len(status.deleting_pods or ())
    )


def by_name(statuses: Iterable[SubsetStatus] | None) -> Mapping[str, SubsetStatus]:
    """Subsets by their names."""
    return {one.name: one for one in statuses or ()}


def schedulable(status: SubsetStatus | None) -> SubsetCondition | None:
    """The condition Schedulable."""
    for condition in (status.conditions or ()) if status is not None else ():
        if condition.type == SCHEDULABLE:
            return condition
    return None


def version_statuses(spread: WorkloadSpread, version: str, wanted: int) -> list[SubsetStatus]:
    """The subsets of a version in the order of the spec, made from the spec where the status has none (WS-27, WS-68).

    What the status has beyond the spec follows, for the controller to take away.
    """
    status = spread.status or WorkloadSpreadStatus()
    known = by_name((status.versioned_subset_statuses or {}).get(version))
    overall = by_name(status.subset_statuses)
    found = []
    for subset in spread.spec.subsets:
        one = known.get(subset.name)
        if one is None:
            condition = schedulable(overall.get(subset.name))
            one = SubsetStatus(
                name=subset.name, replicas=0, missing_replicas=missing_of(limit_of(subset, wanted), 0, 0, 0)
            )
            if condition is not None:
                one = one.model_copy(update={"conditions": [condition]})
        found.append(one)
    names = {subset.name for subset in spread.spec.subsets}
    return [*found, *(one for name, one in known.items() if name not in names)]


def with_version(spread: WorkloadSpread, version: str, statuses: list[SubsetStatus]) -> WorkloadSpread:
    """The object with these statuses of one version."""
    status = spread.status or WorkloadSpreadStatus()
    versions = {**(status.versioned_subset_statuses or {}), version: statuses}
    return spread.model_copy(update={"status": status.model_copy(update={"versioned_subset_statuses": versions})})


def parse_time(text: object) -> datetime | None:
    """A time of a status; None for what is none."""
    if not isinstance(text, str):
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def remaining(text: object, seconds: float, now: datetime) -> float:
    """How long an entry of that time still holds; 0 where it does not.

    A time from the future is one of a clock that is ahead. It holds as long as any, unless it is further ahead than an
    entry lasts: then nobody meant it.
    """
    since = parse_time(text)
    if since is None or since - now > timedelta(seconds=seconds):
        return 0.0
    return max(0.0, (min(since, now) + timedelta(seconds=seconds) - now).total_seconds())
