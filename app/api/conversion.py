"""Lossless conversion between the versions of a kind, in both directions. [MGR-50]

A kind's own conversion functions may lose what the other version cannot express. Each result is therefore converted
back for comparison. Differences are recorded as notes in a reserved annotation, and restored when the object is
converted to its original version. A note is valid as long as the field still has the value it was converted to: an edit
made in the other version always wins. Notes are not trusted: only certain fields may be restored, and a note that would
change anything visible in the other version is ignored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import orjson

from app.api import names, structural
from app.api.kind import ANY_KEY, FieldPath, KindDefinition, NotedField, Version, find_kind, known_kinds
from app.api.model import Schema
from app.kube.fielderrors import FieldError, Path
from app.kube.jsonvalues import MAX_DEPTH, as_object, hide_depth, json_copy, nested_deeper
from app.kube.patches import same
from app.kube.validation import validate_annotations, validate_labels

#: One change: the path of a field, its value as converted to the other version, and its original value. The key
#: of a value is omitted if the field is missing.
Change: TypeAlias = dict[str, Any]
#: Changes that belong together, such as a field and the selector it was converted to.
Group: TypeAlias = list[Change]

#: The maximum size of all annotations of an object.
MAX_BYTES: Final = 256 * 1024
_METADATA: Final[Mapping[str, Callable[[Mapping[str, str], Path], list[FieldError]]]] = {
    "labels": validate_labels,
    "annotations": validate_annotations,
}


def write_note(version: Version, groups: list[Group]) -> str:
    """Return the annotation value for changes that restore an object of ``version``."""
    note = {"version": version.name, "changes": groups}
    return json.dumps(note, separators=(",", ":"), ensure_ascii=False, sort_keys=True)


def read_note(text: Any, version: Version) -> list[Group]:
    """Return the groups in an annotation value that may be applied to an object of ``version``."""
    if not isinstance(text, str) or len(text) > MAX_BYTES:
        return []
    try:
        raw = text.encode()
        if len(raw) > MAX_BYTES or hide_depth(raw) is not None:
            return []
        note = orjson.loads(raw)
        groups = note["changes"] if note["version"] == version.name else []
        return allowed(groups, version)
    except (TypeError, ValueError, KeyError):
        return []


def allowed(groups: Any, version: Version) -> list[Group]:
    """Return the groups that change only noted fields of the version and stay within their limits."""
    used: Counter[NotedField] = Counter()
    return [group for group in groups if isinstance(group, list) and all(_is_listed(c, version, used) for c in group)]


def _is_listed(change: Any, version: Version, used: Counter[NotedField]) -> bool:
    path = change.get("path") if isinstance(change, dict) else None
    if not isinstance(path, list) or not 0 < len(path) <= MAX_DEPTH or not all(map(_is_step, path)):
        return False
    if path == ["metadata"]:
        return False
    if "shown" not in change and "value" not in change:
        return "alone" not in change  # only records that the field is absent
    field = _listed(path, version)
    if field is not None:
        used[field] += 1
        return used[field] <= field.count and ("value" not in change or _fits(field, path, change["value"], version))
    held = [change[key] for key in ("shown", "value") if key in change]
    # A missing spec equals an empty one.
    return (path in (["spec"], ["status"]) and held == [{}]) or all(
        _holds_listed(path, value, version, used) for value in held
    )


def _holds_listed(path: list[Any], value: Any, version: Version, used: Counter[NotedField]) -> bool:
    """Return whether ``path`` is a parent of noted fields, and ``value`` an object that contains only noted fields."""
    if not isinstance(value, dict) or not any(_matches(path, field.path[: len(path)]) for field in version.notes):
        return False
    return all(_is_listed({"path": [*path, key], "value": item}, version, used) for key, item in value.items())


def _listed(path: list[Any], version: Version) -> NotedField | None:
    return next((field for field in version.notes if _matches(path, field.path)), None)


def _matches(path: list[Any], pattern: tuple[str, ...]) -> bool:
    return len(path) == len(pattern) and all(
        wanted in (ANY_KEY, step) for step, wanted in zip(path, pattern, strict=True)
    )


def _is_step(step: Any) -> bool:
    return isinstance(step, str) or (isinstance(step, dict) and isinstance(step.get("name"), str))


def _fits(field: NotedField, path: list[Any], value: Any, version: Version) -> bool:
    if nested_deeper(value, field.depth) or len(orjson.dumps(value)) > field.size:
        return False
    if path[0] == "metadata":
        return isinstance(value, str) and not _METADATA[path[1]]({path[2]: value}, Path())
    schema = _schema_at(version.schema, path)
    return schema is not None and not structural.validate(schema, value)


def _schema_at(schema: Schema | None, path: list[Any]) -> Schema | None:
    for step in path:
        if not isinstance(schema, Mapping):
            return None
        if isinstance(step, dict):
            schema = schema.get("items")
        else:
            schema = schema.get("properties", {}).get(step, schema.get("additionalProperties"))
    return schema if isinstance(schema, Mapping) else None


Json: TypeAlias = dict[str, Any]


class ConversionError(ValueError):
    """An object cannot be converted. The exception's text becomes the message in the response."""


