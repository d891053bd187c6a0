"""NodeImages as the controllers read them: frozen structs with only the fields they use.

Each node has one NodeImage, which may hold hundreds of tags; pydantic models would take several times the memory.
Writes are patches of the live object, so fields not declared here are preserved.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cached_property
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary, ref

import msgspec
import orjson

from app.features.imagepull.kind import NODE_IMAGE
from app.kube.images import remembered
from app.kube.jsonvalues import stored_size
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


class _Many(NamedTuple):
    """Jobs of tags with more than ``_FEW`` jobs: the jobs' UIDs by tag, and their namespaces."""

    jobs: Mapping[str, Collection[str]]
    namespaces: Collection[str]


_NONE: Final = _Many({}, ())


class Measured(Struct, frozen=True):
    """Size of a value as stored, in bytes, and its digest."""

    size: int
    digest: str


#: Maximum number of jobs of a tag for a linear search; if there are more, a set is used. Most tags have one or two
#: jobs, for which a set would waste memory.
_FEW: Final = 16


class ImageEntry(Struct, frozen=True, gc=True, dict=True, weakref=True):
    """The tags of one repository."""

    tags: tuple[ImageTag, ...] = ()
    pull_secrets: tuple[SecretReference, ...] = ()
    sandbox_config: dict[str, Any] | None = None
    #: Replaces ``sandbox_config``, which may take up to 32 KiB per repository and node.
    sandbox: Measured | None = None

    @cached_property
    def by_tag(self) -> Mapping[str, ImageTag]:
        """Return the tags by name. If names repeat, the first one wins."""
        return {one.tag: one for one in reversed(self.tags)}

    def is_wanted(self, tag: ImageTag, uid: str) -> bool:
        """Return whether the job with this UID requested the tag. Thousands of jobs may share a tag."""
        owners = tag.owner_references
        if len(owners) > _FEW:
            return uid in self._many.jobs.get(tag.tag, ())
        return any(owner.uid == uid for owner in owners)

    def is_used_by(self, namespace: str) -> bool:
        """Return whether a job of the namespace requested any tag of this repository."""
        for tag in self.tags:
            if len(tag.owner_references) <= _FEW and any(one.namespace == namespace for one in tag.owner_references):
                return True
        return namespace in self._many.namespaces

    @cached_property
    def _many(self) -> _Many:
        jobs: dict[str, set[str]] = {}
        namespaces: set[str] = set()
        for tag in self.tags:
            if len(tag.owner_references) > _FEW:
                jobs.setdefault(tag.tag, set()).update(owner.uid for owner in tag.owner_references)
                namespaces.update(owner.namespace for owner in tag.owner_references)
        return _Many(jobs, namespaces) if jobs else _NONE


class NodeImageSpec(Struct, frozen=True):
    """Images that the node must pull."""

    images: dict[str, ImageEntry] = msgspec.field(default_factory=dict)


class TagStatus(Struct, frozen=True):
    """Progress of one tag."""

    tag: str = ""
    phase: str = ""
    completion_time: str = ""
    version: int = 0


class ImageStatus(Struct, frozen=True, gc=True, dict=True, weakref=True):
    """Progress of the tags of one repository."""

    tags: tuple[TagStatus, ...] = ()

    @cached_property
    def by_tag(self) -> Mapping[str, TagStatus]:
        """Return the tags by name. If names repeat, the first one wins."""
        return {one.tag: one for one in reversed(self.tags)}


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
T = TypeVar("T", ImageEntry, ImageStatus)
#: Weak references, because an entry may take hundreds of kilobytes and is replaced when one of its tags changes.
_in_use: Final[WeakKeyDictionary[Any, ref[Any]]] = WeakKeyDictionary()

_decode: Final = decoder(NodeImage)


def decode_node_image(raw: bytes) -> NodeImage:
    """Decode a NodeImage. Equal parts of different NodeImages share one object. Raises ``msgspec.DecodeError``."""
    found = _decode(raw)
    entries, statuses = found.spec.images, found.status.image_statuses
    for name in list(entries):
        entries[_name(name)] = _shared(_measured(entries.pop(name)))
    for name in list(statuses):
        statuses[_name(name)] = _shared(statuses.pop(name))
    return found


def _measured(entry: ImageEntry) -> ImageEntry:
    config = entry.sandbox_config
    if config is None:
        return entry
    text = orjson.dumps(config, option=orjson.OPT_SORT_KEYS)
    found = Measured(stored_size(config), blake2b(text, digest_size=16).hexdigest())
    return msgspec.structs.replace(entry, sandbox_config=None, sandbox=found)


@remembered(16_384)
def _name(name: str) -> str:
    """Return a shared copy of the name."""
    return name


def _shared(value: T) -> T:
    """Return an equal value that is already in use, or ``value`` itself."""
    known: T | None = _in_use.setdefault(value, ref(value))()
    return value if known is None else known
