"""The state of an in-place update, kept in two annotations of the Pod. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from app.api.gojson import dumps_go
from app.api.names import (
    IN_PLACE_UPDATE_GRACE,
    IN_PLACE_UPDATE_GRACE_LEGACY,
    IN_PLACE_UPDATE_STATE,
    IN_PLACE_UPDATE_STATE_LEGACY,
)
from app.kube.clock import rfc3339
from app.kube.objects import ContainerStatus, Pod, ResourceRequirements, Struct


class GraceError(ValueError):
    """The grace annotation of a Pod cannot be parsed; the message names the Pod and the annotation."""


class RefMetadata(Struct, frozen=True):
    """Labels and annotations that a container reads through its env."""

    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON that Go writes for ObjectMeta."""
        maps = {"labels": self.labels, "annotations": self.annotations}
        return {"creationTimestamp": None} | {name: sorted_map(value) for name, value in maps.items() if value}


class UpdateSpec(Struct, frozen=True):
    """What changes in a Pod. ``meta_data_patch`` is a strategic merge patch to the Pod as JSON, or empty."""

    revision: str = ""
    container_images: dict[str, str] = msgspec.field(default_factory=dict)
    container_ref_metadata: dict[str, RefMetadata] = msgspec.field(default_factory=dict)
    container_resources: dict[str, ResourceRequirements] = msgspec.field(default_factory=dict)
    meta_data_patch: bytes = b""
    update_env_from_metadata: bool = False
    grace_seconds: int = 0

    @property
    def containers(self) -> frozenset[str]:
        """The containers that change. [PM-31]"""
        return frozenset(self.container_images).union(self.container_ref_metadata, self.container_resources)

    @property
    def metadata_patch(self) -> Mapping[str, Any]:
        """The ``metadata`` field of the patch. Raises ValueError if the patch is malformed."""
        if not self.meta_data_patch:
            return {}
        metadata = _decode_patch(self.meta_data_patch).metadata
        return {} if metadata is None else {key: value for key, value in _members(metadata) if value is not None}

    def as_json(self) -> str:
        """Return the annotation's value, byte for byte as OpenKruise writes it."""
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
    """Return the images of the containers and native sidecars, which can change in a running Pod, by container name."""
    sidecars = (one for one in pod.spec.init_containers if one.restart_policy == "Always")
    return {container.name: container.image for container in (*sidecars, *pod.spec.containers)}


def statuses_of(pod: Pod) -> dict[str, ContainerStatus]:
    """Return the statuses of containers and init containers by name."""
    return {status.name: status for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)}


def metadata_patch_bytes(metadata: Mapping[str, Any]) -> bytes:
    """Serialize a metadata patch for ``meta_data_patch``."""
    return dumps_go({"metadata": metadata} if metadata else {}, sort_keys=True).encode()


def sorted_map(value: Mapping[str, str]) -> dict[str, str]:
    """Return the map in the key order in which Go marshals it."""
    return dict(sorted(value.items()))


def resources_json(resources: Mapping[str, ResourceRequirements]) -> dict[str, Any]:
    """Return container → ResourceRequirements as Go marshals them."""
    return {
        container: {
            name: sorted_map(quantities)
            for name, quantities in (("limits", found.limits), ("requests", found.requests))
            if quantities
        }
        for container, found in sorted(resources.items())
    }


_decode_spec: Final = msgspec.json.Decoder(UpdateSpec).decode


def grace_text(pod: Pod) -> str | None:
    """Return the grace annotation, under its current or former key, or None."""
    annotations = pod.metadata.annotations
    return annotations.get(IN_PLACE_UPDATE_GRACE) or annotations.get(IN_PLACE_UPDATE_GRACE_LEGACY)


def is_in_grace(pod: Pod) -> bool:
    """Return whether an update of this Pod waits for its grace period to end."""
    return grace_text(pod) is not None