class UnknownKindError(ConversionError):
    """The kind or the version is unknown, which fails the whole review."""


def convert(obj: Mapping[str, Any], desired_api_version: str) -> Json:
    """Return a copy of the JSON object in the desired version.

    Of the metadata, only labels and annotations may change. Raises :class:`ConversionError`.
    """
    kind, source, target = _versions(obj, desired_api_version)
    given = _copied(obj)
    _check_objects(obj, given, ("metadata", "spec", "status"))
    _check_objects(obj, given.get("metadata", {}), ("labels", "annotations"), "metadata.")
    notes = _take_notes(given, target)
    if source is kind.hub or target is kind.hub:
        return _step(given, source, target, notes)
    # Non-hub versions convert only to and from the hub.
    return convert(_step(given, source, kind.hub, []), desired_api_version)


def as_hub(kind: KindDefinition, obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return the object in its stored version. Raises ConversionError."""
    hub = kind.resource().api_version
    return dict(obj) if obj.get("apiVersion") == hub else convert(obj, hub)


def _versions(obj: Mapping[str, Any], desired: str) -> tuple[KindDefinition, Version, Version]:
    api_version, name = obj.get("apiVersion"), obj.get("kind")
    if not isinstance(api_version, str) or not isinstance(name, str):
        raise UnknownKindError("apiVersion and kind: are required and must be strings")
    kind = find_kind(api_version, name)
    source = kind.version(api_version) if kind is not None else None
    if kind is None or source is None:
        raise _unregistered(name, api_version)
    target = kind.version(desired)
    if target is None:
        raise _unregistered(name, desired)
    if target is source:
        raise UnknownKindError(f"conversion is not allowed between same type *{source.name}.{kind.kind}")
    return kind, source, target


def _unregistered(kind: str, api_version: str) -> UnknownKindError:
    kinds = (known for known in known_kinds() if known.kind == kind)
    served = [f"{known.group}/{version.name}" for known in kinds for version in known.versions]
    hint = f"; served versions are {', '.join(sorted(served))}" if served else ""
    return UnknownKindError(f'no kind "{kind}" is registered for version "{api_version}"{hint}')


#: Fields that no conversion changes. They make up most of an object and are neither copied nor compared.
_UNTOUCHED: Final = frozenset(
    ("managedFields", "template", "containers", "initContainers", "volumes", "volumeClaimTemplates")
)


def _copied(obj: Mapping[str, Any]) -> Json:
    """Return a copy that conversions may change."""
    return {
        name: {key: value if key in _UNTOUCHED else json_copy(value) for key, value in section.items()}
        if isinstance(section, dict)
        else json_copy(section)
        for name, section in obj.items()
    }


def _check_objects(obj: Mapping[str, Any], parent: Json, fields: tuple[str, ...], prefix: str = "") -> None:
    for field in fields:
        # As everywhere in the API, null equals a missing field.
        if parent.get(field, "") is None:
            del parent[field]
        if not isinstance(parent.get(field, {}), dict):
            raise ConversionError(f"{_called(obj)}: {prefix}{field}: expected an object")


def _called(obj: Mapping[str, Any]) -> str:
    fields = as_object(obj.get("metadata"))
    place = f"{fields['namespace']}/" if fields.get("namespace") else ""
    return f"{obj.get('kind')} {place}{fields.get('name') or '(no name)'}"


def _step(given: Json, source: Version, target: Version, notes: list[Group]) -> Json:
    """Convert from hub to spoke or back, applying the notes and recording new ones. May change ``given``."""
    converted = _converted(_copied(given), source, target)
    back = _shown(converted, source, target)
    canonical = source.canonical or (lambda obj: obj)
    original = canonical(given)
    if notes:
        # Restoring notes may modify values shared with the input, so copy them.
        restored, items = json_copy(converted), _Items()
        for group in notes:
            _restore(restored, group, items)
        shown = _shown(restored, source, target)
        if _is_faithful(shown, back, original):
            converted, back = restored, shown
    lost = allowed(list(_lost(back, original, source, target)), source)
    if lost:
        annotations = converted.setdefault("metadata", {}).setdefault("annotations", {})
        annotations[names.CONVERSION_DATA] = write_note(source, lost)
    return converted


def _shown(converted: Json, source: Version, target: Version) -> Json:
    """Convert an object of the target version back to the source version.

    Equivalent forms are normalized, so that they do not count as a loss.
    """
    back = _converted(_copied(converted), target, source)
    return source.canonical(back) if source.canonical is not None else back


def _is_faithful(shown: Json, plain: Json, original: Json) -> bool:
    """Return whether notes changed nothing visible in the source version. Every difference between ``shown`` (with
    notes) and the original must also be in ``plain`` (without notes). [MGR-151]"""
    items: _Items = {}
    differences = _differences(shown, original, (), frozenset())
    return all(_same(_get(plain, path, items), value) for path, value, _ in differences)


def _converted(obj: Json, source: Version, target: Version) -> Json:
    """Return ``obj`` converted to the target version. Changes ``obj``."""
    function = source.to_hub or target.from_hub
    assert function is not None  # noqa: S101  # the version that is not the hub has both functions
    converted = function(obj)
    group = str(obj["apiVersion"]).rpartition("/")[0]
    converted["apiVersion"] = f"{group}/{target.name}"
    return converted


# --- Notes


def _take_notes(obj: Json, target: Version) -> list[Group]:
    """Remove the annotation from ``obj``, and return the notes in it that are for the target version."""
    metadata = obj.get("metadata", {})
    text = metadata.get("annotations", {}).pop(names.CONVERSION_DATA, None)
    if text is None:
        return []
    if not metadata["annotations"]:
        del metadata["annotations"]
    return read_note(text, target)


def _restore(obj: Json, group: Group, items: _Items) -> None:
    """Apply a group of changes if every field still has the value it was converted to. ``items`` caches lookups."""
    if all(_same(_get(obj, change["path"], items), change.get("shown", _ABSENT)) for change in group):
        for change in group:
            _set(obj, change["path"], change.get("value", _ABSENT), items)
            if change.get("alone") and not _get(obj, change["path"][:-1], items):
                _set(obj, change["path"][:-1], _ABSENT, items)


def _lost(back: Json, original: Json, source: Version, target: Version) -> Iterator[Group]:
    """Yield the differences between the original and the round-trip result, with linked fields in one group."""
    linked = (source if source.linked else target).linked
    for paths in linked:
        pairs = [(path, _get(back, path), _get(original, path)) for path in paths]
        if not all(_same(shown, value) for _, shown, value in pairs):
            yield [_noted(path, shown, value, _get(original, path[:-1])) for path, shown, value in pairs]
    alone = frozenset(path for paths in linked for path in paths)
    for path, shown, value in _differences(back, original, (), alone):
        if path != ("apiVersion",):
            # The parent of an unlinked field exists in both the original and the round-trip result.
            yield [_noted(path, shown, value, original)]


def _noted(path: FieldPath, shown: Any, value: Any, parent: Any) -> Change:
    change: Change = {"path": [{"name": str(step)} if isinstance(step, _Named) else step for step in path]}
    if shown is not _ABSENT:
        change["shown"] = shown
    if value is not _ABSENT:
        change["value"] = value
    elif shown is not _ABSENT and parent is _ABSENT:
        # Restoring the field must remove the parent object too.
        change["alone"] = True
    return change


# --- JSON values by path


class _Absent:
    """A missing field."""


_ABSENT: Final = _Absent()


class _Named(str):
    """The name of an item in a list of named objects."""

    __slots__ = ()


def _same(one: Any, other: Any) -> bool:
    return one is other or (one is not _ABSENT and other is not _ABSENT and same(one, other))


def _differences(
    back: Any, original: Any, path: FieldPath, skipped: frozenset[FieldPath]
) -> Iterator[tuple[FieldPath, Any, Any]]:
    if path in skipped or _same(back, original):
        return
    if isinstance(back, dict) and isinstance(original, dict):
        for key in sorted(back.keys() | original.keys()):
            yield from _differences(back.get(key, _ABSENT), original.get(key, _ABSENT), (*path, key), skipped)
        return
    order = _named(back)
    if order and order == _named(original):
        for name, before, after in zip(order, back, original, strict=True):
            yield from _differences(before, after, (*path, _Named(name)), skipped)
        return
    if not (isinstance(original, dict) and any(other[: len(path)] == path for other in skipped)):
        yield path, back, original
        return
    # The round trip lost an object that contains a linked field: note the object's other fields individually.
    rest = {key: value for key, value in original.items() if (*path, key) not in skipped}
    if rest or not original:
        yield path, back, rest


def _named(value: Any) -> list[str]:
    """Return the names in a list of objects with unique names, or an empty list for any other value."""
    items = value if isinstance(value, list) else []
    found = [item["name"] for item in items if isinstance(item, dict) and isinstance(item.get("name"), str)]
    return found if len(set(found)) == len(items) else []


#: Items by name, per list. Without this cache, each item in an attacker's notes would require a search of its list.
#: The cache stays valid because notes never change the name of an item.
_Items = dict[int, tuple[list[Any], dict[str, Any]]]


def _get(value: Any, path: Any, items: _Items | None = None) -> Any:
    for step in path:
        if isinstance(step, _Named | dict):
            name = step if isinstance(step, _Named) else step["name"]
            value = _by_name(value, {} if items is None else items).get(name, _ABSENT)
        else:
            value = value.get(step, _ABSENT) if isinstance(value, dict) else _ABSENT
    return value


def _by_name(value: Any, items: _Items) -> dict[str, Any]:
    if not isinstance(value, list):
        return {}
    known = items.get(id(value))
    if known is None:
        named = (item for item in reversed(value) if isinstance(item, dict) and isinstance(item.get("name"), str))
        known = items[id(value)] = (value, {item["name"]: item for item in named})
    return known[1]


def _set(value: Json, path: list[Any], new: Any, items: _Items) -> None:
    *parents, last = path
    for step in parents:
        if isinstance(step, str) and isinstance(value, dict) and new is not _ABSENT:
            value.setdefault(step, {})
        value = _get(value, [step], items)
    if not isinstance(value, dict):
        return
    if new is not _ABSENT:
        value[last] = new
    else:
        value.pop(last, None)
