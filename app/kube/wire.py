"""Requests, responses, lists and watch events as bytes, and the ``Transport`` protocol that carries them.

``transport.py`` implements the protocol with aiohttp; the implementation in ``http1.py`` needs less memory. Tests and
simulations have their own transports.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol
from urllib.parse import urlencode

import msgspec
from typing_extensions import TypeVar

from app.kube import jsonvalues

#: The user agent, and the field manager in managedFields.
USER_AGENT: Final = "kruise-manager"


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request. ``path`` is already escaped; ``query`` is not. The whole response must be read within
    ``timeout`` seconds."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None = None
    timeout: float | None = None

    @property
    def target(self) -> str:
        """Path and query as they appear in the request line."""
        return f"{self.path}?{urlencode(self.query)}" if self.query else self.path


@dataclass(frozen=True, slots=True)
class Response:
    """A complete response. Headers are a case-insensitive mapping."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, slots=True)
class Stream:
    """A response whose body arrives in chunks of any size; valid inside the ``async with`` that created it."""

    status: int
    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]


class Transport(Protocol):
    """Sends requests to the server. Both methods raise ``TransportError`` if there is no response."""

    async def request(self, request: Request) -> Response:
        """Send a request and read the whole response."""
        ...

    def stream(self, request: Request) -> AbstractAsyncContextManager[Stream]:
        """Send a request and yield the response as it arrives. Leaving the context closes the connection."""
        ...

    async def close(self) -> None: ...


#: Called once per request with the HTTP status (``<error>`` if there was no response), the method and the host. Counts
#: ``rest_client_requests_total``.
OnResponse = Callable[[str, str, str], None]


def ignore_response(_code: str, _method: str, _host: str) -> None:
    """Do nothing: the default ``OnResponse``."""


T = TypeVar("T", default=dict[str, Any])


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """Objects of a list, or of one page if ``continue_token`` is not empty."""

    items: list[T]
    resource_version: str
    continue_token: str = ""


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata of a list."""

    resource_version: str = ""
    continue_token: str = msgspec.field(name="continue", default="")


class RawList(msgspec.Struct, frozen=True):
    """A list whose items are kept as bytes."""

    metadata: ListMeta = ListMeta()
    items: list[msgspec.Raw] | None = None


_decode_list = msgspec.json.Decoder(RawList).decode


def read_list(body: bytes) -> RawList:
    """Decode a list, even if one of its items is nested deeper than the decoder supports."""
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

#: Annotation on the bookmark that follows the last object of a streaming list.
INITIAL_EVENTS_END: Final = "k8s.io/initial-events-end"

#: The maximum line length. No object is this big (etcd accepts 1.5 MiB); a longer line is not a watch event.
MAX_LINE: Final = 64 * 2**20


class _Line(msgspec.Struct, frozen=True):
    """An event as received."""

    type: str
    object: msgspec.Raw


class WatchEvent(_Line, frozen=True):
    """One event; ``object`` is kept as bytes, a view into the line."""

    #: Whether values outside managedFields were dropped because they were nested too deeply.
    lossy: bool = False


class TypedEvent(msgspec.Struct, Generic[Item], frozen=True, gc=False):
    """One event and its decoded object."""

    type: str
    object: Item


class Metadata(msgspec.Struct, frozen=True, rename="camel"):
    """The metadata that is read from every object, even if the decoder of its kind rejects the object."""

    name: str = ""
    namespace: str = ""
    resource_version: str = ""
    annotations: dict[str, str] | None = None


class _Envelope(msgspec.Struct, frozen=True):
    metadata: Metadata = Metadata()


def typed_event_decoder(decode: Callable[[bytes], Item]) -> Callable[[bytes], TypedEvent[Item]] | None:
    """Return a function that decodes an event in one pass, if ``decode`` is a struct's decoder, else None.

    Two passes take 50 % longer. The function raises ``msgspec.MsgspecError`` also for events about other objects.
    """
    decoder = getattr(decode, "__self__", None)
    if not isinstance(decoder, msgspec.json.Decoder):
        return None
    return msgspec.json.Decoder(TypedEvent[decoder.type]).decode  # type: ignore[name-defined]


_decode_line = msgspec.json.Decoder(_Line).decode
_decode_envelope = msgspec.json.Decoder(_Envelope).decode


def metadata_of(raw: bytes | msgspec.Raw) -> Metadata:
    """Return the metadata of a bookmark or of any object; empty if it cannot be read."""
    try:
        return _decode_envelope(raw).metadata
    except RecursionError:
        return metadata_of(jsonvalues.shallow_json(bytes(raw)).data)
    except (msgspec.MsgspecError, ValueError):
        return Metadata()


def read_watch_event(line: bytes) -> WatchEvent:
    """Decode one line of a watch, even if it is nested deeper than the decoder supports.

    Raises ``msgspec.MsgspecError`` or ``ValueError``.
    """
    try:
        event = _decode_line(line)
    except RecursionError:
        shallow = jsonvalues.shallow_json(line)
        event = _decode_line(shallow.data)
        return WatchEvent(event.type, event.object, shallow.lossy)
    return WatchEvent(event.type, event.object)


class LineSplitter:
    """Assembles chunks into lines. A line that arrives in many chunks is joined only once."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes, without line ends; empty lines are skipped."""
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
            raise ValueError(f"the watch sent a line of more than {MAX_LINE} bytes")
