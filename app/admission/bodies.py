"""The body of a request, as an ASGI server hands it over; bounded also where the server has no bound of its own."""

from __future__ import annotations

import re
from collections.abc import MutableMapping
from typing import Any, Final

from starlette.types import Receive, Scope

#: In a request's scope: the server kept only the beginning of a body that is over the limit.
TOO_LARGE: Final = "pykruise.too_large"


#: Values in one review: an empty list takes 64 bytes where its text has 3. The densest objects an API server stores
#: hold half of this, and a review holds two.
MAX_VALUES: Final = 400_000
#: Smaller bodies cannot hold enough values to matter.
_FEW: Final = 256 * 1024
_TEXT: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)


def too_many_values(body: bytes, limit: int = MAX_VALUES) -> bool:
    """Whether a JSON text holds more values than anybody should have to make objects of."""
    if len(body) <= _FEW or _punctuation(body, 0, len(body)) <= limit:
        return False
    # Of two texts at most one is a key.
    if (body.count(b'"') - body.count(b'\\"')) // 4 > limit:
        return True
    # Only what stands between texts counts.
    found = position = 0
    for text in _TEXT.finditer(body):
        start, end = text.span()
        found += _punctuation(body, position, start)
        if found > limit:
            return True
        position = end
    return found + _punctuation(body, position, len(body)) > limit


def _punctuation(text: bytes, start: int, end: int) -> int:
    return text.count(b",", start, end) + text.count(b"[", start, end) + text.count(b"{", start, end)


class DisconnectedError(Exception):
    """The client went away before its request was complete."""


async def read_body(scope: Scope, receive: Receive, limit: int) -> tuple[bytes, bool]:
    """The body, or its beginning and False if it is over the limit. Raises DisconnectedError."""
    message: MutableMapping[str, Any] = await receive()
    if message["type"] == "http.disconnect":
        raise DisconnectedError
    body: bytes = message.get("body", b"")
    if TOO_LARGE in scope:
        return body, False
    if not message.get("more_body", False):
        return body, len(body) <= limit
    parts = [body]
    size = len(body)
    while message.get("more_body", False):
        if size > limit:
            return b"".join(parts), False
        message = await receive()
        if message["type"] == "http.disconnect":
            raise DisconnectedError
        parts.append(message.get("body", b""))
        size += len(parts[-1])
    return b"".join(parts), size <= limit
