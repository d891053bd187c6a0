"""Rules in CEL that a custom resource's schema declares: ``x-kubernetes-validations``.

Source: apiextensions-apiserver/pkg/apiserver/schema/cel.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeAlias

from app.kube.fielderrors import ErrorType, FieldError, Path
from app.sandbox.apiserver.cel import CelError, compiled
from app.sandbox.apiserver.customvalidation import json_type

Schema: TypeAlias = Mapping[str, Any]

_RULES: Final = "x-kubernetes-validations"
_OLD = re.compile(r"\boldSelf\b")
_UNKNOWN: Final = object()
_REASONS: Final = {
    "FieldValueForbidden": ErrorType.FORBIDDEN,
    "FieldValueRequired": ErrorType.REQUIRED,
    "FieldValueDuplicate": ErrorType.DUPLICATE,
}


def has_rules(schema: Schema) -> bool:
    """Whether there are rules anywhere in a schema."""
    if schema.get(_RULES):
        return True
    children = [*(schema.get("properties") or {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return any(has_rules(child) for child in children if isinstance(child, Mapping))


def rule_errors(schema: Schema, value: Any, old: Any, path: Path) -> list[FieldError]:
    """What the rules say of a value. ``old``: the value before an update; None where there was none."""
    return list(_errors(schema, value, _UNKNOWN if old is None else old, path))


def _errors(schema: Schema, value: Any, old: Any, path: Path) -> Iterator[FieldError]:
    for rule in schema.get(_RULES) or ():
        # A rule about a change says nothing of what is new.
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
                yield from _errors(child, item, _before(old, key), path.child(key))
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        keys = schema.get("x-kubernetes-list-map-keys") or ()
        for index, item in enumerate(value):
            yield from _errors(schema["items"], item, _same_item(old, item, keys), path.index(index))


def _before(old: Any, key: str) -> Any:
    return old[key] if isinstance(old, dict) and key in old else _UNKNOWN


def _same_item(old: Any, item: Any, keys: Any) -> Any:
    """The item of a list before with the same keys; items of other lists cannot be told apart."""
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
