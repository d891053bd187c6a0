"""Requests, answers, lists and watch events as bytes, and the ``Transport`` protocol that carries them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol
from urllib.parse import urlencode

import msgspec
from typing_extensions import TypeVar

from app.kube import jsonvalues

# Wire: what is sent to an API server and what comes back, as bytes, and who does the sending.
#
# :class:`Transport` is what the client needs. ``transport.py`` has the one on aiohttp, ``plainhttp.py`` a smaller one;
# tests and simulations give their own.

#: Who we say we are, and what field managers call us.
USER_AGENT: Final = "kruise-manager"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. ``path`` is escaped already; ``query`` is not. ``timeout``: seconds for the whole answer."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None = None
    timeout: float | None = None

    @property
    def target(self) -> str:
        """Path and query as they stand in the request line."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Response:
    """A whole answer. Header names are looked up without regard to case by the mapping given."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """An answer whose body comes in pieces of any size; valid inside the ``async with`` that gave it."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """How requests reach the server. Where no answer comes, both raise ``TransportError``."""

    async def request(self, request: Request) -> Response:
        """Send, and read the whole answer."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Send, and give the answer as it comes. Leaving the context closes the connection."""
        ...

    async def close(self) -> None:
        """Close all connections."""
        ...


T = TypeVar("T", default=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Objects of a list, or of one page of it while ``continue_token`` is not empty."""

    items: list[T]
    resource_version: str
    continue_token: str = ""


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class RawList(msgspec.Struct, frozen=True):
    """A list whose items are left as bytes."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_decode_list = msgspec.json.Decoder(RawList).decode


def read_list(body: bytes) -> RawList:
    """A list, also where one of its items is nested deeper than a decoder goes."""
    try:
        return _decode_list(body)
    except RecursionError:
        envelope, items = jsonvalues.split_list(body)
        return RawList(_decode_list(envelope).metadata, [msgspec.Raw(item) for item in items])


Item = TypeVar("Item")

ADDED: Final = "ADDED"
MODIFIED: Final = "MODIFIED"
DELETED: Final = "DELETED"
BOOKMARK: Final = "BOOKMARK"
ERROR: Final = "ERROR"

#: On the bookmark that ends the objects of a streaming list.
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

#: No single object is this big (etcd takes 1.5 MiB); a line that is means the other side does not speak our protocol.
MAX_LINE: Final = 64 * 2**20


class WatchEvent(msgspec.Struct, frozen=True):
    """One event; ``object`` is left as bytes, a view into the line."""

    type: str
    object: msgspec.Raw
    #: The object stands here without what was nested too deep, and that was no part of its managedFields.
    lossy: bool = False


class TypedEvent(msgspec.Struct, Generic[Item], frozen=True, gc=False):
    """One event whose object was read with it."""

    type: str
    object: Item


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """What must be known of any object, even of one that its own decoder refuses."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Envelope(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()


def typed_event_decoder(decode: Callable[[bytes], Item]) -> Callable[[bytes], TypedEvent[Item]] | None:
    """What reads a line in one pass, where ``decode`` is a struct's decoder: two passes cost half as much again.
    It raises ``msgspec.MsgspecError`` also for events that are not about such an object."""
    decoder = getattr(decode, "__self__", None)
    if not isinstance(decoder, msgspec.json.Decoder):
        return None
    return msgspec.json.Decoder(TypedEvent[decoder.type]).decode  # type: ignore[name-defined]


class _Line(msgspec.Struct, frozen=True):
    """An event as it comes."""

    type: str
    object: msgspec.Raw


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def metadata_of(raw: bytes | msgspec.Raw) -> Metadata:
    """The metadata of a bookmark or of any object; empty where even that cannot be read."""
    try:
        return _decode_envelope(raw).metadata
    except RecursionError:
        return metadata_of(jsonvalues.shallow_json(bytes(raw)).data)
    except (msgspec.MsgspecError, ValueError):
        return Metadata()


def read_watch_event(line: bytes) -> WatchEvent:
    """One line of a watch, at any depth. Raises ``msgspec.MsgspecError`` or ``ValueError`` for what is no event."""
    try:
        event = _decode_line(line)
    except RecursionError:
        shallow = jsonvalues.shallow_json(line)
        event = _decode_line(shallow.data)
        return WatchEvent(event.type, event.object, shallow.lossy)
    return WatchEvent(event.type, event.object)


class LineSplitter:
    """Collects pieces and gives back whole lines. A line that comes in many pieces is joined only once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines this piece completes, without their line ends; empty lines are left out."""
        first, newline, rest = chunk.partition(b"\n")
        if not newline:
            self._keep(chunk)
            return []
        if self._parts:
            self._parts.append(first)
            first = b"".join(self._parts)
        lines = [first] if first else []
        if rest:
            *whole, tail = rest.split(b"\n")
            lines += [line for line in whole if line]
        else:
            tail = b""
        self._parts, self._size = [], 0
        if tail:
            self._keep(tail)
        return lines

    def _keep(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        if self._size > MAX_LINE:
            raise ValueError(f"a line of more than {MAX_LINE} bytes in a watch")
