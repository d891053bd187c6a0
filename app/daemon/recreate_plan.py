"""Next step for the ContainerRecreateRequests of one Pod. Pure. [CRR-31 … CRR-42]"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from app.daemon.cri.types import ContainerDetails, ContainerState
from app.daemon.objects import ContainerSnapshot, RecreateContainer, RecreateRequest, RecreateState
from app.kube.clock import rfc3339
from app.kube.text import truncated

PENDING: Final = "Pending"
RECREATING: Final = "Recreating"
SUCCEEDED: Final = "Succeeded"
FAILED: Final = "Failed"
COMPLETED: Final = "Completed"
IGNORE: Final = "Ignore"
NOT_FOUND: Final = "not found container on Node"
NOT_RESTARTED: Final = "the container has exited; the restartPolicy of its Pod does not restart it"
_GRACE: Final = "PreRecreateGrace"
_ORDER: Final = {COMPLETED: 0, RECREATING: 1, PENDING: 2, "": 3}
#: Seconds to wait after the grace period, so that it has certainly ended. [CRR-33]
_AFTER_GRACE: Final = 0.1
_MAX_MESSAGE: Final = 1024


@dataclass(frozen=True, slots=True)
class Choice:
    """The request to process and those that must wait. [CRR-31]"""

    request: RecreateRequest | None = None
    waiting: tuple[RecreateRequest, ...] = ()


def choose(requests: Iterable[RecreateRequest], is_current: Callable[[RecreateRequest], bool]) -> Choice:
    """Choose the request to process. ``is_current`` returns whether the cache reflects our last write to a request;
    a request that is not current and all requests after it are ignored."""
    picked: RecreateRequest | None = None
    waiting: list[RecreateRequest] = []
    for request in sorted(requests, key=_turn):
        if is_over(request):
            continue
        if not is_current(request):
            break
        if picked is None:
            picked = request
        elif not request.status.phase:
            waiting.append(request)
    return Choice(picked, tuple(waiting))


def is_over(request: RecreateRequest) -> bool:
    """Return whether the request is completed or being deleted."""
    return request.metadata.deletion_timestamp is not None or bool(request.status.completion_time)


def _turn(request: RecreateRequest) -> tuple[int, float, str]:
    created = request.metadata.creation_timestamp
    return (
        _ORDER.get(request.status.phase, 2),
        created.timestamp() if created is not None else 0.0,
        request.metadata.name,
    )


def grace_left(request: RecreateRequest, now: datetime) -> float | None:
    """Return the seconds left of the unready grace period; None until the Pod is marked unready. [CRR-33]"""
    asked = request.spec.strategy.unready_grace_period_seconds
    if asked is None:
        return 0.0
    since = next(
        (one.last_transition_time for one in request.status.conditions if one.type == _GRACE and one.status == "True"),
        None,
    )
    if since is None:
        return None
    # Subtract rather than add: a request may contain any number, and dates would overflow.
    left = asked - (now - since).total_seconds()
    return left + _AFTER_GRACE if left > 0 else 0.0


def runtime_name(request: RecreateRequest) -> str:
    """Return the name of the containers' runtime. Raises ``ValueError`` if there is not exactly one. [CRR-34]"""
    found: set[str] = set()
    for container in request.spec.containers:
        name, separator, rest = container.status_context.container_id.partition("://")
        if not (separator and name and rest):
            raise ValueError(f"container {container.name} has no container ID of the form runtime://id")
        found.add(name)
    if len(found) != 1:
        raise ValueError(f"containers of one Pod must be on one runtime, found: {', '.join(sorted(found)) or 'none'}")
    return found.pop()


@dataclass(frozen=True, slots=True)
class Found:
    """The newest container with a given name in the Pod. ``restart_count`` is the kubelet's count."""

    details: ContainerDetails
    restart_count: int = 0
    #: Whether the kubelet restarts the container after it exits.
    restarts: bool = True


def stopping(container_id: str) -> str:
    """Return the state message written before a container is stopped, kept until the stop is confirmed."""
    return f"stopping {container_id}"


def states(
    request: RecreateRequest, runtime: str, found: Mapping[str, Found], now: datetime
) -> tuple[RecreateState, ...]:
    """Return the progress of each container as observed on the node. [CRR-35]"""
    before = {state.name: state for state in request.status.container_recreate_states}
    snapshots = {snapshot.name: snapshot for snapshot in request.status.container_status_snapshot}
    return tuple(
        _state(
            request,
            container,
            before.get(container.name, RecreateState(container.name, PENDING)),
            found.get(container.name),
            snapshots.get(container.name),
            runtime,
            now,
        )
        for container in request.spec.containers
    )


