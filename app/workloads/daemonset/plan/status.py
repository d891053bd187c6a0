"""What a DaemonSet reports of itself: nodes, counted (DS-66). Pure."""

from __future__ import annotations

from typing import Any, Final

from app.workloads.daemonset.plan.nodes import Observed

REQUIRED: Final = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
)
"""Fields that are written even if they are zero, as the schema asks for."""


def base_status(observed: Observed, *, generation: int, update_hash: str, collision_count: int) -> dict[str, Any]:
    """The whole status."""
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
