"""JSON values: copy them, read their parts, and limit their depth.

Decoders reject a document nested several hundred or thousand levels deep, even if the deep part is never read. In
Kubernetes objects, that part can be ``metadata.managedFields``, whose keys depend on what users patch.
``read`` first decodes a document as it is. If the decoder rejects it, deep values are removed in one pass over the
bytes.
"""

from __future__ import annotations

import hashlib
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

import orjson

from app.kube.fielderrors import shortened

T = TypeVar("T")

#: The maximum number of levels kept. The deepest Kubernetes type has about 20, and our decoders read at least 200.
MAX_DEPTH: Final = 100

_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT: Final = rb"(?:[^\"\[\]{}]++|" + _TEXT + rb")*+"
#: Matches text that does not change the depth, including objects and lists without nested objects or lists.
_LEVEL: Final = rb"(?:[^\"\[\]{}]++|" + _TEXT + rb"|\{" + _FLAT + rb"\}|\[" + _FLAT + rb"\])*+"
#: Matches ``_LEVEL`` and the opening or closing brackets after it. A long run of brackets is one match, so that it is
#: processed in C.
_STEP: Final = re.compile(
    _LEVEL + rb'(?:(?P<open>(?:\[|\{(?:\s*+"[^"\\\[\]{}]*+"\s*+:)?\s*+)++)|(?P<close>[\]}]++))', re.DOTALL
)
_OPENING: Final = re.compile(rb"[\[{]")
_MANAGED_FIELDS: Final = re.compile(rb'(?<!\\)"managedFields"\s*:\s*\Z')
#: The depth of an item in a Kubernetes List: the List, its ``items``, the item.
_ITEM_LEVEL: Final = 3
#: The depth of an item in a JSON list, and the characters allowed between items.
_LIST_ITEM_LEVEL: Final = 2
_BETWEEN: Final = b" \t\r\n,"
_CLOSING: Final = {ord("["): b"]", ord("{"): b"}"}


TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"


class UnreadableError(ValueError):
    """An object that its decoder cannot read. The message says why."""


class Shallow(NamedTuple):
    """A document in which objects and lists beyond the depth limit are empty."""

    data: bytes
    #: Whether anything outside ``managedFields`` was removed.
    lossy: bool


def read(decode: Callable[[bytes], T], raw: bytes) -> T:
    """Return the decoded object, however deeply its managedFields are nested.

    Raises ``ValueError`` or ``msgspec.MsgspecError`` for anything ``decode`` rejects.
    """
    try:
        return decode(raw)
    except RecursionError:
        shallow = shallow_json(raw)
    except ValueError:
        shallow = shallow_json(raw)
        if shallow.data is raw:
            raise
    if shallow.lossy:
        raise UnreadableError(TOO_DEEP)
    try:
        return decode(shallow.data)
    except RecursionError:
        raise UnreadableError("nested deeper than its decoder supports") from None


def shallow_json(raw: bytes, limit: int = MAX_DEPTH, *, only_managed: bool = False) -> Shallow:
    """Return ``raw`` with at most ``limit`` levels; unchanged if it has no more. Runs in linear time.

    The input need not be well-formed: invalid JSON is left to the decoder, and if a document ends within a value beyond
    the limit, its open brackets are closed. With ``only_managed``, stop at the first cut outside managedFields.
    """
    cuts, closing = _cuts(raw, limit, only_managed)
    if not cuts:
        return Shallow(raw, False)
    kept: list[bytes] = []
    start = 0
    for cut in cuts:
        kept.append(raw[start : cut.opens + 1])
        start = cut.closes
    return Shallow(b"".join((*kept, raw[start:], closing)), any(not cut.managed for cut in cuts))


class Hidden(NamedTuple):
    """A document in which placeholders replace the values beyond the depth limit."""

    data: bytes
    values: list[bytes]
    mark: bytes

    def revealed(self, data: bytes) -> bytes:
        """Return ``data`` with the placeholders replaced by the original values."""
        found = re.compile(b'"' + self.mark + rb'-(\d{1,9})"')
        return found.sub(lambda match: self.values[int(match[1])], data)


def hide_depth(raw: bytes, limit: int = MAX_DEPTH) -> Hidden | None:
    """Return ``raw`` with everything deeper than ``limit`` hidden; None if nothing is that deep, or it is not JSON."""
    cuts, closing = _cuts(raw, limit)
    if not cuts or closing:
        return None
    # A document cannot contain its own digest, so the placeholders are unique.
    mark = b"deep-" + hashlib.blake2b(raw, digest_size=20).hexdigest().encode()
    kept: list[bytes] = []
    start = 0
    for number, cut in enumerate(cuts):
        kept += (raw[start : cut.opens], b'"%s-%d"' % (mark, number))
        start = cut.closes + 1
    return Hidden(b"".join((*kept, raw[start:])), [raw[cut.opens : cut.closes + 1] for cut in cuts], mark)


