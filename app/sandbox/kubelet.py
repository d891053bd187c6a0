"""What a kubelet would report about a Pod, and when it would remove it: a simulated kubelet without containers. Pure.

Everything follows from the Pod as it stands and what its env needs; the node itself remembers nothing, so it may be
restarted at any time. A container starts at once, or after the seconds its :class:`Pace` says, and then runs until its
image changes. Nothing here knows a Kruise kind.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, TypeAlias

import msgspec

from app.kube.clock import rfc3339
from app.kube.images import parse_image
from app.kube.objects import ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting
from app.sandbox.conditions import condition_patches
from app.sandbox.objects import Container, ContainerStatus, Pod

UNREADY: Final = "sandbox.pykruise.io/unready"
"""Annotation on a Pod, for tests and demonstrations: names of containers, joined by commas, that shall not be ready."""

FINISHED: Final = frozenset({"Succeeded", "Failed"})
NEVER: Final = float("inf")

#: The data of a ConfigMap, or None if there is none of that namespace and name.
ConfigMaps: TypeAlias = Callable[[str, str], Mapping[str, str] | None]


@dataclass(frozen=True, slots=True)
class Pace:
    """Seconds that a container takes to start, to start again with another image, and to stop."""

    start: float = 0.0
    restart: float = 0.0
    stop: float = 0.0


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a Pod's status depends on beside the Pod. ``since_write``: seconds since its status was written last."""

    host_ip: str
    pod_ip: str
    now: datetime
    since_write: float = NEVER
    config_maps: ConfigMaps = lambda _namespace, _name: None
    pace: Pace = Pace()


@dataclass(frozen=True, slots=True)
class PodPlan:
    """What to do: patch the status, then remove the Pod for good; look again later. Nothing if all is as it should."""

    #: A strategic merge patch of ``status``; empty: none.
    status: Mapping[str, Any] = field(default_factory=dict)
    remove: bool = False
    #: Seconds; zero: only when something changes.
    again_after: float = 0.0


def plan(pod: Pod, around: Surroundings) -> PodPlan:
    """What the kubelet of the Pod's node does next."""
    if pod.metadata.deletion_timestamp is not None:
        return _plan_end(pod, pod.metadata.deletion_timestamp, around)
    if pod.status.phase in FINISHED:
        return PodPlan()
    node = _Node(pod, around)
    inits = node.init_containers()
    initialized = [_lets_next_begin(c, s) for c, s in zip(pod.spec.init_containers, inits, strict=True)]
    statuses = node.containers(all(initialized))
    # As the kubelet's getPhase: a container that has never run keeps the Pod Pending.
    never_ran = any(s.state.running is None and s.last_state.terminated is None for s in statuses)
    phase = "Pending" if never_ran or not all(initialized) else "Running"
    patch = _status_patch(pod, around, phase, inits, statuses)
    conditions = condition_patches(pod, initialized, inits, statuses, around.now)
    if conditions:
        patch["conditions"] = conditions
    if patch or pod.status.observed_generation < pod.metadata.generation:
        patch["observedGeneration"] = pod.metadata.generation
    return PodPlan(patch, again_after=0.0 if node.later == NEVER else node.later)


