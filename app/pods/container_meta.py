"""Container metadata exchanged by the node agent and the manager: runtime metadata and launch priorities. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Final
from zlib import crc32

import msgspec

from app.api import names
from app.api.gojson import dumps_go
from app.kube.hashes import deep_hash
from app.kube.images import LONGEST, remembered
from app.kube.objects import Container, Pod, Struct

# The node agent reports the hashes that running containers were started with. They indicate whether a container runs
# its current spec, without a comparison of images. [PM-48, PM-50, PM-51, PM-136 … PM-138]

#: fieldPath of an env variable that reads a label or an annotation.
FIELD_PATH: Final = re.compile(r"metadata\.(labels|annotations)\['(.*)'\]", re.DOTALL)
#: Maximum total length of a Pod's env that is hashed in full; OpenKruise's agents hash a longer env in full, too.
LONGEST_OF_POD: Final = 16 * LONGEST
#: Env variables that are set from the SidecarSet, not from the template. [PM-17]
NO_REFERENCE: Final = frozenset({names.ENV_SIDECARSET_VERSION, names.ENV_SIDECARSET_VERSION_ALT})


class ContainerHashes(Struct, frozen=True):
    """Hashes a container was started with."""

    plain_hash: int = 0
    env_hash: int = msgspec.field(name="extractedEnvFromMetadataHash", default=0)


class ContainerMeta(Struct, frozen=True):
    """One container as the agent reports it."""

    name: str = ""
    container_id: str = msgspec.field(name="containerID", default="")
    restart_count: int = 0
    hashes: ContainerHashes = ContainerHashes()


class RuntimeMeta(Struct, frozen=True):
    """The annotation ``apps.kruise.io/runtime-containers-meta``."""

    containers: tuple[ContainerMeta, ...] = ()


_decode: Final = msgspec.json.Decoder(RuntimeMeta).decode


def runtime_meta(pod: Pod) -> RuntimeMeta | None:
    """Return the agent's report, or None if it is missing or unreadable. [PM-46]"""
    text = pod.metadata.annotations.get(names.RUNTIME_CONTAINERS_META)
    if text is None:
        return None
    try:
        return _decode(text.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


@remembered(4096)
def plain_hash(name: str, image: str) -> int:
    """Return the hash that kubelets 1.31 and later store with a container; -1 for an image too long for any registry.
    [PM-137]"""
    if len(image) > LONGEST:
        return -1
    return deep_hash(dumps_go({"image": image, "name": name}).encode())


def env_hash(container: Container, pod: Pod) -> int:
    """Return the hash of the env the container would now read from the Pod's labels and annotations. [PM-138]"""
    return hash_of_env(env_from_metadata(container, pod))


def env_from_metadata(container: Container, pod: Pod) -> Mapping[str, str]:
    """Return the env the container would now read from the Pod's labels and annotations. If several entries have the
    same name, the process gets the last."""
    metadata = pod.metadata
    found: dict[str, str] = {}
    for entry in container.env:
        source = entry.value_from.field_ref if entry.value_from is not None else None
        path = FIELD_PATH.fullmatch(source.field_path) if source is not None else None
        if path is None or entry.name in NO_REFERENCE:
            found.pop(entry.name, None)
        else:
            found[entry.name] = (metadata.labels if path[1] == "labels" else metadata.annotations).get(path[2], "")
    return found


def hash_of_env(values: Mapping[str, str]) -> int:
    """Return the hash of given values, such as the env a process was started with. [PM-138]

    Thousands of variables may read one 256 KB annotation, so in a long env each distinct text is read only once.
    """
    texts = _texts(values)
    if sum(map(len, texts)) <= LONGEST:
        return _env_hash(*texts)
    sums = {text: crc32(text.encode("utf-8", "surrogatepass")) for text in set(texts)}
    return crc32(repr([sums[text] for text in texts]).encode()) or 1


def _texts(values: Mapping[str, str]) -> list[str]:
    return [text for entry in sorted(values.items()) for text in entry]


@lru_cache(4096)
def _env_hash(*texts: str) -> int:
    values = zip(texts[::2], texts[1::2], strict=True)
    entries = [{"name": name} | ({"value": value} if value else {}) for name, value in values]
    return deep_hash(dumps_go(entries or None).encode())


_long_env_hash: Final = lru_cache(64)(_env_hash.__wrapped__)


def is_image_current(pod: Pod, meta: RuntimeMeta) -> bool:
    """Return whether every container was started with the name and image in its spec. [PM-50]

    Kubelets before 1.31 hash the whole container, which a cached Pod does not contain. For them, this returns False,
    and the caller compares image ids.
    """
    reported = _reported(pod, meta)
    return all(
        (found := reported.get(container.name)) is not None
        and found.plain_hash == plain_hash(container.name, container.image)
        for container in pod.spec.containers
    )


def is_env_current(pod: Pod, meta: RuntimeMeta) -> bool:
    """Return whether every container was started with the Pod's current labels and annotations. [PM-48]"""
    return not any(outdated_env(pod, meta))


def outdated_env(pod: Pod, meta: RuntimeMeta) -> Iterator[str]:
    """Yield the containers that are not reported to run with the Pod's current labels and annotations.

    For a long env, OpenKruise's agents report a different hash. It is also accepted, unless the Pod's env is longer
    than LONGEST_OF_POD. [PM-138]
    """
    reported, left = _reported(pod, meta), LONGEST_OF_POD
    for container in pod.spec.containers:
        found, values = reported.get(container.name), env_from_metadata(container, pod)
        if found is not None and found.env_hash == hash_of_env(values):
            continue
        texts = _texts(values)
        left -= sum(map(len, texts))
        if found is None or left < 0 or found.env_hash != _long_env_hash(*texts):
            yield container.name


def _reported(pod: Pod, meta: RuntimeMeta) -> Mapping[str, ContainerHashes]:
    """Return only the hashes reported for the container instances now running. [PM-51]"""
    running = {status.name: status.container_id for status in pod.status.container_statuses}
    return {
        container.name: container.hashes
        for container in meta.containers
        if running.get(container.name) == container.container_id
    }


# Launch priorities of containers. Admission adds each as an env variable that keeps a container from starting until its
# barrier key exists. In-place updates follow the same order as the first start. [PM-31, PM-149]

#: Priorities are 64-bit: OpenKruise admits values beyond 32 bits, so Pods may have such values after a takeover.
_KEY: Final = re.compile(rf"{names.BARRIER_KEY_PREFIX}(0|-?[1-9][0-9]{{0,18}})", re.ASCII)


def barrier_config_map(pod: Pod) -> str:
    """Return the name of a Pod's barrier ConfigMap."""
    return pod.metadata.name + names.BARRIER_CONFIG_MAP_SUFFIX


def priority_of_key(key: str) -> int | None:
    """Return the priority of a barrier key, or None for any other key."""
    found = _KEY.fullmatch(key)
    return int(found[1]) if found is not None else None


def launch_priorities(pod: Pod) -> Mapping[str, int]:
    """Return container → launch priority, read from the env that admission appended. [PM-142]"""
    config_map = barrier_config_map(pod)
    found = {}
    for container in pod.spec.containers:
        for entry in container.env:
            reference = entry.value_from.config_map_key_ref if entry.value_from is not None else None
            # An env variable of this name that the user set from another source is ignored.
            if entry.name != names.ENV_CONTAINER_BARRIER or reference is None or reference.name != config_map:
                continue
            priority = priority_of_key(reference.key)
            if priority is not None:
                found[container.name] = priority
    return found
