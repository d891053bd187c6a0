"""Storage classes, as far as it matters whether claims may grow."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from app.kube.client import Client
from app.kube.objects import ObjectMeta, Struct, decoder
from app.kube.resources import Resource

STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_DEFAULT: Final = "storageclass.kubernetes.io/is-default-class"
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class StorageClass(Struct, frozen=True):
    """A storage class."""

    metadata: ObjectMeta = ObjectMeta()
    allow_volume_expansion: bool = False


decode_storage_class = decoder(StorageClass)


class Expandable(dict[str, bool | None]):
    """Whether claims of a class may grow, by its name; None for a class that is not there."""

    def __contains__(self, name: object) -> bool:
        """Every class but the default one is answered for: there may be no default (AS-31)."""
        return name != "" or super().__contains__(name)

    def __missing__(self, name: str) -> None:
        return None


@dataclass(frozen=True, slots=True)
class StorageClasses:
    """Those of a cluster."""

    expandable: Mapping[str, bool | None] = field(default_factory=dict)

    @classmethod
    def of(cls, classes: Iterable[StorageClass]) -> StorageClasses:
        """AS-31: nothing said is no. Of several default classes the newest counts; "" is that one."""
        found = list(classes)
        known = Expandable({one.metadata.name: one.allow_volume_expansion for one in found})
        defaults = [one for one in found if one.metadata.annotations.get(_DEFAULT) == "true"]
        if defaults:
            newest = max(defaults, key=lambda one: (one.metadata.creation_timestamp or _LONG_AGO, one.metadata.name))
            known[""] = newest.allow_volume_expansion
        return cls(known)


async def list_storage_classes(client: Client) -> StorageClasses:
    """As the API server has them now."""
    return StorageClasses.of((await client.list(STORAGE_CLASSES, decode=decode_storage_class)).items)
