"""Schemas of CustomResourceDefinitions: structural rules, defaults that must fit, lists that are sets or maps.

Source: Kubernetes 1.34, apiextensions-apiserver/pkg/apiserver/schema and pkg/apis/apiextensions/validation.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, TypeAlias

import orjson

from app.api.structural import unknown_fields
from app.kube.fielderrors import FieldError, GoLiteral, Path, forbidden, invalid, not_supported, required
from app.kube.regex import PatternError, compile_re2
from app.sandbox.apiserver.celchecks import RULE_VARIABLES, fault
from app.sandbox.apiserver.customvalidation import schema_errors

Json: TypeAlias = dict[str, Any]

_TYPES: Final = ("array", "boolean", "integer", "number", "object", "string")
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_LIST_TYPES: Final = ("atomic", "set", "map")
_RULES: Final = "x-kubernetes-validations"
_JUNCTORS: Final = ("allOf", "anyOf", "oneOf")
#: What only the schema itself may say, not the alternatives inside it.
_STRUCTURAL: Final = ("additionalProperties", "default", "description", "nullable", "title", "type", _PRESERVE)


def root_errors(schema: Json, path: Path) -> list[FieldError]:
    """Everything wrong with the schema of a version."""
    # Worked out once: schemas are long, and nearly every write of a definition leaves them as they are.
    return list(_root_errors(orjson.dumps(schema), path))


@lru_cache(64)
def _root_errors(raw: bytes, path: Path) -> tuple[FieldError, ...]:
    schema: Json = orjson.loads(raw)
    found: list[FieldError] = []
    if not schema.get("type"):
        found.append(required(path.child("type"), "must not be empty at the root"))
    elif schema["type"] != "object":
        found.append(invalid(path.child("type"), schema["type"], "must be object at the root"))
    metadata = (schema.get("properties") or {}).get("metadata") or {}
    if set(metadata.get("properties") or ()) - {"name", "generateName"}:
        detail = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        found.append(forbidden(path.child("properties").key("metadata"), detail))
    return (*found, *_errors(schema, path, top=True))


def _errors(schema: Json, path: Path, *, top: bool = False) -> Iterator[FieldError]:
    kind = schema.get("type")
    if schema.get("$ref"):
        yield forbidden(path.child("$ref"), "$ref is not supported")
        return
    if kind and kind not in _TYPES and not top:
        yield not_supported(path.child("type"), kind, _TYPES)
        return
    if not kind and not top and not schema.get(_INT_OR_STRING) and not schema.get(_PRESERVE):
        yield required(path.child("type"), "must not be empty for specified object fields")
    yield from _words(schema, path)
    yield from _list_errors(schema, path)
    yield from _default_errors(schema, path)
    yield from _rule_faults(schema, path, top=top)
    for name, child in (schema.get("properties") or {}).items():
        if not (top and name == "metadata"):
            yield from _errors(child, path.child("properties").key(name))
    for name in ("items", "additionalProperties"):
        if isinstance(schema.get(name), dict):
            yield from _errors(schema[name], path.child(name))
    for name in _JUNCTORS:
        for index, child in enumerate(schema.get(name) or ()):
            yield from _bare_errors(child, path.child(name).index(index), schema)


def _words(schema: Json, path: Path) -> Iterator[FieldError]:
    """Keywords that are not allowed, or not with these values."""
    if schema.get("uniqueItems"):
        detail = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(path.child("uniqueItems"), detail)
    if schema.get("additionalProperties") is False:
        yield forbidden(path.child("additionalProperties"), "additionalProperties cannot be set to false")
    if schema.get("properties") and isinstance(schema.get("additionalProperties"), dict):
        yield forbidden(path.child("additionalProperties"), "additionalProperties and properties are mutual exclusive")
    if schema.get(_PRESERVE) is False:
        yield invalid(path.child(_PRESERVE), False, "must be true or undefined")
    if isinstance(schema.get("items"), list):
        yield forbidden(path.child("items"), "items must be a schema object and not an array")
    elif schema.get("type") == "array" and not isinstance(schema.get("items"), dict):
        yield required(path.child("items"), "must be specified")
    if pattern := schema.get("pattern"):
        try:
            compile_re2(pattern)
        except PatternError as error:
            why = re.sub(r"missing \): (.*)", r"missing closing ): `\1`", str(error))
            yield invalid(path.child("pattern"), pattern, f"must be a valid regular expression, but isn't: {why}")


def _list_errors(schema: Json, path: Path) -> Iterator[FieldError]:
    kind, keys = schema.get("x-kubernetes-list-type"), schema.get("x-kubernetes-list-map-keys") or ()
    items: Json = schema["items"] if isinstance(schema.get("items"), dict) else {}
    if kind is not None and kind not in _LIST_TYPES:
        yield not_supported(path.child("x-kubernetes-list-type"), kind, _LIST_TYPES)
    if kind == "map" and not keys:
        at = path.child("x-kubernetes-list-map-keys")
        yield required(at, "must not be empty if x-kubernetes-list-type is map")
    if kind == "set" and items.get("type") == "object" and items.get("x-kubernetes-map-type") != "atomic":
        at = path.child("items").child("x-kubernetes-map-type")
        detail = "must be atomic as item of a list with x-kubernetes-list-type=set"
        yield invalid(at, GoLiteral("null"), detail)
    for key in keys:
        child = (items.get("properties") or {}).get(key) or {}
        if key not in (items.get("required") or ()) and "default" not in child:
            at = path.child("items").child("properties").key(key).child("default")
            detail = (
                "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            )
            yield required(at, detail)


def _default_errors(schema: Json, path: Path) -> Iterator[FieldError]:
    if schema.get("default") is None:
        return
    at = path.child("default")
    if unknown_fields(schema, schema["default"], Path("default")):
        yield invalid(at, schema["default"], "must not have unknown fields")
    for error in schema_errors(schema, schema["default"], Path()):
        yield dataclasses.replace(error, field=f"{at}{error.field}")


def _rule_faults(schema: Json, path: Path, *, top: bool) -> Iterator[FieldError]:
    """Rules in CEL that do not compile."""
    for index, rule in enumerate(schema.get(_RULES) or ()):
        if wrong := fault(rule.get("rule") or "", RULE_VARIABLES, schema, top=top):
            shown = {
                "Rule": rule.get("rule") or "",
                "Message": rule.get("message") or "",
                "MessageExpression": rule.get("messageExpression") or "",
                "Reason": rule.get("reason"),
                "FieldPath": rule.get("fieldPath") or "",
                "OptionalOldSelf": rule.get("optionalOldSelf"),
            }
            text = orjson.dumps(shown).decode()
            for char in "<>&":
                text = text.replace(char, f"\\u{ord(char):04x}")
            yield invalid(path.child(_RULES).index(index).child("rule"), GoLiteral(text), wrong)


def _bare_errors(schema: Json, path: Path, around: Json) -> Iterator[FieldError]:
    """An alternative may only judge what the schema around it describes."""
    int_or_string = around.get(_INT_OR_STRING)
    for name in _STRUCTURAL:
        if schema.get(name) and not (int_or_string and name == "type"):
            yield forbidden(path.child(name), "must be empty to be structural")
    for name, child in (schema.get("properties") or {}).items():
        yield from _bare_errors(child, path.child("properties").key(name), {})
