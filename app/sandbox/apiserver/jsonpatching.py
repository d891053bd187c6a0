"""JSON patches as Kubernetes' own library applies them, with its errors. Pure.

It is more lenient than RFC 6902 in places: replacing or copying from a missing key of an object works, and a test for
null holds where nothing is. Follows evanphx/json-patch, version 4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from app.api.jsonvalue import json_copy
from app.kube.patches import PatchError, same, segments


def apply_operations(operations: Sequence[Any], document: Any) -> Any:
    """``document`` with the operations applied, as a copy. Raises :class:`PatchError` with the library's words."""
    found = json_copy(document)
    for operation in operations:
        if not isinstance(operation, dict):
            raise PatchError("json: cannot unmarshal into Go value of type jsonpatch.Operation")
        found = _apply(operation, found)
    return found


def _apply(operation: dict[str, Any], document: Any) -> Any:
    kind, path = operation.get("op"), operation.get("path")
    if kind not in ("add", "remove", "replace", "move", "copy", "test"):
        raise PatchError(f"Unexpected kind: {kind or 'unknown'}")
    if not isinstance(path, str):
        raise PatchError(f"{kind} operation failed to decode path: missing value")
    value = json_copy(operation.get("value"))
    if not path:
        return _at_root(kind, value, document)
    match kind:
        case "add":
            parent, key = _parent(document, path, "add")
            _add(parent, key, value, path)
        case "remove":
            parent, key = _parent(document, path, "remove")
            _remove(parent, key, path)
        case "replace":
            parent, key = _parent(document, path, "replace")
            if isinstance(parent, list):
                parent[_index(parent, key, "replace", path)] = value
            else:
                parent[key] = value
        case "test":
            _test(document, path, value)
        case _:
            _move(document, operation, path, keep=kind == "copy")
    return document


def _at_root(kind: str, value: Any, document: Any) -> Any:
    if kind in ("add", "replace"):
        return value
    if kind == "test":
        if same(document, value):
            return document
        raise PatchError("testing value  failed: test failed")
    raise PatchError(f"{kind} operation does not apply: doc is missing path: : missing value")


def _parent(document: Any, path: str, kind: str) -> tuple[Any, str]:
    """The object or list a path's last step is in."""
    *steps, last = segments(path)
    found = document
    for step in steps:
        if isinstance(found, dict):
            found = found.get(step)
        elif isinstance(found, list) and step.isdigit() and int(step) < len(found):
            found = found[int(step)]
        else:
            found = None
        if not isinstance(found, dict | list):
            raise PatchError(f"{kind} operation does not apply: doc is missing path: {path}: missing value")
    return found, last


def _index(items: list[Any], key: str, kind: str, path: str) -> int:
    try:
        index = int(key)
    except ValueError:
        raise PatchError(f'{kind} operation does not apply: strconv.Atoi: parsing "{key}": invalid syntax') from None
    if not -len(items) <= index < len(items):
        raise PatchError(f"{kind} operation does not apply: doc is missing key: {path}: missing value")
    return index


def _add(parent: Any, key: str, value: Any, path: str) -> None:
    if isinstance(parent, dict):
        parent[key] = value
    elif key == "-":
        parent.append(value)
    else:
        try:
            index = int(key)
        except ValueError:
            raise PatchError(f"add operation does not apply: value was not a proper array index: '{key}'") from None
        if not -len(parent) - 1 <= index <= len(parent):
            message = f"Unable to access invalid index: {index}: invalid index referenced"
            raise PatchError(f"add operation does not apply: error in add for path: '{path}': {message}")
        parent.insert(index if index >= 0 else len(parent) + 1 + index, value)


def _remove(parent: Any, key: str, path: str) -> None:
    if isinstance(parent, dict):
        if key not in parent:
            message = f"Unable to remove nonexistent key: {key}: missing value"
            raise PatchError(f"remove operation does not apply: error in remove for path: '{path}': {message}")
        del parent[key]
    else:
        try:
            index = int(key)
        except ValueError:
            raise PatchError(f"remove operation does not apply: error in remove for path: '{path}'") from None
        if not -len(parent) <= index < len(parent):
            message = f"Unable to access invalid index: {index}: invalid index referenced"
            raise PatchError(f"remove operation does not apply: error in remove for path: '{path}': {message}")
        del parent[index]


def _test(document: Any, path: str, value: Any) -> None:
    parent, key = _parent(document, path, "test")
    found: Any = None
    if isinstance(parent, dict):
        found = parent.get(key)
    else:
        found = parent[_index(parent, key, "test", path)]
    if not same(found, value):
        raise PatchError(f"testing value {path} failed: test failed")


def _move(document: Any, operation: dict[str, Any], path: str, *, keep: bool) -> None:
    kind = "copy" if keep else "move"
    source = operation.get("from")
    if not isinstance(source, str):
        raise PatchError(f"{kind} operation failed to decode from: missing value")
    parent, key = _parent(document, source, kind)
    if isinstance(parent, dict):
        value = parent.get(key)
        if not keep:
            _remove(parent, key, source)
    else:
        index = _index(parent, key, kind, source)
        value = parent[index]
        if not keep:
            del parent[index]
    target, last = _parent(document, path, kind)
    _add(target, last, json_copy(value), path)
