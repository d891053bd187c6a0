"""HTTP/1.1 for webhooks, with limits on the cost of a connection."""

from __future__ import annotations

import asyncio
import time
import urllib.parse
from collections import deque
from typing import Any, Final

import httptools
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.utils import get_local_addr, get_remote_addr, is_ssl

from app.admission.requests import TOO_LARGE
from app.kube.admission import LEAVES_NO_TRACE, STRANGER
from app.manager.limits import Connections, plain_address

#: Bytes of a response to write before checking whether the client reads, and size of the parts of a request body.
SLICE_BYTES: Final = 256 * 1024


class Body:
    """A request body being received. It is kept in parts, because joining 32 MiB would block other requests."""

    __slots__ = ("last", "parts", "size")

    def __init__(self) -> None:
        self.last: bytes | bytearray = b""
        self.parts: deque[bytes] | None = None
        self.size = 0

    def add(self, data: bytes) -> None:
        self.size += len(data)
        if not self.last:
            self.last = data
            return
        if type(self.last) is bytes:
            self.last = bytearray(self.last)
        self.last += data
        if len(self.last) >= SLICE_BYTES:
            self.parts = self.parts or deque()
            self.parts.append(bytes(self.last))
            self.last = b""

    def beginning(self, size: int) -> bytes:
        """Return the first ``size`` bytes, or the whole first part if that is shorter."""
        return bytes((self.parts[0] if self.parts else self.last)[:size])


class SlicedCycle(RequestResponseCycle):
    """Writes large responses in slices, and passes on large request bodies in parts.

    TLS encrypts all data of a write at once and reports only afterwards whether the client reads.
    """

    #: Parts of the request body that precede ``body``, if any.
    parts: deque[bytes] | None = None

    async def receive(self) -> Any:
        if not self.parts or self.disconnected or self.response_complete:
            return await super().receive()
        return {"type": "http.request", "body": self.parts.popleft(), "more_body": True}

    def send(self, message: Any) -> Any:
        body = message.get("body", b"")
        return super().send(message) if len(body) <= SLICE_BYTES else self._send_slices(body, message)

    async def _send_slices(self, body: bytes, message: Any) -> None:
        view = memoryview(body)
        more = bool(message.get("more_body", False))
        for start in range(0, len(body), SLICE_BYTES):
            last = start + SLICE_BYTES >= len(body)
            part = {**message, "body": bytes(view[start : start + SLICE_BYTES]), "more_body": more or not last}
            await super().send(part)  # type: ignore[arg-type]
            if self.disconnected:
                return


# uvicorn's httptools protocol for untrusted callers, within the limits of its port. Unlike uvicorn, it calls the
# application once a request is complete, so that the application never waits for a client; it checks each limit as
# bytes arrive; and it supports neither pipelining nor upgrades. It also costs less per request: one timer per process
# checks all ages, instead of two timers per request.

_IDLE: Final = 0
#: A request has begun and is not complete.
_RECEIVING: Final = 1
#: The application is handling the request.
_ANSWERING: Final = 2
#: The response is complete, but the client has not read all of it.
_SENDING: Final = 3
#: Refused or ended: further data is discarded.
_ENDING: Final = 4
#: The request is complete and its caller, a stranger, waits for a turn.
_WAITING: Final = 5

#: Added to the priority of connections to close first; larger than any age in seconds.
_FIRST: Final = 1e12
#: Bytes to keep of a body that is too large: enough to find the uid of the review.
BEGINNING_BYTES: Final = 64 * 1024
#: If a caller sends this many bytes at once, other connections are read before this one is read again.
TURN_BYTES: Final = 64 * 1024
#: Allowance for chunked encoding, on top of twice the size of the body.
_CHUNKING_BYTES: Final = 64 * 1024


