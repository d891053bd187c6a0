"""WorkloadSpreads and Pods of tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from app.api import names
from app.features.workloadspread.plan.placement import SubsetRecord
from app.features.workloadspread.types import WorkloadSpread
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from tests.kit import objects

Json = dict[str, Any]
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
IGNORED = "versionIgnored"


def ago(seconds: float) -> str:
    return rfc3339(NOW - timedelta(seconds=seconds))


def condition(status: str, seconds_ago: float = 0.0) -> Json:
    reason = "Sufficient" if status == "True" else "PodUnschedulable"
    head = {"type": "Schedulable", "status": status, "reason": reason, "message": ""}
    return {**head, "lastTransitionTime": ago(seconds_ago)}


def spread(
    limits: dict[str, int | str | None],
    versions: dict[str, list[Json]] | None = None,
    *,
    kind: str = "CloneSet",
    group: str = "",
    overall: list[Json] | None = None,
    critical: int | None = None,
    **metadata: Any,
) -> WorkloadSpread:
    """A WorkloadSpread with these maxReplicas by subset and statuses by version."""
    group = group or ("apps.kruise.io/v1beta1" if kind == "CloneSet" else "apps/v1")
    obj: Json = {
        "apiVersion": "apps.kruise.io/v1beta1",
        "kind": "WorkloadSpread",
        "metadata": {"name": "ws", "namespace": "ns", "uid": "ws", "generation": 3, **metadata},
        "spec": {
            "targetRef": {"apiVersion": group, "kind": kind, "name": "shop"},
            "subsets": [
                {"name": name} | ({} if limit is None else {"maxReplicas": limit}) for name, limit in limits.items()
            ],
        },
    }
    if critical is not None:
        obj["spec"]["scheduleStrategy"] = {"type": "Adaptive", "adaptive": {"rescheduleCriticalSeconds": critical}}
    if versions is not None or overall is not None:
        obj["status"] = {"versionedSubsetStatuses": versions or {}, "subsetStatuses": overall or []}
    return WorkloadSpread.model_validate(obj)


def pod(
    name: str,
    subset: str = "",
    *,
    uid: str = "",
    phase: str = "Running",
    node: str = "node-1",
    ready_for: float | None = 60.0,
    age: float = 100.0,
    restarts: int = 0,
    unschedulable: bool = False,
    deleting: bool = False,
    cost: str = "",
) -> Pod:
    annotations = SubsetRecord("ws", subset, uid).annotation() if subset else {}
    if cost:
        annotations[names.POD_DELETION_COST] = cost
    conditions: list[Json] = []
    if unschedulable:
        phase, node, ready_for = "Pending", "", None
        conditions.append({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"})
    if ready_for is not None:
        conditions.append({"type": "Ready", "status": "True", "lastTransitionTime": ago(ready_for)})
    return objects.pod(
        name,
        phase=phase,
        node=node,
        conditions=conditions,
        status={"containerStatuses": [{"restartCount": restarts}]},
        annotations=annotations,
        creationTimestamp=ago(age),
        deletionTimestamp=ago(0) if deleting else None,
    )
