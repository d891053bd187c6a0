"""The types of objects: what every field is, and how patches merge it.

A :class:`Field` is one value of a kind: its type, its children, its list and merge keys. Built-in kinds come from data
recorded from a real API server (:mod:`tests.conformance.record`), custom ones from their CRD's structural schema; both
look the same afterwards. Everything is read and built on first use, so that importing this costs nothing.

    kind_field("apps/v1", "Deployment").at("spec", "template", "spec", "containers").merge_key     # "name"
"""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import resources
from typing import Any, Final, TypeAlias

import orjson

Schema: TypeAlias = Mapping[str, Any]

REF_PREFIX: Final = "#/components/schemas/"
GVK: Final = "x-kubernetes-group-version-kind"
OBJECT_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"
LIST_META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1.ListMeta"


class FieldType(StrEnum):
    """What a value may be."""

    OBJECT = "object"  # named fields
    MAP = "map"  # any keys, values of one type
    LIST = "list"
    STRING = "string"
    INTEGER = "integer"
    NUMBER = "number"
    BOOLEAN = "boolean"
    TIME = "time"  # a string in RFC 3339, as metav1.Time and MicroTime
    QUANTITY = "quantity"  # a string or a number
    INT_OR_STRING = "int-or-string"
    ANY = "any"  # free JSON: RawExtension, FieldsV1, JSON, preserved unknown fields


class Field:
    """One value in an object.

    ``type_name``: the full name of a named type, such as ``io.k8s.api.core.v1.PodSpec``, "" for an unnamed one.
    ``list_type``: ``atomic``, ``set``, ``map`` or "" ; ``map_type``: ``atomic``, ``granular`` or "".
    ``merge_key`` and ``patch_strategies`` are what a strategic merge patch goes by. ``schema`` is the schema itself,
    for keywords that are rare (formats, defaults, enumerations of a custom resource).
    """

    __slots__ = (
        "_items",
        "_properties",
        "_types",
        "_values",
        "format",
        "list_map_keys",
        "list_type",
        "map_type",
        "merge_key",
        "patch_strategies",
        "preserves_unknown",
        "required",
        "schema",
        "type",
        "type_name",
    )

    def __init__(self, schema: Schema, types: Types, type_name: str = "") -> None:
        self.schema = schema
        self.type_name = type_name
        self.type = _field_type(schema, type_name)
        self.format: str = schema.get("format", "")
        self.required: tuple[str, ...] = tuple(schema.get("required", ()))
        self.list_type: str = schema.get("x-kubernetes-list-type", "")
        self.list_map_keys: tuple[str, ...] = tuple(schema.get("x-kubernetes-list-map-keys", ()))
        self.map_type: str = schema.get("x-kubernetes-map-type", "")
        self.merge_key: str = schema.get("x-kubernetes-patch-merge-key", "")
        strategy = schema.get("x-kubernetes-patch-strategy", "")
        self.patch_strategies: frozenset[str] = frozenset(strategy.split(",")) if strategy else frozenset()
        self.preserves_unknown = bool(schema.get("x-kubernetes-preserve-unknown-fields"))
        self._types = types
        self._properties: Mapping[str, Field] | None = None
        self._items: Field | None = None
        self._values: Field | None = None

    @property
    def short_name(self) -> str:
        """The last part of the type's name, as Go messages name it: ``PodSpec``."""
        return self.type_name.rpartition(".")[2]

    @property
    def properties(self) -> Mapping[str, Field]:
        """The named fields; empty where there are none."""
        if self._properties is None:
            self._properties = self._types.properties(self)
        return self._properties

    @property
    def items(self) -> Field | None:
        """What a list holds; None where that is free."""
        if self._items is None and isinstance(self.schema.get("items"), Mapping):
            self._items = self._types.field(self.schema["items"])
        return self._items

    @property
    def values(self) -> Field | None:
        """What a map holds; None where that is free, or where this is no map."""
        if self._values is None and isinstance(self.schema.get("additionalProperties"), Mapping):
            self._values = self._types.field(self.schema["additionalProperties"])
        return self._values

    @property
    def is_object(self) -> bool:
        """Whether the value is an object of named fields or a map."""
        return self.type in (FieldType.OBJECT, FieldType.MAP)

    def child(self, name: str) -> Field | None:
        """The field of that name: a named one, or a map's value; None for an unknown one."""
        found = self.properties.get(name)
        return found if found is not None else self.values

    def at(self, *path: str) -> Field:
        """The field at the end of a path; lists are passed through. Raises ``KeyError`` for an unknown one."""
        field = self
        for name in path:
            while field.type is FieldType.LIST and field.items is not None:
                field = field.items
            found = field.child(name)
            if found is None:
                raise KeyError(f"{self.type_name or 'object'} has no field {'.'.join(path)}")
            field = found
        return field

    def __repr__(self) -> str:
        return f"Field({self.type_name or self.type})"


