"""Allocation of Pods to subsets, fixed or adapted to unschedulable Pods. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from app.features.uniteddeployment.types import UNLIMITED, Share, ShareError, count_of
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.objects import Pod
from app.pods.predicates import is_unschedulable

# Number of Pods in each subset. [UD-34 … UD-41]


class AllocationError(ShareError):
    """The shares of the subsets contradict each other."""


@dataclass(frozen=True, slots=True)
class Subset:
    """Desired and observed numbers of Pods of one subset."""

    name: str
    replicas: Share | None = None
    min_replicas: Share | None = None
    max_replicas: Share | None = None
    #: Whether its workload exists.
    exists: bool = False
    #: ``spec.replicas`` and ``status.readyReplicas`` of the workload.
    current: int = 0
    ready: int = 0
    unschedulable: bool = False
    #: Number of Pods kept although they may be unable to run; substitutes for them run in other subsets.
    reserved: int = 0
    #: Whether the subset was unschedulable when this reconcile began.
    marked: bool = False


@dataclass(frozen=True, slots=True)
class Bounds:
    """Minimum and maximum number of Pods of a subset."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class Allocation:
    """Number of Pods by subset name. ``remarked``: recovered subsets that get more Pods. They count as unschedulable
    again until the new Pods run. [UD-40]"""

    replicas: Mapping[str, int]
    remarked: frozenset[str] = field(default_factory=frozenset)


def allocate(
    replicas: int | None, subsets: Sequence[Subset], *, adaptive: bool = False, reserve: bool = False
) -> Allocation:
    """Allocate Pods according to the schedule strategy. Raises ShareError. [UD-35]"""
    if adaptive and reserve:
        return _reservation(replicas, subsets)
    if adaptive:
        return Allocation(_between(replicas, subsets, _adapted))
    if any(subset.min_replicas is not None or subset.max_replicas is not None for subset in subsets):
        return Allocation(_between(replicas, subsets, lambda _, bounds: bounds))
    return Allocation(_specific(replicas, subsets))


def bounds_of(subset: Subset, replicas: int | None) -> Bounds:
    """Return the minimum and maximum number of Pods of a subset. Raises ShareError."""
    least = 0 if subset.min_replicas is None else count_of(subset.min_replicas, replicas)
    most = UNLIMITED if subset.max_replicas is None else count_of(subset.max_replicas, replicas)
    if least > most:
        raise AllocationError(f"subset {subset.name}: minReplicas {least} is greater than maxReplicas {most}")
    return Bounds(least, most)


def _specific(replicas: int | None, subsets: Sequence[Subset]) -> dict[str, int]:
    """Allocate Pods according to the replicas of each subset. [UD-36]"""
    fixed = {one.name: count_of(one.replicas, replicas) for one in subsets if one.replicas is not None}
    free = [one for one in subsets if one.replicas is None]
    total = sum(fixed.values())
    if replicas is None:
        if free:
            raise AllocationError("spec.replicas is not set, and not every subset has its own replicas")
        return fixed
    if total > replicas:
        raise AllocationError(f"the subsets' replicas add up to {total}, which is more than spec.replicas {replicas}")
    if not free:
        if total < replicas:
            raise AllocationError(f"the subsets' replicas add up to {total}, but spec.replicas is {replicas}")
        return fixed
    share, more = divmod(replicas - total, len(free))
    # The remainder goes to the subsets that already have the most Pods.
    by_size = sorted(free, key=lambda one: (one.current, one.name), reverse=True)
    return {**fixed, **{one.name: share + (index < more) for index, one in enumerate(by_size)}}


_Adapt: TypeAlias = Callable[[Subset, Bounds], Bounds]


def _between(replicas: int | None, subsets: Sequence[Subset], adapt: _Adapt) -> dict[str, int]:
    """Allocate the minimum of each subset, then fill the subsets in order up to their maximums. [UD-37]"""
    if replicas is None:
        raise AllocationError("spec.replicas must be set if subsets have minReplicas or maxReplicas")
    bounds = [adapt(one, bounds_of(one, replicas)) for one in subsets]
    found, left = [], replicas
    for one in bounds:
        found.append(min(one.least, left))
        left -= found[-1]
    for index, one in enumerate(bounds):
        more = max(0, min(one.most - one.least, left))
        found[index] += more
        left -= more
    return {one.name: count for one, count in zip(subsets, found, strict=True)}


