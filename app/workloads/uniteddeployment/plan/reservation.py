"""Which Pods are kept though others run in their place (UD-56, UD-57, UD-62). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

from app.api import names
from app.kube.objects import Pod
from app.pods.predicates import is_active, is_ready, ready_since
from app.workloads.uniteddeployment.plan.adaptive import RESCHEDULE, Schedulability, pending_seconds
from app.workloads.uniteddeployment.plan.status import SCHEDULABLE, with_condition

CREATED: Final = "created"
FOUND: Final = "reserved pods found"
NONE_FOUND: Final = "no reserved pods"
SCALED_UP: Final = "subset just recovered scaled up"
#: By how much a timer is late, so that what it waits for is past.
_LATER: Final = 0.001


@dataclass(frozen=True, slots=True)
class Limits:
    """rescheduleCriticalSeconds and unschedulableDuration."""

    critical: int
    duration: int


@dataclass(frozen=True, slots=True)
class Reservation:
    """The reserved Pods of one subset."""

    #: Pods whose label is to be written, and what it is to say.
    labels: Sequence[tuple[Pod, bool]] = ()
    #: The uids of the reserved ones.
    uids: frozenset[str] = frozenset()
    #: Ready Pods that a roll-out should have replaced, had it not been stuck (UD-58).
    overdue: int = 0
    #: Pods at an old revision that nothing holds back there.
    outdated: int = 0
    #: Pods that are neither finished nor being deleted.
    active: int = 0
    #: Seconds until time alone changes it; 0: only events do.
    again: float = 0.0

    @property
    def reserved(self) -> int:
        """How many are."""
        return len(self.uids)


@dataclass(slots=True)
class _Found:
    labels: list[tuple[Pod, bool]] = field(default_factory=list)
    reserved: set[str] = field(default_factory=set)
    overdue: int = 0
    times: list[float] = field(default_factory=list)


def reservation(
    pods: Sequence[Pod],
    *,
    update: str,
    held: int | None,
    unschedulable: bool,
    updating_since: datetime,
    limits: Limits,
    now: datetime,
    written: Mapping[str, bool],
) -> Reservation:
    """UD-56: the label of every Pod of a subset.

    ``update``: the revision that Pods are to be at; ``held``: how many stay at an old one, None for all;
    ``unschedulable``: what the subset's condition said until now; ``updating_since``: when the roll-out began;
    ``written``: labels by uid that no cache shows yet.
    """
    active = [pod for pod in pods if is_active(pod)]
    late = {pod.metadata.uid: pending_seconds(pod, limits.critical, now) for pod in active}
    old = [pod for pod in active if pod.metadata.labels.get(names.UNITED_REVISION_HASH) != update]
    old.sort(key=lambda pod: (_label(pod, written) is True, not is_ready(pod), pod.metadata.name))
    # UD-62: what the partition keeps back is where it belongs.
    outdated = {pod.metadata.uid for pod in (old[held:] if held is not None else ())}
    # UD-62: a roll-out is stuck only if new Pods cannot be scheduled; else it is merely slow.
    blocked = any(
        (late[pod.metadata.uid] or 0) < 0
        for pod in active
        if pod.metadata.labels.get(names.UNITED_REVISION_HASH) == update
    )
    overdue_in = (updating_since + timedelta(seconds=limits.critical) - now).total_seconds()
    found = _Found()
    for pod in active:
        left, label = late[pod.metadata.uid], _label(pod, written)
        is_outdated = pod.metadata.uid in outdated
        ready_in = _settled_in(pod, limits.duration, now)
        if label is True or (label is None and unschedulable):
            settled = not is_outdated and ready_in is not None and ready_in < 0
            reserved = not settled
            if reserved and ready_in is not None and not is_outdated:
                found.times.append(ready_in + _LATER)
        elif not is_outdated:
            reserved = left is not None and left < 0
            if left is not None and not reserved:
                found.times.append(left + _LATER)
        else:
            stuck = blocked or (left is not None and left < 0)
            reserved = stuck and overdue_in < 0
            if not reserved and (blocked or left is not None):
                found.times += [max(one, 0.0) + _LATER for one in (overdue_in, left or 0.0) if one > 0]
        if reserved:
            found.reserved.add(pod.metadata.uid)
        found.overdue += reserved and is_outdated and is_ready(pod)
        if label is not reserved:
            found.labels.append((pod, reserved))
    again = min(found.times, default=0.0)
    return Reservation(found.labels, frozenset(found.reserved), found.overdue, len(outdated), len(active), again)


def schedulability(
    before: Mapping[str, Any] | None, found: Reservation, wanted: int, now: datetime
) -> tuple[Schedulability, int]:
    """UD-57: what a subset counts as, and how many of its ``wanted`` Pods cannot be relied on.

    In a subset that was unschedulable, Pods that nobody has seen yet count like reserved ones, for that is what they
    will be (UD-40).
    """
    marked = is_marked(before)
    missing = max(0, wanted - found.active) if marked else 0
    unschedulable = bool(found.reserved or missing)
    if missing and not found.reserved:
        return Schedulability(True, before, found.again), missing
    condition = marked_condition(before, unschedulable, FOUND if unschedulable else NONE_FOUND, now)
    return Schedulability(unschedulable, condition, found.again), found.reserved + missing


def is_marked(condition: Mapping[str, Any] | None) -> bool:
    """Whether the condition says that the subset is unschedulable."""
    return condition is not None and condition.get("status") == "False"


def marked_condition(
    before: Mapping[str, Any] | None, unschedulable: bool, message: str, now: datetime, *, reason: str = RESCHEDULE
) -> Mapping[str, Any]:
    """UD-61: the condition, with the time at which it became so."""
    known = [before] if before is not None else []
    if known and (known[0].get("status") == "False") is unschedulable and known[0].get("reason") == reason:
        return known[0]
    status = "False" if unschedulable else "True"
    return with_condition(known, SCHEDULABLE, status, now, reason=reason, message=message)[0]


def _label(pod: Pod, written: Mapping[str, bool]) -> bool | None:
    """What the Pod's label says; None without one that says anything."""
    known = written.get(pod.metadata.uid)
    if known is not None:
        return known
    return {"true": True, "false": False}.get(pod.metadata.labels.get(names.UNITED_RESERVED_POD, ""))


def _settled_in(pod: Pod, seconds: int, now: datetime) -> float | None:
    """Seconds until the Pod will have been ready for so long, negative after that; None if it is not ready."""
    if pod.status.phase != "Running" or not is_ready(pod):
        return None
    return ((ready_since(pod) or now) + timedelta(seconds=seconds) - now).total_seconds()
