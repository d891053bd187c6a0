"""Validate custom resources against their schemas and find unknown fields, as an API server does.

The functions are pure. They take a structural schema (:mod:`app.api.schema`) and a JSON value, and use the API server's
messages.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from app.api.model import INT_OR_STRING, LIST_MAP_KEYS, LIST_TYPE, PRESERVE, Schema
from app.kube.fielderrors import (
    FieldError,
    Path,
    aggregate,
    duplicate,
    invalid,
    not_supported,
    quote,
    required,
    too_long,
    too_many,
    type_invalid,
)
from app.kube.jsonvalues import as_object
from app.kube.regex import PatternError, compile_re2

if TYPE_CHECKING:
    from app.api.kind import KindDefinition, Version

_GO_TYPES: Final = {"object": dict, "array": list, "string": str, "boolean": bool, "integer": int, "number": float}
#: Number of bits of each integer format, without the sign bit. API servers do not check the range, but Go clients
#: cannot read larger values.
_RANGES: Final = {"int32": 31, "int64": 63}
EMBEDDED: Final = "x-kubernetes-embedded-resource"
#: Fields that the API server validates the same way for every kind, without the kind's schema.
_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata"})


def invalid_message(kind: KindDefinition, version: Version, obj: Mapping[str, Any]) -> str:
    """Return the API server's message for an object that violates its kind's schema, or "" if the object is valid."""
    text = aggregate(each_error(version.schema, obj))
    if not text:
        return ""
    name = as_object(obj.get("metadata")).get("name")
    return f"{kind.kind}.{kind.group} {quote(str(name or ''))} is invalid: {text}"


def validate(schema: Schema, value: Any, path: Path | None = None) -> list[FieldError]:
    """Return the schema errors of ``value``. Unknown fields are not errors: see :func:`unknown_fields`."""
    return list(each_error(schema, value, path))


def each_error(schema: Schema, value: Any, path: Path | None = None) -> Iterator[FieldError]:
    """Yield the errors of :func:`validate` one by one, because an object can have hundreds of thousands."""
    return _errors(schema, value, path or Path())


def readable(schema: Schema, value: Any, *, mistyped: bool = True) -> Any:
    """Return ``value`` without nulls, which an API server drops, and without values of the wrong type.

    Objects stored without validation may contain them. If there are none, the same value is returned. With ``mistyped``
    False, values of the wrong type are kept.
    """
    if isinstance(value, dict):
        properties, values = schema.get("properties", {}), schema.get("additionalProperties")
        values = values if isinstance(values, dict) else None
        changed: dict[str, Any] = {}
        for key, item in value.items():
            sub = properties.get(key, values)
            if sub is not None and (found := _kept(sub, item, mistyped)) is not item:
                changed[key] = found
        if not changed:
            return value
        kept = ((key, changed.get(key, item)) for key, item in value.items())
        return {key: item for key, item in kept if item is not _LEFT_OUT}
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        items = [item if item is None else _kept(schema["items"], item, mistyped) for item in value]
        same = all(item is before for item, before in zip(items, value, strict=True))
        return value if same else [item for item in items if item is not _LEFT_OUT]
    return value


#: Marks a value to omit.
_LEFT_OUT: Final = object()


def _kept(schema: Schema, value: Any, mistyped: bool) -> Any:
    if value is None:
        return value if schema.get("nullable") else _LEFT_OUT
    wanted = schema.get("type")
    if schema.get(INT_OR_STRING):
        right = isinstance(value, int | str) and not isinstance(value, bool)
    else:
        right = wanted is None or _is_a(wanted, value)
    if right:
        return readable(schema, value, mistyped=mistyped)
    return _LEFT_OUT if mistyped else value


def _errors(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    if value is None:
        # A null field counts as missing; the API server drops it before validation.
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
    yield from _combined_errors(schema, value, path)
    if isinstance(value, dict):
        yield from _object_errors(schema, value, path)
    elif isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            at = path.index(index)
            if item is None and "type" in schema["items"]:
                # A null field can be dropped, but dropping a list item would shift the others.
                yield type_invalid(at, "null", f'{at} in body must be of type {schema["items"]["type"]}: "null"')
            yield from _errors(schema["items"], item, at)


def _object_errors(schema: Schema, value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    properties = schema.get("properties", {})
    values = schema.get("additionalProperties")
    # The API server reports fields in alphabetical order.
    for key, item in sorted(value.items()):
        if key in properties:
            yield from _errors(properties[key], item, path.child(key))
        elif isinstance(values, dict):
            yield from _errors(values, item, path.child(key))
    for key in schema.get("required", ()):
        if value.get(key) is None:
            yield required(path.child(key))


def _value_errors(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    if "enum" in schema and value not in schema["enum"]:
        yield not_supported(path, value, schema["enum"])
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_errors(schema, value, path)
    elif isinstance(value, str):
        yield from _text_errors(schema, value, path)
    elif isinstance(value, list | dict):
        yield from _size_errors(schema, value, path)
    bits = _RANGES.get(schema.get("format", ""))
    if bits is not None and not -(1 << bits) <= value < 1 << bits:
        yield invalid(path, value, f"must be a {schema['format']}")


def _combined_errors(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    """Validate anyOf, oneOf, allOf and not, which further constrain the type declared next to them."""
    if "anyOf" in schema and not any(_holds(one, value, path) for one in schema["anyOf"]):
        yield invalid("<nil>", "", f'"{path}" must validate at least one schema (anyOf)')
    if "oneOf" in schema:
        fitting = sum(_holds(one, value, path) for one in schema["oneOf"])
        if fitting != 1:
            found = "Found none valid" if not fitting else f"Found {fitting} valid alternatives"
            yield invalid("<nil>", "", f'"{path}" must validate one and only one schema (oneOf). {found}')
    for one in schema.get("allOf", ()):
        yield from _errors(one, value, path)
    if "not" in schema and _holds(schema["not"], value, path):
        yield invalid("<nil>", "", f'"{path}" must not validate the schema (not)')


def _holds(schema: Schema, value: Any, path: Path) -> bool:
    return next(_errors(schema, value, path), None) is None


_BOUNDS: Final = (
    ("minimum", "exclusiveMinimum", "greater than", operator.lt),
    ("maximum", "exclusiveMaximum", "less than", operator.gt),
)


def _number_errors(schema: Schema, value: float, path: Path) -> Iterator[FieldError]:
    for bound, exclusive, word, is_beyond in _BOUNDS:
        if bound in schema:
            limit, strict = schema[bound], bool(schema.get(exclusive))
            if is_beyond(value, limit) or (strict and value == limit):
                relation = word if strict else f"{word} or equal to"
                yield invalid(path, value, f"{path} in body should be {relation} {limit}")
    if schema.get("multipleOf") and value % schema["multipleOf"]:
        yield invalid(path, value, f"{path} in body should be a multiple of {schema['multipleOf']}")


def _text_errors(schema: Schema, value: str, path: Path) -> Iterator[FieldError]:
    if len(value) < schema.get("minLength", 0):
        yield invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield too_long(path, schema["maxLength"])
    if "pattern" in schema and not _matches(schema["pattern"], value):
        yield invalid(path, value, f"{path} in body should match '{schema['pattern']}'")


_compiled = lru_cache(1024)(compile_re2)


def _matches(pattern: str, value: str) -> bool:
    try:
        return _compiled(pattern).search(value)
    except PatternError:
        return True  # an invalid pattern rejects nothing


def _size_errors(schema: Schema, value: list[Any] | dict[str, Any], path: Path) -> Iterator[FieldError]:
    least, most = ("minItems", "maxItems") if isinstance(value, list) else ("minProperties", "maxProperties")
    word = "items" if isinstance(value, list) else "properties"
    if len(value) < schema.get(least, 0):
        yield invalid(path, len(value), f"{path} in body should have at least {schema[least]} {word}")
    if most in schema and len(value) > schema[most]:
        yield too_many(path, len(value), schema[most])
    if isinstance(value, list) and schema.get(LIST_TYPE) in ("map", "set"):
        yield from _repeated(schema, value, path)


def _repeated(schema: Schema, value: list[Any], path: Path) -> Iterator[FieldError]:
    """Yield errors for repeated items of a set, or repeated keys in a map."""
    seen: set[str] = set()
    for index, item in enumerate(value):
        key = item
        if schema[LIST_TYPE] == "map" and isinstance(item, dict):
            key = {name: item.get(name) for name in schema.get(LIST_MAP_KEYS, ()) if name in item}
        text = json.dumps(key, sort_keys=True, default=str)
        if text in seen:
            yield duplicate(path.index(index), key)
        seen.add(text)


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
    """Return the paths of fields that an API server would drop (or reject under strict field validation)."""
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
