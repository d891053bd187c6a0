"""NodeImages as the controllers read them: frozen structs that name only what is used.

There is one per node and each may hold hundreds of tags; models would cost several times as much. What is written goes
out as a patch of the live object, so nothing that is not named here is lost.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Final, TypeVar

import msgspec

from app.features.imagepull.kind import NODE_IMAGE
from app.kube.objects import ObjectMeta, Struct, decoder

NODE_IMAGES: Final = NODE_IMAGE.resource()


class JobReference(Struct, frozen=True):
    """Who asked for a tag."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class SecretReference(Struct, frozen=True):
    """A Secret with credentials."""

    namespace: str = ""
    name: str = ""
    mode: str = ""


class TagPolicy(Struct, frozen=True):
    """How long a tag is remembered, and may take."""

    timeout_seconds: int | None = None
    backoff_limit: int | None = None
    ttl_seconds_after_finished: int | None = None
    active_deadline_seconds: int | None = None


class ImageTag(Struct, frozen=True):
    """A tag that the node shall have. Times stay text."""

    tag: str = ""
    created_at: str = ""
    version: int = 0
    image_pull_policy: str = ""
    pull_policy: TagPolicy | None = None
    owner_references: tuple[JobReference, ...] = ()


class ImageEntry(Struct, frozen=True):
    """The tags of one repository."""

    tags: tuple[ImageTag, ...] = ()
    pull_secrets: tuple[SecretReference, ...] = ()
    sandbox_config: dict[str, Any] | None = None

    def tag(self, wanted: str) -> ImageTag | None:
        """The entry of that tag."""
        for tag in self.tags:
            if tag.tag == wanted:
                return tag
        return None


class NodeImageSpec(Struct, frozen=True):
    """What the node shall have."""

    images: dict[str, ImageEntry] = msgspec.field(default_factory=dict)


class TagStatus(Struct, frozen=True):
    """How far one tag is."""

    tag: str = ""
    phase: str = ""
    completion_time: str = ""
    version: int = 0


class ImageStatus(Struct, frozen=True):
    """How far the tags of one repository are."""

    tags: tuple[TagStatus, ...] = ()

    def tag(self, wanted: str) -> TagStatus | None:
        """The entry of that tag."""
        for tag in self.tags:
            if tag.tag == wanted:
                return tag
        return None


class NodeImageStatus(Struct, frozen=True):
    """How far all are."""

    image_statuses: dict[str, ImageStatus] = msgspec.field(default_factory=dict)


class NodeImage(Struct, frozen=True):
    """What a node shall pull, and how far it is."""

    metadata: ObjectMeta = ObjectMeta()
    spec: NodeImageSpec = NodeImageSpec()
    status: NodeImageStatus = NodeImageStatus()

    @property
    def deleting(self) -> bool:
        """Whether deletion has begun."""
        return self.metadata.deletion_timestamp is not None


def job_uids(node_image: NodeImage) -> list[str]:
    """The uids of everybody who asked for a tag of it."""
    return list(
        {
            owner.uid: None
            for entry in node_image.spec.images.values()
            for tag in entry.tags
            for owner in tag.owner_references
        }
    )


BY_JOB: Final = "job"
#: Equal parts of NodeImages that are kept once; where there are more, it begins anew.
_MAX_SHARED: Final = 100_000
_shared: dict[Hashable, Any] = {}
T = TypeVar("T", bound=Hashable)

_decode: Final = decoder(NodeImage)


def decode_node_image(raw: bytes) -> NodeImage:
    """Nodes that a job has reached say the same of its image: that is kept once for all of them. Raises
    ``msgspec.DecodeError``."""
    found = _decode(raw)
    for images in (found.spec.images, found.status.image_statuses):
        for name in list(images):
            # Its configuration of the sandbox is a mapping, which has no hash: jobs hardly ever have one.
            entry: Any = images.pop(name)
            images[_share(name)] = _share(entry) if getattr(entry, "sandbox_config", None) is None else entry
    return found


def _share(value: T) -> T:
    """The first that was equal to it."""
    if len(_shared) >= _MAX_SHARED:
        _shared.clear()
    known: T = _shared.setdefault(value, value)
    return known
