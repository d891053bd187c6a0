"""The status of a CloneSet: counters, revisions and the condition Progressing. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.features.cloneset.types import NO_DEADLINE
from app.kube.clock import parsed_rfc3339
from app.workloads.settings import Revisions
from app.workloads.status import Condition, Status, condition, with_condition, without_condition

# Status counters and revisions [CS-144 … CS-147].

REQUIRED: Final = (
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "updatedReplicas",
    "updatedReadyReplicas",
    "collisionCount",
)
"""Fields that are written even if they are zero: counters that the schema requires, and the collision count."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Counts of active Pods for the status. The lifecycle state affects availability, not readiness. [CS-144]"""

    replicas: int = 0
    ready: int = 0
    available: int = 0
    updated: int = 0
    updated_ready: int = 0
    updated_available: int = 0


def base_status(
    numbers: Counts, revisions: Revisions, *, generation: int, replicas: int, partition: int, label_selector: str
) -> dict[str, Any]:
    """Return the status without its conditions. ``replicas`` is the desired number of Pods, ``partition`` the number
    that stay at the old revision."""
    # The rollout is complete once all Pods are updated, even if some are not ready or there are none. [CS-145]
    done = numbers.updated == numbers.replicas == replicas
    return {
        "observedGeneration": generation,
        "replicas": numbers.replicas,
        "readyReplicas": numbers.ready,
        "availableReplicas": numbers.available,
        "updatedReplicas": numbers.updated,
        "updatedReadyReplicas": numbers.updated_ready,
        "updatedAvailableReplicas": numbers.updated_available,
        "expectedUpdatedReplicas": replicas - partition,  # [CS-146]
        "currentRevision": revisions.update.name if done else revisions.current.name,
        "updateRevision": revisions.update.name,
        "collisionCount": revisions.collision_count,
        "labelSelector": label_selector,
    }


# Condition Progressing: whether a rollout is progressing, complete, paused, or past its deadline [CS-152 … CS-155].

PROGRESSING: Final = "Progressing"
AVAILABLE: Final = Condition(PROGRESSING, "True", "CloneSetAvailable", "CloneSet is available")
PAUSED: Final = Condition(PROGRESSING, "True", "CloneSetPaused", "CloneSet is paused")
PARTITION_AVAILABLE: Final = Condition(
    PROGRESSING, "True", "ProgressPartitionAvailable", "CloneSet has been paused due to partition ready"
)
UPDATED: Final = Condition(PROGRESSING, "True", "CloneSetUpdated", "CloneSet is progressing")
DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"


@dataclass(frozen=True, slots=True)
class Progress:
    """The conditions with the new Progressing, and the seconds until the deadline must be checked again."""

    conditions: Sequence[Mapping[str, Any]]
    requeue_after: float = 0.0


def progress(
    old: Status,
    new: Status,
    conditions: Sequence[Mapping[str, Any]],
    *,
    replicas: int,
    paused: bool,
    deadline: int | None,
    now: datetime,
) -> Progress:
    """Compute the condition Progressing. ``old`` and ``new`` are the status before and after this reconcile;
    ``deadline`` is in seconds. [CS-153]"""
    if deadline is None or deadline == NO_DEADLINE:
        return Progress(without_condition(conditions, PROGRESSING))
    resting = _resting(new, replicas, paused)
    if resting is not None:
        return Progress(with_condition(conditions, resting, now))
    present = condition({"conditions": conditions}, PROGRESSING)
    reason = present.get("reason") if present is not None else None
    if present is None or _moved(old, new, reason):
        moving = with_condition(conditions, UPDATED, now, refresh=True)
        return Progress(moving, _again(deadline))
    since = parsed_rfc3339(present.get("lastUpdateTime")) or now
    left = deadline - (now - since).total_seconds()
    if reason == DEADLINE_EXCEEDED or left < 0:
        message = f"CloneSet revision {new.get('updateRevision')} has timed out progressing"
        return Progress(with_condition(conditions, Condition(PROGRESSING, "False", DEADLINE_EXCEEDED, message), now))
    return Progress(with_condition(conditions, UPDATED, now), _again(left))


def _resting(status: Status, replicas: int, paused: bool) -> Condition | None:
    updated = status["updatedReplicas"]
    available = status["updatedAvailableReplicas"]
    if status["currentRevision"] == status["updateRevision"] and status["replicas"] == updated == available == replicas:
        return AVAILABLE
    if paused:
        return PAUSED
    expected = status["expectedUpdatedReplicas"]
    return PARTITION_AVAILABLE if expected < replicas and expected <= available else None


def _moved(old: Status, new: Status, reason: str | None) -> bool:
    """Return whether the rollout progressed. Progress restarts the deadline."""
    if reason == PAUSED.reason or old.get("updateRevision") != new["updateRevision"]:
        return True
    return (
        (old.get("updatedReplicas") or 0) != new["updatedReplicas"]
        or (old.get("readyReplicas") or 0) < new["readyReplicas"]
        or (old.get("availableReplicas") or 0) < new["availableReplicas"]
        or reason in (AVAILABLE.reason, PARTITION_AVAILABLE.reason)
    )


def _again(left: float) -> float:
    """Return the seconds until the next check, which is one second after the deadline. [CS-154]"""
    return left + 1 if left >= 1 else max(left, 0.001)
