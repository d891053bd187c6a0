"""``/healthz`` and ``/metrics`` of the agent (KD-4): a server for two questions, small enough for every node."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Final

_SECONDS: Final = 5.0
_MAX_HEAD: Final = 8192
#: The port is the node's, and any Pod may reach it: the kubelet must be answered whoever else holds connections.
MAX_CONNECTIONS: Final = 64
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}
_TEXT: Final = "text/plain; charset=utf-8"

#: Status, content type and body by path.
Answer = tuple[int, str, bytes]


class HealthServer:
    """Answers GET requests, one per connection."""

    def __init__(
        self,
        failing: Callable[[], str],
        metrics: Callable[[], bytes],
        metrics_type: str,
        *,
        seconds: float = _SECONDS,
    ) -> None:
        """``failing``: the first check that fails, '' if none does; ``seconds``: for a request and its answer."""
        self._seconds = seconds
        self._failing = failing
        self._metrics = metrics
        self._metrics_type = metrics_type
        #: Who is connected from where, the oldest first.
        self._open: dict[asyncio.StreamWriter, str] = {}

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen. Raises ``OSError``."""
        return await asyncio.start_server(self._serve, host or None, port, limit=_MAX_HEAD)

    def answer(self, method: str, path: str) -> Answer:
        """What a request gets."""
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"only GET\n"
        match path.partition("?")[0]:
            case "/healthz" | "/readyz":
                wrong = self._failing()
                return (500, _TEXT, f"{wrong}\n".encode()) if wrong else (200, _TEXT, b"ok")
            case "/metrics":
                return 200, self._metrics_type, self._metrics()
        return 404, _TEXT, b"not found; there are /healthz and /metrics\n"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._make_room()
        self._open[writer] = str((writer.get_extra_info("peername") or ("",))[0])
        try:
            with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(self._seconds):
                    await self._exchange(reader, writer)
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _make_room(self) -> None:
        """Where there are too many, the oldest connection of the address that has most is given up."""
        if len(self._open) < MAX_CONNECTIONS:
            return
        most = Counter(self._open.values()).most_common(1)[0][0]
        oldest = next(writer for writer, address in self._open.items() if address == most)
        del self._open[oldest]
        oldest.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0].decode("latin-1").split(" ")
        status, kind, body = self.answer(first[0], first[1]) if len(first) == 3 else (400, _TEXT, b"no HTTP\n")
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        writer.write(head.encode() + (b"" if first[0] == "HEAD" else body))
        await writer.drain()
