"""A small HTTP/1.1 client over asyncio streams, for requests to an API server and container probes.

It is for processes that run on every node, where aiohttp would cost 12 MiB of memory per process. Connections are
reused, and the size of responses is bounded.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

import httptools

from app.kube.config import ClusterConfig
from app.kube.errors import ConfigError, RequestInfo, TransportError
from app.kube.wire import OnResponse, Request, Response, Stream, ignore_response

#: Maximum number of consecutive bytes that are not content: a response head, interim responses, trailers.
MAX_HEAD: Final = 64 * 1024
#: Maximum size of a response that is read as a whole. Lists are paged, and an object has at most 3 MiB.
MAX_BODY: Final = 256 * 1024 * 1024
_PIECE: Final = 64 * 1024
#: Timeout for sending remaining data and shutting down TLS when a connection is closed.
CLOSE_SECONDS: Final = 2.0
#: Seconds after which an idle connection is not reused, because the server may have closed it.
_IDLE_SECONDS: Final = 60.0
_MAX_IDLE: Final = 8
_CONNECT_SECONDS: Final = 10.0
_REQUEST_SECONDS: Final = 60.0


class HttpError(Exception):
    """The response is not HTTP, or exceeds a limit."""


class ConnectionLost(HttpError):
    """The connection ended before the response was complete."""


class Headers(dict[str, str]):
    """Header fields by case-insensitive name. If a field is repeated, only its last value is kept, but Warning values
    are joined."""

    def get(self, key: str, default: str | None = None) -> str | None:  # type: ignore[override]
        return super().get(key.lower(), default)


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a response."""

    status: int
    headers: Headers


