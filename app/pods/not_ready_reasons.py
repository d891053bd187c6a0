"""Explain what keeps a Pod from becoming ready, and how to fix it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.api import names
from app.kube.objects import ContainerStatus, Pod
from app.pods.lifecycle import LifecycleState

_IMAGE: Final = frozenset(("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"))
#: Waiting reasons that are part of a normal start.
_PASSING: Final = frozenset(("", "ContainerCreating", "PodInitializing"))
#: Maximum length of a quoted message. Containers may write longer ones.
_LONGEST: Final = 300
_HOOKS: Final[dict[str, str]] = {
    LifecycleState.PREPARING_DELETE: "its deletion",
    LifecycleState.PREPARING_UPDATE: "its update",
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """A problem and its remedy."""

    what: str
    way_out: str


def obstacles(pod: Pod) -> Sequence[Obstacle]:
    """Return all obstacles, the root cause first; empty for a Pod that is ready or soon will be."""
    return tuple(_found(pod))


def ways_out(pods: Iterable[Pod]) -> list[str]:
    """Return the remedies for all obstacles of these Pods, without duplicates."""
    return list(dict.fromkeys(one.way_out for pod in pods for one in obstacles(pod)))


def _found(pod: Pod) -> Iterator[Obstacle]:
    yield from _deletion(pod)
    yield from _scheduling(pod)
    spec = {one.name: one.image for one in (*pod.spec.init_containers, *pod.spec.containers)}
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        yield from _container(pod, status, spec.get(status.name) or status.image)
    yield from _hook(pod)
    yield from _conditions(pod)


def _deletion(pod: Pod) -> Iterator[Obstacle]:
    if pod.metadata.deletion_timestamp is not None and pod.metadata.finalizers:
        held = ", ".join(pod.metadata.finalizers)
        yield Obstacle(
            f"it is being deleted, but finalizer {held} remains", "check the controller that owns the finalizer"
        )


def _scheduling(pod: Pod) -> Iterator[Obstacle]:
    condition = pod.condition("PodScheduled")
    if condition is None or condition.status == "True" or pod.spec.node_name:
        return
    if condition.reason == "SchedulingGated":
        yield Obstacle(
            "scheduling gates keep it from being scheduled",
            "wait for the controller of spec.schedulingGates to remove the gates",
        )
        return
    what = f"it cannot be scheduled: {_short(condition.message or condition.reason)}"
    yield Obstacle(what, "add nodes, free resources, or relax its template (resources, affinity, nodeSelector)")


def _container(pod: Pod, status: ContainerStatus, image: str) -> Iterator[Obstacle]:
    waiting, name = status.state.waiting, f"container {status.name}"
    logs = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name} -c {status.name}"
    if waiting is None:
        ended = status.state.terminated
        if ended is not None and ended.exit_code and pod.status.phase in ("Running", "Failed", "Pending"):
            why = f": {ended.reason}" if ended.reason else ""
            yield Obstacle(f"{name} exited with code {ended.exit_code}{why}", logs)
        elif status.state.running is not None and not status.ready and status.started is False:
            yield Obstacle(f"{name} is running, but its startup probe has not succeeded yet", logs)
        return
    if waiting.reason in _PASSING:
        return
    detail = f": {_short(waiting.message)}" if waiting.message else ""
    if waiting.reason in _IMAGE:
        yield Obstacle(
            f"image {image} of {name} cannot be pulled ({waiting.reason}){detail}",
            f"correct the image of {status.name} in the template, or add an image pull secret",
        )
    elif waiting.reason == "CrashLoopBackOff":
        before = status.last_state.terminated
        how = f" with exit code {before.exit_code}" if before is not None else ""
        how += f" ({before.reason})" if before is not None and before.reason else ""
        yield Obstacle(f"{name} keeps exiting{how}, {status.restart_count} restarts", f"{logs} --previous")
    else:
        describe = f"kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name}"
        yield Obstacle(f"{name} does not start ({waiting.reason}){detail}", describe)


def _hook(pod: Pod) -> Iterator[Obstacle]:
    state = pod.metadata.labels.get(names.LIFECYCLE_STATE, "")
    what = _HOOKS.get(state)
    if what is not None and pod.metadata.deletion_timestamp is None:
        way_out = "wait for the hook's controller to remove its finalizers and labels (see spec.lifecycle)"
        yield Obstacle(f"a lifecycle hook delays {what} (state {state})", way_out)


def _conditions(pod: Pod) -> Iterator[Obstacle]:
    for gate in pod.spec.readiness_gates:
        condition = pod.condition(gate.condition_type)
        if gate.condition_type in (names.KRUISE_POD_READY, names.IN_PLACE_UPDATE_READY) and condition is None:
            continue  # The manager will set it shortly.
        if gate.condition_type == names.IN_PLACE_UPDATE_READY and condition is not None and condition.status == "False":
            describe = f"kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name}"
            yield Obstacle(
                "it is being updated in place: its node has not started the changed containers yet",
                f"wait; if this persists, run {describe}",
            )
        elif condition is None or condition.status != "True":
            detail = f": {_short(condition.message)}" if condition is not None and condition.message else ""
            state = condition.status if condition is not None else "not written yet"
            yield Obstacle(
                f"readiness gate {gate.condition_type} is {state}{detail}",
                f"check the controller that sets condition {gate.condition_type}",
            )
    running = [one for one in pod.status.container_statuses if one.state.running is not None and not one.ready]
    for one in running:
        if one.started is not False:
            yield Obstacle(
                f"container {one.name} is running but not ready: its readiness probe fails, or has not run yet",
                f"kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name} shows the result of the probe",
            )


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
