"""The annotations and other metadata that injection writes to a Pod."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from json.decoder import JSONDecodeError
from typing import Any, Final

import orjson

from app.api.gojson import STRING, GoField, GoType, GoTypeError, dumps_go, escaped, go_value, list_of, map_of, struct
from app.kube.clock import rfc3339
from app.kube.fielderrors import shortened
from app.pods.admission_draft import PodRefusedError

# The annotations that record the SidecarSets of a Pod: the injected list and the two hash records. OpenKruise's
# controller and users' tools read them, so they are written byte for byte as Go would: struct fields in order, map keys
# sorted. [SS-56 … SS-59]

# As in Go's time.Parse(time.RFC3339): fractions are accepted though not in the layout; seconds are required.
_RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:[.,]\d+)?(?:Z|[+-]\d\d:\d\d)", re.ASCII)
_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)
#: Hash annotations with more commas are not read, because any user may write them, and an entry may be as short as 7
#: bytes.
MAX_COMMAS: Final = 1_000


def injected_list(present: str, applied: Iterable[str]) -> str:
    """Return the applied sets merged with those the annotation already lists, sorted. [SS-56]"""
    known = {name for name in present.split(",") if name} if present else ()
    return ",".join(sorted({*known, *applied}))


@dataclass(frozen=True, slots=True)
class RecordEntry:
    """One set's entry in a hash annotation; the time goes between ``head`` and ``tail``. [SS-57]"""

    set_name: str
    head: str
    tail: str


def record_entry(set_name: str, digest: str, sidecars: Sequence[str], revision: str) -> RecordEntry:
    """Return the entry of a set with this hash; an empty ``revision`` is omitted."""
    fields: dict[str, Any] = {"hash": digest, "sidecarSetName": set_name, "sidecarList": list(sidecars)}
    if revision:
        fields["controllerRevision"] = revision
    return RecordEntry(set_name, f'{dumps_go(set_name)}:{{"updateTimestamp":"', f'",{dumps_go(fields)[1:]}')


def hash_record(kept: Mapping[str, str], entries: Sequence[RecordEntry], now: str) -> str:
    """Return a hash annotation with the members ``kept`` (set name → member) and the entries of the injected sets.
    [SS-57]"""
    members = {entry.set_name: f"{entry.head}{now}{entry.tail}" for entry in entries}
    if kept:
        members = {**kept, **members}
    return f"{{{','.join([members[name] for name in sorted(members)])}}}"


def kept_members(pod: str, key: str, text: str) -> Mapping[str, str]:
    """Return the members of an existing hash annotation (set name → ``"name":{…}`` as Go writes it), in its current or
    oldest form. [SS-59]

    ``pod`` is ``namespace/name`` for the message. Raises PodRefusedError if the annotation has neither form.
    """
    try:
        value = _decoded(text)
        # The first release of OpenKruise wrote set name → hash.
        if isinstance(value, dict) and value and all(isinstance(item, str) for item in value.values()):
            value = {name: {"hash": digest, "sidecarSetName": name} for name, digest in value.items()}
        entries = go_value(_RECORD, value) or {}
        return {name: f"{dumps_go(name)}:{dumps_go(entry)}" for name, entry in entries.items()}
    except (ValueError, GoTypeError) as error:
        reason = shortened(str(error).removeprefix(": "))  # the error concerns the whole document, which has no path
        raise PodRefusedError(
            f"pod({pod}) invalid annotations[{key}] value {shortened(text)}, unmarshal failed: {reason}; remove the "
            "annotation",
            400,
        ) from error


def _decoded(text: str) -> Any:
    if text.count(",") > MAX_COMMAS:
        raise ValueError(f"more than {MAX_COMMAS} commas")
    return orjson.loads(text)


def _read_time(value: Any, path: str) -> str | None:
    if not isinstance(value, str) or not _RFC3339.fullmatch(value):
        raise GoTypeError(f"{path}: {value!r} is not an RFC 3339 time")
    try:
        # Only whole seconds are written, so drop the fraction, which in Go may have nanoseconds.
        moment = datetime.fromisoformat(re.sub(r"[.,]\d+", "", value)).astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise GoTypeError(f"{path}: {error}") from error
    return None if moment == _ZERO_TIME else rfc3339(moment)


#: metav1.Time: the zero time is marshaled as null.
_TIME = GoType(_read_time, lambda: None, lambda _: False)
_RECORD = map_of(
    struct(
        GoField("updateTimestamp", _TIME, kept=True),
        GoField("hash", STRING, kept=True),
        GoField("sidecarSetName", STRING, kept=True),
        GoField("sidecarList", list_of(STRING), kept=True),
        GoField("controllerRevision", STRING),
    )
)


# ``spec.patchPodMetadata``: annotations that a SidecarSet adds to Pods on injection and on update [SS-53 … SS-55].
# Injection and in-place update share these functions. Applying a patch a second time changes nothing [D-21]: an
# annotation is left unchanged if it equals the patch, or if the merge would not change its meaning.

_SPACE = re.compile(r"[ \t\n\r]*")
_TEXT_OR_SPACE = re.compile(r'("(?:[^"\\]|\\.)*")|[ \t\n\r]+')
_MAX_DEPTH = 200


class NotJsonError(ValueError):
    """One of the texts to merge is not JSON."""


class MetadataPatchError(ValueError):
    """A patch of a SidecarSet cannot be applied; the message names the set and the annotation."""

    def __init__(self, set_name: str, key: str, cause: NotJsonError) -> None:
        super().__init__(f"SidecarSet {set_name}: spec.patchPodMetadata: annotation {key}: {cause}")
        self.set_name = set_name


@dataclass(frozen=True, slots=True)
class MetadataPatch:
    """One entry of ``patchPodMetadata``: annotations (key → value, sorted), and the policy for those the Pod already
    has."""

    set_name: str
    policy: str
    annotations: tuple[tuple[str, str], ...]


def patched_annotations(present: Mapping[str, str], patches: Iterable[MetadataPatch]) -> dict[str, str]:
    """Apply these patches in order and return the annotations that change (key → new value). [SS-53]

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
    """Merge JSON texts according to RFC 7386. Without a current text, the result is the patch verbatim; otherwise it is
    compact, with sorted keys.

    Untouched parts keep their spelling and order, as in Go. Raises NotJsonError.
    """
    if not current or current == patch:
        return patch
    _require_json(current, "the Pod's value")
    _require_json(patch, "the patch")
    try:
        result = _merge(current.strip(), patch.strip(), 0)
        # A merge without effect must not reformat the result of an earlier one. [D-21]
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
            # An existing null may come from an earlier application of this patch, and is kept. [D-21]
            members.pop(key, None)
    return "{" + ",".join(f"{dumps_go(key)}:{_compact(members[key])}" for key in sorted(members)) + "}"


def _members(text: str) -> dict[str, str]:
    """Return the members of a JSON object with their values verbatim. The last of duplicate keys wins."""
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
    """Return a JSON text without space between tokens, escaped as by Go's encoder."""
    return escaped(_TEXT_OR_SPACE.sub(lambda found: found[1] or "", text))


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


#: Numbers are kept as text, so 1 and 1.0 differ, nothing is rounded, and any number of digits is accepted.
_DECODER = json.JSONDecoder(
    parse_constant=_reject, parse_float=lambda text: ("number", text), parse_int=lambda text: ("number", text)
)
_loads: Callable[[str], Any] = _DECODER.decode