class _Cut(NamedTuple):
    """A value at the depth limit that contains deeper ones: its start and end, and whether it is in managedFields."""

    opens: int
    closes: int
    managed: bool


def _cuts(raw: bytes, limit: int, only_managed: bool = False) -> tuple[list[_Cut], bytes]:
    """Return what to cut, and the brackets that close a truncated document."""
    cuts: list[_Cut] = []
    cutting = False
    #: Positions of the open brackets, at most ``limit``.
    opened: list[int] = []
    depth = position = 0
    while (step := _STEP.match(raw, position)) is not None:
        position = step.end()
        if (run := step["open"]) is not None:
            levels = run.count(b"[") + run.count(b"{")
            if depth < limit:
                opened += _first(run, limit - depth, step.start("open"))
            depth += levels
            if depth > limit and not cutting:
                cutting = True
                cuts.append(_Cut(opened[-1], len(raw), _in_managed_fields(raw, opened)))
                if only_managed and not cuts[-1].managed:
                    break
            continue
        first = step.start("close")
        before, depth = depth, depth - (position - first)
        if depth < 0:
            break  # not JSON
        if depth < limit:
            del opened[depth:]
            if cutting:
                cutting = False
                cuts[-1] = cuts[-1]._replace(closes=first + before - limit)
    return cuts, b"".join(_CLOSING[raw[at]] for at in reversed(opened)) if cutting else b""


def split_list(raw: bytes) -> tuple[bytes, list[bytes]]:
    """Return a Kubernetes List without its items, and the items, so that they can be read one by one if one of them is
    nested too deeply. Items that contain no object or list are ignored."""
    items = [raw[start:end] for start, end in _values_at(raw, _ITEM_LEVEL)]
    return shallow_json(raw, _ITEM_LEVEL - 1).data, items


def items_of(raw: bytes, smallest: int) -> list[bytes]:
    """Return the items of a JSON list without decoding them, so that their size can be bounded first.

    Raises ``ValueError`` if an item has fewer than ``smallest`` bytes, or is not an object that contains an object or
    list.
    """
    items: list[bytes] = []
    end = raw.find(b"[") + 1
    for start, stop in _values_at(raw, _LIST_ITEM_LEVEL):
        if raw[end:start].strip(_BETWEEN):
            raise ValueError("an item is not an object")
        if stop - start < smallest:
            raise ValueError("an item is too small")
        items.append(raw[start:stop])
        end = stop
    if raw[end:].strip(_BETWEEN + b"]"):
        raise ValueError("an item is not an object")
    return items


def _values_at(raw: bytes, level: int) -> Iterator[tuple[int, int]]:
    """Yield the start and the end of each object or list at this depth."""
    depth = position = start = 0
    while (step := _STEP.match(raw, position)) is not None:
        position = step.end()
        if (run := step["open"]) is not None:
            levels = run.count(b"[") + run.count(b"{")
            if depth < level <= depth + levels:
                start = _first(run, level - depth, step.start("open"))[-1]
            depth += levels
            continue
        first = step.start("close")
        before, depth = depth, depth - (position - first)
        if before >= level > depth:
            yield start, first + before - level + 1


def _first(run: bytes, count: int, offset: int) -> list[int]:
    """Return the positions of the first ``count`` opening brackets of a run that starts at ``offset``."""
    return [offset + opening.start() for opening in islice(_OPENING.finditer(run), count)]


def _in_managed_fields(raw: bytes, opened: list[int]) -> bool:
    return any(_MANAGED_FIELDS.search(raw, max(0, at - 40), at) for at in opened[1:6])


def json_copy(value: Any) -> Any:
    """Return a deep copy of ``value``."""
    if isinstance(value, dict | list):
        try:
            # Encoding and decoding takes a fraction of the time of a recursive copy.
            return orjson.loads(orjson.dumps(value))
        except (TypeError, ValueError, RecursionError):
            # orjson cannot encode some values that objects may contain: integers with many digits, lone surrogates.
            return _copy(value)
    return value


def json_size(value: Any) -> int:
    """Return the size of a value as JSON in bytes; ``sys.maxsize`` if it is nested too deeply or has a number over 64
    bits, which no API accepts."""
    try:
        return len(orjson.dumps(value, default=dict))
    except TypeError:
        return sys.maxsize


