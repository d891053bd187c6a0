"""Requests to ASGI applications without a socket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any


async def posted(app: Callable[..., Awaitable[None]], path: str, body: bytes) -> tuple[int, bytes]:
    """Return status and body of an ASGI application's response to a POST, without a socket."""
    sent: list[Any] = []
    headers = [(b"content-type", b"application/json")]
    scope = {"type": "http", "method": "POST", "path": path, "headers": headers, "query_string": b""}

    async def receive() -> Any:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return int(sent[0]["status"]), b"".join(message.get("body", b"") for message in sent[1:])
