"""The body of a request, as an ASGI server hands it over; bounded also where the server has no bound of its own."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any, Final

from starlette.types import Receive, Scope

#: In a request's scope: the server kept only the beginning of a body that is over the limit.
TOO_LARGE: Final = "pykruise.too_large"


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
