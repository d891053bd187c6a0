"""Pages for who sits on this machine, or comes through ``kubectl port-forward``, and nobody else."""

from __future__ import annotations

import ipaddress
from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

_LOCAL_NAMES: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))


def is_local(scope: Scope) -> bool:
    """Whether the request comes from this machine, and means it: a page elsewhere cannot make a browser send it."""
    client = scope.get("client")
    if client is None:
        return False
    address = ipaddress.ip_address(client[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "localhost")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return (mapped or address).is_loopback and name in _LOCAL_NAMES


class LoopbackOnly:
    """An application that answers only them, whatever page sent them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """ASGI entry."""
        if scope["type"] != "http" or is_local(scope):
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": b"shown on loopback only: use kubectl port-forward\n"})
