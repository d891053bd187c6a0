"""What a structural schema forbids in a custom object, in the order and with the words of a real API server.

Source: kube-openapi/pkg/validation/validate and apiextensions-apiserver/pkg/apiserver/{validation,schema/listtype}.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from ipaddress import ip_address, ip_network
from typing import Any, Final, TypeAlias

from app.kube.fielderrors import FieldError, Path, duplicate, invalid, not_supported, required, too_long, too_many
from app.kube.fielderrors import type_invalid as wrong_type
from app.kube.regex import PatternError, compile_re2

Schema: TypeAlias = Mapping[str, Any]

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_NOWHERE: Final = "<nil>"
_MAX_INT64: Final = 2**63


def schema_errors(schema: Schema, value: Any, path: Path) -> list[FieldError]:
    """Everything the schema forbids, types and lists included; rules in CEL are not looked at."""
    return [*_errors(schema, value, path), *_list_errors(schema, value, path)]


# ---- values


def _errors(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    if value is None and schema.get("nullable"):
        return
    yield from _type_errors(schema, value, path)
    yield from _combined_errors(schema, value, path)
    if isinstance(value, str):
        yield from _string_errors(schema, value, path)
    if isinstance(value, int | float) and not isinstance(value, bool):
        yield from _number_errors(schema, value, path)
    if isinstance(value, list):
        yield from _array_errors(schema, value, path)
    if "enum" in schema and value not in schema["enum"]:
        yield not_supported(path, value, schema["enum"])
    if isinstance(value, dict):
        yield from _object_errors(schema, value, path)


def json_type(value: Any) -> str:
    """The type of a value as messages name it."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case str():
            return "string"
        case int() if -_MAX_INT64 <= value < _MAX_INT64:
            return "integer"
        case int() | float():
            return "number"
        case dict():
            return "object"
    return "array"


