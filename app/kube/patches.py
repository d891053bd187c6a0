"""JSON patches: pointers, RFC 6902 operations, RFC 7386 merge, and the small difference of two documents.

``diff`` compares whole documents and is meant for defaulting our own kinds, whose objects are small. A plan that
knows what it changes builds its operations itself: comparing two Pods costs more than deciding about them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jsonpatch

from app.kube.admission import PatchOperation

#: How deep documents may be nested. The deepest Kubernetes type has about 20 levels.
MAX_DEPTH = 200


class PatchError(ValueError):
    """A patch that does not fit the document, or is none."""


def escape(key: str) -> str:
    """``key`` as one segment of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def unescape(segment: str) -> str:
    """The key a pointer's segment stands for."""
    return segment.replace("~1", "/").replace("~0", "~")


def pointer(*keys: str | int) -> str:
    """The JSON pointer to ``keys`` from the root: ``pointer("metadata", "labels", "a/b")``."""
    return "".join(f"/{escape(str(key))}" for key in keys)


def segments(path: str) -> list[str]:
    """The keys a pointer names, from the root. Raises :class:`PatchError`."""
    if path and not path.startswith("/"):
        raise PatchError(f"JSON pointer {path!r} does not start with '/'")
    return [unescape(segment) for segment in path.split("/")[1:]]


def merge_patch(target: Any, patch: Any) -> Any:
    """RFC 7386: ``target`` with ``patch`` merged in. Neither is changed; what is untouched is shared, not copied.

    Raises :class:`PatchError` for a patch nested deeper than :data:`MAX_DEPTH`.
    """
    return _merged(target, patch, 0)


def _merged(target: Any, patch: Any, depth: int) -> Any:
    if not isinstance(patch, Mapping):
        return patch
    if depth > MAX_DEPTH:
        raise PatchError(f"merge patch is nested deeper than {MAX_DEPTH} levels")
    merged: dict[str, Any] = dict(target) if isinstance(target, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged(merged.get(key), value, depth + 1)
    return merged


def merge_difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The RFC 7386 patch that makes ``new`` of ``old``; empty where they are the same. A null counts as absent."""
    patch: dict[str, Any] = {key: None for key, value in old.items() if value is not None and new.get(key) is None}
    for key, value in new.items():
        present = old.get(key)
        if isinstance(value, Mapping) and isinstance(present, Mapping):
            if inner := merge_difference(present, value):
                patch[key] = inner
        elif value is not None and (present is None or not same(present, value)):
            patch[key] = value
    return patch


def apply(operations: Iterable[PatchOperation | Mapping[str, Any]], document: Any) -> Any:
    """``document`` with the operations applied, as a copy. Raises :class:`PatchError`."""
    raw = [dict(o.as_json() if isinstance(o, PatchOperation) else o) for o in operations]
    try:
        # What a patch adds becomes part of the document, so it must not be shared with the patch.
        return jsonpatch.JsonPatch(copy.deepcopy(raw)).apply(document)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise PatchError(f"JSON patch does not apply: {error}") from error
    except RecursionError:
        raise PatchError("document is nested too deep to be patched") from None


def diff(old: Any, new: Any, *, path: str = "", rule: str = "") -> list[PatchOperation]:
    """Operations that turn ``old`` into ``new``: few and local, though not always the fewest.

    Objects are compared key by key in order. Of two lists what is alike at the beginning and at the end stays; between,
    items are compared one by one and the surplus is removed (from the end) or inserted. ``rule`` is noted on each
    operation. Raises :class:`PatchError` for documents nested too deep for any Kubernetes type.
    """
    operations: list[PatchOperation] = []
    try:
        _diff(old, new, path, rule, operations)
    except RecursionError:
        raise PatchError("document is nested too deep to be compared") from None
    return operations


def _diff(old: Any, new: Any, path: str, rule: str, out: list[PatchOperation]) -> None:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        _diff_objects(old, new, path, rule, out)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        _diff_lists(old, new, path, rule, out)
    elif not same(old, new):
        out.append(PatchOperation("replace", path, new, rule))


def _diff_objects(
    old: Mapping[str, Any], new: Mapping[str, Any], path: str, rule: str, out: list[PatchOperation]
) -> None:
    for key in old:
        if key not in new:
            out.append(PatchOperation("remove", f"{path}/{escape(key)}", rule=rule))
    for key, value in new.items():
        at = f"{path}/{escape(key)}"
        if key in old:
            _diff(old[key], value, at, rule, out)
        else:
            out.append(PatchOperation("add", at, value, rule))


def _diff_lists(old: Sequence[Any], new: Sequence[Any], path: str, rule: str, out: list[PatchOperation]) -> None:
    shorter = min(len(old), len(new))
    head = 0
    while head < shorter and same(old[head], new[head]):
        head += 1
    tail = 0
    while tail < shorter - head and same(old[-1 - tail], new[-1 - tail]):
        tail += 1
    old_end, new_end = len(old) - tail, len(new) - tail
    paired = min(old_end, new_end)
    for index in range(head, paired):
        _diff(old[index], new[index], f"{path}/{index}", rule, out)
    # From the end, so that the positions of those still to go stay true.
    for index in range(old_end - 1, paired - 1, -1):
        out.append(PatchOperation("remove", f"{path}/{index}", rule=rule))
    for index in range(paired, new_end):
        out.append(PatchOperation("add", f"{path}/{index}", new[index], rule))


def same(old: Any, new: Any) -> bool:
    """Whether two JSON values are the same, telling ``true`` from ``1`` and ``1`` from ``1.0`` as JSON does."""
    if old is new:
        return True
    if isinstance(old, dict | Mapping):
        return isinstance(new, Mapping) and old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, list | tuple):
        return isinstance(new, list | tuple) and len(old) == len(new) and all(map(same, old, new))
    return type(old) is type(new) and bool(old == new)
