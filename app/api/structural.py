"""What an API server does with a custom resource's schema, for where there is none: defaults, validation, pruning.

Pure functions of a structural schema (:mod:`app.api.schema`) and a JSON value, with the API server's own messages.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.api.jsonvalue import json_copy
from app.api.kind import KindDefinition, Version
from app.api.schema import INT_OR_STRING, PRESERVE, Schema
from app.kube.fielderrors import FieldError, Path, aggregate, invalid, not_supported, required, type_invalid
from app.kube.gotext import quote

_GO_TYPES: Final = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": float}
#: Bits of a format. An API server does not check it, but no Go client could read back what does not fit.
_RANGES: Final = {"int32": 31, "int64": 63}
EMBEDDED: Final = "x-kubernetes-embedded-resource"
#: Handled by the API server's own code for every kind, not by the kind's schema.
_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata"})


def invalid_message(kind: KindDefinition, version: Version, obj: Mapping[str, Any]) -> str:
    """The API server's refusal of an object its kind's schema does not allow; "" if it does."""
    errors = validate(version.schema, obj)
    if not errors:
        return ""
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return f"{kind.kind}.{kind.group} {quote(str(name or ''))} is invalid: {aggregate(errors)}"


def with_defaults(schema: Schema, value: Any) -> Any:
    """``value`` with every missing field that has a schema default filled in, as a copy."""
    value = json_copy(value)
    _fill(schema, value)
    return value


def _fill(schema: Schema, value: Any) -> None:
    if isinstance(value, dict):
        for key, sub in schema.get("properties", {}).items():
            if "default" in sub and value.get(key) is None:
                value[key] = json_copy(sub["default"])
            if key in value:
                _fill(sub, value[key])
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            for item in value.values():
                _fill(values, item)
    elif isinstance(value, list) and "items" in schema:
        for item in value:
            _fill(schema["items"], item)


def validate(schema: Schema, value: Any, path: Path | None = None) -> list[FieldError]:
    """Everything the schema forbids in ``value``. Unknown fields are no error: see :func:`unknown_fields`."""
    return list(_errors(schema, value, path or Path()))


def _errors(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    if value is None:
        # A null field counts as a missing one; the API server drops it before it looks.
        return
    if schema.get(INT_OR_STRING):
        if isinstance(value, bool) or not isinstance(value, int | str):
            yield _wrong_type(path, value, "integer,string")
        return
    wanted = schema.get("type")
    if wanted is not None and not _is_a(wanted, value):
        yield _wrong_type(path, value, wanted)
        return
    yield from _value_errors(schema, value, path)
    if isinstance(value, dict):
        yield from _object_errors(schema, value, path)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            at = path.index(index)
            if item is None and "type" in schema["items"]:
                # A null is dropped from an object, but a list cannot lose an item unnoticed.
                yield type_invalid(at, "null", f'{at} in body must be of type {schema["items"]["type"]}: "null"')
            yield from _errors(schema["items"], item, at)


def _object_errors(schema: Schema, value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    for key in schema.get("required", ()):
        if value.get(key) is None:
            yield required(path.child(key))
    properties = schema.get("properties", {})
    values = schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from _errors(properties[key], item, path.child(key))
        elif isinstance(values, dict):
            yield from _errors(values, item, path.child(key))


def _value_errors(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    if "enum" in schema and value not in schema["enum"]:
        yield not_supported(path, value, schema["enum"])
    if "minimum" in schema and value < schema["minimum"]:
        detail = f"{path} in body should be greater than or equal to {schema['minimum']}"
        yield invalid(path, value, detail)
    if "maximum" in schema and value > schema["maximum"]:
        yield invalid(path, value, f"{path} in body should be less than or equal to {schema['maximum']}")
    bits = _RANGES.get(schema.get("format", ""))
    if bits is not None and not -(1 << bits) <= value < 1 << bits:
        yield invalid(path, value, f"must be a {schema['format']}")


def _is_a(wanted: str, value: Any) -> bool:
    if wanted in ("integer", "number"):
        if isinstance(value, bool):
            return False
        return isinstance(value, int) or (isinstance(value, float) and (wanted == "number" or value.is_integer()))
    return isinstance(value, _GO_TYPES[wanted])


def _wrong_type(path: Path, value: Any, wanted: str) -> FieldError:
    found = next(name for name, python in _GO_TYPES.items() if isinstance(value, python))
    if isinstance(value, bool):
        found = "boolean"
    return type_invalid(path, found, f'{path} in body must be of type {wanted}: "{found}"')


def unknown_fields(schema: Schema, value: Any, path: Path | None = None) -> list[str]:
    """Paths of the fields an API server would drop (or refuse, under strict field validation)."""
    return list(_unknown(schema, value, path or Path(), top=path is None))


def _unknown(schema: Schema, value: Any, path: Path, *, top: bool = False) -> Iterator[str]:
    if isinstance(value, dict):
        properties = schema.get("properties", {})
        values = schema.get("additionalProperties")
        for key, item in value.items():
            if (top or schema.get(EMBEDDED)) and key in _ENVELOPE:
                continue
            if key in properties:
                yield from _unknown(properties[key], item, path.child(key))
            elif isinstance(values, dict):
                yield from _unknown(values, item, path.child(key))
            elif not schema.get(PRESERVE):
                yield str(path.child(key))
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _unknown(schema["items"], item, path.index(index))


def pruned(schema: Schema, value: Any, *, top: bool = True) -> Any:
    """``value`` without the fields the schema does not know, as a copy."""
    if isinstance(value, dict):
        properties, values = schema.get("properties", {}), schema.get("additionalProperties")
        kept: dict[str, Any] = {}
        for key, item in value.items():
            if top and key in _ENVELOPE:
                kept[key] = json_copy(item)
            elif key in properties:
                kept[key] = pruned(properties[key], item, top=False)
            elif isinstance(values, dict):
                kept[key] = pruned(values, item, top=False)
            elif schema.get(PRESERVE):
                kept[key] = json_copy(item)
        return kept
    if isinstance(value, list):
        items = schema.get("items", {PRESERVE: True})
        return [pruned(items, item, top=False) for item in value]
    return value
