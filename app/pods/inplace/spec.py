"""What an in-place update changes, and its form in the annotation that waits out the grace period (§ 4.2). Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

import msgspec

from app.api.gojson import dumps_go
from app.api.names import IN_PLACE_UPDATE_GRACE, IN_PLACE_UPDATE_GRACE_LEGACY
from app.kube.objects import ContainerStatus, Pod, ResourceRequirements, Struct


class GraceError(ValueError):
    """The grace annotation of a Pod cannot be read; the message names the Pod and the annotation."""


class RefMetadata(Struct, frozen=True):
    """Labels and annotations that a container reads through its env."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """As Go prints ObjectMeta."""
        maps = {"labels": self.labels, "annotations": self.annotations}
        return {"creationTimestamp": None} | {name: sorted_map(value) for name, value in maps.items() if value}


class UpdateSpec(Struct, frozen=True):
    """What changes in a Pod. ``meta_data_patch``: a strategic merge patch of the Pod, as JSON; empty without one."""

    revision: str = ""
    container_images: dict[str, str] = msgspec.field(default_factory=dict)
    container_ref_metadata: dict[str, RefMetadata] = msgspec.field(default_factory=dict)
    container_resources: dict[str, ResourceRequirements] = msgspec.field(default_factory=dict)
    meta_data_patch: bytes = b""
    update_env_from_metadata: bool = False
    grace_seconds: int = 0

    @property
    def containers(self) -> frozenset[str]:
        """PM-31: the containers that change."""
        return frozenset(self.container_images).union(self.container_ref_metadata, self.container_resources)

    @property
    def metadata_patch(self) -> Mapping[str, Any]:
        """The ``metadata`` of the patch. Raises ValueError for what is none."""
        if not self.meta_data_patch:
            return {}
        metadata = _decode_patch(self.meta_data_patch).metadata
        return {} if metadata is None else {key: value for key, value in _members(metadata) if value is not None}

    def as_json(self) -> str:
        """The annotation's value, to the byte as OpenKruise writes it."""
        value: dict[str, Any] = {"revision": self.revision}
        if self.container_images:
            value["containerImages"] = sorted_map(self.container_images)
        if self.container_ref_metadata:
            value["containerRefMetadata"] = {
                name: ref.as_json() for name, ref in sorted(self.container_ref_metadata.items())
            }
        if self.container_resources:
            value["containerResources"] = resources_json(self.container_resources)
        if self.meta_data_patch:
            value["metaDataPatch"] = msgspec.to_builtins(self.meta_data_patch)
        if self.update_env_from_metadata:
            value["updateEnvFromMetadata"] = True
        if self.grace_seconds:
            value["graceSeconds"] = self.grace_seconds
        return dumps_go(value)


class _MetadataPatch(Struct, frozen=True):
    labels: dict[str, str | None] | None = None
    annotations: dict[str, str | None] | None = None
    finalizers: list[str] | None = None
    gone: list[str] | None = msgspec.field(name="$deleteFromPrimitiveList/finalizers", default=None)
    order: list[str] | None = msgspec.field(name="$setElementOrder/finalizers", default=None)


class _PodPatch(Struct, frozen=True):
    metadata: _MetadataPatch | None = None


_decode_patch: Final = msgspec.json.Decoder(_PodPatch).decode


def _members(metadata: _MetadataPatch) -> Iterator[tuple[str, Any]]:
    yield "labels", metadata.labels
    yield "annotations", metadata.annotations
    yield "finalizers", metadata.finalizers
    yield "$deleteFromPrimitiveList/finalizers", metadata.gone
    yield "$setElementOrder/finalizers", metadata.order


def images_of(pod: Pod) -> dict[str, str]:
    """Return container → image of what can change in a running Pod: its containers and its native sidecars."""
    sidecars = (one for one in pod.spec.init_containers if one.restart_policy == "Always")
    return {container.name: container.image for container in (*sidecars, *pod.spec.containers)}


def statuses_of(pod: Pod) -> dict[str, ContainerStatus]:
    """Return the statuses of containers and init containers by name."""
    return {status.name: status for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)}


def metadata_patch_bytes(metadata: Mapping[str, Any]) -> bytes:
    """The form in which a patch of metadata travels."""
    return dumps_go({"metadata": metadata} if metadata else {}, sort_keys=True).encode()


def sorted_map(value: Mapping[str, str]) -> dict[str, str]:
    """A map in the order in which Go prints it."""
    return dict(sorted(value.items()))


def resources_json(resources: Mapping[str, ResourceRequirements]) -> dict[str, Any]:
    """Container → ResourceRequirements as Go prints them."""
    return {
        container: {
            name: sorted_map(quantities)
            for name, quantities in (("limits", found.limits), ("requests", found.requests))
            if quantities
        }
        for container, found in sorted(resources.items())
    }


_decode: Final = msgspec.json.Decoder(UpdateSpec).decode


def grace_text(pod: Pod) -> str | None:
    """The grace annotation, also under its former key; None without."""
    annotations = pod.metadata.annotations
    return annotations.get(IN_PLACE_UPDATE_GRACE) or annotations.get(IN_PLACE_UPDATE_GRACE_LEGACY)


def is_in_grace(pod: Pod) -> bool:
    """Whether an update of this Pod waits for its grace period to end."""
    return grace_text(pod) is not None


def update_in_grace(pod: Pod) -> UpdateSpec | None:
    """The update that waits, None if there is none. Raises :class:`GraceError`."""
    text = grace_text(pod)
    if text is None:
        return None
    try:
        spec = _decode(text.encode())
        _ = spec.metadata_patch
    except (ValueError, UnicodeError, RecursionError) as error:
        raise GraceError(
            f"Pod {pod.metadata.namespace}/{pod.metadata.name}: annotation {IN_PLACE_UPDATE_GRACE}: {error}"
        ) from error
    return spec


def without_grace(pod: Pod) -> dict[str, None]:
    """The annotations to remove so that no grace is left."""
    keys = (IN_PLACE_UPDATE_GRACE, IN_PLACE_UPDATE_GRACE_LEGACY)
    return {key: None for key in keys if key in pod.metadata.annotations}
