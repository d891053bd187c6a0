"""JSON values: copies, much cheaper than copy.deepcopy, which must expect anything; parts, and how deep they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

#: How deep an object may be nested: twice what any Kubernetes type needs, and less than what a JSON library writes.
MAX_DEPTH: Final = 100


def json_copy(value: Any) -> Any:
    """A copy that shares no object or list with ``value``."""
    if isinstance(value, dict | list):
        try:
            # Written and read again, which takes a fraction of the time of going through it.
            return orjson.loads(orjson.dumps(value))
        except (TypeError, ValueError, RecursionError):
            # What JSON cannot say that yet stands in an object: numbers of many digits, halves of letters.
            return _copy(value)
    return value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def fill(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set what is missing or null."""
    for key, value in values.items():
        if target.get(key) is None:
            target[key] = value


def part(parent: dict[str, Any], key: str) -> dict[str, Any] | None:
    """The object at ``key``, made if missing; None where something else stands there."""
    if parent.get(key) is None:
        parent[key] = {}
    found = parent[key]
    return found if isinstance(found, dict) else None


def nested_deeper(value: Any, levels: int = MAX_DEPTH) -> str:
    """The beginning of the path to something nested more than ``levels`` deep; "" if there is nothing."""
    level = [value]
    for _ in range(levels + 1):
        level = [item for held in level for item in _items(held)]
        if not level:
            return ""
    return _path_down(value, levels)


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def _path_down(value: Any, levels: int) -> str:
    """Looked for where it is known to be there: one way down that is long enough."""
    pending: list[tuple[int, str, Any]] = [(0, "", value)]
    while pending:
        depth, path, held = pending.pop()
        if depth > levels:
            return path
        # Ten steps tell where to look.
        named = depth < 10
        if isinstance(held, Mapping):
            pending.extend((depth + 1, f"{path}.{key}".lstrip(".") if named else path, held[key]) for key in held)
        elif isinstance(held, list):
            pending.extend((depth + 1, f"{path}[{index}]" if named else path, item) for index, item in enumerate(held))
    return ""


def cut(value: Any, levels: int = MAX_DEPTH) -> Any:
    """A copy in which nothing is nested more than ``levels`` deep: what would be is left out."""
    if isinstance(value, Mapping):
        return {key: cut(item, levels - 1) for key, item in value.items()} if levels else {}
    if isinstance(value, list):
        return [cut(item, levels - 1) for item in value] if levels else []
    return value
