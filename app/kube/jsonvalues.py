"""JSON values: copy them, read their parts, and limit their depth."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple, TypeVar

import orjson

# Depth: JSON that is nested deeper than decoders go, made shallow in one pass over its bytes.
#
# Decoders give up on a document after some hundred or thousand levels, also where the nesting stands in a part that
# nobody reads. In an object of the API server such a part is ``metadata.managedFields``: whoever may patch an object
# chooses the keys in it. ``read`` decodes as always, and only what its decoder refuses is looked at here.

T = TypeVar("T")

#: Levels that are left. The deepest Kubernetes type has about 20, and a decoder of ours reads at least 200.
MAX_DEPTH: Final = 100

_TEXT: Final = rb'"(?:[^"\\]++|\\.)*+"'
_FLAT: Final = rb"(?:[^\"\[\]{}]++|" + _TEXT + rb")*+"
#: All that does not change the depth, objects and lists without an object or list in them included.
_LEVEL: Final = rb"(?:[^\"\[\]{}]++|" + _TEXT + rb"|\{" + _FLAT + rb"\}|\[" + _FLAT + rb"\])*+"
#: After that: brackets that open one directly in the other, or close one directly after the other. A long chain of
#: them is one match, so that it is walked through in C.
_STEP: Final = re.compile(
    _LEVEL + rb'(?:(?P<open>(?:\[|\{(?:\s*+"[^"\\\[\]{}]*+"\s*+:)?\s*+)++)|(?P<close>[\]}]++))', re.DOTALL
)
_OPENING: Final = re.compile(rb"[\[{]")
_MANAGED_FIELDS: Final = re.compile(rb'(?<!\\)"managedFields"\s*:\s*\Z')
#: The level of a list's items: the list, its ``items``, one of them.
_ITEM_LEVEL: Final = 3
#: The level of a bare list's items, and what stands between them.
_LIST_ITEM_LEVEL: Final = 2
_BETWEEN: Final = b" \t\r\n,"
_CLOSING: Final = {ord("["): b"]", ord("{"): b"}"}


TOO_DEEP: Final = f"nested deeper than {MAX_DEPTH} levels"


class UnreadableError(ValueError):
    """An object that its decoder cannot read; the text says why."""


class Shallow(NamedTuple):
    """A document without what was nested too deep: there, objects and lists are empty."""

    data: bytes
    #: Whether something went that is no part of ``managedFields``.
    lossy: bool


def read(decode: Callable[[bytes], T], raw: bytes) -> T:
    """What ``decode`` reads, at any depth of the object's managedFields. Raises ``ValueError`` or
    ``msgspec.MsgspecError`` for what it refuses."""
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
        raise UnreadableError("nested too deep for its decoder") from None


def shallow_json(raw: bytes, limit: int = MAX_DEPTH, *, only_managed: bool = False) -> Shallow:
    """``raw`` with at most ``limit`` levels; the same bytes where it has no more. The time is linear in its length.

    It need not be well-formed: what is not JSON is left to the decoder, and a document that ends within a value that
    is too deep is closed. ``only_managed``: what goes on after something lossy is of no use to the caller.
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
    """A document in which texts that occur nowhere else stand for what is nested too deep."""

    data: bytes
    values: list[bytes]
    mark: bytes

    def revealed(self, data: bytes) -> bytes:
        """``data`` with the values in their places again."""
        found = re.compile(b'"' + self.mark + rb'-(\d{1,9})"')
        return found.sub(lambda match: self.values[int(match[1])], data)


def hide_depth(raw: bytes, limit: int = MAX_DEPTH) -> Hidden | None:
    """``raw`` with what is deeper than ``limit`` hidden; None where nothing is, or it is not JSON."""
    cuts, closing = _cuts(raw, limit)
    if not cuts or closing:
        return None
    # Nobody can write a text into a document that holds the document's own digest.
    mark = b"deep-" + hashlib.blake2b(raw, digest_size=20).hexdigest().encode()
    kept: list[bytes] = []
    start = 0
    for number, cut in enumerate(cuts):
        kept += (raw[start : cut.opens], b'"%s-%d"' % (mark, number))
        start = cut.closes + 1
    return Hidden(b"".join((*kept, raw[start:])), [raw[cut.opens : cut.closes + 1] for cut in cuts], mark)


class _Cut(NamedTuple):
    """A value of the last level that holds deeper ones: where it opens and closes, and whether in managedFields."""

    opens: int
    closes: int
    managed: bool


