"""The numbers a CloneSet's percentages stand for (CS-84 … CS-86). Pure.

Percentages may have decimals everywhere (B-5); they are scaled in exact arithmetic.
"""

from __future__ import annotations

from dataclasses import dataclass

from app.workloads.cloneset.plan.settings import Settings
from app.workloads.engine.shares import DEFAULT_MAX_UNAVAILABLE, share

#: An unset scaleStrategy.maxUnavailable: no limit (CS-86).
UNLIMITED = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Limits:
    """One CloneSet's numbers.

    ``partition``: Pods that stay at the current revision (P). ``surge``: Pods more than ``replicas`` (S).
    ``max_unavailable`` (M) and ``scale_max_unavailable`` (SM) bound what is unavailable in an update, in a scale-out.
    """

    replicas: int
    partition: int
    surge: int
    max_unavailable: int
    scale_max_unavailable: int


def partition_count(value: int | str | None, replicas: int) -> int:
    """CS-84: how many Pods stay at the current revision.

    Below 100 % at least one of several Pods is updated. What cannot be read holds all Pods back (B-9).
    """
    count = share(0 if value is None else value, replicas, round_up=True)
    if count is None:
        return replicas
    if isinstance(value, str) and count == replicas and replicas > 1 and value != "100%":
        count = replicas - 1
    return max(0, min(count, replicas))


def limits(settings: Settings) -> Limits:
    """CS-84 … CS-86 for one CloneSet."""
    replicas = settings.replicas
    rolling = settings.rolling_update
    if rolling is None:
        # CS-85, B-6: without the block something must be allowed to go, or marked Pods would stay for ever.
        partition, surge = 0, 0
        unavailable = max(1, _count(DEFAULT_MAX_UNAVAILABLE, replicas, round_up=False)) if replicas else 0
    else:
        partition = partition_count(rolling.partition, replicas)
        surge = 0 if rolling.paused else _count(rolling.max_surge, replicas, round_up=True)
        wanted = DEFAULT_MAX_UNAVAILABLE if rolling.max_unavailable is None else rolling.max_unavailable
        unavailable = _count(wanted, replicas, round_up=surge == 0)
    scaling = settings.scale_max_unavailable
    return Limits(
        replicas=replicas,
        partition=partition,
        surge=max(0, surge),
        max_unavailable=max(0, unavailable),
        scale_max_unavailable=UNLIMITED if scaling is None else max(0, _count(scaling, replicas, round_up=True)),
    )


def _count(value: int | str | None, total: int, *, round_up: bool) -> int:
    return share(0 if value is None else value, total, round_up=round_up) or 0
