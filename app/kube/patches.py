"""JSON patches, merge patches and strategic merge patches: create, apply and combine them.

``diff`` compares whole documents and is meant for defaulting our own kinds, whose objects are small. Code that knows
what it changes builds the operations itself: comparing two Pods costs more than deciding what to change.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias

import jsonpatch

from app.kube.admission import PatchOperation
from app.kube.fielderrors import printed, shortened
from app.kube.jsonvalues import Steps, steps_from_root

#: The maximum nesting depth of documents. The deepest Kubernetes type has about 20 levels.
MAX_DEPTH = 200
#: Maximum total length of the paths in a patch, in characters.
MAX_PATHS: Final = 16 * 1024 * 1024


class PatchError(ValueError):
    """A patch that is invalid or does not apply to the document."""


def escape(key: str) -> str:
    """Return ``key`` as one segment of a JSON pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def pointer(*keys: str | int) -> str:
    """Return the JSON pointer to ``keys`` from the root: ``pointer("metadata", "labels", "a/b")``."""
    return "".join(f"/{escape(str(key))}" for key in keys)


def segments(path: str) -> list[str]:
    """Return the keys of a JSON pointer. Raises :class:`PatchError`."""
    if path and not path.startswith("/"):
        raise PatchError(f"JSON pointer {path!r} does not start with '/'")
    return [segment.replace("~1", "/").replace("~0", "~") for segment in path.split("/")[1:]]


