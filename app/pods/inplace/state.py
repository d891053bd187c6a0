"""The annotation that records an in-place update: what ran before, what was changed when, what is still to come. Pure.

Its layout is OpenKruise's, to the byte, followed by keys of ours that others ignore: ``state`` (D-3),
``lastContainerIDs`` (which container ran before: B-19) and ``containerResources`` (what the resize subresource shall
set: PM-180).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Final

import msgspec

from app.api.gojson import dumps_go
from app.api.names import IN_PLACE_UPDATE_STATE, IN_PLACE_UPDATE_STATE_LEGACY
from app.kube.clock import rfc3339
from app.kube.objects import Pod, ResourceRequirements, Struct
from app.pods.inplace.spec import RefMetadata, UpdateSpec, resources_json, sorted_map


class StateError(ValueError):
    """PM-46: the state annotation of a Pod cannot be read; the message names the Pod and the annotation."""


class Phase(StrEnum):
    """D-3: how far an update is, in one word."""

    PREPARING = "Preparing"
    UPDATING = "Updating"
    UPDATED = "Updated"


class ContainerBefore(Struct, frozen=True):
    """What a container ran before its image was changed; empty if it never ran."""

    image_id: str = msgspec.field(name="imageID", default="")


class PreCheck(Struct, frozen=True):
    """What must hold before the next containers are changed."""

    containers_required_ready: tuple[str, ...] | None = None


class BatchRecord(Struct, frozen=True):
    """One batch that was applied."""

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

    @property
    def has_next(self) -> bool:
        """B-1: whether a batch waits, whatever it changes."""
        return bool(self.next_container_images or self.next_container_ref_metadata or self.next_container_resources)

    @property
    def before(self) -> Mapping[str, ContainerBefore]:
        """The containers whose image was changed."""
        return self.last_container_statuses or {}

    def waiting(self) -> UpdateSpec:
        """What is still to come."""
        return UpdateSpec(
            self.revision,
            self.next_container_images,
            self.next_container_ref_metadata,
            self.next_container_resources,
        )

    def with_next(self, rest: UpdateSpec, required_ready: Collection[str]) -> InPlaceUpdateState:
        """PM-36: what waits from now on, and for whom."""
        waits = bool(rest.containers)
        return msgspec.structs.replace(
            self,
            next_container_images=rest.container_images,
            next_container_ref_metadata=rest.container_ref_metadata,
            next_container_resources=rest.container_resources,
            pre_check_before_next=PreCheck(tuple(sorted(required_ready))) if waits else None,
        )

    def with_batch(self, containers: Collection[str], now: datetime) -> InPlaceUpdateState:
        """PM-36: one more batch was applied; its list is empty where only metadata changed."""
        record = BatchRecord(rfc3339(now), tuple(sorted(containers)))
        return msgspec.structs.replace(
            self, container_batches_record=(*self.container_batches_record, record), state=Phase.UPDATING
        )

    def as_json(self) -> str:
        """The annotation's value."""
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
        ]


_LEFT_OUT: Final = object()
_decode: Final = msgspec.json.Decoder(InPlaceUpdateState).decode


def state_text(pod: Pod) -> str | None:
    """The state annotation, also under its former key; None without."""
    annotations = pod.metadata.annotations
    found = annotations.get(IN_PLACE_UPDATE_STATE)
    return found if found is not None else annotations.get(IN_PLACE_UPDATE_STATE_LEGACY)


def update_state(pod: Pod) -> InPlaceUpdateState | None:
    """The record of the Pod's last in-place update, None if there was none. Raises :class:`StateError` (PM-46)."""
    text = state_text(pod)
    if text is None:
        return None
    try:
        return _decode(text.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise StateError(
            f"Pod {pod.metadata.namespace}/{pod.metadata.name}: annotation {IN_PLACE_UPDATE_STATE}: {error}"
        ) from error


def state_annotations(pod: Pod, state: InPlaceUpdateState) -> dict[str, str | None]:
    """PM-24: the annotations to write for a state; the former key goes."""
    written: dict[str, str | None] = {IN_PLACE_UPDATE_STATE: state.as_json()}
    if IN_PLACE_UPDATE_STATE_LEGACY in pod.metadata.annotations:
        written[IN_PLACE_UPDATE_STATE_LEGACY] = None
    return written