#: Extra bytes for characters that an API server escapes when it stores JSON.
_WIDER: Final = {b"<": 5, b">": 5, b"&": 5, rb"\b": 4, rb"\f": 4, "\u2028".encode(): 3, "\u2029".encode(): 3}
#: Maximum stored bytes per character.
_WIDEST: Final = 6


def stored_size(value: Any) -> int:
    """Return the size of a value as an API server stores it (up to six times its ``json_size``), or slightly more.
    Returns ``sys.maxsize`` if the value cannot be encoded."""
    try:
        data = orjson.dumps(value, default=dict)
    except TypeError:
        return sys.maxsize
    return len(data) + sum(more * data.count(escaped) for escaped, more in _WIDER.items())


def cut_text(text: str, limit: int) -> str:
    """Return ``text``, truncated at a character boundary so that it is stored in at most ``limit`` bytes."""
    if len(text) <= limit // _WIDEST or stored_size(text) - 2 <= limit:
        return text
    return text[: bisect_right(range(1, len(text) + 1), limit, key=lambda length: stored_size(text[:length]) - 2)]


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def fill(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set keys that are missing or null."""
    for key, value in values.items():
        if target.get(key) is None:
            target[key] = value


def part(parent: dict[str, Any], key: str) -> dict[str, Any] | None:
    """Return the object at ``key``, created if missing; None if ``key`` has a value of another type."""
    if parent.get(key) is None:
        parent[key] = {}
    found = parent[key]
    return found if isinstance(found, dict) else None


def as_object(value: Any) -> dict[str, Any]:
    """Return the value if it is an object, and an empty one otherwise."""
    return value if isinstance(value, dict) else {}


def object_at(parent: Any, key: str) -> dict[str, Any] | None:
    """Return the object at ``key``; None if there is none, or ``parent`` is not an object."""
    value = parent.get(key) if isinstance(parent, dict) else None
    return value if isinstance(value, dict) else None


def rename(parent: dict[str, Any], old: str, new: str) -> None:
    """Rename a field in place, if it is present."""
    if old in parent:
        parent[new] = parent.pop(old)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects in a list. Other items are skipped, and a value that is not a list yields nothing."""
    if isinstance(value, list):
        yield from (item for item in value if isinstance(item, dict))


_SCALARS: Final = (str, int, float, type(None))


def nested_deeper(value: Any, levels: int = MAX_DEPTH) -> str:
    """Return the beginning of the path to a value nested more than ``levels`` deep; "" if there is none."""
    level = [value]
    for _ in range(levels):
        level = [item for held in level for item in _items(held) if not isinstance(item, _SCALARS)]
        if not level:
            return ""
    return _path_down(value, levels) if any(len(_items(held)) for held in level) else ""


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def _path_down(value: Any, levels: int) -> str:
    """Return the first ten keys and indexes of the path to a value deeper than ``levels``; "" if there is none."""
    pending: list[tuple[int, Steps, Any]] = [(0, None, value)]
    while pending:
        depth, path, held = pending.pop()
        if depth > levels:
            steps = islice(steps_from_root(path), 10)
            return "".join(f"[{step}]" if isinstance(step, int) else f".{shortened(step)}" for step in steps).lstrip(
                "."
            )
        if isinstance(held, Mapping):
            pending.extend((depth + 1, (path, key), held[key]) for key in held)
        elif isinstance(held, list):
            pending.extend((depth + 1, (path, index), item) for index, item in enumerate(held))
    return ""


#: A path: its parent path and its last key. All values below a key share one copy of it, which may be a megabyte long.
Steps: TypeAlias = tuple["Steps", str | int] | None


def steps_from_root(steps: Steps) -> list[str | int]:
    """Return the keys of a path."""
    keys: list[str | int] = []
    while steps is not None:
        steps, key = steps
        keys.append(key)
    return keys[::-1]


def cut(value: Any, levels: int = MAX_DEPTH) -> Any:
    """Return a copy without values nested more than ``levels`` deep."""
    if isinstance(value, Mapping):
        return {key: cut(item, levels - 1) for key, item in value.items()} if levels else {}
    if isinstance(value, list):
        return [cut(item, levels - 1) for item in value] if levels else []
    return value


def without_managed_fields(obj: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return an object without its managedFields, which are not validated and may be nested to any depth. Returns an
    empty object for None."""
    metadata = obj.get("metadata") if obj else None
    if obj is None or not isinstance(metadata, Mapping) or "managedFields" not in metadata:
        return obj or {}
    return {**obj, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
