"""``/healthz``, ``/readyz`` and ``/metrics``: plain HTTP beside the admission service."""

from __future__ import annotations

import asyncio
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from starlette.types import ASGIApp, Receive, Scope, Send

#: MGR-121: the self-check has a limit.
SELF_CHECK_SECONDS: Final = 2.0

#: Empty if all is well, else what is not.
Check: TypeAlias = Callable[[], Awaitable[str]]


class Readiness:
    """Whether this replica may be sent reviews. Latches: what was ready once stays so until shutdown (D-18)."""

    def __init__(self) -> None:
        self._missing: dict[str, str] = {}
        self.stopping = False
        self.self_check: Check | None = None

    def need(self, what: str, why: str) -> None:
        """Not ready before ``done(what)``; ``why`` is shown meanwhile."""
        self._missing[what] = why

    def done(self, what: str) -> None:
        """This is in place, for good."""
        self._missing.pop(what, None)

    async def fault(self) -> str:
        """Why we are not ready, or an empty string (MGR-20)."""
        if self.stopping:
            return "shutting down"
        if self._missing:
            return "; ".join(f"{what}: {why}" for what, why in self._missing.items())
        return await self.self_check() if self.self_check is not None else ""


def health_app(readiness: Readiness) -> ASGIApp:
    """``/healthz`` (the process serves) and ``/readyz`` (it may be sent reviews)."""

    async def answer(path: str) -> tuple[int, bytes, str]:
        if path in ("/healthz", "/healthz/ping"):
            return 200, b"ok", "text/plain; charset=utf-8"
        if path in ("/readyz", "/readyz/webhook-ready"):
            fault = await readiness.fault()
            text = f"not ready: {fault}\n" if fault else "ok"
            return 503 if fault else 200, text.encode("utf-8", "replace"), "text/plain; charset=utf-8"
        return 404, b"not found: /healthz and /readyz are here\n", "text/plain; charset=utf-8"

    return _plain(answer)


def metrics_app(exposition: Callable[[], bytes], content_type: str) -> ASGIApp:
    """``/metrics``."""

    async def answer(path: str) -> tuple[int, bytes, str]:
        if path == "/metrics":
            return 200, exposition(), content_type
        return 404, b"not found: /metrics is here\n", "text/plain; charset=utf-8"

    return _plain(answer)


def _plain(answer: Callable[[str], Awaitable[tuple[int, bytes, str]]]) -> ASGIApp:
    async def app(scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, body, content_type = await answer(scope["path"])
        headers = [(b"content-type", content_type.encode()), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


def self_check(address: tuple[str, int], ca_cert: Callable[[], bytes]) -> Check:
    """Asks our own admission port for ``/healthz`` as an API server would, trusting only the current CA.

    ``address`` is what the listener is bound to; the certificate is checked for ``localhost`` (MGR-30).
    """
    host = "127.0.0.1" if ipaddress.ip_address(address[0]).is_unspecified else address[0]
    port = address[1]

    async def check() -> str:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        try:
            context.load_verify_locations(cadata=ca_cert().decode("ascii", "replace"))
            async with asyncio.timeout(SELF_CHECK_SECONDS):
                status = await _status(host, port, context)
        except TimeoutError:
            return f"webhook-ready: https://localhost:{port}/healthz: no answer within {SELF_CHECK_SECONDS:g} s"
        except (OSError, ValueError) as error:
            return f"webhook-ready: https://localhost:{port}/healthz: {error}"
        return "" if status == b"200" else f"webhook-ready: /healthz answered {status.decode('ascii', 'replace')}"

    return check


async def _status(host: str, port: int, context: ssl.SSLContext) -> bytes:
    reader, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname="localhost")
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        line = await reader.readline()
        parts = line.split(b" ", 2)
        return parts[1] if len(parts) > 1 else b"nothing"
    finally:
        writer.close()