def _adapted(subset: Subset, bounds: Bounds) -> Bounds:
    """Keep running Pods. An unschedulable subset gets its running Pods, or its minimum if that is greater. [UD-38]"""
    if not subset.exists:
        return bounds
    if subset.unschedulable:
        return Bounds(max(subset.ready, bounds.least), min(subset.ready, bounds.most))
    if subset.ready > bounds.least:
        return Bounds(min(subset.ready, bounds.most), bounds.most)
    return bounds


@dataclass(slots=True)
class _Running:
    """Allocation to one subset if Pods may be reserved: Pods allocated so far, and how many more can run in it."""

    subset: Subset
    bounds: Bounds
    given: int = 0
    able: int = UNLIMITED

    def give(self, up_to: int, left: int) -> int:
        """Allocate Pods until the subset has ``up_to`` Pods. Return how many are left to allocate, including those
        that cannot run in this subset. [UD-39]"""
        more = max(0, min(up_to - self.given, left))  # never take Pods back [UD-39]
        self.given += more
        self.able -= more
        return left - more if self.able >= 0 else left - max(0, more + self.able)


def _reservation(replicas: int | None, subsets: Sequence[Subset]) -> Allocation:
    """Keep Pods that cannot run, and allocate them to the next subset as well. [UD-39, UD-40]"""
    if replicas is None:
        raise AllocationError("spec.replicas must be set if Pods are reserved")
    running = [_Running(one, bounds_of(one, replicas)) for one in subsets]
    for one in running:
        subset = one.subset
        if subset.unschedulable or subset.marked:
            one.able = subset.current - subset.reserved
    left = replicas
    for one in running:
        if left <= 0:
            break
        left = one.give(one.bounds.least, left)
    for one in running:
        if left <= 0:
            break
        left = one.give(one.subset.current if one.subset.unschedulable else one.bounds.most, left)
    remarked = {
        one.subset.name
        for one in running
        if one.subset.marked and not one.subset.unschedulable and one.given > one.subset.current
    }
    return Allocation({one.subset.name: one.given for one in running}, frozenset(remarked))


# Which subsets are unschedulable, and until when. [UD-54, UD-55]

RESCHEDULE = "reschedule"
RECOVER = "recover"


@dataclass(frozen=True, slots=True)
class Schedulability:
    """Schedulability of one subset. ``again``: seconds until it may change; 0 if only events change it."""

    unschedulable: bool
    condition: Mapping[str, Any] | None = None
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Pending:
    """Unschedulable Pods. ``remaining``: seconds until the next of them times out; 0 if there is none."""

    timed_out: int = 0
    remaining: float = 0.0


def pending_pods(pods: Iterable[Pod], critical_seconds: int, now: datetime) -> Pending:
    """Count unschedulable Pods that have timed out, and return when the next one will. [UD-55]"""
    timed_out, times = 0, []
    for pod in pods:
        left = pending_seconds(pod, critical_seconds, now)
        if left is None:
            continue
        if left < 0:
            timed_out += 1
        else:
            times.append(max(left, 0.001))
    return Pending(timed_out, min(times, default=0.0))


def pending_seconds(pod: Pod, critical_seconds: int, now: datetime) -> float | None:
    """Return the seconds until an unschedulable Pod times out, negative if it already has; None for other Pods."""
    if not is_unschedulable(pod):
        return None
    created = pod.metadata.creation_timestamp or now
    return critical_seconds - (now - created).total_seconds()


def schedulability(
    before: Mapping[str, Any] | None, pending: Pending, duration_seconds: int, now: datetime
) -> Schedulability:
    """Return whether a subset is schedulable. ``before`` is its current Schedulable condition, if any. [UD-54]"""
    if before is None or before.get("status") != "False":
        if not pending.timed_out:
            return Schedulability(False, before, pending.remaining)
        return Schedulability(True, _condition("False", RESCHEDULE, now), float(duration_seconds))
    since = parsed_rfc3339(before.get("lastTransitionTime")) or now
    # Subtract rather than add: the status may contain any time, and a sum could exceed the largest date.
    left = duration_seconds - (now - since).total_seconds()
    if left > 0:
        return Schedulability(True, before, left)
    if pending.timed_out:
        return Schedulability(True, _condition("False", RESCHEDULE, now), float(duration_seconds))
    return Schedulability(False, _condition("True", RECOVER, now), pending.remaining)


def _condition(status: str, reason: str, now: datetime) -> dict[str, Any]:
    condition = {"type": "Schedulable", "status": status, "lastTransitionTime": rfc3339(now), "reason": reason}
    return condition | ({"message": "timeout pending pods found"} if status == "False" else {})
