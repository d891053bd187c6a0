"""What counts of a Pod and of a workload: whether a change is one that a WorkloadSpread has to look at."""

from __future__ import annotations

from typing import Any

from app.api import names
from app.kube.objects import Pod
from app.placement.workloadspread.workloads import REVISION
from app.pods.predicates import is_active


def pods_alike(old: Pod, new: Pod) -> bool:
    """Whether nothing changed that counts."""
    return old.metadata.uid == new.metadata.uid and _pod_facts(old) == _pod_facts(new)


def _pod_facts(pod: Pod) -> tuple[Any, ...]:
    metadata, scheduled = pod.metadata, pod.condition("PodScheduled")
    return (
        is_active(pod),
        pod.spec.node_name,
        metadata.annotations.get(names.MATCHED_WORKLOAD_SPREAD),
        metadata.annotations.get(names.POD_DELETION_COST),
        metadata.labels,
        (scheduled.status, scheduled.reason) if scheduled is not None else None,
    )


def workload_facts(workload: Any) -> tuple[Any, ...]:
    """What counts of a workload."""
    metadata, status = workload.metadata, getattr(workload, "status", None)
    return (
        metadata.uid,
        metadata.generation,
        bool(metadata.deletion_timestamp),
        metadata.annotations.get(REVISION),
        metadata.labels.get(names.POD_TEMPLATE_HASH),
        getattr(status, "update_revision", None),
    )
