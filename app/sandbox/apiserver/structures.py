"""Structural schemas applied in place: pruning, nulls and defaults of custom resources. Pure.

Validation stands in :mod:`app.api.structural`; this is what happens to an object before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from app.api.jsonvalue import json_copy

Schema: TypeAlias = Mapping[str, Any]

_ENVELOPE: Final = frozenset({"apiVersion", "kind", "metadata"})
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_EMBEDDED: Final = "x-kubernetes-embedded-resource"


def normalized(schema: Schema, value: Any, *, top: bool = True) -> Any:
    """``value`` without the fields the schema does not know, and without nulls where null is no value; a copy."""
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
