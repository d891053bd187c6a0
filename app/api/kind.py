"""The definition of a kind: its names, versions and conversions, and the registry of all kinds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from app.api.model import KubeObject, Schema
from app.api.schema import structural_schema
from app.kube.resources import Resource

# A kind as its CustomResourceDefinition describes it: names, scope, versions, columns, and how versions convert.
#
# Declared once per kind, beside its models; the CRD, the conversion webhook, the client's endpoints and the reference
# page are derived from it.

#: Turns the JSON object of one version into that of another: may lose what the other cannot say (see
#: app.api.conversion, which remembers it). Gets a copy it may change; apiVersion and kind are set by the caller.
Convert: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]

#: Where a field is: the keys from the root.
FieldPath: TypeAlias = tuple[str, ...]
#: In the path of a noted field: any key of a map, or any item of a list of named objects.
ANY_KEY: Final = "*"


@dataclass(frozen=True, slots=True)
class NotedField:
    """A field that a conversion note may restore, because the other version cannot express it (app.api.notes).

    Its type is that of the version's schema.
    """

    path: FieldPath
    #: The most bytes of its value as JSON.
    size: int = 1024
    #: How many levels of objects and lists its value may have; a scalar has none, nor has an empty object.
    depth: int = 0
    #: How many changes of one note may be about it.
    count: int = 1


def noted(
    *parents: str, fields: Iterable[str], size: int = 1024, depth: int = 0, count: int = 1
) -> tuple[NotedField, ...]:
    """Return noted fields that share their parents and bounds."""
    return tuple(NotedField((*parents, field), size, depth, count) for field in fields)


@dataclass(frozen=True, slots=True)
class PrinterColumn:
    """One column of ``kubectl get``."""

    name: str
    type: Literal["integer", "number", "string", "boolean", "date"]
    json_path: str
    description: str = ""
    format: str = ""
    #: 0 is shown always, larger with ``-o wide``.
    priority: int = 0


AGE = PrinterColumn(
    "AGE", "date", ".metadata.creationTimestamp", "When the object was created, as the time that has passed since."
)


@dataclass(frozen=True, slots=True)
class Scale:
    """Where the scale subresource reads and writes."""

    spec_replicas: str = ".spec.replicas"
    status_replicas: str = ".status.replicas"
    label_selector: str = ""


@dataclass(frozen=True)
class Version:
    """One served version of a kind."""

    name: str
    model: type[KubeObject]
    columns: tuple[PrinterColumn, ...] = (AGE,)
    status: bool = True
    scale: Scale | None = None
    #: To the hub version and back; None for the hub itself.
    to_hub: Convert | None = None
    from_hub: Convert | None = None
    #: Brings an object of this version into one form where several mean the same, so that no note is taken of it.
    canonical: Convert | None = None
    #: Fields of this version or the hub that say one thing together: conversion restores all of them or none.
    linked: tuple[tuple[FieldPath, ...], ...] = ()
    #: Every field of this version that a conversion note may restore. MGR-151
    notes: tuple[NotedField, ...] = ()

    @cached_property
    def schema(self) -> Schema:
        """The structural schema of this version."""
        return structural_schema(self.model)


@dataclass(frozen=True, slots=True)
class Access:
    """What the cluster's roles view, edit and admin grant for a kind, and why.

    They are bound to tenants, usually in one namespace: they may read what view reads of Pods and write what amounts to
    writing Pods of the same namespace. Admin grants no more than edit.
    """

    why: str = ""
    view: bool = False
    edit: bool = False


@dataclass(frozen=True, slots=True)
class KindDefinition:
    """One kind. ``versions`` begins with the hub: the version that is stored and that all others convert through."""

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
        """The kind in lower case, as the API has it for every kind of ours."""
        return self.kind.lower()

    @property
    def crd_name(self) -> str:
        """The name of the CustomResourceDefinition."""
        return f"{self.plural}.{self.group}"

    @property
    def scalable(self) -> bool:
        """Whether a version has the scale subresource."""
        return any(version.scale is not None for version in self.versions)

    @property
    def hub(self) -> Version:
        """The stored version."""
        return self.versions[0]

    @property
    def by_version(self) -> Mapping[str, Version]:
        """The versions by name."""
        return {version.name: version for version in self.versions}

    def version(self, api_version: str) -> Version | None:
        """The version an ``apiVersion`` names, if it is one of this kind."""
        group, _, name = api_version.rpartition("/")
        return self.by_version.get(name) if group == self.group else None

    def resource(self, version: str = "") -> Resource:
        """Where the kind is served, in the stored version unless another is named."""
        name = version or self.hub.name
        if name not in self.by_version:
            raise ValueError(f"{self.kind}: version {name!r} is not served; served are {', '.join(self.by_version)}")
        return Resource(self.group, name, self.plural, self.kind, self.namespaced)


_KINDS: dict[tuple[str, str], KindDefinition] = {}


def register(kinds: Iterable[KindDefinition]) -> None:
    """Know these kinds from now on. Raises ValueError for two kinds of one name in one group."""
    for kind in kinds:
        if _KINDS.setdefault((kind.group, kind.kind), kind) is not kind:
            raise ValueError(f"{kind.kind}.{kind.group}: two features have a kind of this name")


def known_kinds() -> tuple[KindDefinition, ...]:
    """All kinds registered so far."""
    return tuple(_KINDS.values())


def find_plural(group: str, plural: str) -> KindDefinition | None:
    """The kind whose objects are called so in URLs."""
    return next((kind for kind in _KINDS.values() if (kind.group, kind.plural) == (group, plural)), None)


def find_kind(api_version: str, kind: str) -> KindDefinition | None:
    """The kind of this name in the group of ``api_version``, whatever the version."""
    return _KINDS.get((api_version.rpartition("/")[0], kind))
