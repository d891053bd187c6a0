"""Determine whether the containers of a Pod match what an in-place update requested. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from app.kube.images import parse_image
from app.kube.objects import ContainerStatus, Pod, PodCondition, ResourceRequirements
from app.kube.quantities import QuantityError, parse
from app.pods.container_meta import is_env_current, is_image_current, runtime_meta
from app.pods.inplace.state import (
    ContainerBefore,
    InPlaceUpdateState,
    Phase,
    images_of,
    is_in_grace,
    statuses_of,
    update_state,
)

#: A kubelet lowers a memory limit only if it has memory statistics for the container. After a container restart, it may
#: look for the statistics of the old container, which no longer exist.
_NO_STATISTICS: Final = re.compile(r'missing (?:pod|container "[^"]*") memory usage')
_LONGEST: Final = 300

# Comparison of image references. [PM-120]


def has_digest(text: str) -> bool:
    """Return whether the reference identifies its content by digest."""
    image = parse_image(text)
    return image is not None and bool(image.digest)


def same_image(one: str, other: str) -> bool:
    """Compare two references: repository and digest if both have digests, otherwise repository and tag. Unparsable
    references are never equal.

    Short names are completed, since a Pod's status has the full name, and its spec usually the short one.
    """
    first, second = parse_image(one), parse_image(other)
    if first is None or second is None or first.repository != second.repository:
        return False
    if first.digest and second.digest:
        return first.digest == second.digest
    return (first.tag or "latest") == (second.tag or "latest")


# Completion of an in-place update. Containers need not be ready: a new image that crashes at once still counts as
# updated. [PM-48 … PM-54]


def is_update_complete(pod: Pod, *, vertical_scaling: bool = False) -> bool:
    """Return whether no grace period or batch is pending and the containers have changed. Raises ``StateError``.
    [PM-54]"""
    return not is_in_grace(pod) and is_begun_complete(pod, vertical_scaling=vertical_scaling)


def is_begun_complete(pod: Pod, *, vertical_scaling: bool) -> bool:
    """Like :func:`is_update_complete`, but ignore an update that still waits for its grace period. Raises
    ``StateError``."""
    state = update_state(pod)
    return state is None or (not state.has_next and not why_incomplete(pod, state, vertical_scaling=vertical_scaling))


def why_incomplete(pod: Pod, state: InPlaceUpdateState, *, vertical_scaling: bool) -> str:
    """Return why the last batch is not complete; '' if it is."""
    meta = runtime_meta(pod)
    if state.update_env_from_metadata and (meta is None or not is_env_current(pod, meta)):  # [PM-48]
        return (
            "containers have not been restarted with the new labels and annotations"
            if meta is not None
            else "no node agent reports which labels and annotations the containers run with"
        )
    if vertical_scaling and state.update_resources and (reason := _resources_incomplete(pod, state)):  # [PM-49]
        return reason
    # The agent does not report init containers.
    reported = {container.name for container in pod.spec.containers}.issuperset(state.before)
    if reported and meta is not None and is_image_current(pod, meta):  # [PM-50]
        return ""
    statuses, images = statuses_of(pod), images_of(pod)
    for name, before in state.before.items():
        if name not in statuses:  # [PM-53]
            return f"container {name} has no status"
        if not is_image_changed(
            pod, statuses[name], images.get(name, ""), before, state.last_container_ids.get(name, "")
        ):
            return f"container {name} does not run {images.get(name, '')} yet"
    return ""


def is_image_changed(
    pod: Pod, status: ContainerStatus, image: str, before: ContainerBefore, container_before: str
) -> bool:
    """Return whether the container now runs ``image``, given what it ran before. [PM-52]

    A different image id means that the image changed. If the id is the same, the runtime must report it under the new
    name (after a rollback, or for a second tag). This differs from OpenKruise in three ways: an empty id means that
    nothing runs yet; full names are compared; and if the runtime keeps reporting the first tag, it suffices that a new
    container is ready and that its kubelet has observed the current spec.
    """
    if not status.image_id:
        return False
    if status.image_id != before.image_id and before.image_id:
        return True
    if status.image == image or is_named(status.image, image):
        return True
    replaced = bool(status.container_id) and bool(container_before) and status.container_id != container_before
    if not before.image_id:
        # The container had not run before the update; it may still be running the old image now.
        replaced = bool(status.container_id)
    return replaced and status.ready and pod.status.observed_generation >= pod.metadata.generation


def is_named(shown: str, image: str) -> bool:
    """Return whether a status names the image as the spec does, in full or short form.

    A tag alone does not prove that the requested digest runs, and a digest alone does not identify its repository.
    """
    return has_digest(shown) == has_digest(image) and same_image(shown, image)


def resources_outstanding(pod: Pod, state: InPlaceUpdateState) -> dict[str, ResourceRequirements]:
    """Return the resources still to be set through the resize subresource. Empty once the update is complete: users may
    then resize the Pod."""
    return {} if state.state == Phase.UPDATED else resources_to_set(pod, state.container_resources)


def resources_to_set(pod: Pod, wanted: Mapping[str, ResourceRequirements]) -> dict[str, ResourceRequirements]:
    """Return the part of ``wanted`` that differs from the Pod's spec. [PM-37]"""
    present = {container.name: container.resources for container in pod.spec.containers}
    differing: dict[str, ResourceRequirements] = {}
    for name, resources in wanted.items():
        found = present.get(name)
        if found is None:
            continue
        limits = _differing(found.limits, resources.limits)
        requests = _differing(found.requests, resources.requests)
        if limits or requests:
            differing[name] = ResourceRequirements(limits, requests)
    return differing


def unfinished_resize(pod: Pod) -> PodCondition | None:
    """Return the kubelet's condition for a resize that a retry may finish; None if there is none. [PM-190]"""
    condition = pod.condition("PodResizeInProgress")
    if condition is None or condition.status != "True":
        return None
    return condition if not condition.message or _NO_STATISTICS.search(condition.message) else None


def _differing(present: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in wanted.items() if not _same_quantity(present.get(name), value)}


def _resources_incomplete(pod: Pod, state: InPlaceUpdateState) -> str:
    """Return why the requested resources are not in the spec or not in effect yet; '' if they are. [PM-49]"""
    if resources_outstanding(pod, state):
        return "the new resources are not in the Pod's spec yet"
    statuses = {status.name: status for status in pod.status.container_statuses}
    if len(statuses) != len(pod.spec.containers):
        return "not all containers have a status"
    for container in pod.spec.containers:
        status = statuses.get(container.name)
        if status is None or status.resources is None:
            return f"the resources of container {container.name} are not reported"
        for wanted, actual in (
            (container.resources.limits, status.resources.limits),
            (container.resources.requests, status.resources.requests),
        ):
            if not _same_quantities(wanted, actual):
                condition = pod.condition("PodResizeInProgress")
                why = f": {condition.message[:_LONGEST]}" if condition is not None and condition.message else ""
                return f"container {container.name} does not have its new resources yet{why}"
    return ""


def _same_quantities(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    return one.keys() == other.keys() and all(_same_quantity(one[name], other[name]) for name in one)


def _same_quantity(one: str | None, other: str) -> bool:
    if one is None or one == other:
        return one == other
    try:
        return parse(one) == parse(other)
    except QuantityError:
        return False
