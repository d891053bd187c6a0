"""JSON patches as the API server applies them: with its leniency, and with its words where one does not apply.

It differs from RFC 6902 in what it lets pass: ``replace`` of a key that is missing adds it, ``copy`` of a missing key
gives a null, a path need not begin with a slash. Whoever prepares a patch on the sandbox must see the same.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

from app.api.jsonvalue import json_copy

Operation: TypeAlias = Mapping[str, Any]

_MISSING: Final = "missing value"
_NO_INDEX: Final = "invalid index referenced"
_NUMBER: Final = re.compile(r"[+-]?\d+")


class JsonPatchError(ValueError):
    """A patch that does not apply; the text is what the server's library says."""


def apply(operations: Sequence[Operation], document: Any) -> Any:
    """The document after all operations; the one given is left alone."""
    root: list[Any] = [json_copy(document)]
    for operation in operations:
        kind = operation.get("op")
        act = _ACTIONS.get(kind) if isinstance(kind, str) else None
        if act is None:
            raise JsonPatchError(f"Unexpected kind: {kind if isinstance(kind, str) else 'unknown'}")
        act(root, operation)
    return root[0]


def _path(operation: Operation, field: str, failing: str) -> str:
    path = operation.get(field)
    if not isinstance(path, str):
        raise JsonPatchError(failing)
    return path


def _container(root: list[Any], path: str) -> tuple[Any, str]:
    """What holds the place at the path (None where there is nothing), and the key in it."""
    parts = path.split("/")
    key = _decoded(parts[-1])
    if len(parts) == 1 and not path:
        return None, ""
    found = root[0]
    for part in parts[1:-1]:
        found = _child(found, _decoded(part))
    return (found, key) if isinstance(found, dict | list) else (None, key)


def _child(value: Any, key: str) -> Any:
    if isinstance(value, dict):
        return value.get(key)
    if isinstance(value, list) and _NUMBER.fullmatch(key) and -len(value) <= int(key) < len(value):
        return value[int(key)]
    return None


def _decoded(part: str) -> str:
    return part.replace("~1", "/").replace("~0", "~")


def _index(key: str, limit: int, *, what: str = "strconv.Atoi") -> int:
    if not _NUMBER.fullmatch(key):
        raise JsonPatchError(f'{what}: parsing "{key}": invalid syntax')
    index = int(key)
    if not -limit <= index < limit:
        raise JsonPatchError(f"Unable to access invalid index: {index}: {_NO_INDEX}")
    return index + limit if index < 0 else index


def _get(container: Any, key: str) -> Any:
    return container.get(key) if isinstance(container, dict) else container[_index(key, len(container))]


def _put(container: Any, key: str, value: Any) -> None:
    if isinstance(container, dict):
        container[key] = value
    elif key == "-":
        container.append(value)
    else:
        wrong = f"value was not a proper array index: '{key}': strconv.Atoi"
        container.insert(_index(key, len(container) + 1, what=wrong), value)


def _take(container: Any, key: str) -> None:
    if isinstance(container, list):
        del container[_index(key, len(container))]
    elif key in container:
        del container[key]
    else:
        raise JsonPatchError(f"Unable to remove nonexistent key: {key}: {_MISSING}")


def _within(context: str, act: Any, *arguments: Any) -> Any:
    """Do something to a container; its failure is told in context."""
    try:
        return act(*arguments)
    except JsonPatchError as error:
        raise JsonPatchError(f"{context}: {error}") from None


def _add(root: list[Any], operation: Operation) -> None:
    path = _path(operation, "path", f"add operation failed to decode path: {_MISSING}")
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f'add operation does not apply: doc is missing path: "{path}": {_MISSING}')
    _within(f"error in add for path: '{path}'", _put, container, key, json_copy(operation.get("value")))


def _remove(root: list[Any], operation: Operation) -> None:
    path = _path(operation, "path", f"remove operation failed to decode path: {_MISSING}")
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f'remove operation does not apply: doc is missing path: "{path}": {_MISSING}')
    _within(f"error in remove for path: '{path}'", _take, container, key)


def _replace(root: list[Any], operation: Operation) -> None:
    path = _path(operation, "path", f"replace operation failed to decode path: {_MISSING}")
    value = json_copy(operation.get("value"))
    if not path:
        root[0] = value
        return
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f"replace operation does not apply: doc is missing path: {path}: {_MISSING}")
    try:
        _get(container, key)
    except JsonPatchError:
        raise JsonPatchError(f"replace operation does not apply: doc is missing key: {path}: {_MISSING}") from None
    if isinstance(container, dict):
        container[key] = value
    else:
        container[_index(key, len(container))] = value


def _move(root: list[Any], operation: Operation) -> None:
    source = _path(operation, "from", f"move operation failed to decode from: {_MISSING}")
    container, key = _container(root, source)
    if container is None:
        raise JsonPatchError(f"move operation does not apply: doc is missing from path: {source}: {_MISSING}")
    value = _within(f"error in move for path: '{key}'", _get, container, key)
    _within(f"error in move for path: '{key}'", _take, container, key)
    path = _path(operation, "path", f"move operation failed to decode path: {_MISSING}")
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f"move operation does not apply: doc is missing destination path: {path}: {_MISSING}")
    _within(f"error in move for path: '{path}'", _put, container, key, value)


def _copy(root: list[Any], operation: Operation) -> None:
    source = _path(operation, "from", f"copy operation failed to decode from: {_MISSING}")
    container, key = _container(root, source)
    if container is None:
        raise JsonPatchError(f"copy operation does not apply: doc is missing from path: {source}: {_MISSING}")
    value = json_copy(_within(f"error in copy for from: '{source}'", _get, container, key))
    path = _path(operation, "path", f"copy operation failed to decode path: {_MISSING}")
    container, key = _container(root, path)
    if container is None:
        raise JsonPatchError(f"copy operation does not apply: doc is missing destination path: {path}: {_MISSING}")
    _within("error while adding value during copy", _put, container, key, value)


def _test(root: list[Any], operation: Operation) -> None:
    path = _path(operation, "path", f"test operation failed to decode path: {_MISSING}")
    value: Any = root[0]
    if path:
        container, key = _container(root, path)
        if container is None:
            raise JsonPatchError(f"test operation does not apply: is missing path: {path}: {_MISSING}")
        value = _within(f"error in test for path: '{path}'", _get, container, key)
    if not _equal(value, operation.get("value")):
        raise JsonPatchError(f"testing value {path} failed: test failed")


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return bool(one == other)


_ACTIONS: Final = {
    "add": _add,
    "remove": _remove,
    "replace": _replace,
    "move": _move,
    "copy": _copy,
    "test": _test,
}