def _field_type(schema: Schema, type_name: str) -> FieldType:
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return FieldType.INT_OR_STRING
    if type_name.endswith(".api.resource.Quantity"):
        return FieldType.QUANTITY
    kind = schema.get("type")
    if kind == "array":
        return FieldType.LIST
    if kind == "string":
        return FieldType.TIME if type_name and schema.get("format") == "date-time" else FieldType.STRING
    if kind in ("integer", "number", "boolean"):
        return FieldType(kind)
    if "properties" in schema:
        return FieldType.OBJECT
    if isinstance(schema.get("additionalProperties"), Mapping):
        return FieldType.MAP
    # A named type without fields is free JSON, except for the few that are empty structs.
    if kind == "object" and not schema.get("x-kubernetes-preserve-unknown-fields") and type_name not in _FREE_TYPES:
        return FieldType.OBJECT
    return FieldType.ANY


_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_FREE_TYPES: Final = frozenset({f"{_META}.FieldsV1", f"{_META}.Patch", "io.k8s.apimachinery.pkg.runtime.RawExtension"})


class Types:
    """Named types that refer to one another, and the fields made from them (each type's only once)."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self.schemas = schemas
        self._named_properties: dict[str, Mapping[str, Field]] = {}

    def named(self, name: str) -> Field:
        """The type of that full name; ``KeyError`` where there is none."""
        return Field(self.schemas[name], self, name)

    def field(self, schema: Schema) -> Field:
        """A field from its schema, which may be a reference with keywords of the field's own beside it."""
        name = reference(schema)
        if not name:
            return Field(schema, self)
        # The keywords beside a reference belong to this use of the type: merge keys, list types, defaults.
        own = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        return Field({**self.schemas[name], **own}, self, name)

    def properties(self, field: Field) -> Mapping[str, Field]:
        """The children of ``field`` by name."""
        if not field.type_name:
            return self._children(field.schema)
        found = self._named_properties.get(field.type_name)
        if found is None:
            found = self._named_properties[field.type_name] = self._children(field.schema)
        return found

    def _children(self, schema: Schema) -> Mapping[str, Field]:
        return {name: self.field(child) for name, child in schema.get("properties", {}).items()}


def reference(schema: Schema) -> str:
    """The name of the type that ``schema`` refers to, directly or as the one member of ``allOf``; else ""."""
    one = schema.get("allOf")
    ref = schema.get("$ref") or (one[0].get("$ref") if one and len(one) == 1 else None)
    return ref.removeprefix(REF_PREFIX) if ref else ""


# ---- built-in kinds


def read_data(name: str) -> Any:
    """A recorded data file, decoded."""
    return orjson.loads(gzip.decompress((resources.files(__package__) / "data" / name).read_bytes()))


@cache
def builtin_types() -> Types:
    """All types of the built-in kinds, without descriptions."""
    schemas: Mapping[str, Schema] = read_data("schemas.json.gz")
    return Types(schemas)


@cache
def _builtin_names() -> Mapping[tuple[str, str], str]:
    """Full type names by apiVersion and kind."""
    return {
        (f"{gvk['group']}/{gvk['version']}" if gvk["group"] else gvk["version"], gvk["kind"]): name
        for name, schema in builtin_types().schemas.items()
        for gvk in schema.get(GVK, ())
    }


@cache
def kind_field(api_version: str, kind: str) -> Field | None:
    """The schema of a built-in kind (``apps/v1``, ``Deployment``; lists and subresources too); None for others."""
    name = _builtin_names().get((api_version, kind))
    return builtin_types().named(name) if name is not None else None


@cache
def object_meta() -> Field:
    """``ObjectMeta``, which all kinds share."""
    return builtin_types().named(OBJECT_META)


# ---- custom kinds


class CustomTypes(Types):
    """The types inside one custom resource: its own schema, and ObjectMeta from the built-in ones."""

    def __init__(self) -> None:
        super().__init__(builtin_types().schemas)

    def _children(self, schema: Schema) -> Mapping[str, Field]:
        children = dict(super()._children(schema))
        if schema.get("x-kubernetes-embedded-resource"):
            children.update(self.envelope())
        return children

    def envelope(self) -> Mapping[str, Field]:
        """apiVersion, kind and metadata, as every object has them."""
        text = {"type": "string"}
        return {"apiVersion": self.field(text), "kind": self.field(text), "metadata": self.named(OBJECT_META)}


def custom_field(schema: Schema) -> Field:
    """The type of a custom resource whose version has this ``openAPIV3Schema``."""
    return CustomTypes().field({**schema, "type": "object", "x-kubernetes-embedded-resource": True})
