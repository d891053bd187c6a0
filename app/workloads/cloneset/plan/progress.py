"""Condition Progressing: whether a roll-out moves, rests or has taken too long (CS-152 … CS-155, B-11). Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.workloads.engine.conditions import Condition, Status, condition, with_condition, without_condition

PROGRESSING: Final = "Progressing"
#: The deadline that means none (CS-152).
NO_DEADLINE: Final = 2**31 - 1

AVAILABLE: Final = Condition(PROGRESSING, "True", "CloneSetAvailable", "CloneSet is available")
PAUSED: Final = Condition(PROGRESSING, "True", "CloneSetPaused", "CloneSet is paused")
PARTITION_AVAILABLE: Final = Condition(
    PROGRESSING, "True", "ProgressPartitionAvailable", "CloneSet has been paused due to partition ready"
)
UPDATED: Final = Condition(PROGRESSING, "True", "CloneSetUpdated", "CloneSet is progressing")
DEADLINE_EXCEEDED: Final = "ProgressDeadlineExceeded"


@dataclass(frozen=True, slots=True)
class Progress:
    """The conditions with Progressing as it should be; after ``requeue_after`` seconds the deadline may have passed."""

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
    """CS-153. ``old`` and ``new`` are the status before and after this pass; ``deadline`` in seconds."""
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
    since = _time(present.get("lastUpdateTime")) or now
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
    """B-11: whether the clock of the deadline starts anew."""
    if reason == PAUSED.reason or old.get("updateRevision") != new["updateRevision"]:
        return True
    return (
        (old.get("updatedReplicas") or 0) != new["updatedReplicas"]
        or (old.get("readyReplicas") or 0) < new["readyReplicas"]
        or (old.get("availableReplicas") or 0) < new["availableReplicas"]
        or reason in (AVAILABLE.reason, PARTITION_AVAILABLE.reason)
    )


def _again(left: float) -> float:
    """CS-154: a second later than the deadline, so that it has passed then."""
    return left + 1 if left >= 1 else max(left, 0.001)


def _time(text: object) -> datetime | None:
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None
