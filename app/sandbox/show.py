"""What the sandbox shows of its Pods while it runs: rows of a table, or a line per change. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

from app.sandbox.objects import ContainerStatus, Pod

#: More Pods than this are not shown at once.
MOST_ROWS = 30
_LONG_AGO = datetime.min.replace(tzinfo=UTC)


def containers(pod: Pod) -> str:
    """``log-shipper ready · main ContainerCreating``: init containers first, those that have ended left out."""
    statuses = {one.name: one for one in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    named = [*pod.spec.init_containers, *pod.spec.containers]
    shown = []
    for container in named:
        status = statuses.get(container.name)
        is_init = container in pod.spec.init_containers and container.restart_policy != "Always"
        if is_init and status is not None and status.state.terminated is not None and status.ready:
            continue
        shown.append(f"{container.name} {state(status)}")
    return " · ".join(shown)


def state(status: ContainerStatus | None) -> str:
    """A container's state in a word or two."""
    if status is None:
        return "waiting"
    restarts = f" (restarts: {status.restart_count})" if status.restart_count else ""
    if status.state.running is not None:
        return ("ready" if status.ready else "running") + restarts
    if status.state.terminated is not None:
        return f"{status.state.terminated.reason} {status.state.terminated.exit_code}{restarts}"
    reason = status.state.waiting.reason if status.state.waiting is not None else "waiting"
    return reason + restarts


def phase(pod: Pod) -> str:
    """The first word on a Pod: its phase, or that it goes, or that no node takes it."""
    if pod.metadata.deletion_timestamp is not None:
        return "Terminating"
    if any(one.type == "PodScheduled" and one.status == "False" for one in pod.status.conditions):
        return "Unschedulable"
    if any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions):
        return "Ready"
    return pod.status.phase or "Pending"


def rows(pods: Iterable[Pod]) -> list[tuple[str, str, str, str]]:
    """Name, node, phase and containers of the newest Pods, by name."""
    ordered = sorted(
        pods, key=lambda pod: (pod.metadata.creation_timestamp is not None, pod.metadata.creation_timestamp)
    )
    found = [
        (f"{pod.metadata.namespace}/{pod.metadata.name}", pod.spec.node_name, phase(pod), containers(pod))
        for pod in ordered[-MOST_ROWS:]
    ]
    return sorted(found)


def line(pod: Pod, *, gone: bool = False) -> str:
    """One line for a change of a Pod."""
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return f"{name}: gone" if gone else f"{name} on {pod.spec.node_name or 'no node'}: {phase(pod)} [{containers(pod)}]"
