"""What a budget sees in a Pod: whose it is, and whether it counts as available (PUB-30, PUB-40 … PUB-42). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from app.api import names
from app.kube.objects import ContainerStatus, ObjectMeta, Pod, Struct
from app.pods.images import has_digest, same_image
from app.pods.inplace.completion import is_begun_complete, is_named
from app.pods.inplace.spec import GraceError, update_in_grace
from app.pods.inplace.state import StateError
from app.pods.predicates import is_active, is_running_and_ready, ready_since

#: PUB-64: what Go's ParseBool takes for true.
_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})


class _Before(Struct, frozen=True):
    image_id: str = msgspec.field(name="imageID", default="")


class _SidecarUpdate(Struct, frozen=True):
    last_container_statuses: dict[str, _Before] | None = None


_sidecar_updates: Final = msgspec.json.Decoder(dict[str, _SidecarUpdate])


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A container with an id: which image its spec names, and what runs. ``current``: it is ready, and by its name, or
    by the generation that the kubelet has seen, it is that image."""

    name: str
    image: str
    container_id: str
    image_id: str
    ready: bool
    current: bool


@dataclass(frozen=True, slots=True)
class PodFacts:
    """One Pod as a budget sees it. ``healthy``: ready and consistent, which is what its loss would cost."""

    name: str
    uid: str
    active: bool
    healthy: bool
    ready_since: datetime | None
    #: Changes with the Pod's spec.
    spec: tuple[int, tuple[str, ...]]
    running: tuple[RunningContainer, ...] = ()


def facts_of(pod: Pod, *, vertical_scaling: bool = False) -> PodFacts:
    """What counts of a Pod."""
    return PodFacts(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        active=is_active(pod),
        healthy=is_healthy(pod, vertical_scaling=vertical_scaling),
        ready_since=ready_since(pod),
        spec=(pod.metadata.generation, tuple(container.image for container in pod.spec.containers)),
        running=_running(pod),
    )


def _running(pod: Pod) -> tuple[RunningContainer, ...]:
    statuses = {status.name: status for status in pod.status.container_statuses if status.container_id}
    observed = pod.metadata.generation > 0 and pod.status.observed_generation >= pod.metadata.generation
    return tuple(
        RunningContainer(
            container.name,
            container.image,
            status.container_id,
            status.image_id,
            ready=status.ready,
            current=status.ready and (observed or is_named(status.image, container.image)),
        )
        for container in pod.spec.containers
        if (status := statuses.get(container.name)) is not None
    )


def runs_other_images(before: tuple[RunningContainer, ...], pod: PodFacts) -> bool:
    """PUB-56: whether containers got other images since, and each of these was replaced and is ready with it."""
    former = {container.name: container for container in before}
    changed = [
        (old, container)
        for container in pod.running
        if (old := former.get(container.name)) is not None and old.image != container.image
    ]
    return bool(changed) and all(
        container.container_id != old.container_id
        and container.ready
        and (container.current or container.image_id != old.image_id)
        for old, container in changed
    )


def related_budget(annotations: Mapping[str, str]) -> str:
    """PUB-30: the name of the budget a Pod belongs to, '' for none; the newer annotation wins."""
    return annotations.get(names.RELATED_PUB) or annotations.get(names.RELATED_PUB_OLD) or ""


def is_related(name: str) -> dict[str, str]:
    """PUB-31: the annotations of a Pod that belongs to this budget."""
    return {names.RELATED_PUB: name, names.RELATED_PUB_OLD: name}


def is_unprotected(metadata: ObjectMeta) -> bool:
    """PUB-64: whether the Pod says of itself that it is not to be judged."""
    return metadata.annotations.get(names.PUB_NO_PROTECT) in _TRUE


def unavailable_labels(labels: Mapping[str, str]) -> frozenset[str]:
    """The labels that say that a Pod is unavailable."""
    return frozenset(key for key in labels if key.startswith(names.UNAVAILABLE_POD_PREFIX))


def is_healthy(pod: Pod, *, vertical_scaling: bool = False) -> bool:
    """Ready and consistent."""
    return is_ready(pod) and is_consistent(pod, vertical_scaling=vertical_scaling)


def is_ready(pod: Pod) -> bool:
    """PUB-40."""
    metadata = pod.metadata
    return (
        is_running_and_ready(pod)
        and metadata.deletion_timestamp is None
        and not any(key.startswith(names.UNAVAILABLE_POD_PREFIX) for key in metadata.labels)
    )


def is_consistent(pod: Pod, *, vertical_scaling: bool = False) -> bool:
    """PUB-41: whether its containers run what its spec says, as far as can be told. An annotation that cannot be read
    tells nothing."""
    statuses = {status.name: status for status in pod.status.container_statuses}
    digests = 0
    for container in pod.spec.containers:
        if has_digest(container.image):
            digests += 1
            if not _runs_digest(container.image, statuses.get(container.name)):
                return False
    if digests and digests == len(pod.spec.containers):
        return True
    if _sidecar_is_old(pod, statuses):
        return False
    try:
        if update_in_grace(pod) is not None:
            return False
    except GraceError:
        pass
    try:
        return is_begun_complete(pod, vertical_scaling=vertical_scaling)
    except StateError:
        return True


def _runs_digest(image: str, status: ContainerStatus | None) -> bool:
    if status is None:
        return False
    running = status.image_id.rpartition("://")[2]
    # Some runtimes report an id of their own that says nothing about the digest; the image's name then does.
    return same_image(image, running) or ("@" not in running and same_image(image, status.image))


def _sidecar_is_old(pod: Pod, statuses: Mapping[str, ContainerStatus]) -> bool:
    text = pod.metadata.annotations.get(names.SIDECARSET_IN_PLACE_UPDATE_STATE)
    if not text:
        return False
    try:
        updates = _sidecar_updates.decode(text)
    except (msgspec.MsgspecError, RecursionError):
        return False
    images = {container.name: container.image for container in pod.spec.containers}
    for update in updates.values():
        for name, before in (update.last_container_statuses or {}).items():
            status, image = statuses.get(name), images.get(name)
            if status is None or image is None or status.image_id != before.image_id:
                continue
            if status.image != image and not same_image(status.image, image):
                return True
    return False
