"""``spec.patchPodMetadata``: annotations a SidecarSet puts into the Pods it is injected into, and updates with them.

Rules SS-53 … SS-55. The same functions serve injection and in-place update. A patch that has been applied changes
nothing when it is applied again (D-21): a text that equals the patch is left alone, and so is one whose merge would
say the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from json.decoder import JSONDecodeError
from typing import Any

from app.api.gojson import dumps_go

_SPACE = re.compile(r"[ \t\n\r]*")
_TEXT_OR_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+')
_MAX_DEPTH = 200


class NotJsonError(ValueError):
    """A merge of two texts of which one is not JSON."""


class MetadataPatchError(ValueError):
    """A patch of a SidecarSet that cannot be applied; names the set and the annotation."""

    def __init__(self, set_name: str, key: str, cause: NotJsonError) -> None:
        super().__init__(f"SidecarSet {set_name}: spec.patchPodMetadata: annotation {key}: {cause}")
        self.set_name = set_name


@dataclass(frozen=True, slots=True)
class MetadataPatch:
    """One entry: annotations (key → value, sorted) and how they meet those the Pod has."""

    set_name: str
    policy: str
    annotations: tuple[tuple[str, str], ...]


def patched_annotations(present: Mapping[str, str], patches: Iterable[MetadataPatch]) -> dict[str, str]:
    """SS-53: the annotations these patches change (key → new value), applied in order.

    Raises MetadataPatchError.
    """
    changed: dict[str, str] = {}
    for patch in patches:
        for key, value in patch.annotations:
            current = changed.get(key, present.get(key))
            if patch.policy == "Overwrite" or (patch.policy == "Retain" and current is None):
                changed[key] = value
            elif patch.policy == "MergePatchJson":
                try:
                    changed[key] = merged(current, value)
                except NotJsonError as error:
                    raise MetadataPatchError(patch.set_name, key, error) from error
    return {key: value for key, value in changed.items() if present.get(key) != value}


def merged(current: str | None, patch: str) -> str:
    """RFC 7386 on JSON texts: a missing or empty text takes the patch as it is; a merge is compact with sorted keys.

    What a merge does not touch keeps its spelling and order, as in Go. Raises NotJsonError.
    """
    if not current or current == patch:
        return patch
    _require_json(current, "the Pod's value")
    _require_json(patch, "the patch")
    try:
        result = _merge(current.strip(), patch.strip(), 0)
        # D-21: a merge that says nothing new must not respell what the first one wrote.
        return current if _loads(result) == _loads(current) else result
    except RecursionError:
        raise NotJsonError("the Pod's value is nested too deep") from None


def _merge(current: str, patch: str, depth: int) -> str:
    if depth > _MAX_DEPTH:
        raise NotJsonError(f"nested deeper than {_MAX_DEPTH} levels")
    if not patch.startswith("{"):
        return _compact(patch)
    members = _members(current) if current.startswith("{") else {}
    for key, value in _members(patch).items():
        if value != "null":
            members[key] = _merge(members.get(key, ""), value, depth + 1)
        elif members.get(key) != "null":
            # A null that a first set wrote stays when its patch is applied again (D-21).
            members.pop(key, None)
    return "{" + ",".join(f"{dumps_go(key)}:{_compact(members[key])}" for key in sorted(members)) + "}"


def _members(text: str) -> dict[str, str]:
    """The members of a JSON object with their values as they are spelled; the last of equal keys counts."""
    members: dict[str, str] = {}
    position = _skip_space(text, 1)
    while text[position] != "}":
        key, position = _DECODER.raw_decode(text, position)
        start = _skip_space(text, _skip_space(text, position) + 1)
        _, end = _DECODER.raw_decode(text, start)
        members[key] = text[start:end]
        position = _skip_space(text, end)
        if text[position] == ",":
            position = _skip_space(text, position + 1)
    return members


def _skip_space(text: str, position: int) -> int:
    return _SPACE.match(text, position).end()  # type: ignore[union-attr]  # matches the empty string too


def _compact(text: str) -> str:
    """A JSON text without space between tokens, with the escapes Go's encoder makes."""
    squeezed = _TEXT_OR_SPACE.sub(lambda found: found[1] or "", text)
    for char, escaped in (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026")):
        squeezed = squeezed.replace(char, escaped)
    return squeezed.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _require_json(text: str, what: str) -> None:
    try:
        _loads(text)
    except (JSONDecodeError, NotJsonError) as error:
        shown = text if len(text) <= 100 else text[:100] + "…"
        raise NotJsonError(f"{what} is not JSON ({error}): {shown}") from error
    except RecursionError:
        raise NotJsonError(f"{what} is nested too deep") from None


def _reject(constant: str) -> Any:
    raise NotJsonError(f"{constant} is not JSON")


#: Numbers are compared as they are spelled: 1 and 1.0 are different texts, none is rounded, and none is too long.
_DECODER = json.JSONDecoder(
    parse_constant=_reject, parse_float=lambda text: ("number", text), parse_int=lambda text: ("number", text)
)
_loads: Callable[[str], Any] = _DECODER.decode
