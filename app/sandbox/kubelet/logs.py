"""What a container would have printed, worked out when somebody asks: nothing is kept. Pure."""

from __future__ import annotations

from app.sandbox.kubelet.plan import PodInputs, context
from app.sandbox.objects import Container, ContainerStatus, Pod


def log_of(pod: Pod, inputs: PodInputs, container: str = "", *, previous: bool = False) -> str:
    """The log of the container (of the first, where none is named), or of its run before. Raises LookupError."""
    found, status = _find(pod, container)
    state = status.last_state if previous else status.state
    if previous and state.terminated is None:
        raise LookupError(f'previous terminated container "{found.name}" in pod "{pod.metadata.name}" not found')
    if state.running is not None:
        began, until = state.running.started_at, inputs.now
    elif state.terminated is not None and state.terminated.finished_at is not None:
        began, until = state.terminated.started_at, state.terminated.finished_at
    else:
        reason = state.waiting.reason if state.waiting is not None else "ContainerCreating"
        where = f'container "{found.name}" in pod "{pod.metadata.name}" is waiting to start'
        raise LookupError(f"{where}: {reason}")
    if began is None:
        return ""
    behaviour = context(pod, inputs).behave(found)
    lines = list(behaviour.script.log)
    if not found.command and not found.args:
        lines.append(f"{found.image} runs (simulated: it prints nothing else)")
    lines += [text for _, text in behaviour.program.printed((until - began).total_seconds())]
    return "".join(f"{line}\n" for line in lines)


def _find(pod: Pod, name: str) -> tuple[Container, ContainerStatus]:
    containers = (*pod.spec.containers, *pod.spec.init_containers)
    container = next((one for one in containers if one.name == name or not name), None)
    if container is None:
        raise LookupError(f"container {name} is not valid for pod {pod.metadata.name}")
    statuses = (*pod.status.container_statuses, *pod.status.init_container_statuses)
    status = next((one for one in statuses if one.name == container.name), ContainerStatus(container.name))
    return container, status
