"""Connections to an API server that a test may break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from app.kube.wire import Request, Response, Stream, Transport
from tests.kube.fakes import json_response, status_body

REASONS = {403: "Forbidden", 409: "Conflict"}


class Connection:
    """The manager's connection. It answers requests that ``refuse`` picks with ``status``, carries out those that
    ``lose`` picks but loses the answer, and delivers watch events ``lag`` seconds late, or once ``holds_back`` ends."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.forward: Callable[[Request], Awaitable[Response]] = inner.request
        self.refuse: Callable[[Request], bool] = lambda _: False
        self.lose: Callable[[Request], bool] = lambda _: False
        self.holds_back: Callable[[Request], bool] = lambda _: False
        self.lag: Callable[[], float] = lambda: 0.0
        self.status, self.text = 500, "the disk is full"
        self.requests: list[Request] = []

    async def request(self, request: Request) -> Response:
        self.requests.append(request)
        if self.refuse(request):
            return json_response(
                self.status, status_body(self.status, REASONS.get(self.status, "InternalError"), self.text)
            )
        answer = await self.forward(request)
        return json_response(504, status_body(504, "Timeout", "too late")) if self.lose(request) else answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._inner.stream(request) as stream:
            yield Stream(stream.status, stream.headers, self._late(request, stream.chunks))

    async def _late(self, request: Request, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            while self.holds_back(request):
                await asyncio.sleep(0.1)
            if seconds := self.lag():
                await asyncio.sleep(seconds)
            yield chunk

    async def close(self) -> None:
        await self._inner.close()
