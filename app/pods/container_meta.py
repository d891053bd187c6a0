"""What the node agent and the manager tell each other about containers: runtime metadata and launch priorities.
Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from app.api import names
from app.api.gojson import dumps_go
from app.kube.images import remembered
from app.kube.objects import Container, Pod, Struct
from app.pods.hashes import deep_hash

# What the node agent reports about running containers: the hashes they were started with (§ 4.10). Pure.
#
# From them follows, without looking at images, whether a container runs what the Pod asks for now. Rules PM-48, PM-50,
# PM-51, PM-136 … PM-138.

_FIELD_PATH: Final = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)
_NO_REFERENCE: Final = frozenset({names.ENV_SIDECARSET_VERSION, names.ENV_SIDECARSET_VERSION_ALT})


class ContainerHashes(Struct, frozen=True):
    """What a container was started with."""

    plain_hash: int = 0
    env_hash: int = msgspec.field(name="extractedEnvFromMetadataHash", default=0)


class ContainerMeta(Struct, frozen=True):
    """One container as the agent saw it start."""

    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")
    restart_count: int = 0
    hashes: ContainerHashes = ContainerHashes()


class RuntimeMeta(Struct, frozen=True):
    """The annotation ``apps.kruise.io/runtime-containers-meta``."""

    containers: tuple[ContainerMeta, ...] = ()


_decode: Final = msgspec.json.Decoder(RuntimeMeta).decode


def runtime_meta(pod: Pod) -> RuntimeMeta | None:
    """What the agent reports; None where it reports nothing, or nothing that can be read (PM-46)."""
    text = pod.metadata.annotations.get(names.RUNTIME_CONTAINERS_META)
    if text is None:
        return None
    try:
        return _decode(text.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


@remembered(4096)
def plain_hash(name: str, image: str) -> int:
    """PM-137: the hash a kubelet of 1.31 or later keeps with a container."""
    return deep_hash(dumps_go({"image": image, "name": name}).encode())


def env_hash(container: Container, pod: Pod) -> int:
    """PM-138: the hash of the env that the container would read from the Pod's labels and annotations now."""
    return hash_of_env(env_from_metadata(container, pod))


def env_from_metadata(container: Container, pod: Pod) -> Mapping[str, str]:
    """The env that it would read from the Pod's labels and annotations now. Of several entries of a name the last is
    what its process gets."""
    metadata = pod.metadata
    found: dict[str, str] = {}
    for entry in container.env:
        source = entry.value_from.field_ref if entry.value_from is not None else None
        path = _FIELD_PATH.fullmatch(source.field_path) if source is not None else None
        if path is None or entry.name in _NO_REFERENCE:
            found.pop(entry.name, None)
        else:
            found[entry.name] = (metadata.labels if path[1] == "labels" else metadata.annotations).get(path[2], "")
    return found


def hash_of_env(values: Mapping[str, str]) -> int:
    """PM-138: the same hash of what a process was started with, by name of the variable."""
    return _hash_of(sorted(values.items()))


def _hash_of(values: Sequence[tuple[str, str]]) -> int:
    return _env_hash(*(text for entry in values for text in entry))


@remembered(4096)
def _env_hash(*texts: str) -> int:
    values = zip(texts[::2], texts[1::2], strict=True)
    entries = [{"name": name} | ({"value": value} if value else {}) for name, value in values]
    return deep_hash(dumps_go(entries or None).encode())


def is_image_current(pod: Pod, meta: RuntimeMeta) -> bool:
    """PM-50: whether every container was started with the name and image it has in the spec now.

    Kubelets before 1.31 hash the whole container, which a cached Pod does not have: for them this is never so, and the
    image ids decide.
    """
    reported = _reported(pod, meta)
    return all(
        (found := reported.get(container.name)) is not None
        and found.plain_hash == plain_hash(container.name, container.image)
        for container in pod.spec.containers
    )


def is_env_current(pod: Pod, meta: RuntimeMeta) -> bool:
    """PM-48: whether every container was started with the labels and annotations the Pod has now."""
    reported = _reported(pod, meta)
    return all(
        (found := reported.get(container.name)) is not None and found.env_hash == env_hash(container, pod)
        for container in pod.spec.containers
    )


def _reported(pod: Pod, meta: RuntimeMeta) -> Mapping[str, ContainerHashes]:
    """PM-51: only what the agent says about the very container that runs."""
    running = {status.name: status.container_id for status in pod.status.container_statuses}
    return {
        container.name: container.hashes
        for container in meta.containers
        if running.get(container.name) == container.container_id
    }


# Launch priorities of containers, as admission wrote them into their Pod: env that waits for a barrier key. Pure.
#
# In-place updates follow the same order as the first start does (PM-31, PM-149).

#: 64 bits: OpenKruise admits priorities beyond U-68's range, and such Pods are there when we take over.
_KEY: Final = re.compile(rf"{names.BARRIER_KEY_PREFIX}(0|-?[1-9][0-9]{{0,18}})", re.ASCII)


def barrier_config_map(pod: Pod) -> str:
    """The name of a Pod's barrier ConfigMap."""
    return pod.metadata.name + names.BARRIER_CONFIG_MAP_SUFFIX


def priority_of_key(key: str) -> int | None:
    """The priority a key is for; None for a key that is no barrier key."""
    found = _KEY.fullmatch(key)
    return int(found[1]) if found is not None else None


def launch_priorities(pod: Pod) -> Mapping[str, int]:
    """Container → launch priority, from the env that admission appended (PM-142)."""
    config_map = barrier_config_map(pod)
    found = {}
    for container in pod.spec.containers:
        for entry in container.env:
            reference = entry.value_from.config_map_key_ref if entry.value_from is not None else None
            # B-13: a user's own env of this name, from elsewhere, is none of ours.
            if entry.name != names.ENV_CONTAINER_BARRIER or reference is None or reference.name != config_map:
                continue
            priority = priority_of_key(reference.key)
            if priority is not None:
                found[container.name] = priority
    return found
