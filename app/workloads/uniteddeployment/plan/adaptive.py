"""Which subsets cannot be scheduled, and until when (UD-54, UD-55). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.objects import Pod

RESCHEDULE = "reschedule"
RECOVER = "recover"


@dataclass(frozen=True, slots=True)
class Schedulability:
    """What is known of one subset. ``again``: seconds until it may be otherwise; 0: only events change it."""

    unschedulable: bool
    condition: Mapping[str, Any] | None = None
    again: float = 0.0


@dataclass(frozen=True, slots=True)
class Pending:
    """Pods that no node takes. ``remaining``: seconds until the next of them is too late; 0 without one."""

    timed_out: int = 0
    remaining: float = 0.0


def pending_pods(pods: Iterable[Pod], critical_seconds: int, now: datetime) -> Pending:
    """UD-55: Pods that cannot be scheduled, and since how long."""
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
    """Seconds until a Pod that no node takes is too late, negative if it is; None for one that is not of these."""
    metadata = pod.metadata
    if metadata.deletion_timestamp is not None or pod.status.phase != "Pending" or pod.spec.node_name:
        return None
    scheduled = pod.condition("PodScheduled")
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return None
    return ((metadata.creation_timestamp or now) + timedelta(seconds=critical_seconds) - now).total_seconds()


def schedulability(
    before: Mapping[str, Any] | None, pending: Pending, duration_seconds: int, now: datetime
) -> Schedulability:
    """UD-54: the table of a subset's condition. ``before``: its condition Schedulable, if it has one."""
    if before is None or before.get("status") != "False":
        if not pending.timed_out:
            return Schedulability(False, before, pending.remaining)
        return Schedulability(True, _condition("False", RESCHEDULE, now), float(duration_seconds))
    since = parsed_rfc3339(before.get("lastTransitionTime")) or now
    left = (since + timedelta(seconds=duration_seconds) - now).total_seconds()
    if left > 0:
        return Schedulability(True, before, left)
    if pending.timed_out:
        return Schedulability(True, _condition("False", RESCHEDULE, now), float(duration_seconds))
    return Schedulability(False, _condition("True", RECOVER, now), pending.remaining)


def _condition(status: str, reason: str, now: datetime) -> dict[str, Any]:
    condition = {"type": "Schedulable", "status": status, "lastTransitionTime": rfc3339(now), "reason": reason}
    return condition | ({"message": "timeout pending pods found"} if status == "False" else {})
