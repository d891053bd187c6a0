"""Plans the next step of a ContainerRecreateRequest. Pure. [CRR-10 … CRR-22, CRR-40, CRR-62]

The node agent restarts the containers and reports progress. The manager copies the Pod status that the agent needs,
takes the Pod out of service for the grace period, and ends requests that take too long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from app.api import names
from app.features.containerrecreate.kind import grace_condition, grace_since
from app.features.containerrecreate.types import (
    COMPLETED,
    FAILED,
    PRE_RECREATE_GRACE,
    RECREATING,
    SUCCEEDED,
    ContainerRecreateRequest,
)
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.objects import Pod
from app.pods.predicates import FINISHED

POD_GONE: Final = "pod has gone"
POD_ENDED: Final = "the Pod has ended; its containers will not start again"
NO_ANSWER: Final = "daemon has not responded for a long time"
DEADLINE_EXCEEDED: Final = "recreating has exceeded the activeDeadlineSeconds"
RESPONSE_SECONDS: Final = 60.0
#: Seconds until the Pod's status is checked again. Kubelets report late while a postStart hook runs. [CRR-18]
SNAPSHOT_SECONDS: Final = 3.0
_DONE: Final = (SUCCEEDED, FAILED)

Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """The actions to take now, in the order of the fields."""

    #: Let the Pod become ready again, then remove the finalizer.
    release: bool = False
    #: Remove the label by which the node agent selects requests.
    deactivate: bool = False
    delete: bool = False
    #: Add a finalizer, then take the Pod out of service.
    hold: bool = False
    #: Merge patch for the status.
    status: Status | None = None
    requeue_after: float | None = None


def step(request: ContainerRecreateRequest, pod: Pod | None, now: datetime) -> Step:
    """Return the next step. ``pod`` is the Pod named in the request, if it exists. [CRR-10 … CRR-18]"""
    metadata = request.metadata
    status = request.status.to_dict() if request.status is not None else {}
    completed = bool(status.get("completionTime"))
    if request.deleting or completed:
        release = names.CRR_UNREADY_ACQUIRED in metadata.finalizers
        if request.deleting:
            return Step(release)
        if names.CRR_ACTIVE in metadata.labels:
            return Step(release, deactivate=True)
        ttl, ended = request.spec.ttl_seconds_after_finished, parsed_rfc3339(status["completionTime"])
        if ttl is None or ended is None:
            return Step(release)
        left = ttl - (now - ended).total_seconds()
        return Step(release, delete=left <= 0, requeue_after=left if left > 0 else None)
    if pod is None or not is_of(request, pod) or pod.metadata.deletion_timestamp is not None:
        return Step(status=_completed(status, POD_GONE, now))
    if pod.status.phase in FINISHED and not _has_sidecars_left(request, pod):
        return Step(status=_completed(status, POD_ENDED, now, fail=True))
    created = parsed_rfc3339(metadata.creation_timestamp) or now
    age, waits = (now - created).total_seconds(), []
    if not status.get("phase"):
        if age >= RESPONSE_SECONDS:
            return Step(status=_completed(status, NO_ANSWER, now))
        waits.append(RESPONSE_SECONDS - age)
    deadline = request.spec.active_deadline_seconds
    if deadline is not None:
        if age >= deadline:
            return Step(status=_completed(status, DEADLINE_EXCEEDED, now))
        waits.append(deadline - age)
    if status.get("phase") != RECREATING:
        return Step(requeue_after=min(waits) if waits else None)
    change: dict[str, Any] = {}
    snapshot = snapshot_of(request, pod, created)
    if snapshot != (status.get("containerStatusSnapshot") or []) and snapshot:
        # A snapshot is never replaced with an empty one. [CRR-20]
        change["containerStatusSnapshot"] = snapshot
    strategy = request.spec.strategy
    hold = strategy is not None and strategy.unready_grace_period_seconds is not None and grace_since(status) is None
    if hold:
        others = [one for one in status.get("conditions") or () if one.get("type") != PRE_RECREATE_GRACE]
        change["conditions"] = [*others, grace_condition(rfc3339(now))]
    return Step(hold=hold, status=change or None, requeue_after=min([*waits, SNAPSHOT_SECONDS]))


def is_of(request: ContainerRecreateRequest, pod: Pod) -> bool:
    """Return whether this is the request's Pod and not a later Pod of the same name. [CRR-50]"""
    return pod.metadata.uid == request.metadata.labels.get(names.CRR_POD_UID)


def _has_sidecars_left(request: ContainerRecreateRequest, pod: Pod) -> bool:
    """Return whether the sidecar terminator set the Pod's phase while containers of the request are still running.
    [SS-115]"""
    condition = pod.condition(names.SIDECAR_TERMINATED_CONDITION)
    if condition is None or condition.status != "True":
        return False
    wanted = {one.name for one in request.spec.containers}
    return any(one.name in wanted and one.state.terminated is None for one in pod.status.container_statuses)


def snapshot_of(request: ContainerRecreateRequest, pod: Pod, created: datetime) -> list[dict[str, Any]]:
    """Return the status of new containers: those that started after the request was created, or whose ID differs from
    the ID in the request. [CRR-20, CRR-62]"""
    statuses = {one.name: one for one in pod.status.container_statuses}
    found = []
    for wanted in request.spec.containers:
        status = statuses.get(wanted.name)
        running = status.state.running if status is not None else None
        if status is None or running is None:
            continue
        former = wanted.status_context.container_id if wanted.status_context is not None else ""
        other = bool(former) and status.container_id != former
        if other or (running.started_at is not None and running.started_at >= created):
            entry = {
                "name": status.name,
                "ready": status.ready,
                "restartCount": status.restart_count,
                "containerID": status.container_id,
            }
            found.append(entry)
    return found


def _completed(status: Status, message: str, now: datetime, *, fail: bool = False) -> dict[str, Any]:
    """Return the change that ends a request. With ``fail``, containers that are not done are marked as failed;
    otherwise, their states stay unchanged. [CRR-16, CRR-19, CRR-40]"""
    change: dict[str, Any] = {"phase": COMPLETED, "completionTime": rfc3339(now), "message": message}
    states = status.get("containerRecreateStates") or []
    if fail and any(one.get("phase") not in _DONE for one in states):
        change["containerRecreateStates"] = [
            one if one.get("phase") in _DONE else {**one, "phase": FAILED, "message": message} for one in states
        ]
    return change