def config_maps_of(pod: Pod) -> frozenset[str]:
    """The names of the ConfigMaps that the Pod's containers take env from."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return frozenset(name for container in containers for name, _, _ in _env_sources(container))


class _Node:
    """The containers of one Pod, moved on by one step. ``later``: in how many seconds the next step is due."""

    def __init__(self, pod: Pod, around: Surroundings) -> None:
        self._pod = pod
        self._around = around
        self._now = around.now.replace(microsecond=0)
        self._unready = {name.strip() for name in pod.metadata.annotations.get(UNREADY, "").split(",")}
        self.later = NEVER

    def init_containers(self) -> list[ContainerStatus]:
        """One after the other: the next begins when this one has ended, or is a sidecar and runs."""
        known = {status.name: status for status in self._pod.status.init_container_statuses}
        statuses: list[ContainerStatus] = []
        blocked = False
        for container in self._pod.spec.init_containers:
            status = known.get(container.name)
            if blocked:
                status = _waiting(container, status, "PodInitializing")
            else:
                status = self._next(container, status)
                if container.restart_policy != "Always" and status.state.running is not None:
                    # An ordinary init container ends as soon as it has begun.
                    ended = ContainerState(terminated=_ended(status, self._now))
                    status = msgspec.structs.replace(status, ready=True, started=False, state=ended)
                blocked = not _lets_next_begin(container, status)
            statuses.append(status)
        return statuses

    def containers(self, initialized: bool) -> list[ContainerStatus]:
        """All at once, as soon as the Pod is initialized."""
        known = {status.name: status for status in self._pod.status.container_statuses}
        return [
            self._next(container, known.get(container.name))
            if initialized
            else _waiting(container, known.get(container.name), "PodInitializing")
            for container in self._pod.spec.containers
        ]

    def _next(self, container: Container, status: ContainerStatus | None) -> ContainerStatus:
        if status is not None and status.state.terminated is not None:
            return status
        if status is not None and status.state.running is not None:
            if status.image == _full_name(container.image):
                ready = container.name not in self._unready
                return msgspec.structs.replace(status, ready=ready, resources=container.resources)
            past = ContainerState(terminated=_ended(status, self._now))
            status = msgspec.structs.replace(status, last_state=past)
            if self._around.pace.restart > 0:
                self.later = min(self.later, self._around.pace.restart)
                return _waiting(container, status, "ContainerCreating")
        elif hurry := self._still_creating(status):
            self.later = min(self.later, hurry)
            return _waiting(container, status, "ContainerCreating")
        if hindrance := _missing_config(container, self._pod.metadata.namespace, self._around.config_maps):
            return _waiting(container, status, "CreateContainerConfigError", hindrance)
        return self._started(container, status)

    def _still_creating(self, status: ContainerStatus | None) -> float:
        """Seconds until a container that does not run may start."""
        if status is None:
            return self._around.pace.start
        ran = status.last_state.terminated is not None
        duration = self._around.pace.restart if ran else self._around.pace.start
        left = duration - self._around.since_write
        # What is left for rounding alone would be waited for without any time passing.
        return left if left > 0.001 else 0.0

    def _started(self, container: Container, status: ContainerStatus | None) -> ContainerStatus:
        """The container runs. One that ran before has been restarted once more."""
        past = status.last_state if status is not None else ContainerState()
        restarts = (status.restart_count if status is not None else 0) + (past.terminated is not None)
        image = _full_name(container.image)
        return ContainerStatus(
            name=container.name,
            image=image,
            image_id=_image_id(image),
            container_id=f"sandbox://{_digest(f'{self._pod.metadata.uid}/{container.name}/{restarts}')}",
            ready=container.name not in self._unready,
            started=True,
            restart_count=restarts,
            state=ContainerState(running=ContainerStateRunning(self._now)),
            last_state=past,
            resources=container.resources,
        )


def _lets_next_begin(container: Container, status: ContainerStatus) -> bool:
    if container.restart_policy == "Always":
        return status.started is True
    return status.state.terminated is not None and status.state.terminated.exit_code == 0


def _waiting(container: Container, status: ContainerStatus | None, reason: str, message: str = "") -> ContainerStatus:
    """The container does not run; what is known of its past stays."""
    past = status if status is not None else ContainerStatus(container.name, container.image)
    state = ContainerState(waiting=ContainerStateWaiting(reason, message))
    return msgspec.structs.replace(past, ready=False, started=False, state=state)


def _ended(status: ContainerStatus, now: datetime) -> ContainerStateTerminated:
    """A container that ran has ended well."""
    began = status.state.running.started_at if status.state.running is not None else None
    return ContainerStateTerminated(exit_code=0, reason="Completed", started_at=began, finished_at=now)


def _env_sources(container: Container) -> Iterator[tuple[str, str, bool]]:
    """The ConfigMaps its env needs: name, key ('' for all), and whether it can do without."""
    for entry in container.env:
        selector = entry.value_from.config_map_key_ref if entry.value_from is not None else None
        if selector is not None:
            yield selector.name, selector.key, selector.optional
    for source in container.env_from:
        if source.config_map_ref is not None:
            yield source.config_map_ref.name, "", source.config_map_ref.optional


def _missing_config(container: Container, namespace: str, config_maps: ConfigMaps) -> str:
    """What keeps the container from being created, in the kubelet's words; '' if nothing does."""
    for name, key, optional in _env_sources(container):
        if optional:
            continue
        data = config_maps(namespace, name)
        if data is None:
            return f'configmap "{name}" not found'
        if key and key not in data:
            return f"couldn't find key {key} in ConfigMap {namespace}/{name}"
    return ""


