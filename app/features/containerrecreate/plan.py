"""What is due for a ContainerRecreateRequest (CRR-10 … CRR-22, CRR-60, CRR-62). Pure.

The node agent does the work and writes its progress; the manager tells it what only the Pod's status knows, takes the
Pod out of service for the grace period, and ends what goes on for too long.
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

POD_GONE: Final = "pod has gone"
POD_ENDED: Final = "the Pod has ended; its containers do not start again"
NO_ANSWER: Final = "daemon has not responded for a long time"
DEADLINE_EXCEEDED: Final = "recreating has exceeded the activeDeadlineSeconds"
RESPONSE_SECONDS: Final = 60.0
#: CRR-18: kubelets report late while a postStart hook runs.
SNAPSHOT_SECONDS: Final = 3.0
_ENDED: Final = ("Succeeded", "Failed")
_DONE: Final = (SUCCEEDED, FAILED)

Status = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Step:
    """What to do now, in this order."""

    #: The Pod is ready again as far as this request goes, then the finalizer leaves.
    release: bool = False
    #: The node agent need not look at it any more.
    deactivate: bool = False
    delete: bool = False
    #: The Pod is taken out of service, behind a finalizer.
    hold: bool = False
    #: What changes in the status: a merge patch.
    status: Status | None = None
    requeue_after: float | None = None


def step(request: ContainerRecreateRequest, pod: Pod | None, now: datetime) -> Step:
    """CRR-10 … CRR-18; ``pod``: the Pod of that name, if there is one."""
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
    if pod.status.phase in _ENDED and not _has_sidecars_left(request, pod):
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
        # CRR-20: never back to nothing.
        change["containerStatusSnapshot"] = snapshot
    strategy = request.spec.strategy
    hold = strategy is not None and strategy.unready_grace_period_seconds is not None and grace_since(status) is None
    if hold:
        others = [one for one in status.get("conditions") or () if one.get("type") != PRE_RECREATE_GRACE]
        change["conditions"] = [*others, grace_condition(rfc3339(now))]
    return Step(hold=hold, status=change or None, requeue_after=min([*waits, SNAPSHOT_SECONDS]))


def is_of(request: ContainerRecreateRequest, pod: Pod) -> bool:
    """CRR-50: whether it is the very Pod, not another that has its name by now."""
    return pod.metadata.uid == request.metadata.labels.get(names.CRR_POD_UID)


def _has_sidecars_left(request: ContainerRecreateRequest, pod: Pod) -> bool:
    """SS-115: whether the Pod got its phase from the sidecar terminator, and containers of the request still run."""
    condition = pod.condition(names.SIDECAR_TERMINATED_CONDITION)
    if condition is None or condition.status != "True":
        return False
    wanted = {one.name for one in request.spec.containers}
    return any(one.name in wanted and one.state.terminated is None for one in pod.status.container_statuses)


def snapshot_of(request: ContainerRecreateRequest, pod: Pod, created: datetime) -> list[dict[str, Any]]:
    """CRR-20, CRR-62: what the Pod's status says of new containers: those that started since the request was made, or
    are others than it was made for."""
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
    """Return the change that ends a request. With ``fail``, containers that are not done have failed; otherwise their
    states stay as they are. [CRR-16, CRR-19, CRR-60]"""
    change: dict[str, Any] = {"phase": COMPLETED, "completionTime": rfc3339(now), "message": message}
    states = status.get("containerRecreateStates") or []
    if fail and any(one.get("phase") not in _DONE for one in states):
        change["containerRecreateStates"] = [
            one if one.get("phase") in _DONE else {**one, "phase": FAILED, "message": message} for one in states
        ]
    return change