def update_in_grace(pod: Pod) -> UpdateSpec | None:
    """Return the update that waits for the grace period to end, or None. Raises :class:`GraceError`."""
    text = grace_text(pod)
    if text is None:
        return None
    try:
        spec = _decode_spec(text.encode())
        _ = spec.metadata_patch
    except (ValueError, UnicodeError, RecursionError) as error:
        raise GraceError(
            f"Pod {pod.metadata.namespace}/{pod.metadata.name}: annotation {IN_PLACE_UPDATE_GRACE}: {error}"
        ) from error
    return spec


def without_grace(pod: Pod) -> dict[str, None]:
    """Return the annotation patch that ends the grace period."""
    keys = (IN_PLACE_UPDATE_GRACE, IN_PLACE_UPDATE_GRACE_LEGACY)
    return {key: None for key in keys if key in pod.metadata.annotations}


# The annotation that records an in-place update: what ran before, what changed and when, and what is pending. It is
# byte for byte as OpenKruise writes it, except that keys follow that only pykruise reads: ``state``,
# ``lastContainerIDs`` (which container ran before), ``containerResources`` (resources for the resize subresource) and
# ``resizeRetried`` (when the resize was last retried). [PM-180]


class StateError(ValueError):
    """The state annotation of a Pod cannot be parsed; the message names the Pod and the annotation. [PM-46]"""


class Phase(StrEnum):
    """Phase of an update."""

    PREPARING = "Preparing"
    UPDATING = "Updating"
    UPDATED = "Updated"


class ContainerBefore(Struct, frozen=True):
    """What a container ran before its image changed; empty if it never ran."""

    image_id: str = msgspec.field(name="imageID", default="")


class PreCheck(Struct, frozen=True):
    """Precondition for changing the next containers."""

    containers_required_ready: tuple[str, ...] | None = None


class BatchRecord(Struct, frozen=True):
    """One batch of container changes that was applied."""

    timestamp: str | None = None
    containers: tuple[str, ...] | None = None


