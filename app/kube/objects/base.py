"""What every object has, and how objects are read.

``gc=False``: the structs hold no cycles, and 10,000 Pods must not make every garbage collection walk half a million
objects.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec

T = TypeVar("T")


class Struct(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """The common form of all structs here."""


class OwnerReference(Struct, frozen=True):
    """One owner of an object."""

    api_version: str = ""
    kind: str = ""
    name: str = ""
    uid: str = ""
    controller: bool | None = None
    block_owner_deletion: bool | None = None

    @property
    def group(self) -> str:
        """The owner's API group, without its version."""
        return self.api_version.rpartition("/")[0]


class ObjectMeta(Struct, frozen=True):
    """What every object has. Times are aware, in UTC."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    generate_name: str = ""
    generation: int = 0
    creation_timestamp: datetime | None = None
    deletion_timestamp: datetime | None = None
    deletion_grace_period_seconds: int | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)
    owner_references: tuple[OwnerReference, ...] = ()
    finalizers: tuple[str, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that manages this object (``controller: true``), if any."""
        for owner in self.owner_references:
            if owner.controller:
                return owner
        return None


class Metadata(Struct, frozen=True):
    """What is read of an object, or of the answer to a write, where only its metadata matters."""

    metadata: ObjectMeta = ObjectMeta()


class Meta(Protocol):
    """The part of an object's metadata that caches need; ours and foreign objects have it under these names."""

    @property
    def name(self) -> str: ...
    @property
    def namespace(self) -> str | None: ...
    @property
    def uid(self) -> str | None: ...
    @property
    def resource_version(self) -> str | None: ...


class Object(Protocol):
    """Anything with metadata: a struct of this module, or a model of ours."""

    @property
    def metadata(self) -> Meta: ...


def decoder(kind: type[T]) -> Callable[[bytes], T]:
    """The function that reads one object of this struct from JSON bytes; raises ``msgspec.DecodeError``."""
    return msgspec.json.Decoder(kind).decode


decode_metadata = decoder(Metadata)
