"""Large answers, written in slices."""

from __future__ import annotations

from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

#: How much of an answer is written before asking whether the client reads.
SLICE_BYTES: Final = 256 * 1024


class SlicedCycle(RequestResponseCycle):
    """Writes a large answer in slices: TLS encrypts whatever it is given at once, and says only afterwards whether the
    client reads."""

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