def _state(
    request: RecreateRequest,
    container: RecreateContainer,
    before: RecreateState,
    found: Found | None,
    snapshot: ContainerSnapshot | None,
    runtime: str,
    now: datetime,
) -> RecreateState:
    name, strategy = container.name, request.spec.strategy
    if before.phase in (SUCCEEDED, FAILED):
        return before
    if found is None:
        return RecreateState(name, PENDING, NOT_FOUND, before.is_killed)
    details, context = found.details, container.status_context
    full_id = f"{runtime}://{details.id}"
    # The message still announces the stop if the agent exited after stopping the container but before recording it.
    killed = before.is_killed or (
        before.message.startswith(stopping(""))
        and (before.message != stopping(full_id) or details.state is ContainerState.EXITED)
    )
    if details.state is ContainerState.EXITED:
        if not found.restarts:
            # The kubelet will not restart it. [CRR-40]
            return RecreateState(name, FAILED, NOT_RESTARTED, killed)
        return RecreateState(name, RECREATING, is_killed=killed)
    if strategy.force_recreate and not killed:
        return RecreateState(name, PENDING, before.message if before.message == stopping(full_id) else "")
    if full_id != context.container_id or found.restart_count > context.restart_count:
        done = _is_recreated(snapshot, full_id, details, strategy.min_started_seconds, now)
        return RecreateState(name, SUCCEEDED if done else RECREATING, is_killed=killed)
    return RecreateState(name, PENDING, before.message if before.message == stopping(full_id) else "", killed)


def _is_recreated(
    snapshot: ContainerSnapshot | None, full_id: str, details: ContainerDetails, min_started: int, now: datetime
) -> bool:
    if snapshot is None or snapshot.container_id != full_id or not snapshot.ready:
        return False
    ran = now.timestamp() - details.started_at / 1e9
    return min_started <= 0 or ran > min_started


@dataclass(frozen=True, slots=True)
class Walk:
    """Result of one pass over the containers: the new ``states``, the container to ``kill`` now, and whether the
    request has ``ended``. [CRR-37]"""

    states: tuple[RecreateState, ...]
    kill: RecreateContainer | None = None
    ended: bool = False


def walk(request: RecreateRequest, current: Sequence[RecreateState], found: Mapping[str, Found]) -> Walk:
    """Go through the containers in the order of the request and stop at the first one to wait for."""
    strategy = request.spec.strategy
    result = list(current)
    over = 0
    for position, (container, state) in enumerate(zip(request.spec.containers, current, strict=True)):
        match state.phase:
            case "Succeeded":
                over += 1
            case "Failed":
                over += 1
                if strategy.failure_policy != IGNORE:
                    return Walk(tuple(result), ended=True)
            case "Recreating":
                result[position] = msgspec.structs.replace(state, is_killed=True)
                if strategy.ordered_recreate:
                    break
            case _:
                return Walk(tuple(result), kill=container if container.name in found else None)
    return Walk(tuple(result), ended=over == len(current))


def killed(current: Sequence[RecreateState], name: str, error: str = "") -> tuple[RecreateState, ...]:
    """Return the states after a container was stopped or could not be stopped. [CRR-37]"""
    if error:
        done = RecreateState(name, FAILED, truncated(f"kill container error: {error}", _MAX_MESSAGE))
    else:
        done = RecreateState(name, RECREATING, is_killed=True)
    return tuple(done if state.name == name else state for state in current)


def announced(current: Sequence[RecreateState], name: str, full_id: str) -> tuple[RecreateState, ...]:
    """Return the states that announce that a container is about to be stopped."""
    return tuple(
        msgspec.structs.replace(state, message=stopping(full_id)) if state.name == name else state for state in current
    )


def states_patch(current: Sequence[RecreateState]) -> dict[str, Any]:
    """Return the status merge patch, which replaces the whole list. [CRR-41]"""
    return {"containerRecreateStates": [_json(state) for state in current]}


def _json(state: RecreateState) -> dict[str, Any]:
    found: dict[str, Any] = {"name": state.name, "phase": state.phase}
    if state.message:
        found["message"] = state.message
    if state.is_killed:
        found["isKilled"] = True
    return found


def completed_patch(now: datetime, message: str) -> dict[str, Any]:
    """Return the status merge patch that completes a request."""
    shown = {"message": truncated(message, _MAX_MESSAGE)} if message else {}
    return {"phase": COMPLETED, "completionTime": rfc3339(now), **shown}


def newest(containers: Iterable[Any]) -> dict[str, Any]:
    """Return the most recently created container of each name, whether it is running or has exited. [CRR-35]"""
    found: dict[str, Any] = {}
    for container in containers:
        known = found.get(container.name)
        if known is None or container.created_at > known.created_at:
            found[container.name] = container
    return found
