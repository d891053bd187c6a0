"""Container metadata reported for a Pod, and the containers to restart because labels or annotations they read have
changed. Pure. [KD-70 … KD-75]"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final

import msgspec

from app.api import names
from app.daemon.cri.types import ContainerDetails, ContainerState
from app.kube.objects import Container, Pod
from app.pods.container_meta import (
    ContainerHashes,
    ContainerMeta,
    RuntimeMeta,
    env_from_metadata,
    env_hash,
    hash_of_env,
    launch_priorities,
    outdated_env,
    runtime_meta,
)

#: Annotations that the kubelet records on containers. [KD-14]
HASH: Final = "io.kubernetes.container.hash"
DELETION_GRACE: Final = "io.kubernetes.pod.deletionGracePeriod"
GRACE: Final = "io.kubernetes.pod.terminationGracePeriod"
_IS_NAME: Final = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*").fullmatch
#: Maximum number of variables whose values are searched for in the whole output, which the container controls.
_MAX_DOUBTFUL: Final = 100
_HEX: Final = re.compile(r"[0-9a-fA-F]{1,16}").fullmatch


def is_reported(pod: Pod) -> bool:
    """Return whether the Pod is managed by Kruise, has container statuses, and is not being deleted. [KD-71]"""
    owner, metadata = pod.metadata.controller, pod.metadata
    ours = (owner is not None and owner.group == names.APPS_GROUP) or names.SIDECARSET_HASH in metadata.annotations
    return ours and metadata.deletion_timestamp is None and bool(pod.status.container_statuses)


def is_due(pod: Pod, *, with_env: bool = True) -> bool:
    """Return whether the report is incomplete or may be out of date. [KD-71]"""
    if not is_reported(pod):
        return False
    meta = runtime_meta(pod)
    statuses = pod.status.container_statuses
    if meta is None or len(meta.containers) != len(statuses):
        return True
    by_name = {one.name: one for one in meta.containers}
    containers = {container.name: container for container in pod.spec.containers}
    for status in statuses:
        known, container = by_name.get(status.name), containers.get(status.name)
        if known is None or known.container_id != status.container_id:
            return True
        if with_env and container is not None and known.hashes.env_hash != env_hash(container, pod):
            return True
    return False


@dataclass(frozen=True, slots=True)
class Seen:
    """A container in the runtime. ``env`` is the environment of its process; None if it was not read."""

    details: ContainerDetails
    env: Mapping[str, str] | None = None


def needs_env(pod: Pod, container: Container, details: ContainerDetails, known: ContainerMeta | None) -> bool:
    """Return whether to read the environment of the process. It is read if the container is running, takes variables
    from labels or annotations, and has no reported hash of them yet. [KD-73]"""
    return (
        bool(env_from_metadata(container, pod))
        and details.state is ContainerState.RUNNING
        and (known is None or known.hashes.env_hash == 0)
    )


def known_of(meta: RuntimeMeta | None, full_id: str) -> ContainerMeta | None:
    """Return the last report for the container with this ID."""
    return next((one for one in meta.containers if one.container_id == full_id), None) if meta is not None else None


def reported(pod: Pod, runtime: str, seen: Mapping[str, Seen], *, with_env: bool = True) -> RuntimeMeta:
    """Return the report for the containers that are in both the Pod's status and the runtime. ``with_env`` adds the
    hash of environment variables from labels and annotations. [KD-72, KD-73]"""
    meta = runtime_meta(pod)
    containers = {container.name: container for container in pod.spec.containers}
    found = []
    for status in pod.status.container_statuses:
        container, one = containers.get(status.name), seen.get(status.name)
        if container is None or one is None:
            continue
        full_id = f"{runtime}://{one.details.id}"
        known = known_of(meta, full_id)
        if known is None:
            text = one.details.annotations.get(HASH, "")
            hashes = ContainerHashes(plain_hash=int(text, 16) if _HEX(text) else 0)
            known = ContainerMeta(status.name, full_id, one.details.restart_count, hashes)
        if with_env and known.hashes.env_hash == 0 and one.details.state is ContainerState.RUNNING:
            wanted = env_from_metadata(container, pod)
            if wanted and one.env is None:
                found.append(known)
                continue
            values = {name: (one.env or {}).get(name, "") for name in wanted}
            hashes = ContainerHashes(known.hashes.plain_hash, hash_of_env(values))
            known = ContainerMeta(known.name, known.container_id, known.restart_count, hashes)
        found.append(known)
    return RuntimeMeta(tuple(found))


def annotation(meta: RuntimeMeta) -> str:
    """Return the annotation value in OpenKruise's format. [KD-70]"""
    containers = []
    for one in meta.containers:
        hashes = {"plainHash": one.hashes.plain_hash}
        if one.hashes.env_hash:
            hashes["extractedEnvFromMetadataHash"] = one.hashes.env_hash
        containers.append(
            {
                "name": one.name,
                "containerID": one.container_id,
                "restartCount": one.restart_count,
                "hashes": hashes,
            }
        )
    return msgspec.json.encode({"containers": containers}).decode()


@dataclass(frozen=True, slots=True)
class Outdated:
    """A container whose environment no longer matches the Pod's labels and annotations."""

    name: str
    container_id: str


def outdated(pod: Pod, meta: RuntimeMeta) -> list[Outdated]:
    """Return the containers to restart: the outdated ones with the highest launch priority. [KD-74]

    Containers are restarted only during an in-place update, not when labels change at other times.
    """
    condition = pod.condition(names.IN_PLACE_UPDATE_READY)
    if condition is None or condition.status != "False":
        return []
    running = {status.name: status.container_id for status in pod.status.container_statuses}
    late = frozenset(outdated_env(pod, meta))
    found = [
        Outdated(one.name, one.container_id)
        for one in meta.containers
        if one.hashes.env_hash and one.name in late and running.get(one.name) == one.container_id
    ]
    if not found:
        return []
    # Restart one priority at a time, highest first, as at the first start. [PM-149]
    priorities = launch_priorities(pod)
    highest = max(priorities.get(one.name, 0) for one in found)
    unready = [priorities.get(one.name, 0) for one in pod.status.container_statuses if not one.ready]
    if priorities and any(priority > highest for priority in unready):
        return []
    return [one for one in found if priorities.get(one.name, 0) == highest]


def parse_env(output: bytes, current: Mapping[str, str]) -> dict[str, str]:
    """Parse the output of ``env``. The format is ambiguous: a value may span lines, each of which may look like a
    variable. ``current`` contains the values according to the Pod; such a value takes precedence over a shorter one
    if the output contains it in full."""
    text = output.decode("utf-8", "replace").removesuffix("\n")
    values: dict[str, list[str]] = {}
    last: list[str] = []
    for line in text.split("\n"):
        name, equals, value = line.partition("=")
        if equals and name not in values and (name in current or _IS_NAME(name)):
            last = values[name] = [value]
        else:
            last.append(line)
    found = {name: "\n".join(lines) for name, lines in values.items()}
    whole = f"\n{text}\n"
    doubtful = islice(((name, value) for name, value in current.items() if found.get(name) != value), _MAX_DOUBTFUL)
    return found | {name: value for name, value in doubtful if f"\n{name}={value}\n" in whole}


def grace_of(annotations: Mapping[str, str]) -> int:
    """Return the grace period of a container in seconds. [KD-74]"""
    for key in (DELETION_GRACE, GRACE):
        text = annotations.get(key, "")
        if text.isascii() and text.isdigit() and len(text) < 10:
            return int(text)
    return 2
