"""The definition of a kind: its names, versions and conversions, and the registry of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from app.api.model import KubeObject, Schema
from app.api.schema import structural_schema
from app.kube.resources import Resource

# A kind as in its CustomResourceDefinition: names, scope, versions, columns, and conversions.
#
# It is declared once, next to its models; the CRD, the conversion webhook, the client's endpoints and the reference
# page are derived from it.

#: Converts a JSON object from one version to another. It may lose what the other version cannot express;
#: app.api.conversion records the loss. It gets a copy that it may change; the caller sets apiVersion and kind.
Convert: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

#: The path of a field: the keys from the root.
FieldPath: TypeAlias = tuple[str, ...]
#: In the path of a noted field: any key in a map, or any item in a list of named objects.
ANY_KEY: Final = "*"


@dataclass(frozen=True, slots=True)
class NotedField:
    """A field that a conversion note may restore, because the other version cannot express it (app.api.conversion).

    The version's schema defines its type.
    """

    path: FieldPath
    #: The maximum size of its JSON value in bytes.
    size: int = 1024
    #: The maximum nesting depth of objects and lists in its value; 0 for scalars and empty objects.
    depth: int = 0
    #: The maximum number of changes to it in one note.
    count: int = 1


def noted(
    *parents: str, fields: Iterable[str], size: int = 1024, depth: int = 0, count: int = 1
) -> tuple[NotedField, ...]:
    """Return noted fields with the same parents and limits."""
    return tuple(NotedField((*parents, field), size, depth, count) for field in fields)


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of ``kubectl get``."""

    name: str
    type: Literal["integer", "number", "string", "boolean", "date"]
    json_path: str
    description: str = ""
    format: str = ""
    #: Columns with priority 0 are always shown, others with ``-o wide``.
    priority: int = 0


AGE = PrinterColumn("AGE", "date", ".metadata.creationTimestamp", "Time since the object was created.")
#: Columns of kinds with a Pod template.
TEMPLATE_COLUMNS = (
    PrinterColumn("CONTAINERS", "string", ".spec.template.spec.containers[*].name", "Container names.", priority=1),
    PrinterColumn("IMAGES", "string", ".spec.template.spec.containers[*].image", "Container images.", priority=1),
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Paths of the scale subresource."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    label_selector: str = ""


def unchanged(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert between versions with the same fields."""
    return obj


@dataclass(frozen=True)
class Version:
    """One served version of a kind."""

    name: str
    model: type[KubeObject]
    columns: tuple[PrinterColumn, ...] = (AGE,)
    status: bool = True
    scale: Scale | None = None
    #: Conversions to and from the hub version; None for the hub itself.
    to_hub: Convert | None = None
    from_hub: Convert | None = None
    #: Normalizes equivalent forms of an object in this version, so that conversion notes do not record them.
    canonical: Convert | None = None
    #: Fields of this version or the hub that belong together: conversion restores all of them or none.
    linked: tuple[tuple[FieldPath, ...], ...] = ()
    #: The fields of this version that a conversion note may restore. [MGR-151]
    notes: tuple[NotedField, ...] = ()

    @cached_property
    def schema(self) -> Schema:
        return structural_schema(self.model)


@dataclass(frozen=True, slots=True)
class Access:
    """The access to a kind granted by the cluster roles view, edit and admin, and the reason for it.

    These roles are bound to tenants, usually in one namespace. Tenants may read a kind if view lets them read the same
    data in Pods, and write it if that gives them no more power than writing Pods in the namespace. Admin grants the
    same access as edit.
    """

    why: str = ""
    view: bool = False
    edit: bool = False


@dataclass(frozen=True, slots=True)
class KindDefinition:
    """One kind. ``versions`` starts with the hub: the version that is stored and that all others convert through."""

    group: str
    kind: str
    plural: str
    versions: tuple[Version, ...]
    namespaced: bool = True
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    access: Access = Access()

    @property
    def singular(self) -> str:
        """The singular resource name: the kind in lower case."""
        return self.kind.lower()

    @property
    def crd_name(self) -> str:
        return f"{self.plural}.{self.group}"

    @property
    def scalable(self) -> bool:
        return any(version.scale is not None for version in self.versions)

    @property
    def hub(self) -> Version:
        return self.versions[0]

    @property
    def by_version(self) -> Mapping[str, Version]:
        return {version.name: version for version in self.versions}

    def version(self, api_version: str) -> Version | None:
        """Return the version for an ``apiVersion``, or None if this kind does not have it."""
        group, _, name = api_version.rpartition("/")
        return self.by_version.get(name) if group == self.group else None

    def resource(self, version: str = "") -> Resource:
        """Return the resource of the kind, in the stored version by default."""
        name = version or self.hub.name
        if name not in self.by_version:
            raise ValueError(
                f"{self.kind}: version {name!r} is not served; served versions: {', '.join(self.by_version)}"
            )
        return Resource(self.group, name, self.plural, self.kind, self.namespaced)


_KINDS: dict[tuple[str, str], KindDefinition] = {}


def register(kinds: Iterable[KindDefinition]) -> None:
    """Register kinds. Raises ValueError for two kinds of the same name in one group."""
    for kind in kinds:
        if _KINDS.setdefault((kind.group, kind.kind), kind) is not kind:
            raise ValueError(f"{kind.kind}.{kind.group}: defined by two features")


def known_kinds() -> tuple[KindDefinition, ...]:
    """Return all registered kinds."""
    return tuple(_KINDS.values())


def find_plural(group: str, plural: str) -> KindDefinition | None:
    """Return the kind with this plural name, as in URLs."""
    return next((kind for kind in _KINDS.values() if (kind.group, kind.plural) == (group, plural)), None)


def find_kind(api_version: str, kind: str) -> KindDefinition | None:
    """Return the kind of this name in the group of ``api_version``, whatever the version."""
    return _KINDS.get((api_version.rpartition("/")[0], kind))
