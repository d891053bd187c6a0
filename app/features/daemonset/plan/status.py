"""The status of a DaemonSet: counts of nodes. Pure. [DS-66]"""

from __future__ import annotations

from typing import Any, Final

from app.features.daemonset.plan.scale import Observed

REQUIRED: Final = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
)
"""Fields that are written even if they are zero, because the schema requires them."""


def base_status(observed: Observed, *, generation: int, update_hash: str, collision_count: int) -> dict[str, Any]:
    """Return the status without conditions."""
    current = ready = available = updated = misscheduled = 0
    for node in observed.nodes:
        if not node.eligibility.should_run:
            misscheduled += bool(node.pods)
        elif node.pods:
            first = node.pods[0]
            current += 1
            ready += first.ready
            available += observed.available(first)
            updated += observed.is_new(first)
    return {
        "observedGeneration": generation,
        "currentNumberScheduled": current,
        "numberMisscheduled": misscheduled,
        "desiredNumberScheduled": observed.desired,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": observed.desired - available,
        "updateRevision": update_hash,
        "collisionCount": collision_count,
    }
