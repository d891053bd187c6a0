"""What a StatefulSet reports of itself (AS-88, AS-116, AS-117). Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from app.pods.revisions import short_hash
from app.workloads.engine.revisions import Revisions
from app.workloads.statefulset.plan.replicas import Replica, Replicas

REQUIRED: Final = (
    "replicas",
    "readyReplicas",
    "availableReplicas",
    "currentReplicas",
    "updatedReplicas",
    "collisionCount",
)
FAILED_CREATE: Final = "FailedCreatePod"
FAILED_UPDATE: Final = "FailedUpdatePod"


def base_status(
    replicas: Replicas, revisions: Revisions, *, generation: int, label_selector: str, now: float
) -> dict[str, Any]:
    """Everything but the conditions and the claims. ``now``: POSIX seconds."""
    everyone = replicas.everyone
    current, update = short_hash(revisions.current.name), short_hash(revisions.update.name)
    ready = [one for one in everyone if one.running_and_ready]
    available = [one for one in ready if one.available(now)]
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "replicas": len(everyone),
        "readyReplicas": len(ready),
        "availableReplicas": len(available),
        "currentReplicas": _at(current, everyone),
        "updatedReplicas": _at(update, everyone),
        "updatedReadyReplicas": sum(one.is_at(update) for one in ready),
        "updatedAvailableReplicas": sum(one.is_at(update) for one in available),
        "currentRevision": revisions.current.name,
        "updateRevision": revisions.update.name,
        "collisionCount": revisions.collision_count,
        "labelSelector": label_selector,
    }
    done = status["updatedReplicas"] == status["replicas"] == status["readyReplicas"]
    if done and not replicas.settings.on_delete:
        # AS-88: true at once for no Pods at all.
        status["currentRevision"] = revisions.update.name
        status["currentReplicas"] = status["updatedReplicas"]
    return status


def _at(revision: str, pods: Iterable[Replica]) -> int:
    return sum(one.is_at(revision) and not one.terminating for one in pods)
