"""Object schemas: the type of every field and how patches merge it.

A :class:`Field` describes one value: its type, children, list type and merge keys. Built-in kinds are recorded from a
real API server (:mod:`tests.conformance.record`); custom kinds come from the structural schema in their CRD. Both have
the same form. Schemas are loaded and built on first use, so importing this module is cheap.

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
    """The type of a value."""

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
    """The schema of one value in an object.

    ``type_name``: the full name of a named type, such as ``io.k8s.api.core.v1.PodSpec``, or "". ``list_type``:
    ``atomic``, ``set``, ``map`` or "". ``map_type``: ``atomic``, ``granular`` or "". Strategic merge patches use
    ``merge_key`` and ``patch_strategies``. ``schema`` is the raw schema, for keywords without an attribute (such as
    defaults and enums).
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
        """Return the last part of the type's name, as in Go's messages: ``PodSpec``."""
        return self.type_name.rpartition(".")[2]

    @property
    def properties(self) -> Mapping[str, Field]:
        """Return the named fields."""
        if self._properties is None:
            self._properties = self._types.properties(self)
        return self._properties

    @property
    def items(self) -> Field | None:
        """Return the type of a list's items, or None if it is not declared."""
        if self._items is None and isinstance(self.schema.get("items"), Mapping):
            self._items = self._types.field(self.schema["items"])
        return self._items

    @property
    def values(self) -> Field | None:
        """Return the type of a map's values, or None if it is not declared."""
        if self._values is None and isinstance(self.schema.get("additionalProperties"), Mapping):
            self._values = self._types.field(self.schema["additionalProperties"])
        return self._values

    @property
    def is_object(self) -> bool:
        """Return whether the value is a map or an object with named fields."""
        return self.type in (FieldType.OBJECT, FieldType.MAP)

    def child(self, name: str) -> Field | None:
        """Return the type of a named field or of a map's values, or None if unknown."""
        found = self.properties.get(name)
        return found if found is not None else self.values

    def at(self, *path: str) -> Field:
        """Return the field at a path without list indexes. Raises ``KeyError`` if it is unknown."""
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
    # A named type without fields is free-form JSON, except for a few empty structs.
    if kind == "object" and not schema.get("x-kubernetes-preserve-unknown-fields") and type_name not in _FREE_TYPES:
        return FieldType.OBJECT
    return FieldType.ANY


_META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_FREE_TYPES: Final = frozenset({f"{_META}.FieldsV1", f"{_META}.Patch", "io.k8s.apimachinery.pkg.runtime.RawExtension"})


class Types:
    """Named types, which may refer to one another. The fields of a named type are built only once."""

    def __init__(self, schemas: Mapping[str, Schema]) -> None:
        self.schemas = schemas
        self._named_properties: dict[str, Mapping[str, Field]] = {}

    def named(self, name: str) -> Field:
        """Return the type with this full name. Raises ``KeyError`` if it is unknown."""
        return Field(self.schemas[name], self, name)

    def field(self, schema: Schema) -> Field:
        """Build a field from its schema, which may be a reference with extra keywords."""
        name = reference(schema)
        if not name:
            return Field(schema, self)
        # Keywords next to a reference (merge keys, list types, defaults) apply only to this use of the type.
        own = {key: value for key, value in schema.items() if key not in ("$ref", "allOf")}
        return Field({**self.schemas[name], **own}, self, name)

    def properties(self, field: Field) -> Mapping[str, Field]:
        """Return the children of ``field`` by name."""
        if not field.type_name:
            return self._children(field.schema)
        found = self._named_properties.get(field.type_name)
        if found is None:
            found = self._named_properties[field.type_name] = self._children(field.schema)
        return found

    def _children(self, schema: Schema) -> Mapping[str, Field]:
        return {name: self.field(child) for name, child in schema.get("properties", {}).items()}


def reference(schema: Schema) -> str:
    """Return the name of the type that ``schema`` refers to, directly or as the only member of ``allOf``, or ""."""
    one = schema.get("allOf")
    ref = schema.get("$ref") or (one[0].get("$ref") if one and len(one) == 1 else None)
    return ref.removeprefix(REF_PREFIX) if ref else ""


# ---- built-in kinds


def read_data(name: str) -> Any:
    """Decode a recorded data file."""
    return orjson.loads(gzip.decompress((resources.files(__package__) / "data" / name).read_bytes()))


@cache
def builtin_types() -> Types:
    """Return all types of built-in kinds, without descriptions."""
    schemas: Mapping[str, Schema] = read_data("schemas.json.gz")
    return Types(schemas)


@cache
def _builtin_names() -> Mapping[tuple[str, str], str]:
    """Return full type names by apiVersion and kind."""
    return {
        (f"{gvk['group']}/{gvk['version']}" if gvk["group"] else gvk["version"], gvk["kind"]): name
        for name, schema in builtin_types().schemas.items()
        for gvk in schema.get(GVK, ())
    }


@cache
def kind_field(api_version: str, kind: str) -> Field | None:
    """Return the schema of a built-in kind, list or subresource (``apps/v1``, ``Deployment``), or None."""
    name = _builtin_names().get((api_version, kind))
    return builtin_types().named(name) if name is not None else None


@cache
def object_meta() -> Field:
    """Return the schema of ``ObjectMeta``."""
    return builtin_types().named(OBJECT_META)


# ---- custom kinds


class CustomTypes(Types):
    """The types of one custom resource: its own schema and the built-in ObjectMeta."""

    def __init__(self) -> None:
        super().__init__(builtin_types().schemas)

    def _children(self, schema: Schema) -> Mapping[str, Field]:
        children = dict(super()._children(schema))
        if schema.get("x-kubernetes-embedded-resource"):
            children.update(self.envelope())
        return children

    def envelope(self) -> Mapping[str, Field]:
        """Return apiVersion, kind and metadata, which all objects have."""
        text = {"type": "string"}
        return {"apiVersion": self.field(text), "kind": self.field(text), "metadata": self.named(OBJECT_META)}


def custom_field(schema: Schema) -> Field:
    """Return the type of a custom resource whose version has this ``openAPIV3Schema``."""
    return CustomTypes().field({**schema, "type": "object", "x-kubernetes-embedded-resource": True})
