"""Validation, pruning and defaulting of custom resources by their structural schemas and CEL rules."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from ipaddress import ip_address, ip_network
from typing import Any, Final, TypeAlias

from app.kube.fielderrors import (
    ErrorType,
    FieldError,
    Path,
    duplicate,
    invalid,
    not_supported,
    required,
    too_long,
    too_many,
)
from app.kube.fielderrors import type_invalid as wrong_type
from app.kube.jsonvalues import json_copy
from app.kube.regex import PatternError, compile_re2
from app.sandbox.apiserver.cel import CelError, compiled

# Structural validation of custom objects. Messages and their order are those of a real API server.
#
# Source: kube-openapi/pkg/validation/validate and apiextensions-apiserver/pkg/apiserver/{validation,schema/listtype}.

Schema: TypeAlias = Mapping[str, Any]

_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_NOWHERE: Final = "<nil>"
_MAX_INT64: Final = 2**63


def schema_errors(schema: Schema, value: Any, path: Path) -> list[FieldError]:
    """Return all violations of a value's schema, except those of CEL rules."""
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
    """Return the name of a value's JSON type in messages."""
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
    """Report duplicate items in lists of type set, and duplicate keys in lists of type map."""
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


# CEL rules declared in a custom resource's schema: ``x-kubernetes-validations``.
#
# Source: apiextensions-apiserver/pkg/apiserver/schema/cel.

_RULES: Final = "x-kubernetes-validations"
_OLD = re.compile(r"\boldSelf\b")
_UNKNOWN: Final = object()
_REASONS: Final = {
    "FieldValueForbidden": ErrorType.FORBIDDEN,
    "FieldValueRequired": ErrorType.REQUIRED,
    "FieldValueDuplicate": ErrorType.DUPLICATE,
}


def has_rules(schema: Schema) -> bool:
    """Return whether the schema contains CEL rules at any depth."""
    if schema.get(_RULES):
        return True
    children = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return any(has_rules(child) for child in children if isinstance(child, Mapping))


def rule_errors(schema: Schema, value: Any, old: Any, path: Path) -> list[FieldError]:
    """Return the violations of CEL rules. ``old`` is the value before an update, or None."""
    return list(_errors_of_rules(schema, value, _UNKNOWN if old is None else old, path))


def _errors_of_rules(schema: Schema, value: Any, old: Any, path: Path) -> Iterator[FieldError]:
    for rule in schema.get(_RULES) or ():
        # Transition rules do not apply to new values.
        if _OLD.search(rule["rule"]) and old is _UNKNOWN:
            continue
        error = _broken(rule, value, old, path)
        if error is not None:
            yield error
    if isinstance(value, dict):
        properties, values = schema.get("properties") or {}, schema.get("additionalProperties")
        for key, item in value.items():
            child = properties.get(key, values)
            if isinstance(child, Mapping):
                yield from _errors_of_rules(child, item, _before(old, key), path.child(key))
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        for index, item in enumerate(value):
            yield from _errors_of_rules(schema["items"], item, _same_item(old, item, keys), path.index(index))


def _before(old: Any, key: str) -> Any:
    return old[key] if isinstance(old, dict) and key in old else _UNKNOWN


def _same_item(old: Any, item: Any, keys: Any) -> Any:
    """Return the old list item with the same keys, or ``_UNKNOWN`` if the list has no keys."""
    if not keys or not isinstance(old, list) or not isinstance(item, dict):
        return _UNKNOWN
    wanted = [item.get(key) for key in keys]
    return next((one for one in old if [one.get(key) for key in keys] == wanted), _UNKNOWN)


def _broken(rule: Mapping[str, Any], value: Any, old: Any, path: Path) -> FieldError | None:
    variables = {"self": value}
    if old is not _UNKNOWN:
        variables["oldSelf"] = old
    try:
        if compiled(rule["rule"]).evaluate(variables) is True:
            return None
        message = _message(rule, variables)
    except CelError as error:
        message = f"rule evaluation error: {error}"
    at = f"{path}{rule.get('fieldPath') or ''}"
    return FieldError(_REASONS.get(rule.get("reason") or "", ErrorType.INVALID), at, json_type(value), message)


def _message(rule: Mapping[str, Any], variables: Mapping[str, Any]) -> str:
    if expression := rule.get("messageExpression"):
        try:
            text = compiled(expression).evaluate(variables)
        except CelError:
            text = None
        if isinstance(text, str) and text.strip():
            return text
    return str(rule.get("message") or f"failed rule: {rule['rule'].strip()}")


# Pruning and defaulting of custom resources, before validation.

_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata"})
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"


def normalized(schema: Schema, value: Any, *, top: bool = True) -> Any:
    """Return a copy of ``value`` without unknown fields and without nulls in fields that are not nullable."""
    if isinstance(value, dict):
        properties: Mapping[str, Schema] = schema.get("properties") or {}
        values = schema.get("additionalProperties")
        envelope = top or schema.get(_EMBEDDED)
        kept: dict[str, Any] = {}
        for key, item in value.items():
            child: Any = properties.get(key)
            if envelope and key in _ENVELOPE:
                kept[key] = item
            elif child is not None:
                if item is not None or child.get("nullable"):
                    kept[key] = normalized(child, item, top=False)
            elif isinstance(values, Mapping):
                if item is not None or values.get("nullable"):
                    kept[key] = normalized(values, item, top=False)
            elif schema.get(_PRESERVE) or values is True:
                kept[key] = item
        return kept
    if isinstance(value, list):
        items = schema.get("items")
        return [normalized(items, item, top=False) for item in value] if isinstance(items, Mapping) else value
    return value


def fill_defaults(schema: Schema, value: Any, *, top: bool = True) -> None:
    """Fill in the schema's defaults, in place."""
    if isinstance(value, dict):
        for key, child in (schema.get("properties") or {}).items():
            if top and key in _ENVELOPE:
                continue
            if child.get("default") is not None and (
                key not in value or (value[key] is None and not child.get("nullable"))
            ):
                value[key] = json_copy(child["default"])
            if key in value:
                fill_defaults(child, value[key], top=False)
        values = schema.get("additionalProperties")
        if isinstance(values, Mapping):
            named = schema.get("properties") or {}
            for key, item in value.items():
                if key not in named:
                    fill_defaults(values, item, top=False)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for item in value:
            fill_defaults(schema["items"], item, top=False)
