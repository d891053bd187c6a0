"""Read request bodies within limits, and check that a request is local."""

from __future__ import annotations

import gc
import ipaddress
import re
from collections.abc import Callable
from typing import Final, ParamSpec, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

#: Maximum size of an AdmissionReview. An API server accepts objects of at most 3 MiB, and a review contains two.
#: controller-runtime has the same limit.
MAX_BODY_BYTES: Final = 7 * 1024 * 1024
#: Maximum size of a ConversionReview. The API server sends a whole page of a list in one review.
MAX_CONVERSION_BYTES: Final = 64 * 1024 * 1024
#: Scope key that the server sets if the body was over the limit and only its beginning was kept.
TOO_LARGE: Final = "pykruise.too_large"
#: Bodies of at least this size are parsed with the garbage collector off, and reviews of our kinds that are this
#: large are decided in a thread. Smaller bodies take a few milliseconds.
LARGE_BYTES: Final = 64 * 1024
#: Smaller reviews of our kinds are also decided in a thread if they have at least this many commas: an empty
#: container takes only 3 bytes, but defaulting and validating it takes 50 microseconds.
LARGE_ITEMS: Final = 1_000

P = ParamSpec("P")
R = TypeVar("R")

#: Maximum number of values in one review: an empty list takes 3 bytes of JSON but 64 bytes of memory. The densest
#: objects that an API server stores contain half as many, and a review contains two.
MAX_VALUES: Final = 400_000
#: Bodies up to this size cannot contain too many values.
_FEW: Final = 256 * 1024
#: Bytes that neither end a string nor start a value.
_OTHERS: Final = bytes(set(range(256)) - set(b'",[{'))
_TEXT: Final = re.compile(rb'"[^"]*+"?')


def too_many_values(body: bytes, limit: int = MAX_VALUES) -> bool:
    """Return whether a JSON document contains more than ``limit`` values."""
    if len(body) <= _FEW or _punctuation(body) <= limit:
        return False
    # At least half of the strings are values; the others may be keys.
    if (body.count(b'"') - body.count(b'\\"')) // 4 > limit:
        return True
    return _punctuation(_between_texts(body)) > limit


def is_large(body: bytes) -> bool:
    """Return whether a review of one of our kinds may be slow to decide."""
    return len(body) >= LARGE_BYTES or body.count(b",") >= LARGE_ITEMS


def _between_texts(body: bytes) -> bytes:
    """Return the punctuation of a JSON document outside its strings.

    For invalid JSON the result is correct up to the error, where decoders stop.
    """
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Adjacent quotation marks do not change which bytes are inside a string.
    return _TEXT.sub(b"", body.translate(None, _OTHERS).replace(b'""', b""))


def _punctuation(text: bytes) -> int:
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def without_collections(function: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call the function with the garbage collector off.

    Objects decoded from large bodies contain no cycles. Collections during the call would take up to ten times as long
    as the work itself.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        return function(*args, **kwargs)
    finally:
        if collects:
            gc.enable()


class DisconnectedError(Exception):
    """The client disconnected before its request was complete."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> tuple[list[bytes], bool]:
    """Return the body's chunks and True, or the chunks read so far and False if the body exceeds the limit.

    Raises DisconnectedError.
    """
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if TOO_LARGE in scope or size > limit:
            return parts, False
        if not message.get("more_body", False):
            return parts, True


_LOCAL_NAMES: Final = frozenset(("localhost", "127.0.0.1", "[::1]"))


def is_local(scope: Scope) -> bool:
    """Return whether the request was sent from this machine, and not by a web page from another origin."""
    client = scope.get("client")
    if client is None:
        return False
    address = ipaddress.ip_address(client[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    host = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"host"), "localhost")
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return (mapped or address).is_loopback and name in _LOCAL_NAMES


class LoopbackOnly:
    """ASGI middleware that answers only local requests."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_local(scope):
            await self._app(scope, receive, send)
            return
        headers = [(b"content-type", b"text/plain")]
        await send({"type": "http.response.start", "status": 403, "headers": headers})
        await send({"type": "http.response.body", "body": b"served on loopback only: use kubectl port-forward\n"})
