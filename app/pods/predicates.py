"""What is said of a Pod: active, ready, running (PM-113). Pure."""

from __future__ import annotations

from datetime import datetime

from app.api.names import SPECIFIED_DELETE
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


def is_specified_delete(pod: Pod) -> bool:
    """PM-103: marked for deletion by the label, whatever its value."""
    return SPECIFIED_DELETE in pod.metadata.labels
