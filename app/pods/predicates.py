"""What is said of a Pod: active, ready, running, available (PM-113, PM-114). Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from app.api.names import IN_PLACE_UPDATE_READY, SPECIFIED_DELETE
from app.kube.objects import Pod

FINISHED = frozenset({"Succeeded", "Failed"})


def is_condition_true(pod: Pod, type_: str) -> bool:
    """Whether the condition is there with status True."""
    found = pod.condition(type_)
    return found is not None and found.status == "True"


def is_active(pod: Pod) -> bool:
    """PM-113: neither finished nor being deleted."""
    return pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is None


def is_ready(pod: Pod) -> bool:
    """PM-113: condition Ready is True."""
    return is_condition_true(pod, "Ready")


def is_running_and_ready(pod: Pod) -> bool:
    """PM-113: phase Running and ready."""
    return pod.status.phase == "Running" and is_ready(pod)


def ready_since(pod: Pod) -> datetime | None:
    """Since when the Pod is ready; None if it is not, or nobody said since when."""
    found = pod.condition("Ready")
    return found.last_transition_time if found is not None and found.status == "True" else None


def ready_for(pod: Pod, seconds: int, now: datetime) -> bool:
    """PM-114: ready, and for strictly longer than ``seconds``; zero seconds ask for no time at all."""
    if not is_ready(pod):
        return False
    if seconds <= 0:
        return True
    since = ready_since(pod)
    return since is not None and since + timedelta(seconds=seconds) < now


def is_update_ready(pod: Pod, seconds: int, now: datetime) -> bool:
    """PM-114 without the lifecycle: running, ready for this long, and no in-place update under way."""
    if pod.status.phase != "Running" or not ready_for(pod, seconds, now):
        return False
    condition = pod.condition(IN_PLACE_UPDATE_READY)
    return condition is None or condition.status == "True"


def seconds_until_available(pod: Pod, seconds: int, now: datetime) -> float | None:
    """How long until a ready Pod has been ready for more than ``seconds``; None if it is not ready, or already is."""
    since = ready_since(pod)
    if since is None or seconds <= 0 or ready_for(pod, seconds, now):
        return None
    # The comparison is strict: at the very moment it does not count yet.
    return max(0.0, (since + timedelta(seconds=seconds) - now).total_seconds()) + 0.001


def is_specified_delete(pod: Pod) -> bool:
    """PM-103: marked for deletion by the label, whatever its value."""
    return SPECIFIED_DELETE in pod.metadata.labels