class _Answer:
    """One response as it arrives. The ``on_`` methods are the parser's callbacks."""

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        # As in Go, chunked encoding takes precedence over Content-Length.
        self._parser.set_dangerous_leniencies(lenient_chunked_length=True)
        self._headers = Headers()
        #: Bytes received since the last content.
        self._overhead = 0
        self.head: Head | None = None
        self.body: list[bytes] = []
        self.complete = False
        self.keep_alive = False

    def feed(self, data: bytes) -> None:
        """Parse the next bytes; empty bytes mark the end of the connection. Raises ``HttpError``."""
        if not data:
            self._end()
            return
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.keep_alive = False
            if not self.complete:
                raise HttpError(f"the response is not HTTP: {error}") from error
        self._overhead = 0 if self.body else self._overhead + len(data)
        if self._overhead > MAX_HEAD and not self.complete:
            raise HttpError(f"the response has more than {MAX_HEAD} bytes without content")

    def _end(self) -> None:
        if self.head is None:
            raise ConnectionLost("the connection was closed before a response")
        headers = self.head.headers
        if "content-length" in headers or "chunked" in (headers.get("transfer-encoding") or "").lower():
            raise ConnectionLost("the connection was closed during the response")
        self.complete = True

    def on_message_begin(self) -> None:
        """Do not reuse a connection if more data follows the response."""
        self.keep_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Record a header. Trailers are recorded too, but never read."""
        key, text = name.decode("latin-1").lower(), value.decode("latin-1").strip()
        before = self._headers.get(key) if key == "warning" else None
        self._headers[key] = f"{before}, {text}" if before else text

    def on_headers_complete(self) -> None:
        """Complete the head, unless an interim response ends here."""
        status, headers = self._parser.get_status_code(), self._headers
        self._headers = Headers()
        if self.head is None and (status >= 200 or status == 101):
            self.head = Head(status, headers)

    def on_body(self, data: bytes) -> None:
        if not self.complete:
            self.body.append(data)

    def on_message_complete(self) -> None:
        if self.head is not None and not self.complete:
            self.complete = True
            self.keep_alive = self._parser.should_keep_alive()


class Connection:
    """One connection that sends a request, reads its response, and can be reused."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._answer = _Answer()
        self.idle_since = 0.0

    @classmethod
    async def open(
        cls, host: str, port: int, context: ssl.SSLContext | None, server_name: str | None = None
    ) -> Connection:
        """Connect. Raises ``OSError`` (including ``ssl.SSLError``), also for an invalid host name."""
        name = (server_name or host) if context is not None else None
        try:
            reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=name)
        except ssl.SSLError:
            raise  # a certificate error is also a ValueError
        except ValueError:
            raise OSError(f"{host[:80]!r} is not a valid host name") from None
        return cls(reader, writer)

    @property
    def is_closed(self) -> bool:
        return self._reader.at_eof() or self._writer.is_closing()

    @property
    def reusable(self) -> bool:
        """Return whether the response was read to its end and both sides keep the connection open."""
        return self._answer.complete and self._answer.keep_alive

    async def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None) -> Head:
        """Send a request and read the head of the response."""
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        if body is not None:
            lines.append(f"Content-Length: {len(body)}")
        self._writer.write("\r\n".join([*lines, "", ""]).encode("latin-1", "replace") + (body or b""))
        answer = self._answer = _Answer()
        try:
            await self._writer.drain()
        except ConnectionError as error:
            raise ConnectionLost(f"the connection was lost: {error}") from error
        while answer.head is None:
            await self._receive()
        return answer.head

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the body of the response as it arrives."""
        answer = self._answer
        while True:
            pieces, answer.body = answer.body, []
            for piece in pieces:
                yield piece
            if answer.complete:
                return
            await self._receive()

    async def _receive(self) -> None:
        try:
            data = await self._reader.read(_PIECE)
        except ConnectionError as error:
            raise ConnectionLost(f"the connection was lost: {error}") from error
        self._answer.feed(data)

    def close(self) -> None:
        """Close the connection without waiting."""
        self._writer.close()
        asyncio.get_running_loop().call_later(CLOSE_SECONDS, self._writer.transport.abort)


class PlainTransport:
    """A :class:`app.kube.wire.Transport` for one API server."""

    def __init__(self, config: ClusterConfig, *, on_response: OnResponse = ignore_response) -> None:
        if config.proxy:
            raise ConfigError(f"{config.source}: proxies to the API server are not supported here; remove proxy-url")
        try:
            parts = urlsplit(config.host)
            port = parts.port
        except ValueError as error:
            raise ConfigError(f"{config.source}: {config.host!r} is not a valid API server address: {error}") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"{config.source}: {config.host!r} is not a valid API server address")
        self.config = config
        self._on_response = on_response
        self._host = parts.hostname
        self._port = port or (443 if parts.scheme == "https" else 80)
        self._authority = parts.netloc
        self._prefix = parts.path.rstrip("/")
        self._context = None
        if parts.scheme == "https":
            self._context = config.ssl_context if config.ssl_context is not None else ssl.create_default_context()
        self._idle: deque[Connection] = deque()

    async def request(self, request: Request) -> Response:
        """Send a request and read the whole response. Rejected credentials are renewed once."""
        response = await self._whole(request)
        if response.status == 401:
            before = await self.config.authorization()
            await self.config.renew()
            if await self.config.authorization() != before:
                response = await self._whole(request)
        return response

    async def _whole(self, request: Request) -> Response:
        seconds = _REQUEST_SECONDS if request.timeout is None else request.timeout
        async with self._exchange(request, seconds) as (connection, head):
            body = bytearray()
            async for piece in connection.pieces():
                body += piece
                if len(body) > MAX_BODY:
                    raise HttpError(f"the response is longer than {MAX_BODY} bytes")
        return Response(head.status, head.headers, bytes(body))

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._exchange(request, request.timeout) as (connection, head):
            if head.status == 401:
                await self.config.renew()  # the caller retries after its back-off
            yield Stream(head.status, head.headers, connection.pieces())

    @asynccontextmanager
    async def _exchange(self, request: Request, seconds: float | None) -> AsyncIterator[tuple[Connection, Head]]:
        """Send a request, and yield the head of the response and the connection to read the rest from."""
        connection = None
        try:
            async with asyncio.timeout(seconds):
                connection, head = await self._begin(request)
                yield connection, head
        except (HttpError, OSError, TimeoutError) as error:
            if connection is None:
                self._on_response("<error>", request.method, self._authority)
            raise TransportError(RequestInfo(request.method, request.target), self._explain(error)) from error
        finally:
            if connection is not None:
                self._give_back(connection)

    async def _begin(self, request: Request) -> tuple[Connection, Head]:
        """Send on an idle or a new connection. If the server has closed an idle connection, retry when that is safe."""
        headers = {"Host": self._authority, "Accept-Encoding": "identity", **request.headers}
        if authorization := await self.config.authorization():
            headers["Authorization"] = authorization
        target = self._prefix + request.target
        while (kept := self._take()) is not None:
            try:
                return kept, await self._send(kept, request, target, headers)
            except ConnectionLost:
                if request.method != "GET":
                    raise
        async with asyncio.timeout(_CONNECT_SECONDS):
            connection = await Connection.open(self._host, self._port, self._context, self.config.server_name)
        return connection, await self._send(connection, request, target, headers)

    async def _send(self, connection: Connection, request: Request, target: str, headers: Mapping[str, str]) -> Head:
        try:
            head = await connection.send(request.method, target, headers, request.body)
        except BaseException:
            connection.close()
            raise
        self._on_response(str(head.status), request.method, self._authority)
        return head

    def _take(self) -> Connection | None:
        now = asyncio.get_running_loop().time()
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed and now - connection.idle_since < _IDLE_SECONDS:
                return connection
            connection.close()
        return None

    def _give_back(self, connection: Connection) -> None:
        if not connection.reusable or len(self._idle) >= _MAX_IDLE:
            connection.close()
            return
        connection.idle_since = asyncio.get_running_loop().time()
        self._idle.append(connection)

    def _explain(self, error: Exception) -> str:
        where = f"{self.config.host} ({self.config.source})" if self.config.source else self.config.host
        match error:
            case ssl.SSLCertVerificationError():
                return f"the certificate of {where} is not trusted: {error}; check certificate-authority"
            case ssl.SSLError():
                return f"no TLS connection to {where}: {error}"
            case TimeoutError():
                return f"no response from {where} in time"
            case OSError():
                reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
                return f"cannot connect to {where}: {reason}; is the API server running?"
        return f"connection to {where}: {error}"

    async def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
