"""Bodies of requests, read within limits, and who may send them."""

from __future__ import annotations

import gc
import ipaddress
import re
from collections.abc import Callable, MutableMapping
from typing import Any, Final, ParamSpec, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

#: In a request's scope: the server kept only the beginning of a body that is over the limit.
TOO_LARGE: Final = "pykruise.too_large"
#: Smaller bodies take some milliseconds. From here on the garbage collector waits while one is read, and reviews of our
#: own kinds are decided about beside the loop.
LARGE_BYTES: Final = 64 * 1024

P = ParamSpec("P")
R = TypeVar("R")

#: Values in one review: an empty list takes 64 bytes where its text has 3. The densest objects an API server stores
#: hold half of this, and a review holds two.
MAX_VALUES: Final = 400_000
#: Smaller bodies cannot hold enough values to matter.
_FEW: Final = 256 * 1024
#: What neither ends a text nor begins a value.
_OTHERS: Final = bytes(set(range(256)) - set(b'",[{'))
_TEXT: Final = re.compile(rb'"[^"]*+"?')


def too_many_values(body: bytes, limit: int = MAX_VALUES) -> bool:
    """Whether a JSON text holds more values than anybody should have to make objects of."""
    if len(body) <= _FEW or _punctuation(body) <= limit:
        return False
    # Of two texts at most one is a key.
    if (body.count(b'"') - body.count(b'\\"')) // 4 > limit:
        return True
    return _punctuation(_between_texts(body)) > limit


def _between_texts(body: bytes) -> bytes:
    """The punctuation of a JSON text that stands in none of its texts. What is no JSON is right up to its mistake,
    where decoders end."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotation marks without punctuation between them change nothing about what is inside and what outside.
    return _TEXT.sub(b"", body.translate(None, _OTHERS).replace(b'""', b""))


def _punctuation(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def without_collections(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """What the function returns, while no garbage is collected: what large bodies become holds no cycles, and to look
    for them again and again takes up to ten times as long as the work itself."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return function(*args, **kwargs)
    finally:
        if collects:
            gc.enable()


class DisconnectedError(Exception):
    """The client went away before its request was complete."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> tuple[list[bytes], bool]:
    """The parts of the body, or its beginning and False if it is over the limit. Raises DisconnectedError."""
    message: MutableMapping[str, Any] = await receive()
    if message["type"] == "http.disconnect":
        raise DisconnectedError
    body: bytes = message.get("body", b"")
    if TOO_LARGE in scope:
        return [body], False
    if not message.get("more_body", False):
        return [body], len(body) <= limit
    parts = [body]
    size = len(body)
    while message.get("more_body", False):
        if size > limit:
            return parts, False
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    return parts, size <= limit


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
