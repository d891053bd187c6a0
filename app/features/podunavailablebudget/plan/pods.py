"""The Pods of a budget: which ones it covers, and their state. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import msgspec

from app.api import names
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.kube.objects import ContainerStatus, ObjectMeta, Pod, Struct
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector
from app.pods.inplace.completion import has_digest, is_begun_complete, is_named, same_image
from app.pods.inplace.state import GraceError, StateError, update_in_grace
from app.pods.predicates import is_active, is_running_and_ready, ready_since

# A Pod's budget, and whether the Pod counts as available. [PUB-30, PUB-40 … PUB-42]

#: Values that Go's ParseBool accepts as true. [PUB-64]
_TRUE: Final = frozenset({"1", "t", "T", "true", "True", "TRUE"})


class _Before(Struct, frozen=True):
    image_id: str = msgspec.field(name="imageID", default="")


class _SidecarUpdate(Struct, frozen=True):
    last_container_statuses: dict[str, _Before] | None = None


_sidecar_updates: Final = msgspec.json.Decoder(dict[str, _SidecarUpdate])


@dataclass(frozen=True, slots=True)
class RunningContainer:
    """A started container: the image in its spec and the one it runs.

    ``current`` is set if the container is ready and runs the spec's image, according to the image name or the kubelet's
    observed generation.
    """

    name: str
    image: str
    container_id: str
    image_id: str
    ready: bool
    current: bool


@dataclass(frozen=True, slots=True)
class PodFacts:
    """The facts about a Pod that a budget needs. A ``healthy`` Pod is ready and consistent, so disrupting it is charged
    to the budget."""

    name: str
    uid: str
    active: bool
    healthy: bool
    ready_since: datetime | None
    #: Changes whenever the Pod's spec changes.
    spec: tuple[int, tuple[str, ...]]
    running: tuple[RunningContainer, ...] = ()


def facts_of(pod: Pod, *, vertical_scaling: bool = False) -> PodFacts:
    """Return the facts about a Pod."""
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
    """Return whether images changed and all containers with a new image were replaced and are ready. [PUB-56]"""
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
    """Return the name of the Pod's budget, or ''. The former annotation key is read only if the current one is not set.
    [PUB-30]"""
    return annotations.get(names.RELATED_PUB) or annotations.get(names.RELATED_PUB_OLD) or ""


def related_annotations(name: str) -> dict[str, str]:
    """Return the annotations that name this budget on the Pods it covers. [PUB-31]"""
    return {names.RELATED_PUB: name, names.RELATED_PUB_OLD: name}


def is_unprotected(metadata: ObjectMeta) -> bool:
    """Return whether an annotation exempts the Pod from protection. [PUB-64]"""
    return metadata.annotations.get(names.PUB_NO_PROTECT) in _TRUE


def unavailable_labels(labels: Mapping[str, str]) -> frozenset[str]:
    """Return the labels that mark a Pod as unavailable."""
    return frozenset(key for key in labels if key.startswith(names.UNAVAILABLE_POD_PREFIX))


def is_healthy(pod: Pod, *, vertical_scaling: bool = False) -> bool:
    """Return whether the Pod is ready and consistent."""
    return is_ready(pod) and is_consistent(pod, vertical_scaling=vertical_scaling)


def is_ready(pod: Pod) -> bool:
    """Return whether the Pod is running and ready, not terminating, and not marked as unavailable. [PUB-40]"""
    metadata = pod.metadata
    return is_running_and_ready(pod) and metadata.deletion_timestamp is None and not unavailable_labels(metadata.labels)


def is_consistent(pod: Pod, *, vertical_scaling: bool = False) -> bool:
    """Return whether the containers run the images in the spec, according to the Pod's status. Invalid annotations are
    ignored. [PUB-41]"""
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
    # Some runtimes report an ID unrelated to the digest. In that case, compare the image name.
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


# Budgets that match a Pod by target or labels; the oldest one applies. [PUB-31, PUB-128, PW-16]


@dataclass(frozen=True, slots=True)
class Workload:
    """Group, kind and name of a workload. The version is irrelevant."""

    group: str
    kind: str
    name: str


@dataclass(frozen=True, slots=True)
class Claim:
    """The Pods a budget covers: those of a target, those with certain labels, or none."""

    name: str
    age: tuple[str, str]
    target: Workload | None = None
    selector: Selector | None = None


def claim_of(budget: PodUnavailableBudget) -> Claim:
    """Return the claim of a budget. An empty or invalid selector matches nothing."""
    metadata, target = budget.metadata, budget.spec.target_ref
    # A budget without a timestamp is not stored yet and counts as the youngest.
    age = (metadata.creation_timestamp or "~", metadata.name)
    if target is not None:
        return Claim(metadata.name, age, target=workload_of(target.api_version, target.kind, target.name))
    return Claim(metadata.name, age, selector=effective_selector(budget.spec.selector))


def workload_of(api_version: str, kind: str, name: str) -> Workload:
    """Return the workload of an owner reference or target."""
    return Workload(api_version.rpartition("/")[0], kind, name)


def effective_selector(given: Mapping[str, object] | None) -> Selector | None:
    """Return the selector, or None (which matches nothing) if it is missing, empty or invalid."""
    try:
        selector = compile_selector(given)
    except SelectorError:
        return None
    return None if selector.empty else selector


def matches(claim: Claim, labels: Mapping[str, str], owners: Sequence[Workload]) -> bool:
    """Return whether the claim covers a Pod with these labels and owners (its controller and that controller's
    ancestors)."""
    if claim.target is not None:
        return claim.target in owners
    return claim.selector is not None and claim.selector.matches(labels)
