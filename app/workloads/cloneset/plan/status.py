"""What a CloneSet reports of itself: its counters and revisions (CS-144 … CS-147). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from app.workloads.engine.revisions import Revisions

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
    """CS-144: the active Pods counted. The lifecycle state counts for availability, not for readiness."""

    replicas: int = 0
    ready: int = 0
    available: int = 0
    updated: int = 0
    updated_ready: int = 0
    updated_available: int = 0


def base_status(
    numbers: Counts, revisions: Revisions, *, generation: int, replicas: int, partition: int, label_selector: str
) -> dict[str, Any]:
    """Everything but the conditions. ``replicas`` is what is asked for, ``partition`` how many of them stay old."""
    # CS-145: readiness does not matter; true at once for no Pods at all.
    done = numbers.updated == numbers.replicas == replicas
    return {
        "observedGeneration": generation,
        "replicas": numbers.replicas,
        "readyReplicas": numbers.ready,
        "availableReplicas": numbers.available,
        "updatedReplicas": numbers.updated,
        "updatedReadyReplicas": numbers.updated_ready,
        "updatedAvailableReplicas": numbers.updated_available,
        "expectedUpdatedReplicas": replicas - partition,  # CS-146
        "currentRevision": revisions.update.name if done else revisions.current.name,
        "updateRevision": revisions.update.name,
        "collisionCount": revisions.collision_count,
        "labelSelector": label_selector,
    }
