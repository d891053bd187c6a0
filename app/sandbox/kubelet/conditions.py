"""The conditions a kubelet keeps on a Pod: initialized, containers ready, ready with readiness gates. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from app.kube.clock import rfc3339
from app.sandbox.objects import ContainerStatus, Pod


class _Wanted(NamedTuple):
    type: str
    status: str
    reason: str = ""
    message: str = ""


def condition_patches(
    pod: Pod,
    initialized: Sequence[bool],
    inits: Sequence[ContainerStatus],
    statuses: Sequence[ContainerStatus],
    now: datetime,
    phase: str = "Running",
) -> list[dict[str, Any]]:
    """The conditions that change, for a strategic merge patch; conditions of others are left alone.

    ``initialized``: for each init container whether it lets the next begin.
    """
    present = {condition.type: condition for condition in pod.status.conditions}
    patches = []
    for wanted in _wanted(pod, initialized, inits, statuses, phase):
        old = present.get(wanted.type)
        if old is not None and (old.status, old.reason, old.message) == wanted[1:]:
            continue
        patch: dict[str, Any] = {
            "type": wanted.type,
            "status": wanted.status,
            "observedGeneration": pod.metadata.generation,
            # Null takes away what a former state has left.
            "reason": wanted.reason or None,
            "message": wanted.message or None,
        }
        if old is None or old.status != wanted.status:
            patch["lastTransitionTime"] = rfc3339(now)
        patches.append(patch)
    return patches


def _wanted(
    pod: Pod,
    initialized: Sequence[bool],
    inits: Sequence[ContainerStatus],
    statuses: Sequence[ContainerStatus],
    phase: str,
) -> Iterator[_Wanted]:
    if phase == "Succeeded":
        # As the kubelet: nothing runs any more, and that is as it should be.
        yield _Wanted("PodReadyToStartContainers", "False")
        yield _Wanted("Initialized", "True", "PodCompleted")
        yield _Wanted("Ready", "False", "PodCompleted")
        yield _Wanted("ContainersReady", "False", "PodCompleted")
        return
    sidecars = [
        status
        for container, status in zip(pod.spec.init_containers, inits, strict=False)
        if container.restart_policy == "Always"
    ]
    incomplete = [status.name for status, done in zip(inits, initialized, strict=False) if not done]
    unready = [status.name for status in (*sidecars, *statuses) if not status.ready]
    yield _Wanted("PodReadyToStartContainers", "False" if phase == "Failed" else "True")
    if incomplete:
        text = f"containers with incomplete status: [{' '.join(incomplete)}]"
        yield _Wanted("Initialized", "False", "ContainersNotInitialized", text)
    else:
        yield _Wanted("Initialized", "True")
    text = f"containers with unready status: [{' '.join(unready)}]"
    not_ready: tuple[str, ...] = ("False", "ContainersNotReady", text) if unready else ("True",)
    if phase == "Failed":
        not_ready = ("False", "PodFailed")
    yield _Wanted("ContainersReady", *not_ready)
    if unready or phase == "Failed":
        yield _Wanted("Ready", *not_ready)
    elif closed := list(_closed_gates(pod)):
        yield _Wanted("Ready", "False", "ReadinessGatesNotReady", ", ".join(closed))
    else:
        yield _Wanted("Ready", "True")
    if not any(condition.type == "PodScheduled" for condition in pod.status.conditions):
        yield _Wanted("PodScheduled", "True")


def _closed_gates(pod: Pod) -> Iterator[str]:
    """PM-41: what each readiness gate that is not open says, in the kubelet's words."""
    present = {condition.type: condition.status for condition in pod.status.conditions}
    for gate in pod.spec.readiness_gates:
        status = present.get(gate.condition_type)
        if status is None:
            yield f'corresponding condition of pod readiness gate "{gate.condition_type}" does not exist.'
        elif status != "True":
            yield f'the status of pod readiness gate "{gate.condition_type}" is not "True", but {status}'
