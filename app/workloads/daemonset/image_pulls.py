"""New images pulled ahead of a DaemonSet's update, in place or not (DS-62 … DS-65)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.api import names
from app.pods.predownload import Decision, changed_images
from app.pods.revisions import short_hash
from app.pods.templates import recorded_template
from app.workloads.daemonset.snapshot import DaemonSetSnapshot
from app.workloads.engine.image_pulls import ImagePuller, RolloutCounts, min_updated_ready_of
from app.workloads.engine.snapshot import AnySnapshot


class DaemonSetImagePuller(ImagePuller):
    """Pulls what any old revision lacks: when an update begins, or when as many of its Pods are ready as are to be."""

    warns = True  # DS-65

    def decision(self, snapshot: AnySnapshot, counts: RolloutCounts) -> Decision:
        """DS-62, DS-63."""
        update, ordered = snapshot.revisions.update, snapshot.revisions.ordered
        seen = snapshot.status.get("updateRevision") == short_hash(update.name)
        if seen and counts.updated == counts.replicas:
            return Decision.CLEAN_UP
        if names.PRE_DOWNLOAD_CREATED in update.labels or names.PRE_DOWNLOAD_IGNORED in update.labels:
            return Decision.NOTHING
        at_once = counts.partition == 0 and counts.max_unavailable >= counts.replicas
        if at_once or len(ordered) < 2:
            return Decision.IGNORE
        waits = counts.updated_ready < min_updated_ready_of(snapshot, counts.replicas)
        return Decision.WAIT if waits else Decision.CREATE

    def images(self, snapshot: AnySnapshot, template: Mapping[str, Any]) -> Mapping[str, str]:
        """DS-64: of containers whose image is another one in some old revision, or that are in none."""
        found: dict[str, str] = {}
        for revision in snapshot.revisions.ordered:
            old = recorded_template(revision) if revision.name != snapshot.revisions.update.name else None
            if old is not None:
                found |= changed_images(old, template)
        return found


def counts_of(snapshot: DaemonSetSnapshot) -> RolloutCounts:
    """What the decision asks."""
    nodes, limits = snapshot.nodes, snapshot.resolved.settings.limits(snapshot.nodes.desired)
    eligible = [node for node in nodes.nodes if node.eligibility.should_run and node.pods]
    updated = [node.pods[0] for node in eligible if nodes.is_new(node.pods[0])]
    return RolloutCounts(
        replicas=limits.desired,
        partition=limits.partition,
        max_unavailable=limits.max_unavailable,
        updated=len(updated),
        updated_ready=sum(pod.ready for pod in updated),
    )
