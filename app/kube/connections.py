"""Connections: HTTP/1.1 requests with whole answers over kept connections, as cheap as Python can do them.

A controller's CPU is mostly the requests it sends. A general HTTP client spends several times what the exchange itself
costs on redirects, cookies, middlewares and objects per request that no API server has any use for; here a request is
one write to a socket, and its answer is put together by a parser written in C.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final, cast

import httptools
from multidict import CIMultiDict
from yarl import URL

#: Seconds after which a connection nobody used is closed; API servers do so after 90, and who is first loses nothing.
KEPT_SECONDS: Final = 60.0
#: Methods that may be sent again where a kept connection turned out to be closed.
_REPEATABLE: Final = frozenset({"GET", "PUT", "DELETE"})

Answer = tuple[int, Mapping[str, str], bytes]


class BrokenError(Exception):
    """The connection ended, or what came was no HTTP. ``silent``: not a single byte had come."""

    def __init__(self, message: str, *, silent: bool = False) -> None:
        super().__init__(message)
        self.silent = silent


class ConnectError(Exception):
    """No connection came about; the cause says why."""


class Connections:
    """The connections to one server. ``base``: scheme, host, port and a path that all targets follow."""

    def __init__(
        self, base: str, ssl_context: ssl.SSLContext | None, server_name: str | None, connect_timeout: float
    ) -> None:
        url = URL(base)
        self._host, self._port = url.host or "", url.port or 0
        self._prefix = url.raw_path.rstrip("/")
        self._authority = url.authority
        self._ssl: ssl.SSLContext | bool | None = None
        if url.scheme == "https":
            self._ssl = ssl_context if ssl_context is not None else True
        self._server_name = server_name
        self._connect_timeout = connect_timeout
        self._idle: deque[_Connection] = deque()
        self._open: set[_Connection] = set()

    async def request(
        self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None, limit: float
    ) -> Answer:
        """Send, and read the whole answer within ``limit`` seconds.

        Raises ConnectError, BrokenError, TimeoutError or ssl.SSLError.
        """
        message = self._message(method, target, headers, body)
        while True:
            connection = self._kept()
            fresh = connection is None
            if connection is None:
                connection = await self._connect()
            try:
                return await connection.exchange(message, limit)
            except BrokenError as error:
                # The server may have closed it in the moment it was taken up.
                if fresh or not error.silent or method not in _REPEATABLE:
                    raise

    async def close(self) -> None:
        """Close all connections."""
        for connection in tuple(self._open):
            connection.abort()
        await asyncio.sleep(0)

    def _message(self, method: str, target: str, headers: Sequence[tuple[str, str]], body: bytes | None) -> bytes:
        lines = [f"{method} {self._prefix}{target} HTTP/1.1", f"Host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in headers]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        if any("\n" in line or "\r" in line for line in lines):
            raise ValueError(f"{method} {target!r}: a line break in the head of a request")
        head = "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n"
        return head if body is None else head + body

    def _kept(self) -> _Connection | None:
        idle = self._idle
        oldest = asyncio.get_running_loop().time() - KEPT_SECONDS
        while idle and idle[0].since < oldest:
            idle.popleft().abort()
        while idle:
            connection = idle.pop()
            if connection.usable:
                return connection
        return None

    async def _connect(self) -> _Connection:
        loop = asyncio.get_running_loop()
        name = self._server_name or self._host if self._ssl is not None else None
        try:
            async with asyncio.timeout(self._connect_timeout):
                _, connection = await loop.create_connection(
                    lambda: _Connection(loop, self._done, self._lost),
                    self._host,
                    self._port,
                    ssl=self._ssl,
                    server_hostname=name,
                )
        except (ssl.SSLError, TimeoutError):
            raise
        except OSError as error:
            raise ConnectError(str(error)) from error
        self._open.add(connection)
        return connection

    def _done(self, connection: _Connection) -> None:
        self._idle.append(connection)

    def _lost(self, connection: _Connection) -> None:
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)


class _Connection(asyncio.Protocol):
    """One connection, used by one request at a time."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        done: Callable[[_Connection], None],
        lost: Callable[[_Connection], None],
    ) -> None:
        self._loop = loop
        self._done = done
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._waiter: asyncio.Future[Answer] | None = None
        self._headers: CIMultiDict[str] = CIMultiDict()
        self._body: list[bytes] = []
        self._begun = False
        self._headers_complete = False
        #: When it was last used, on the loop's scale.
        self.since = loop.time()

    # ---- for the pool

    @property
    def usable(self) -> bool:
        """Whether a request can be sent on it, as far as can be known."""
        return self._transport is not None and not self._transport.is_closing()

    async def exchange(self, message: bytes, limit: float) -> Answer:
        """Send a request and wait for its answer."""
        waiter: asyncio.Future[Answer] = self._loop.create_future()
        self._begun, self._waiter = False, waiter
        self._begin()
        if self._transport is None or self._transport.is_closing():
            raise BrokenError("it was closed", silent=True)
        timer = self._loop.call_later(limit, self._fail, TimeoutError())
        self._transport.write(message)
        try:
            return await waiter
        except asyncio.CancelledError:
            self.abort()  # nobody reads the answer any more
            raise
        finally:
            timer.cancel()
            if self._waiter is waiter:
                self._waiter = None

    def abort(self) -> None:
        """Close it at once."""
        if self._transport is not None:
            self._transport.abort()

    # ---- for the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It is open."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """A piece of an answer."""
        self._begun = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(BrokenError(f"{type(error).__name__}: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """It is closed, by whomever."""
        self._transport = None
        self._lost(self)
        if self._headers_complete and exc is None and not self._has_length():
            self._answer()  # such a body ends with its connection
            return
        if isinstance(exc, ssl.SSLError):
            self._fail(exc)
            return
        text = f"{type(exc).__name__}: {exc}" if exc is not None else "the server closed it before its answer was whole"
        self._fail(BrokenError(text, silent=not self._begun))

    # ---- for the parser

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        self._headers.add(name.decode("latin-1"), value.decode("latin-1"))

    def on_headers_complete(self) -> None:
        """What follows is the body."""
        self._headers_complete = True

    def on_body(self, body: bytes) -> None:
        """A piece of it."""
        self._body.append(body)

    def on_message_complete(self) -> None:
        """The answer is whole."""
        if self._parser.get_status_code() < 200:
            self._begin()  # an announcement: the answer follows
            return
        keep = self._parser.should_keep_alive() and self._waiter is not None
        self._answer()
        if keep:
            self.since = self._loop.time()
            self._done(self)
        else:
            self.abort()

    # ---- inside

    def _begin(self) -> None:
        self._headers, self._body, self._headers_complete = CIMultiDict(), [], False

    def _has_length(self) -> bool:
        return "Content-Length" in self._headers or "Transfer-Encoding" in self._headers

    def _answer(self) -> None:
        waiter, self._waiter, self._headers_complete = self._waiter, None, False
        if waiter is not None and not waiter.done():
            body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
            waiter.set_result((self._parser.get_status_code(), self._headers, body))

    def _fail(self, error: Exception) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_exception(error)
        self.abort()