def _status_patch(
    pod: Pod,
    around: Surroundings,
    phase: str,
    inits: Sequence[ContainerStatus],
    statuses: Sequence[ContainerStatus],
) -> dict[str, Any]:
    """The fields of status that differ from what the API server has, but for conditions."""
    old = pod.status
    patch: dict[str, Any] = {}
    if old.phase != phase:
        patch["phase"] = phase
    if old.start_time is None:
        ip = around.host_ip if pod.spec.host_network else around.pod_ip
        patch["startTime"] = rfc3339(around.now)
        patch |= {"hostIP": around.host_ip, "hostIPs": [{"ip": around.host_ip}], "podIP": ip, "podIPs": [{"ip": ip}]}
    if tuple(statuses) != old.container_statuses:
        patch["containerStatuses"] = [_printed(status) for status in statuses]
    if tuple(inits) != old.init_container_statuses:
        patch["initContainerStatuses"] = [_printed(status) for status in inits]
    return patch


def _plan_end(pod: Pod, deletion: datetime, around: Surroundings) -> PodPlan:
    """A Pod that is being deleted: let the containers stop, tell whoever holds it by a finalizer, and let it go."""
    grace = pod.metadata.deletion_grace_period_seconds or 0
    # The timestamp is when the grace period ends.
    elapsed = grace + (around.now - deletion).total_seconds()
    remaining = min(around.pace.stop, grace) - elapsed
    if remaining > 0:
        return PodPlan(again_after=remaining)
    patch: dict[str, Any] = {}
    if pod.metadata.finalizers and pod.status.phase not in FINISHED:
        now = around.now.replace(microsecond=0)
        statuses = [
            msgspec.structs.replace(
                status, ready=False, started=False, state=ContainerState(terminated=_ended(status, now))
            )
            for status in pod.status.container_statuses
        ]
        inits = pod.status.init_container_statuses
        patch = _status_patch(pod, around, "Succeeded", inits, statuses)
        patch["conditions"] = condition_patches(pod, [True] * len(inits), inits, statuses, around.now)
    # With a grace period of zero the API server has done its part: what remains is up to the finalizers.
    return PodPlan(patch, remove=grace > 0 or not pod.metadata.finalizers)


def _full_name(image: str) -> str:
    parsed = parse_image(image)
    return parsed.full_name if parsed is not None else image


def _image_id(image: str) -> str:
    """A digest that follows from the name alone, in the form a runtime reports."""
    parsed = parse_image(image)
    if parsed is None:
        return f"sha256:{_digest(image)}"
    return f"{parsed.repository}@{parsed.digest or 'sha256:' + _digest(image)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _printed(status: ContainerStatus) -> dict[str, Any]:
    # What the API requires is printed also when it is zero.
    printed: dict[str, Any] = msgspec.to_builtins(status)
    for state in ("state", "lastState"):
        if "terminated" in printed.get(state, ()):
            printed[state]["terminated"].setdefault("exitCode", 0)
    return {"image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {}, "lastState": {}} | printed
