"""Whether two label selectors could choose one object: OpenKruise's test for SidecarSets in each other's way.

The answer leans towards "they overlap": only what two selectors say about one and the same key tells them apart, save
one quirk kept on purpose (SS-32): a key that one demands to exist and the other never mentions counts as telling them
apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

#: The values a selector leaves possible for a key; None means any value.
_Allowed = dict[str, set[str] | None]


def overlap(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """SS-32: neither selector rules the other out. Both are LabelSelectors in their JSON form, already valid."""
    return not (_disjoint(first, second) or _disjoint(second, first))


def scopes_overlap(first: Mapping[str, Any] | None, second: Mapping[str, Any] | None) -> bool:
    """The same for namespace selectors, where a missing one means every namespace."""
    return first is None or second is None or overlap(first, second)


def _allowed(selector: Mapping[str, Any]) -> _Allowed:
    allowed: _Allowed = {key: {value} for key, value in (selector.get("matchLabels") or {}).items()}
    for expression in selector.get("matchExpressions") or ():
        key = expression.get("key") or ""
        if expression.get("operator") == "In":
            allowed[key] = (allowed.get(key) or set()) | set(expression.get("values") or ())
        elif expression.get("operator") == "Exists":
            allowed[key] = None
    return allowed


def _disjoint(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    allowed = _allowed(first)
    for key, value in (second.get("matchLabels") or {}).items():
        possible = allowed.get(key)
        if possible is not None and value not in possible:
            return True
    return any(_excludes(expression, allowed) for expression in second.get("matchExpressions") or ())


def _excludes(expression: Mapping[str, Any], allowed: _Allowed) -> bool:
    key = expression.get("key") or ""
    mentioned, possible = key in allowed, allowed.get(key)
    values = set(expression.get("values") or ())
    match expression.get("operator"):
        case "In":
            return possible is not None and possible.isdisjoint(values)
        case "NotIn":
            return possible is not None and possible <= values
        case "Exists":
            return not mentioned
        case "DoesNotExist":
            return mentioned
        case _:
            return False