class _RefusedError(Exception):
    """Stops the parser."""


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 on one connection, within the limits of its port."""

    def __init__(
        self, config: Any, server_state: Any, loop: asyncio.AbstractEventLoop, connections: Connections
    ) -> None:
        super().__init__(config=config, server_state=server_state, app_state={}, _loop=loop)
        self.held = 0
        self.pending = False
        self.stranger = False
        self._address = ""
        self._connections = connections
        self._limits = connections.limits
        self._phase = _IDLE
        self._since = loop.time()
        self._first = True
        self._in_head = False
        self._fed = 0
        self._body = Body()
        self._body_limit = 0
        self._length = 0
        self._unread_since = 0.0
        self._keep_alive = True
        #: Whether further input is ignored, because the connection closes after the current response.
        self._deaf = False
        self._stopping = False
        self._may_post = True
        self._refusal: tuple[int, str, str] | None = None

    # ---- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called when the connection is established, for TLS after the handshake."""
        self.connections.add(self)
        self.transport = transport
        self.flow = FlowControl(transport)
        self.server = get_local_addr(transport)
        self.client = get_remote_addr(transport)
        self.scheme = "https" if is_ssl(transport) else "http"
        self._may_post = self._limits.client_names is None or _is_client(transport, self._limits.client_names)
        self._address = plain_address(self.client[0]) if self.client else ""
        self.stranger = self._is_stranger()
        self._connections.open.add(self)
        self._connections.start(self.loop)

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection is lost; wakes tasks that wait for it."""
        self._connections.open.discard(self)
        self._connections.release(self)
        self._phase = _ENDING
        self._body = Body()
        super().connection_lost(exc)

    def _is_stranger(self) -> bool:
        return not self._may_post or self._connections.is_stranger(self._address)

    def shutdown(self) -> None:
        self._deaf = self._phase != _RECEIVING
        self._stopping = True
        if self._phase in (_ANSWERING, _WAITING):
            self.cycle.keep_alive = False
        elif self._phase != _RECEIVING:
            self.transport.close()

    def check(self, now: float) -> None:
        limits, phase, age = self._limits, self._phase, now - self._since
        if phase == _RECEIVING:
            if age > limits.complete_seconds:
                self._refuse(408, "slow_request", f"request not complete after {limits.complete_seconds:g} s")
        elif phase == _IDLE:
            held_back = self._first and self._is_stranger() and self._connections.callers.ask(time.monotonic())
            if age > (limits.complete_seconds if held_back else limits.keep_alive_seconds):
                self._end(now)
        elif phase == _ENDING:
            if age > limits.linger_seconds:
                self.transport.abort()
        elif phase == _WAITING:
            if age > limits.complete_seconds:
                self._refuse(503, "strangers", "too many requests from unknown callers: try again")
        elif self._unread_since and now - self._unread_since > limits.read_seconds:
            self._connections.refuse("slow_reader")
            self.transport.abort()

    def expendable(self, now: float) -> float:
        """Return the priority for closing: strangers first, then ended, unused, slow and the oldest connections."""
        age = now - self._since
        if self._phase in (_ANSWERING, _WAITING):
            return 0.0 if self.stranger else -1.0
        worth = max(age, 1e-6)
        if self._phase == _ENDING:
            worth += _FIRST
        elif self._phase == _IDLE:
            worth += _FIRST / 2 if self._first else 0.0
        else:
            worth *= 1000.0
        return worth + (2 * _FIRST if self.stranger else 0.0)

    def give_up(self) -> None:
        self._connections.release(self)
        self._body = Body()
        self.pending = False
        self._end(self.loop.time())
        self.transport.abort()

    def _end(self, now: float) -> None:
        self._phase, self._since = _ENDING, now
        self.transport.close()

    # ---- bytes arrive

    def data_received(self, data: bytes) -> None:
        """Feed the parser, which calls the callbacks below."""
        if len(data) >= TURN_BYTES:
            self._take_turns()
        if self._deaf or self._phase == _ENDING:
            return
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if not self._limits.ignores_upgrades:
                self._refusal = (400, "upgrade", "Upgrade: only HTTP/1.1 is supported")
        except httptools.HttpParserError:
            if self._refusal is None:
                self._refusal = (400, "not_http", "not an HTTP/1.1 request")
        if self._refusal is not None:
            self._refuse(*self._refusal)
        elif self._phase == _RECEIVING:
            self._count(len(data))

    def _take_turns(self) -> None:
        """Pause reading so that other connections are read first: libuv reads up to 8 MiB while data is available."""
        if not self.transport.is_closing():
            self.transport.pause_reading()
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        if not self.transport.is_closing():
            self.transport.resume_reading()

    def _count(self, size: int) -> None:
        """Limit the bytes of an incomplete request: the parser keeps unfinished lines and discards chunk headers."""
        self._fed += size
        if self._in_head:
            if self._fed > self._limits.head_bytes:
                self._refuse(431, "head_bytes", f"request head is larger than {self._limits.head_bytes} bytes")
        elif self._fed > 2 * self._body.size + self._limits.head_bytes + _CHUNKING_BYTES:
            self._refuse(400, "chunking", "the body's chunks are too small")

    def on_message_begin(self) -> None:
        if self._phase:
            raise self._stop(
                400, "pipelining", "pipelining is not supported: wait for the response to the previous request"
            )
        self._phase, self._since = _RECEIVING, self.loop.time()
        self._in_head = True
        self._fed = self._length = 0
        self._body = Body()
        self.url = b""
        self.expect_100_continue = False
        self.headers = []
        self.pending = True

    def on_url(self, url: bytes) -> None:
        self.url += url
        if len(self.url) > self._limits.url_bytes:
            raise self._stop(414, "url_bytes", f"URL is longer than {self._limits.url_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        headers = self.headers
        if len(headers) >= self._limits.headers or not self._in_head:
            raise self._stop(431, "headers", f"more than {self._limits.headers} headers, or headers after the body")
        name = name.lower()
        if name == b"content-length":
            self._length = int(value)
        elif name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Called when the head is complete. Refuses the request if its head is not acceptable."""
        self._in_head = False
        limits = self._limits
        size = len(self.url)
        for name, value in self.headers:
            size += len(name) + len(value)
        if size > limits.head_bytes:
            raise self._stop(431, "head_bytes", f"request head is larger than {limits.head_bytes} bytes")
        if self.parser.should_upgrade() and not limits.ignores_upgrades:
            raise self._stop(400, "upgrade", "Upgrade: only HTTP/1.1 is supported")
        method = self.parser.get_method()
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        if not self._may_post and path not in self._limits.open_paths:
            raise self._stop(403, "client_certificate", "a client certificate of the API server is required")
        version = self.parser.get_http_version()
        self._keep_alive = version != "1.0" and self.parser.should_keep_alive()
        if "%" in path:
            path = urllib.parse.unquote(path)
        self.scope = {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,  # type: ignore[typeddict-item]
            "method": method.decode("ascii"),
            "root_path": "",
            "path": path,
            "raw_path": url.path,
            "query_string": url.query or b"",
            "headers": self.headers,
            "state": {},
        }
        self._body_limit = limits.bodies.get(path, limits.body_bytes)
        if self.expect_100_continue:
            if self._length > self._body_limit:
                self._answer_too_large()
            else:
                self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        if self._phase != _RECEIVING:
            return
        held = self._body.size + len(body)
        if not self._connections.take(self, len(body)):
            raise self._stop(503, "held_bytes", "too many requests at once: try again")
        self._body.add(body)
        if held > self._body_limit or (self._length > self._body_limit and held >= BEGINNING_BYTES):
            self._answer_too_large()

    def on_message_complete(self) -> None:
        if self._phase == _RECEIVING:
            if self._length > self._body_limit:
                self._answer_too_large()
            else:
                self._answer(self.transport, keep_alive=self._keep_alive and not self._stopping)

    # ---- responding

    def _answer_too_large(self) -> None:
        """Pass on only the beginning of the body. The application refuses the request with the uid of its review."""
        self._connections.refuse("body_bytes")
        beginning, self._body = self._body.beginning(BEGINNING_BYTES), Body()
        self._body.add(beginning)
        self._connections.release(self)
        self.scope[TOO_LARGE] = True  # type: ignore[typeddict-unknown-key]
        self._answer(_DrainingTransport(self), keep_alive=False)

    def _answer(self, transport: Any, *, keep_alive: bool) -> None:
        complete = asyncio.Event()
        complete.set()
        cycle = SlicedCycle(
            scope=self.scope,
            transport=transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=complete,
            expect_100_continue=False,
            keep_alive=keep_alive,
            on_response=self.on_response_complete,
        )
        cycle.body = self._body.last  # type: ignore[assignment]
        cycle.parts = self._body.parts
        cycle.more_body = False
        self._body = Body()
        self.cycle = cycle
        # The known addresses may have changed since the connection was opened.
        self.stranger = self._is_stranger()
        if self.stranger:
            self._phase, self._since = _WAITING, self.loop.time()
            task = self.loop.create_task(self._answer_stranger(cycle))
        else:
            self._phase = _ANSWERING
            self.pending = False
            self._count_review("")
            task = self.loop.create_task(cycle.run_asgi(self.app))
        task.add_done_callback(self.tasks.discard)
        self.tasks.add(task)

    async def _answer_stranger(self, cycle: SlicedCycle) -> None:
        STRANGER.set(self._address)
        self._connections.strange += 1
        self._count_review(self._address)
        await self._connections.turns.wait(self._address)
        if self._phase == _WAITING:  # otherwise, the connection has been closed
            self._phase = _ANSWERING
            self.pending = False
            LEAVES_NO_TRACE.set(self._connections.callers.ask(time.monotonic()))
            await cycle.run_asgi(self.app)

    def _count_review(self, stranger: str) -> None:
        if self.scope["method"] == "POST":
            self._connections.callers.posted(stranger)

    def on_response_complete(self) -> None:
        """Called when the application is done. Bytes that the client has not read still count toward the limit."""
        self.server_state.total_requests += 1
        self._first = False
        self._connections.release(self)
        if self._phase == _ENDING:
            return
        self._since = self.loop.time()
        if self._unread_since:
            self._phase, self.pending = _SENDING, True
            if not self._connections.take(self, self.transport.get_write_buffer_size()):
                self._connections.refuse("held_bytes")
                self.give_up()
        elif self.transport.is_closing():
            self._phase = _ENDING
        else:
            self._phase = _IDLE

    def pause_writing(self) -> None:
        """Called when the client reads more slowly than the application writes."""
        self._unread_since = self.loop.time()
        super().pause_writing()
        if self._phase == _ANSWERING:
            self.pending = True
            if not self._connections.take(self, self.cycle.expected_content_length):
                self._connections.refuse("held_bytes")
                self.loop.call_soon(self.give_up)

    def resume_writing(self) -> None:
        self._unread_since = 0.0
        super().resume_writing()
        if self._phase == _ANSWERING:
            self._connections.release(self)
            self.pending = False
        elif self._phase == _SENDING:
            self._connections.release(self)
            self.pending = False
            self._since = self.loop.time()
            self._phase = _ENDING if self.transport.is_closing() else _IDLE

    # ---- refusing

    def _stop(self, status: int, reason: str, message: str) -> _RefusedError:
        """Record a refusal. The returned exception stops the parser, and ``data_received`` responds."""
        self._refusal = (status, reason, message)
        return _RefusedError(message)

    def _refuse(self, status: int, reason: str, message: str) -> None:
        self._connections.refuse(reason)
        if self._phase == _ANSWERING:
            # The current response is completed first, and then the connection is closed.
            self._deaf = True
            self.cycle.keep_alive = False
            return
        if self._phase == _SENDING:
            self.give_up()
            return
        self._connections.release(self)
        self.pending = False
        self._body = Body()
        self.headers = []
        self._phase, self._since = _ENDING, self.loop.time()
        if not self.transport.is_closing():
            text = message.encode("ascii", "replace") + b"\n"
            self.transport.write(
                b"%bcontent-type: text/plain; charset=utf-8\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%b"
                % (STATUS_LINE[status], len(text), text)
            )


def _is_client(transport: asyncio.Transport, names: frozenset[str]) -> bool:
    """Return whether the handshake verified a client certificate. If ``names`` is not empty, it must have one of
    them."""
    certificate = transport.get_extra_info("peercert")
    if not certificate:
        return False
    found = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return not names or not names.isdisjoint(found)


class _DrainingTransport:
    """A transport that stays open while the client is sending; a reset would discard the response."""

    def __init__(self, protocol: BoundedProtocol) -> None:
        self._protocol = protocol
        self._transport = protocol.transport

    def write(self, data: bytes) -> None:
        self._transport.write(data)

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def close(self) -> None:
        protocol = self._protocol
        protocol._phase, protocol._since = _ENDING, protocol.loop.time()
