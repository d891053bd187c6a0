"""Wire: what is sent to an API server and what comes back, as bytes, and who does the sending.

:class:`Transport` is what the client needs. ``transport.py`` has the one on aiohttp, ``plainhttp.py`` a smaller one;
tests and simulations give their own.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Final, Protocol
from urllib.parse import urlencode

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
