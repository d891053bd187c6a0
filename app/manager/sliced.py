"""Large bodies, read in parts, and large answers, written in slices."""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

#: How much of an answer is written before asking whether the client reads; how much there is of a body in a part of it.
SLICE_BYTES: Final = 256 * 1024


class Body:
    """A body as it comes in: its last part, and those before it. To put 32 MiB together would keep others waiting."""

    __slots__ = ("last", "parts", "size")

    def __init__(self) -> None:
        self.last: bytes | bytearray = b""
        self.parts: deque[bytes] | None = None
        self.size = 0

    def add(self, data: bytes) -> None:
        """More of it has come."""
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
        """So much of it, and at most a part."""
        return bytes((self.parts[0] if self.parts else self.last)[:size])


class SlicedCycle(RequestResponseCycle):
    """Writes a large answer in slices: TLS encrypts whatever it is given at once, and says only afterwards whether the
    client reads. Hands a large body over in the parts it came in."""

    #: What comes before ``body``, where there is more than one part.
    parts: deque[bytes] | None = None

    async def receive(self) -> Any:
        """The body, or its next part."""
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
