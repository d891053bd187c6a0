"""Conversion notes: parts of an object in one version that the other version cannot express.

A note is stored in an annotation, which anyone who may write the object may write too. It is therefore read as
untrusted input: it restores only the fields that the kind lists for the version (:attr:`app.api.kind.Version.notes`),
each with the type in its schema and within its bounds. Everything else in it is dropped. [MGR-151]
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

import orjson

from app.api import structural
from app.api.kind import ANY_KEY, NotedField, Version
from app.api.model import Schema
from app.kube.fielderrors import FieldError, Path
from app.kube.jsonvalues import MAX_DEPTH, hide_depth, nested_deeper
from app.kube.validation import validate_annotations, validate_labels

#: One change: the path, the value of the field as converted to the other version, and its real value. A missing key
#: means a missing field.
Change: TypeAlias = dict[str, Any]
#: Changes that belong together, such as a field and the selector it became.
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
    """Return the groups in an annotation value that may restore an object of ``version``."""
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
    """Return the groups in which every change is listed for the version."""
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
    """Return whether ``value``, at the parent of listed fields, is an object of listed fields only."""
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