def _cuts(raw: bytes, limit: int, only_managed: bool = False) -> tuple[list[_Cut], bytes]:
    """What to cut, and the brackets that close a document which ends before the last of them does."""
    cuts: list[_Cut] = []
    cutting = False
    #: Where the brackets that are open stand; no more than ``limit``.
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
    """A list without its items, and the items: what to read where one of them is too deep for all to be decoded at
    once. Items that hold neither an object nor a list are none and left out."""
    items: list[bytes] = []
    depth = position = start = 0
    while (step := _STEP.match(raw, position)) is not None:
        position = step.end()
        if (run := step["open"]) is not None:
            if depth < _ITEM_LEVEL:
                places = _first(run, _ITEM_LEVEL - depth, step.start("open"))
                depth += run.count(b"[") + run.count(b"{")
                if depth >= _ITEM_LEVEL:
                    start = places[-1]
            else:
                depth += run.count(b"[") + run.count(b"{")
            continue
        first = step.start("close")
        before, depth = depth, depth - (position - first)
        if before >= _ITEM_LEVEL > depth:
            items.append(raw[start : first + before - _ITEM_LEVEL + 1])
    return shallow_json(raw, _ITEM_LEVEL - 1).data, items


def items_of(raw: bytes, smallest: int) -> list[bytes]:
    """The items of a JSON list, cut apart without being decoded: what is made of them is bounded by their size.

    Raises ``ValueError`` where one is no object that holds an object or list, or has less than ``smallest`` bytes.
    """
    items: list[bytes] = []
    depth = position = start = 0
    end = raw.find(b"[") + 1
    while (step := _STEP.match(raw, position)) is not None:
        position = step.end()
        if (run := step["open"]) is not None:
            levels = run.count(b"[") + run.count(b"{")
            if depth < _LIST_ITEM_LEVEL <= depth + levels:
                start = _first(run, _LIST_ITEM_LEVEL - depth, step.start("open"))[-1]
                if raw[end:start].strip(_BETWEEN):
                    raise ValueError("an item is no object")
            depth += levels
            continue
        first = step.start("close")
        before, depth = depth, depth - (position - first)
        if before >= _LIST_ITEM_LEVEL > depth:
            end = first + before - _LIST_ITEM_LEVEL + 1
            if end - start < smallest:
                raise ValueError("an item is too small")
            items.append(raw[start:end])
    if raw[end:].strip(_BETWEEN + b"]"):
        raise ValueError("an item is no object")
    return items


def _first(run: bytes, count: int, offset: int) -> list[int]:
    """Where the first brackets of a run stand that begins at ``offset``."""
    return [offset + opening.start() for opening in islice(_OPENING.finditer(run), count)]


def _in_managed_fields(raw: bytes, opened: list[int]) -> bool:
    return any(_MANAGED_FIELDS.search(raw, max(0, at - 40), at) for at in opened[1:6])


def json_copy(value: Any) -> Any:
    """A copy that shares no object or list with ``value``."""
    if isinstance(value, dict | list):
        try:
            # Written and read again, which takes a fraction of the time of going through it.
            return orjson.loads(orjson.dumps(value))
        except (TypeError, ValueError, RecursionError):
            # What JSON cannot say that yet stands in an object: numbers of many digits, halves of letters.
            return _copy(value)
    return value


def _copy(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copy(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copy(item) for item in value]
    return value


def fill(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set what is missing or null."""
    for key, value in values.items():
        if target.get(key) is None:
            target[key] = value


def part(parent: dict[str, Any], key: str) -> dict[str, Any] | None:
    """The object at ``key``, made if missing; None where something else stands there."""
    if parent.get(key) is None:
        parent[key] = {}
    found = parent[key]
    return found if isinstance(found, dict) else None


def nested_deeper(value: Any, levels: int = MAX_DEPTH) -> str:
    """The beginning of the path to something nested more than ``levels`` deep; "" if there is nothing."""
    level = [value]
    for _ in range(levels + 1):
        level = [item for held in level for item in _items(held)]
        if not level:
            return ""
    return _path_down(value, levels)


def _items(value: Any) -> Any:
    return value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()


def _path_down(value: Any, levels: int) -> str:
    """Looked for where it is known to be there: one way down that is long enough."""
    pending: list[tuple[int, str, Any]] = [(0, "", value)]
    while pending:
        depth, path, held = pending.pop()
        if depth > levels:
            return path
        # Ten steps tell where to look.
        named = depth < 10
        if isinstance(held, Mapping):
            pending.extend((depth + 1, f"{path}.{key}".lstrip(".") if named else path, held[key]) for key in held)
        elif isinstance(held, list):
            pending.extend((depth + 1, f"{path}[{index}]" if named else path, item) for index, item in enumerate(held))
    return ""


def cut(value: Any, levels: int = MAX_DEPTH) -> Any:
    """A copy in which nothing is nested more than ``levels`` deep: what would be is left out."""
    if isinstance(value, Mapping):
        return {key: cut(item, levels - 1) for key, item in value.items()} if levels else {}
    if isinstance(value, list):
        return [cut(item, levels - 1) for item in value] if levels else []
    return value