def _type_errors(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    found = json_type(value)
    if schema.get(_INT_OR_STRING):
        wanted = "integer,string"
        fits = found in ("integer", "string")
    else:
        wanted = schema.get("type", "")
        fits = not wanted or found == wanted or (wanted == "number" and found == "integer") or _is_whole(wanted, value)
    if not fits:
        yield wrong_type(path, found, f'{path} in body must be of type {wanted}: "{found}"')
    if isinstance(value, str) and schema.get("format") in _FORMATS and not _FORMATS[schema["format"]](value):
        name = schema["format"]
        yield wrong_type(path, value, f'{path} in body must be of type {name}: "{value}"')


def _is_whole(wanted: str, value: Any) -> bool:
    return wanted == "integer" and isinstance(value, float) and value.is_integer() and abs(value) < _MAX_INT64


def _combined_errors(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    if options := schema.get("anyOf"):
        failures = [list(_errors(option, value, path)) for option in options]
        if all(failures):
            yield invalid(_NOWHERE, "", f'"{path}" must validate at least one schema (anyOf)')
            yield from failures[0]
    if options := schema.get("oneOf"):
        failures = [list(_errors(option, value, path)) for option in options]
        fitting = sum(not failure for failure in failures)
        if fitting != 1:
            how_many = "none valid" if not fitting else f"{fitting} valid alternatives"
            yield invalid(_NOWHERE, "", f'"{path}" must validate one and only one schema (oneOf). Found {how_many}')
            if not fitting:
                yield from failures[0]
    if options := schema.get("allOf"):
        failures = [list(_errors(option, value, path)) for option in options]
        if any(failures):
            none = ". None validated" if all(failures) else ""
            yield invalid(_NOWHERE, "", f'"{path}" must validate all the schemas (allOf){none}')
            for failure in failures:
                yield from failure
    if "not" in schema and not list(_errors(schema["not"], value, path)):
        yield invalid(_NOWHERE, "", f'"{path}" must not validate the schema (not)')


def _string_errors(schema: Schema, value: str, path: Path) -> Iterator[FieldError]:
    if "maxLength" in schema and len(value) > schema["maxLength"]:
        yield too_long(path, schema["maxLength"])
    if "minLength" in schema and len(value) < schema["minLength"]:
        yield invalid(path, value, f"{path} in body should be at least {schema['minLength']} chars long")
    if (pattern := schema.get("pattern")) and not _matches(pattern, value):
        yield invalid(path, value, f"{path} in body should match '{pattern}'")


def _matches(pattern: str, value: str) -> bool:
    try:
        return compile_re2(pattern).search(value)
    except PatternError:
        return False


def _number_errors(schema: Schema, value: float, path: Path) -> Iterator[FieldError]:
    if (step := schema.get("multipleOf")) and Decimal(str(value)) % Decimal(str(step)):
        yield invalid(path, value, f"{path} in body should be a multiple of {step}")
    if (most := schema.get("maximum")) is not None:
        if schema.get("exclusiveMaximum") and value >= most:
            yield invalid(path, value, f"{path} in body should be less than {most}")
        elif value > most:
            yield invalid(path, value, f"{path} in body should be less than or equal to {most}")
    if (least := schema.get("minimum")) is not None:
        if schema.get("exclusiveMinimum") and value <= least:
            yield invalid(path, value, f"{path} in body should be greater than {least}")
        elif value < least:
            yield invalid(path, value, f"{path} in body should be greater than or equal to {least}")


def _array_errors(schema: Schema, value: list[Any], path: Path) -> Iterator[FieldError]:
    items = schema.get("items")
    if isinstance(items, Mapping):
        for index, item in enumerate(value):
            yield from _errors(items, item, path.index(index))
    if "minItems" in schema and len(value) < schema["minItems"]:
        yield invalid(path, len(value), f"{path} in body should have at least {schema['minItems']} items")
    if "maxItems" in schema and len(value) > schema["maxItems"]:
        yield too_many(path, len(value), schema["maxItems"])


def _object_errors(schema: Schema, value: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    if "minProperties" in schema and len(value) < schema["minProperties"]:
        yield invalid(path, len(value), f"{path} in body should have at least {schema['minProperties']} properties")
    if "maxProperties" in schema and len(value) > schema["maxProperties"]:
        yield too_many(path, len(value), schema["maxProperties"])
    for key in schema.get("required", ()):
        if key not in value:
            yield required(path.child(key))
    if schema.get("x-kubernetes-embedded-resource"):
        for key in ("apiVersion", "kind"):
            if not value.get(key):
                yield required(path.child(key))
    properties, values = schema.get("properties") or {}, schema.get("additionalProperties")
    for key, item in value.items():
        if key in properties:
            yield from _errors(properties[key], item, path.child(key))
        elif isinstance(values, Mapping):
            yield from _errors(values, item, path.child(key))


# ---- lists that are sets or maps


def _list_errors(schema: Schema, value: Any, path: Path) -> Iterator[FieldError]:
    """Items that occur twice in a set, or with the same keys in a map."""
    if isinstance(value, dict):
        properties, values = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            child = properties.get(key, values)
            if isinstance(child, Mapping):
                yield from _list_errors(child, item, path.child(key))
    elif isinstance(value, list):
        yield from _repeated(schema, value, path)
        if isinstance(schema.get("items"), Mapping):
            for index, item in enumerate(value):
                yield from _list_errors(schema["items"], item, path.index(index))


def _repeated(schema: Schema, value: list[Any], path: Path) -> Iterator[FieldError]:
    keys = schema.get("x-kubernetes-list-map-keys") or ()
    kind = schema.get("x-kubernetes-list-type")
    if kind not in ("set", "map"):
        return
    seen: set[str] = set()
    for index, item in enumerate(value):
        shown = item
        if kind == "map":
            if not isinstance(item, dict):
                continue
            shown = {key: item[key] for key in keys if key in item}
        text = json.dumps(shown, sort_keys=True)
        if text in seen:
            yield duplicate(path.index(index), shown)
        seen.add(text)


# ---- formats


def _is_date_time(text: str) -> bool:
    try:
        return "T" in text.upper() and datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _parses(parse: Any) -> Any:
    def fits(text: str) -> bool:
        try:
            parse(text)
        except ValueError:
            return False
        return True

    return fits


_FORMATS: Final[Mapping[str, Any]] = {
    "date-time": _is_date_time,
    "datetime": _is_date_time,
    "date": _parses(date.fromisoformat),
    "ipv4": lambda text: _parses(ip_address)(text) and ":" not in text,
    "ipv6": lambda text: _parses(ip_address)(text) and ":" in text,
    "cidr": _parses(ip_network),
}
