"""Settings and Pods for tests of the plan."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import orjson

from app.api import names
from app.api.fields import UpdatePriorityStrategy
from app.features.statefulset.plan.settings import Gates, Replicas, Retention, Settings
from app.kube.objects import decode_pod
from app.pods.lifecycle import Lifecycle
from app.pods.ordinals import Slots, reserved_intervals
from app.workloads.pods import PodFacts, pod_facts
from app.workloads.settings import UpdatePolicy
from tests.kit import objects

OLD, NEW = "oldhash", "newhash"
NOW = 1_000_000.0


def settings(
    replicas: int = 3,
    *,
    start: int = 0,
    reserve: Sequence[int | str] = (),
    ordered: bool = False,
    repairs: bool = False,
    scale_limit: int | str | None = None,
    on_delete: bool = False,
    partition: int = 0,
    limit: int | str = 1,
    policy: UpdatePolicy = UpdatePolicy.RECREATE,
    paused: bool = False,
    unordered: bool = False,
    priority: dict[str, Any] | None = None,
    min_ready: int = 0,
    lifecycle: dict[str, Any] | None = None,
    retention: Retention | None = None,
    gates: Gates | None = None,
) -> Settings:
    return Settings(
        slots=Slots.of(replicas, start, reserved_intervals(reserve)),
        ordered=ordered,
        repairs=repairs,
        scale_max_unavailable=scale_limit,
        on_delete=on_delete,
        partition=partition,
        max_unavailable=limit,
        policy=policy,
        paused=paused,
        unordered=unordered,
        priority=UpdatePriorityStrategy.model_validate(priority) if priority else None,
        min_ready_seconds=min_ready,
        lifecycle=Lifecycle.of(lifecycle),
        retention=retention or Retention(),
        gates=gates or Gates(),
    )


def pod(
    ordinal: int | str,
    revision: str = OLD,
    *,
    ready: bool = True,
    ready_for: float = 1000.0,
    phase: str = "Running",
    terminating: bool = False,
    state: str = "Normal",
    marked: bool = False,
    hooked: bool = False,
    labels: dict[str, str] | None = None,
) -> dict[str, Any]:
    """``hooked``: with the finalizer of :data:`HOOKS`."""
    since = datetime.fromtimestamp(NOW - ready_for, UTC).isoformat().replace("+00:00", "Z")
    given = {names.CONTROLLER_REVISION_HASH: f"web-{revision}", names.LIFECYCLE_STATE: state, **(labels or {})}
    if marked:
        given[names.SPECIFIED_DELETE] = "true"
    metadata = {"labels": given, "deletionTimestamp": since if terminating else None}
    if hooked:
        metadata["finalizers"] = ["example.com/hold"]
    condition = {"type": "Ready", "status": str(ready and phase == "Running"), "lastTransitionTime": since}
    return objects.pod_json(f"web-{ordinal}", phase=phase, conditions=[condition], **metadata)


HOOKS: dict[str, Any] = {
    "preDelete": {"finalizersHandler": ["example.com/hold"]},
    "inPlaceUpdate": {"finalizersHandler": ["example.com/hold"]},
}


def facts(found: dict[str, Any], chosen: Settings) -> PodFacts:
    return pod_facts(decode_pod(orjson.dumps(found)), chosen)


def replicas(chosen: Settings, pods: Sequence[dict[str, Any]]) -> Replicas:
    return Replicas.of(chosen, "web", [facts(one, chosen) for one in pods])