def merge_patch(target: Any, patch: Any) -> Any:
    """Return ``target`` with the RFC 7386 ``patch`` merged in. Neither is changed; unchanged parts are shared.

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
    """Return the RFC 7386 patch from ``old`` to ``new``; empty if they are equal. A null counts as absent."""
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
    """Return a copy of ``document`` with the operations applied. Raises :class:`PatchError`."""
    raw = [dict(o.as_json() if isinstance(o, PatchOperation) else o) for o in operations]
    try:
        # Values that a patch adds become part of the document, so they must not be shared with the patch.
        return jsonpatch.JsonPatch(copy.deepcopy(raw)).apply(document)
    except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
        raise PatchError(f"JSON patch does not apply: {error}") from error
    except RecursionError:
        raise PatchError("document is nested too deeply to be patched") from None


def diff(old: Any, new: Any, *, path: str = "", rule: str = "") -> list[PatchOperation]:
    """Return operations that turn ``old`` into ``new``. The patch is small, but not guaranteed to be minimal.

    Objects are compared key by key in order. In lists, the common beginning and end are kept; between them, items are
    compared one by one, and the surplus is removed (from the end) or inserted. ``rule`` is recorded in each operation.
    Raises :class:`PatchError` for documents nested deeper than any Kubernetes type, or if paths would take gigabytes.
    """
    changes: list[_Change] = []
    try:
        _diff(old, new, None, changes)
    except RecursionError:
        raise PatchError("document is nested too deeply to be compared") from None
    operations, room = [], MAX_PATHS
    for op, steps, value in changes:
        at = path + pointer(*steps_from_root(steps))
        room -= len(at)
        if room < 0:
            raise PatchError(f"the paths of the changes have more than {MAX_PATHS} characters")
        operations.append(PatchOperation(op, at, value, rule))
    return operations


_Change: TypeAlias = tuple[Literal["add", "replace", "remove"], Steps, Any]


def _diff(old: Any, new: Any, path: Steps, out: list[_Change]) -> None:
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        _diff_objects(old, new, path, out)
    elif isinstance(old, list | tuple) and isinstance(new, list | tuple):
        _diff_lists(old, new, path, out)
    elif not same(old, new):
        out.append(("replace", path, new))


def _diff_objects(old: Mapping[str, Any], new: Mapping[str, Any], path: Steps, out: list[_Change]) -> None:
    for key in old:
        if key not in new:
            out.append(("remove", (path, key), None))
    for key, value in new.items():
        if key in old:
            _diff(old[key], value, (path, key), out)
        else:
            out.append(("add", (path, key), value))


def _diff_lists(old: Sequence[Any], new: Sequence[Any], path: Steps, out: list[_Change]) -> None:
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
        _diff(old[index], new[index], (path, index), out)
    # Remove from the end, so that the remaining indexes stay valid.
    for index in range(old_end - 1, paired - 1, -1):
        out.append(("remove", (path, index), None))
    for index in range(paired, new_end):
        out.append(("add", (path, index), new[index]))


def same(old: Any, new: Any) -> bool:
    """Return whether two JSON values are equal, distinguishing ``true``, ``1`` and ``1.0`` as JSON does."""
    if old is new:
        return True
    if isinstance(old, dict | Mapping):
        return isinstance(new, Mapping) and old.keys() == new.keys() and all(same(old[key], new[key]) for key in old)
    if isinstance(old, list | tuple):
        return isinstance(new, list | tuple) and len(old) == len(new) and all(map(same, old, new))
    return type(old) is type(new) and bool(old == new)


# Strategic merge patch: lists are merged by the keys that their types declare. The implementation follows
# apimachinery's ``strategicpatch``, including its directives and the resulting order of merged lists.

Json: TypeAlias = dict[str, Any]


class MergeType(Protocol):
    """Type information that a strategic merge patch needs about a field."""

    @property
    def merge_key(self) -> str:
        """The field that identifies list items; empty if there is none."""
        ...

    @property
    def patch_strategies(self) -> frozenset[str]:
        """A subset of ``merge``, ``replace``, ``retainKeys``."""
        ...

    @property
    def items(self) -> MergeType | None:
        """The type of list items; None if it is not known."""
        ...

    @property
    def is_object(self) -> bool:
        """Whether the value is an object with named fields or a map."""
        ...

    def child(self, name: str) -> MergeType | None:
        """Return the field of that name; None if it is unknown."""
        ...


#: Maximum number of times a patch may name one list item. Each occurrence merges the whole item again.
MAX_REPEATS: Final = 4
_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_FROM: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def strategic_merge(target: Json, patch: Json, schema: MergeType | None) -> Json:
    """Return ``target`` with the patch merged in according to ``schema``. Neither is changed.

    Raises :class:`PatchError` for an invalid directive, or a list item that lacks its merge key or is named too often.
    """
    return _merge_map(target, patch, schema, 0)


def _merge_map(target: Json, patch: Json, schema: MergeType | None, depth: int) -> Json:
    if depth > MAX_DEPTH:
        raise PatchError(f"strategic merge patch is nested deeper than {MAX_DEPTH} levels")
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise PatchError(f"unknown patch type: {directive} in map: {printed(patch)}")
    merged = dict(target)
    if _RETAIN in patch:
        retained = patch[_RETAIN]
        if not isinstance(retained, list):
            raise PatchError(f"{_RETAIN} must be a list, got {printed(retained)}")
        keep = set(map(_hashable, retained))
        merged = {key: value for key, value in merged.items() if key in keep}
    for key, value in patch.items():
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            if not isinstance(value, list):
                raise PatchError(f"{key} must be a list, got {printed(value)}")
            if isinstance(merged.get(name), list):
                deleted = set(map(_hashable, value))
                merged[name] = [item for item in merged[name] if _hashable(item) not in deleted]
        elif key.startswith(_ORDER):
            _set_order(merged, patch, key.removeprefix(_ORDER), value, schema, depth)
        elif key not in (_DIRECTIVE, _RETAIN) and f"{_ORDER}{key}" not in patch:
            _merge_field(merged, key, value, schema, depth)
    return merged


def _merge_field(merged: Json, key: str, value: Any, schema: MergeType | None, depth: int) -> None:
    field = schema.child(key) if schema is not None else None
    if value is None:
        merged.pop(key, None)
    elif isinstance(value, dict):
        if _DIRECTIVE in value and key not in merged:
            return  # as in the API server: a directive for a missing map drops the whole map
        if field is not None and "replace" in field.patch_strategies and _DIRECTIVE not in value:
            merged[key] = _bare(value)
        else:
            present = merged.get(key)
            merged[key] = _merge_map(present if isinstance(present, dict) else {}, value, field, depth + 1)
        if value.get(_DIRECTIVE) == "delete":
            merged.pop(key, None)
    elif isinstance(value, list):
        merged[key] = _merge_list(merged.get(key), value, field, None, depth)
    else:
        merged[key] = value


def _set_order(merged: Json, patch: Json, name: str, order: Any, schema: MergeType | None, depth: int) -> None:
    if not isinstance(order, list) or not isinstance(patch.get(name, []), list | None):
        raise PatchError(f"{_ORDER}{name} must order a list, got {printed(order)}")
    field = schema.child(name) if schema is not None else None
    present = merged.get(name)
    value = patch.get(name)
    if name in patch and value is None:
        merged.pop(name, None)
    elif present is not None or value is not None:
        merged[name] = _merge_list(present, value or [], field, order, depth)


def _merge_list(
    present: Any, patch: list[Any], field: MergeType | None, order: list[Any] | None, depth: int
) -> list[Any]:
    original = present if isinstance(present, list) else []
    if field is None or "merge" not in field.patch_strategies:
        return [_bare(item) for item in patch] if patch or order is None else original
    items = field.items
    if items is None or not items.is_object:
        known = set(map(_hashable, original))
        added = {_hashable(item): item for item in reversed(patch) if _hashable(item) not in known}
        merged = [*original, *reversed(added.values())]
        return _ordered(merged, original, patch if order is None else order, _hashable)
    key = field.merge_key
    merged = _merge_items(original, patch, key, items, depth)
    named = patch if order is None else order
    wanted = [item.get(key) for item in named if isinstance(item, dict) and (_DIRECTIVE not in item or key in item)]
    return _ordered(merged, [item.get(key) for item in original], wanted, lambda item: item.get(key))


def _merge_items(original: list[Any], patch: list[Any], key: str, items: MergeType, depth: int) -> list[Json]:
    for item in (*original, *patch):
        if not isinstance(item, dict):
            raise PatchError("list of objects expected")
    if any(item.get(_DIRECTIVE) == "replace" and key not in item for item in patch):
        return [_bare(item) for item in patch if not (item.get(_DIRECTIVE) == "replace" and key not in item)]
    merged: list[Json | None] = list(original)
    positions: dict[Any, list[int]] = {}
    repeats: Counter[Any] = Counter()
    for position, item in enumerate(original):
        positions.setdefault(_hashable(item.get(key)), []).append(position)
    for item in patch:
        if item.get(key) is None:
            raise PatchError(f"map: {printed(item)} does not contain declared merge key: {key}")
        name = _hashable(item[key])
        repeats[name] += 1
        if repeats[name] > MAX_REPEATS:
            raise PatchError(f"{key}: {shortened(printed(name))} is named more than {MAX_REPEATS} times")
        places = positions.get(name)
        directive = item.get(_DIRECTIVE)
        if directive == "delete":
            for place in positions.pop(name, ()):
                merged[place] = None
        elif places is None:
            positions[name] = [len(merged)]
            merged.append(_bare(item))
        elif directive == "replace":
            merged[places[0]] = _bare(item)
        else:
            merged[places[0]] = _merge_map(merged[places[0]] or {}, item, items, depth + 1)
    return [one for one in merged if one is not None]


def _ordered(merged: list[Any], before: list[Any], wanted: list[Any], name_of: Any) -> list[Any]:
    """Return the items in the order of the patch; items only in the target keep their relative position."""
    rank = {_hashable(name): position for position, name in reversed(list(enumerate(wanted)))}
    server = {_hashable(name): position for position, name in reversed(list(enumerate(before)))}
    named = sorted((i for i in merged if _hashable(name_of(i)) in rank), key=lambda i: rank[_hashable(name_of(i))])
    alone = [item for item in merged if _hashable(name_of(item)) not in rank]
    alone.sort(key=lambda item: server.get(_hashable(name_of(item)), len(server)))
    found: list[Any] = []
    left, right = 0, 0
    while left < len(alone) and right < len(named):
        one, other = server.get(_hashable(name_of(alone[left]))), server.get(_hashable(name_of(named[right])))
        if one is not None and other is not None and one < other:
            found.append(alone[left])
            left += 1
        else:
            found.append(named[right])
            right += 1
    return found + named[right:] + alone[left:]


def _hashable(value: Any) -> Any:
    return str(value) if isinstance(value, dict | list) else value


def _bare(value: Any) -> Any:
    """Return a value that a patch adds, without its directives and nulls."""
    if isinstance(value, dict):
        return {
            key: _bare(item)
            for key, item in value.items()
            if item is not None and key not in (_DIRECTIVE, _RETAIN) and not key.startswith((_DELETE_FROM, _ORDER))
        }
    if isinstance(value, list):
        return [_bare(item) for item in value if not (isinstance(item, dict) and item.get(_DIRECTIVE) == "delete")]
    return value
