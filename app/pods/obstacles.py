"""What keeps a Pod from being ready, in sentences, and what a person can do about it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from app.api import names
from app.kube.objects import ContainerStatus, Pod
from app.pods.lifecycle import LifecycleState

_IMAGE: Final = frozenset(("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull"))
#: A Pod passes through these by itself.
_PASSING: Final = frozenset(("", "ContainerCreating", "PodInitializing"))
#: Messages come from containers: nobody wants pages of them.
_LONGEST: Final = 300
_HOOKS: Final[dict[str, str]] = {
    LifecycleState.PREPARING_DELETE: "its deletion",
    LifecycleState.PREPARING_UPDATE: "its update",
}


@dataclass(frozen=True, slots=True)
class Obstacle:
    """What is wrong, and the way out."""

    what: str
    way_out: str


def obstacles(pod: Pod) -> Sequence[Obstacle]:
    """All of them, the first cause first; empty for a Pod that is ready or soon will be."""
    return tuple(_found(pod))


def ways_out(pods: Iterable[Pod]) -> list[str]:
    """What can be done about all that keeps these Pods from being ready, each once."""
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
        yield Obstacle(f"it is being deleted, and held by finalizer {held}", "ask whoever set the finalizer to let go")


def _scheduling(pod: Pod) -> Iterator[Obstacle]:
    condition = pod.condition("PodScheduled")
    if condition is None or condition.status == "True" or pod.spec.node_name:
        return
    if condition.reason == "SchedulingGated":
        yield Obstacle(
            "scheduling gates keep it from any node", "wait for whoever set spec.schedulingGates, or ask them"
        )
        return
    what = f"no node takes it: {_short(condition.message or condition.reason)}"
    yield Obstacle(what, "add nodes or free some, or ask for less in its template (resources, affinity, nodeSelector)")


def _container(pod: Pod, status: ContainerStatus, image: str) -> Iterator[Obstacle]:
    waiting, name = status.state.waiting, f"container {status.name}"
    logs = f"kubectl logs -n {pod.metadata.namespace} {pod.metadata.name} -c {status.name}"
    if waiting is None:
        ended = status.state.terminated
        if ended is not None and ended.exit_code and pod.status.phase in ("Running", "Failed", "Pending"):
            why = f": {ended.reason}" if ended.reason else ""
            yield Obstacle(f"{name} ended with exit code {ended.exit_code}{why}", logs)
        elif status.state.running is not None and not status.ready and status.started is False:
            yield Obstacle(f"{name} runs, and its startup probe has not succeeded yet", logs)
        return
    if waiting.reason in _PASSING:
        return
    said = f": {_short(waiting.message)}" if waiting.message else ""
    if waiting.reason in _IMAGE:
        yield Obstacle(
            f"image {image} of {name} cannot be pulled ({waiting.reason}){said}",
            f"correct the image of {status.name} in the template, or give the Pod a pull secret",
        )
    elif waiting.reason == "CrashLoopBackOff":
        before = status.last_state.terminated
        how = f" with exit code {before.exit_code}" if before is not None else ""
        how += f" ({before.reason})" if before is not None and before.reason else ""
        yield Obstacle(f"{name} ends again and again{how}, {status.restart_count} restarts", f"{logs} --previous")
    else:
        describe = f"kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name}"
        yield Obstacle(f"{name} does not start ({waiting.reason}){said}", describe)


def _hook(pod: Pod) -> Iterator[Obstacle]:
    state = pod.metadata.labels.get(names.LIFECYCLE_STATE, "")
    what = _HOOKS.get(state)
    if what is not None and pod.metadata.deletion_timestamp is None:
        way_out = "whoever serves the hook takes its finalizers and labels away (spec.lifecycle names them)"
        yield Obstacle(f"a lifecycle hook delays {what} (state {state})", way_out)


def _conditions(pod: Pod) -> Iterator[Obstacle]:
    for gate in pod.spec.readiness_gates:
        condition = pod.condition(gate.condition_type)
        if gate.condition_type in (names.KRUISE_POD_READY, names.IN_PLACE_UPDATE_READY) and condition is None:
            continue  # the manager writes it in a moment
        if gate.condition_type == names.IN_PLACE_UPDATE_READY and condition is not None and condition.status == "False":
            describe = f"kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name}"
            yield Obstacle(
                "it is being updated in place: its node has not started the changed containers yet",
                f"wait; if it stays so: {describe}",
            )
        elif condition is None or condition.status != "True":
            said = f": {_short(condition.message)}" if condition is not None and condition.message else ""
            state = condition.status if condition is not None else "not written yet"
            yield Obstacle(
                f"readiness gate {gate.condition_type} is {state}{said}",
                f"look at whoever writes condition {gate.condition_type}",
            )
    running = [one for one in pod.status.container_statuses if one.state.running is not None and not one.ready]
    for one in running:
        if one.started is not False:
            yield Obstacle(
                f"container {one.name} runs and is not ready: its readiness probe fails, or has not run yet",
                f"kubectl describe pod -n {pod.metadata.namespace} {pod.metadata.name} shows what the probe answers",
            )


def _short(message: str) -> str:
    line = " ".join(message.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]} …"