class InPlaceUpdateState(Struct, frozen=True):
    """The record of one in-place update."""

    revision: str = ""
    update_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None
    last_container_statuses: dict[str, ContainerBefore] | None = None
    update_env_from_metadata: bool = False
    update_resources: bool = False
    update_images: bool = False
    next_container_images: dict[str, str] = msgspec.field(default_factory=dict)
    next_container_ref_metadata: dict[str, RefMetadata] = msgspec.field(default_factory=dict)
    next_container_resources: dict[str, ResourceRequirements] = msgspec.field(default_factory=dict)
    pre_check_before_next: PreCheck | None = None
    container_batches_record: tuple[BatchRecord, ...] = ()
    state: str = ""
    last_container_ids: dict[str, str] = msgspec.field(name="lastContainerIDs", default_factory=dict)
    container_resources: dict[str, ResourceRequirements] = msgspec.field(default_factory=dict)
    resize_retried: Annotated[datetime, msgspec.Meta(tz=True)] | None = None

    @property
    def has_next(self) -> bool:
        """Whether another batch is pending."""
        return bool(self.next_container_images or self.next_container_ref_metadata or self.next_container_resources)

    @property
    def before(self) -> Mapping[str, ContainerBefore]:
        """The containers whose image was changed, with what each ran before."""
        return self.last_container_statuses or {}

    def waiting(self) -> UpdateSpec:
        """The changes not applied yet."""
        return UpdateSpec(
            self.revision, self.next_container_images, self.next_container_ref_metadata, self.next_container_resources
        )

    def with_next(self, rest: UpdateSpec, required_ready: Collection[str]) -> InPlaceUpdateState:
        """Return the state with ``rest`` pending until the ``required_ready`` containers are ready. [PM-36]"""
        waits = bool(rest.containers)
        return msgspec.structs.replace(
            self,
            next_container_images=rest.container_images,
            next_container_ref_metadata=rest.container_ref_metadata,
            next_container_resources=rest.container_resources,
            pre_check_before_next=PreCheck(tuple(sorted(required_ready))) if waits else None,
        )

    def with_batch(self, containers: Collection[str], now: datetime) -> InPlaceUpdateState:
        """Return the state with one more applied batch; its container list is empty if only metadata changed.
        [PM-36]"""
        record = BatchRecord(rfc3339(now), tuple(sorted(containers)))
        return msgspec.structs.replace(
            self, container_batches_record=(*self.container_batches_record, record), state=Phase.UPDATING
        )

    def as_json(self) -> str:
        return dumps_go({key: value for key, value in self._members() if value is not _LEFT_OUT})

    def _members(self) -> list[tuple[str, Any]]:
        before = self.last_container_statuses
        check = self.pre_check_before_next
        refs = self.next_container_ref_metadata
        return [
            ("revision", self.revision),
            ("updateTimestamp", rfc3339(self.update_timestamp) if self.update_timestamp is not None else None),
            (
                "lastContainerStatuses",
                {name: {"imageID": found.image_id} if found.image_id else {} for name, found in sorted(before.items())}
                if before
                else None,
            ),
            ("updateEnvFromMetadata", self.update_env_from_metadata or _LEFT_OUT),
            ("updateResources", self.update_resources or _LEFT_OUT),
            ("updateImages", self.update_images or _LEFT_OUT),
            ("nextContainerImages", sorted_map(self.next_container_images) or _LEFT_OUT),
            ("nextContainerRefMetadata", {name: ref.as_json() for name, ref in sorted(refs.items())} or _LEFT_OUT),
            ("nextContainerResources", resources_json(self.next_container_resources) or _LEFT_OUT),
            (
                "preCheckBeforeNext",
                {"containersRequiredReady": list(check.containers_required_ready or ())} if check else _LEFT_OUT,
            ),
            (
                "containerBatchesRecord",
                [
                    {"timestamp": batch.timestamp, "containers": list(batch.containers or ())}
                    for batch in self.container_batches_record
                ]
                or _LEFT_OUT,
            ),
            ("state", self.state or _LEFT_OUT),
            ("lastContainerIDs", sorted_map(self.last_container_ids) or _LEFT_OUT),
            ("containerResources", resources_json(self.container_resources) or _LEFT_OUT),
            ("resizeRetried", rfc3339(self.resize_retried) if self.resize_retried is not None else _LEFT_OUT),
        ]


_LEFT_OUT: Final = object()
_decode_state: Final = msgspec.json.Decoder(InPlaceUpdateState).decode


def state_text(pod: Pod) -> str | None:
    """Return the state annotation, under its current or former key, or None."""
    annotations = pod.metadata.annotations
    found = annotations.get(IN_PLACE_UPDATE_STATE)
    return found if found is not None else annotations.get(IN_PLACE_UPDATE_STATE_LEGACY)


def update_state(pod: Pod) -> InPlaceUpdateState | None:
    """Return the record of the Pod's last in-place update, or None. Raises :class:`StateError`. [PM-46]"""
    text = state_text(pod)
    if text is None:
        return None
    try:
        found = _decode_state(text.encode())
        for moment in filter(None, (found.update_timestamp, found.resize_retried)):
            rfc3339(moment)  # fails if the UTC offset shifts the time out of range
    except (msgspec.MsgspecError, UnicodeError, RecursionError, OverflowError) as error:
        raise StateError(
            f"Pod {pod.metadata.namespace}/{pod.metadata.name}: annotation {IN_PLACE_UPDATE_STATE}: {error}"
        ) from error
    return found


def state_annotations(pod: Pod, state: InPlaceUpdateState) -> dict[str, str | None]:
    """Return the annotations that record a state; the former key is removed. [PM-24]"""
    written: dict[str, str | None] = {IN_PLACE_UPDATE_STATE: state.as_json()}
    if IN_PLACE_UPDATE_STATE_LEGACY in pod.metadata.annotations:
        written[IN_PLACE_UPDATE_STATE_LEGACY] = None
    return written
