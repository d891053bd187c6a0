"""NodeImages as the controllers read them: frozen structs with only the fields they use.

Each node has one NodeImage, which may hold hundreds of tags; models would take several times the memory. Writes are
patches of the live object, so fields not declared here are preserved.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, TypeVar

import msgspec

from app.features.imagepull.kind import NODE_IMAGE
from app.kube.objects import ObjectMeta, ObjectReference, Struct, decoder

NODE_IMAGES: Final = NODE_IMAGE.resource()


class SecretReference(Struct, frozen=True):
    """A Secret with credentials."""

    namespace: str = ""
    name: str = ""
    mode: str = ""


class TagPolicy(Struct, frozen=True):
    """Retention and timeout of a tag."""

    timeout_seconds: int | None = None
    backoff_limit: int | None = None
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None


class ImageTag(Struct, frozen=True):
    """A tag that the node must pull. Times are kept as strings."""

    tag: str = ""
    created_at: str = ""
    version: int = 0
    image_pull_policy: str = ""
    pull_policy: TagPolicy | None = None
    owner_references: tuple[ObjectReference, ...] = ()


class ImageEntry(Struct, frozen=True):
    """The tags of one repository."""

    tags: tuple[ImageTag, ...] = ()
    pull_secrets: tuple[SecretReference, ...] = ()
    sandbox_config: dict[str, Any] | None = None

    def tag(self, wanted: str) -> ImageTag | None:
        return next((tag for tag in self.tags if tag.tag == wanted), None)


class NodeImageSpec(Struct, frozen=True):
    """Images that the node must pull."""

    images: dict[str, ImageEntry] = msgspec.field(default_factory=dict)


class TagStatus(Struct, frozen=True):
    """Progress of one tag."""

    tag: str = ""
    phase: str = ""
    completion_time: str = ""
    version: int = 0


class ImageStatus(Struct, frozen=True):
    """Progress of the tags of one repository."""

    tags: tuple[TagStatus, ...] = ()

    def tag(self, wanted: str) -> TagStatus | None:
        return next((tag for tag in self.tags if tag.tag == wanted), None)


class NodeImageStatus(Struct, frozen=True):
    """Progress of all tags."""

    image_statuses: dict[str, ImageStatus] = msgspec.field(default_factory=dict)


class NodeImage(Struct, frozen=True):
    """The images a node must pull and their progress."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeImageSpec = NodeImageSpec()
    status: NodeImageStatus = NodeImageStatus()

    @property
    def deleting(self) -> bool:
        return self.metadata.deletion_timestamp is not None


def job_uids(node_image: NodeImage) -> list[str]:
    """Return the UIDs of all jobs that requested a tag."""
    return list(
        {
            owner.uid: None
            for entry in node_image.spec.images.values()
            for tag in entry.tags
            for owner in tag.owner_references
        }
    )


BY_JOB: Final = "job"
#: Maximum number of shared values; the cache is cleared when it is full.
_MAX_SHARED: Final = 100_000
_shared: dict[Hashable, Any] = {}
T = TypeVar("T", bound=Hashable)

_decode: Final = decoder(NodeImage)


def decode_node_image(raw: bytes) -> NodeImage:
    """Decode a NodeImage. Equal parts of different NodeImages share one object. Raises ``msgspec.DecodeError``."""
    found = _decode(raw)
    for images in (found.spec.images, found.status.image_statuses):
        for name in list(images):
            # Entries with a sandboxConfig are not shared: a mapping is not hashable.
            entry: Any = images.pop(name)
            images[_share(name)] = _share(entry) if getattr(entry, "sandbox_config", None) is None else entry
    return found


def _share(value: T) -> T:
    """Return the first value seen that is equal to this one."""
    if len(_shared) >= _MAX_SHARED:
        _shared.clear()
    known: T = _shared.setdefault(value, value)
    return known
