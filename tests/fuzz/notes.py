"""Forged conversion notes, with any value for any field that the converted object has or its kind declares."""

from __future__ import annotations

import copy
import json
from random import Random
from typing import Any, Final

from app.api.conversion import ConversionError, convert
from app.api.kind import ANY_KEY, find_kind
from app.api.names import CONVERSION_DATA
from app.kube.patches import same
from tests.fuzz.objects import Json

_VALUES: Final = (
    "not a number",
    -1,
    0,
    True,
    None,
    "",
    "x" * 2000,
    [],
    {},
    [1, "3-1"],
    {"a": {"b": 1}},
    "OnDelete",
    "100%",
)
_ABSENT: Final = object()


def with_note(random: Random, obj: Json, desired: str) -> Json:
    """Return the object with a note that claims to know more about it in the desired version."""
    converted = convert(obj, desired)
    version = find_kind(desired, obj["kind"]).version(desired)  # type: ignore[union-attr]
    groups = []
    for _ in range(random.choice((1, 1, 2, 5, 30))):
        if version is not None and version.notes and random.random() < 0.4:
            path = ["sample" if step == ANY_KEY else step for step in random.choice(version.notes).path]
            path = path[: random.choice((len(path), len(path), max(1, len(path) - 1)))]
        else:
            path = _path(random, converted)
        change: Json = {"path": path}
        if (shown := _at(converted, path)) is not _ABSENT:
            change["shown"] = shown
        if random.random() < 0.8:
            change["value"] = random.choice(_VALUES)
        if random.random() < 0.1:
            change["alone"] = True
        groups.append([change])
    note = {"version": desired.rpartition("/")[2], "changes": groups}
    noted = copy.deepcopy(obj)
    noted["metadata"].setdefault("annotations", {})[CONVERSION_DATA] = json.dumps(note)
    return noted


def smuggled(noted: Json, desired: str) -> str:
    """Return what the note changed although the object's version has the field, or an empty string."""
    try:
        changed, plain = convert(noted, desired), convert(_without(noted), desired)
    except ConversionError:
        return ""
    kept = ("name", "namespace", "uid", "finalizers", "ownerReferences")
    if any(changed["metadata"].get(key) != plain["metadata"].get(key) for key in kept):
        return "a note changed metadata"
    source = noted["apiVersion"]
    kind = find_kind(source, noted["kind"])
    canonical = (kind.version(source).canonical if kind is not None else None) or (lambda obj: obj)  # type: ignore[union-attr]
    shown, shown_plain = (canonical(_without(convert(_without(obj), source))) for obj in (changed, plain))
    path = _differs(shown, shown_plain, canonical(_without(noted)))
    return f"a note changed {path}, which {source} shows" if path else ""


def _without(obj: Json) -> Json:
    plain = copy.deepcopy(obj)
    annotations = plain["metadata"].get("annotations", {})
    annotations.pop(CONVERSION_DATA, None)
    if not annotations:
        plain["metadata"].pop("annotations", None)
    return plain


def _differs(shown: Any, plain: Any, original: Any, path: str = "") -> str:
    """Return the path at which the object has neither the value it has without the note nor the given one."""
    if any(same(shown, other) for other in (plain, original) if other is not _ABSENT) or shown in (plain, original):
        return ""
    if isinstance(shown, dict) and isinstance(plain, dict) and isinstance(original, dict):
        for key in shown.keys() | plain.keys() | original.keys():
            parts = [each.get(key, _ABSENT) for each in (shown, plain, original)]
            if found := _differs(*parts, f"{path}.{key}"):
                return found
        return ""
    return path or "all of it"


def _path(random: Random, obj: Any) -> list[Any]:
    """Return a path to a value in the object, or to a field that it does not have."""
    path: list[Any] = []
    while True:
        named = (
            [one for one in obj if isinstance(one, dict) and isinstance(one.get("name"), str)]
            if isinstance(obj, list)
            else []
        )
        if isinstance(obj, dict) and obj and (not path or random.random() < 0.8):
            path.append(random.choice(list(obj)))
            obj = obj[path[-1]]
        elif named:
            obj = random.choice(named)
            path.append({"name": obj["name"]})
        else:
            return (
                [*path, random.choice(("hostNetwork", "replicas", "x", "preStop"))] if isinstance(obj, dict) else path
            )


def _at(obj: Any, path: list[Any]) -> Any:
    for step in path:
        if isinstance(step, dict) and isinstance(obj, list):
            obj = next((one for one in obj if isinstance(one, dict) and one.get("name") == step["name"]), _ABSENT)
        else:
            obj = obj.get(step, _ABSENT) if isinstance(obj, dict) and isinstance(step, str) else _ABSENT
    return obj
