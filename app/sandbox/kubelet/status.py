"""The words of a container's status: waiting, running, ended; images and ids; how a status is printed. Pure."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from app.kube.images import parse_image
from app.kube.objects import ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting
from app.sandbox.objects import Container, ContainerStatus, Pod


def waiting(container: Container, status: ContainerStatus | None, reason: str, message: str = "") -> ContainerStatus:
    """The container does not run; what is known of its past stays, the way it ended last included."""
    past = status if status is not None else ContainerStatus(container.name, container.image)
    last = past.last_state
    if past.state.terminated is not None:
        last = ContainerState(terminated=past.state.terminated)
    state = ContainerState(waiting=ContainerStateWaiting(reason, message))
    if past.state == state and past.last_state == last and not past.ready:
        return past
    return msgspec.structs.replace(past, ready=False, started=False, state=state, last_state=last)


def running(pod: Pod, container: Container, status: ContainerStatus | None, now: float) -> ContainerStatus:
    """The container runs. One that ran before has been restarted once more."""
    past = status.last_state if status is not None else ContainerState()
    if status is not None and status.state.terminated is not None:
        past = ContainerState(terminated=status.state.terminated)
    restarts = (status.restart_count if status is not None else 0) + (past.terminated is not None)
    image = full_name(container.image)
    return ContainerStatus(
        name=container.name,
        image=image,
        image_id=image_id(image),
        container_id=f"sandbox://{_digest(f'{pod.metadata.uid}/{container.name}/{restarts}')}",
        ready=False,
        started=False,
        restart_count=restarts,
        state=ContainerState(running=ContainerStateRunning(second(now))),
        last_state=past,
        resources=container.resources,
        allocated_resources=container.resources.get("requests") or None,
    )


def ended(status: ContainerStatus, now: float, code: int, reason: str = "") -> ContainerStatus:
    """A container that ran has ended; one that did not run stays as it is."""
    if status.state.running is None:
        return status
    terminated = ContainerStateTerminated(
        exit_code=code,
        reason=reason or ("Completed" if code == 0 else "Error"),
        started_at=status.state.running.started_at,
        finished_at=second(now),
    )
    return msgspec.structs.replace(status, ready=False, started=False, state=ContainerState(terminated=terminated))


def second(moment: float) -> datetime:
    """A time in whole seconds, as statuses have it."""
    return datetime.fromtimestamp(int(moment), UTC)


@lru_cache(maxsize=4096)
def full_name(image: str) -> str:
    """An image's name as a runtime reports it."""
    parsed = parse_image(image)
    return parsed.full_name if parsed is not None else image


@lru_cache(maxsize=4096)
def image_id(image: str) -> str:
    """A digest that follows from the name alone, in the form a runtime reports."""
    parsed = parse_image(image)
    if parsed is None:
        return f"sha256:{_digest(image)}"
    return f"{parsed.repository}@{parsed.digest or 'sha256:' + _digest(image)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def printed(status: ContainerStatus) -> dict[str, Any]:
    """A status as it is written; what the API requires is printed also when it is zero."""
    found: dict[str, Any] = msgspec.to_builtins(status)
    for state in ("state", "lastState"):
        if "terminated" in found.get(state, ()):
            found[state]["terminated"].setdefault("exitCode", 0)
    return {"image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {}, "lastState": {}} | found
