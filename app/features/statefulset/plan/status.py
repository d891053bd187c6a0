"""The status of a StatefulSet. Pure. [AS-84, AS-88, AS-92, AS-116, AS-117]"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from app.features.statefulset.plan.settings import Replica, Replicas
from app.pods.revisions import short_hash
from app.workloads.pods import PodFacts
from app.workloads.settings import Revisions

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
    replicas: Replicas,
    revisions: Revisions,
    *,
    generation: int,
    label_selector: str,
    now: float,
    begun: Collection[PodFacts] = (),
) -> dict[str, Any]:
    """Return the status without conditions and claims. ``now`` is in POSIX seconds; ``begun`` holds Pods whose update
    or deletion has begun; they no longer count toward their revision. [AS-84, AS-92]"""
    everyone = replicas.everyone
    current, update = short_hash(revisions.current.name), short_hash(revisions.update.name)
    ready = [one for one in everyone if one.running_and_ready]
    available = [one for one in ready if one.available(now)]
    staying = [one for one in everyone if one.facts not in begun]
    # An updated Pod is deleted only if it is marked for deletion.
    deleted = {one.facts for one in everyone if one.facts.marked}.intersection(begun) if current != update else ()
    status: dict[str, Any] = {
        "observedGeneration": generation,
        "replicas": len(everyone),
        "readyReplicas": len(ready),
        "availableReplicas": len(available),
        "currentReplicas": _at(current, staying),
        "updatedReplicas": _at(update, (one for one in everyone if one.facts not in deleted)),
        "updatedReadyReplicas": sum(one.is_at(update) for one in ready),
        "updatedAvailableReplicas": sum(one.is_at(update) for one in available),
        "currentRevision": revisions.current.name,
        "updateRevision": revisions.update.name,
        "collisionCount": revisions.collision_count,
        "labelSelector": label_selector,
    }
    done = status["updatedReplicas"] == status["replicas"] == status["readyReplicas"]
    if done and not replicas.settings.on_delete:
        # Without Pods, the update is complete immediately. [AS-88]
        status["currentRevision"] = revisions.update.name
        status["currentReplicas"] = status["updatedReplicas"]
    return status


def _at(revision: str, pods: Iterable[Replica]) -> int:
    return sum(one.is_at(revision) and not one.terminating for one in pods)
