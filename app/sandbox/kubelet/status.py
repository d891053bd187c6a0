"""Pod status as a simulated kubelet reports it, and environments of containers. Pure."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from app.kube.clock import rfc3339
from app.kube.images import parse_image
from app.kube.objects import ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting
from app.sandbox.objects import Container, ContainerStatus, Pod


def waiting(container: Container, status: ContainerStatus | None, reason: str, message: str = "") -> ContainerStatus:
    """Return the status of a waiting container. Restart count and last termination are kept."""
    past = status if status is not None else ContainerStatus(container.name, container.image)
    last = past.last_state
    if past.state.terminated is not None:
        last = ContainerState(terminated=past.state.terminated)
    state = ContainerState(waiting=ContainerStateWaiting(reason, message))
    if past.state == state and past.last_state == last and not past.ready:
        return past
    return msgspec.structs.replace(past, ready=False, started=False, state=state, last_state=last)


def running(pod: Pod, container: Container, status: ContainerStatus | None, now: float) -> ContainerStatus:
    """Return the status of a running container. The restart count rises if the container ran before."""
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
    """Return the status of a container that has ended. The status of one that did not run is returned unchanged."""
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
    """Return a time truncated to whole seconds, as in statuses."""
    return datetime.fromtimestamp(int(moment), UTC)


@lru_cache(maxsize=4096)
def full_name(image: str) -> str:
    """Return an image's full name, as a runtime reports it."""
    parsed = parse_image(image)
    return parsed.full_name if parsed is not None else image


@lru_cache(maxsize=4096)
def image_id(image: str) -> str:
    """Return an image ID as a runtime reports it, with a digest derived from the name."""
    parsed = parse_image(image)
    if parsed is None:
        return f"sha256:{_digest(image)}"
    return f"{parsed.repository}@{parsed.digest or 'sha256:' + _digest(image)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def printed(status: ContainerStatus) -> dict[str, Any]:
    """Return a status as JSON. Fields required by the API are included even if zero."""
    found: dict[str, Any] = msgspec.to_builtins(status)
    for state in ("state", "lastState"):
        if "terminated" in found.get(state, ()):
            found[state]["terminated"].setdefault("exitCode", 0)
    return {"image": "", "imageID": "", "ready": False, "restartCount": 0, "state": {}, "lastState": {}} | found


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
    """Return changed conditions for a strategic merge patch. Conditions of other clients are left unchanged.

    ``initialized``: for each init container, whether the next may start.
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
            # null removes the fields of the previous state
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
        # Like the kubelet, report that the containers have completed.
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
    """Return the kubelet's message for each readiness gate that is not satisfied. [PM-41]"""
    present = {condition.type: condition.status for condition in pod.status.conditions}
    for gate in pod.spec.readiness_gates:
        status = present.get(gate.condition_type)
        if status is None:
            yield f'corresponding condition of pod readiness gate "{gate.condition_type}" does not exist.'
        elif status != "True":
            yield f'the status of pod readiness gate "{gate.condition_type}" is not "True", but {status}'


#: Returns the data of a ConfigMap or Secret, or None if it does not exist.
Data: TypeAlias = Callable[[str, str], Mapping[str, str] | None]

_MAP_FIELD: Final = re.compile(r"metadata\.(labels|annotations)\['(.+)'\]")


class Source(NamedTuple):
    """A source of environment variables. ``key`` is "" if all keys are used."""

    kind: str
    name: str
    key: str
    optional: bool


def nothing(_namespace: str, _name: str) -> Mapping[str, str] | None:
    """Return None: no ConfigMap or Secret exists."""
    return None


def sources(container: Container) -> Iterator[Source]:
    """Yield the ConfigMaps and Secrets that the container's environment uses."""
    for many in container.env_from:
        if many.config_map_ref is not None:
            yield Source("configmap", many.config_map_ref.name, "", many.config_map_ref.optional)
        if many.secret_ref is not None:
            yield Source("secret", many.secret_ref.name, "", many.secret_ref.optional)
    for entry in container.env:
        origin = entry.value_from
        if origin is not None and origin.config_map_key_ref is not None:
            selector = origin.config_map_key_ref
            yield Source("configmap", selector.name, selector.key, selector.optional)
        if origin is not None and origin.secret_key_ref is not None:
            selector = origin.secret_key_ref
            yield Source("secret", selector.name, selector.key, selector.optional)


def needs(pod: Pod, kind: str) -> frozenset[str]:
    """Return the names of the ConfigMaps (``configmap``) or Secrets (``secret``) that the Pod's environment variables
    refer to."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return frozenset(source.name for one in containers for source in sources(one) if source.kind == kind)


def environment(
    pod: Pod, container: Container, config_maps: Data, secrets: Data, addresses: tuple[str, str] = ("", "")
) -> dict[str, str]:
    """Return the environment as name → value. ``addresses`` are those of the Pod and its node. Missing sources are
    skipped; ``hindrance`` reports them."""
    namespace = pod.metadata.namespace
    found: dict[str, str] = {}
    for many in container.env_from:
        for source in sources(Container(env_from=(many,))):
            data = _data(source, namespace, config_maps, secrets) or {}
            found |= {f"{many.prefix}{key}": value for key, value in data.items()}
    for entry in container.env:
        origin = entry.value_from
        if origin is None:
            found[entry.name] = entry.value
        elif origin.field_ref is not None:
            found[entry.name] = field_value(pod, origin.field_ref.field_path, addresses)
        for source in sources(Container(env=(entry,))):
            data = _data(source, namespace, config_maps, secrets) or {}
            if source.key in data:
                found[entry.name] = data[source.key]
    return found


def hindrance(container: Container, namespace: str, config_maps: Data, secrets: Data) -> str:
    """Return why the container cannot be created, in the kubelet's words, or ''."""
    for source in sources(container):
        if source.optional:
            continue
        data = (secrets if source.kind == "secret" else config_maps)(namespace, source.name)
        if data is None:
            return f'{source.kind} "{source.name}" not found'
        if source.key and source.key not in data:
            kind = "Secret" if source.kind == "secret" else "ConfigMap"
            return f"couldn't find key {source.key} in {kind} {namespace}/{source.name}"
    return ""


def _data(source: Source, namespace: str, config_maps: Data, secrets: Data) -> Mapping[str, str] | None:
    if source.kind == "configmap":
        return config_maps(namespace, source.name)
    data = secrets(namespace, source.name)
    return {key: _plain(value) for key, value in data.items()} if data is not None else None


def _plain(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return value


def field_value(pod: Pod, path: str, addresses: tuple[str, str] = ("", "")) -> str:
    """Return a Pod field as the downward API does, or "" if it is not set."""
    if found := _MAP_FIELD.fullmatch(path):
        values = pod.metadata.labels if found[1] == "labels" else pod.metadata.annotations
        return values.get(found[2], "")
    pod_ip, host_ip = addresses
    return {
        "metadata.name": pod.metadata.name,
        "metadata.namespace": pod.metadata.namespace,
        "metadata.uid": pod.metadata.uid,
        "spec.nodeName": pod.spec.node_name,
        "spec.serviceAccountName": pod.spec.service_account_name,
        "status.podIP": pod.status.pod_ip or pod_ip,
        "status.podIPs": pod.status.pod_ip or pod_ip,
        "status.hostIP": host_ip,
        "status.hostIPs": host_ip,
    }.get(path, "")
