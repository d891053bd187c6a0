"""Rescheduling of unschedulable Pods: which Pods are deleted, and which subsets accept no new Pods meanwhile. Pure.

[WS-64 … WS-67]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from app.features.workloadspread.types import (
    ADAPTIVE,
    SCHEDULABLE,
    SCHEDULABLE_REASON,
    UNSCHEDULABLE_REASON,
    SubsetCondition,
    WorkloadSpread,
)
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.objects import Pod
from app.pods.predicates import is_unschedulable

#: Seconds for which an unschedulable subset accepts no new Pods. [WS-66]
SHUT_FOR: Final = 300.0
#: A Pod is late strictly after the limit; the margin covers the rounding of floats.
_MOMENT: Final = 0.01


@dataclass(frozen=True, slots=True)
class Judged:
    """The Schedulable condition of a subset, and what follows from it."""

    condition: SubsetCondition
    #: Pods to delete, so that they are recreated in the next subset.
    late: Sequence[Pod] = ()
    #: Whether the subset accepts new Pods again.
    recovered: bool = False
    #: Seconds until the result may change.
    waits: Sequence[float] = ()


def critical_seconds(spread: WorkloadSpread) -> int:
    """Return the seconds after which an unschedulable Pod is deleted, or 0 for never. [WS-64]"""
    strategy = spread.strategy
    if strategy.type != ADAPTIVE or strategy.adaptive is None:
        return 0
    return max(0, strategy.adaptive.reschedule_critical_seconds or 0)


def judge(pods: Sequence[Pod], former: SubsetCondition | None, *, critical: int, last: bool, now: datetime) -> Judged:
    """Evaluate the Pods of a subset. The ``last`` subset is always schedulable: there is no next one."""
    if last:
        return Judged(_schedulable(former, now))
    late, waits = _late(pods, critical, now)
    shut = former if former is not None and former.status == "False" else None
    if late:
        return Judged(shut or _changed("False", UNSCHEDULABLE_REASON, now), late, waits=waits)
    if shut is None:
        return Judged(_schedulable(former, now), waits=waits)
    left = _shut_for(shut, now)
    if left > 0:
        return Judged(shut, waits=(*waits, left))
    return Judged(_schedulable(shut, now), recovered=True, waits=waits)


def _late(pods: Sequence[Pod], critical: int, now: datetime) -> tuple[list[Pod], list[float]]:
    """Return the Pods that have been unschedulable for too long, and the seconds until each of the others is.
    [WS-65]"""
    late, waits = [], []
    for pod in pods:
        if not is_unschedulable(pod) or pod.metadata.creation_timestamp is None:
            continue
        left = (pod.metadata.creation_timestamp + timedelta(seconds=critical) - now).total_seconds()
        if left < 0:
            late.append(pod)
        else:
            waits.append(left + _MOMENT)
    return late, waits


def _shut_for(condition: SubsetCondition, now: datetime) -> float:
    since = parsed_rfc3339(condition.last_transition_time)
    if since is None:
        return 0.0
    # Clock skew of the writer must not extend the time.
    return (min(since, now) + timedelta(seconds=SHUT_FOR) - now).total_seconds()


def _schedulable(former: SubsetCondition | None, now: datetime) -> SubsetCondition:
    if former is not None and former.status == "True":
        return former
    return _changed("True", SCHEDULABLE_REASON, now)


def _changed(status: str, reason: str, now: datetime) -> SubsetCondition:
    return SubsetCondition(
        type=SCHEDULABLE, status=status, last_transition_time=rfc3339(now), reason=reason, message=""
    )
