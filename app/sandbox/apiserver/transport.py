"""The server as a client's transport: in process, no sockets, bytes in and out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Protocol

from multidict import CIMultiDict

from app.kube.errors import RequestInfo, TransportError
from app.kube.transport import Request, Response, Stream
from app.sandbox.apiserver.requests import Call, User
from app.sandbox.apiserver.watching import Watcher

if TYPE_CHECKING:
    from app.sandbox.apiserver.server import Answer


class Server(Protocol):
    """What answers requests."""

    async def serve(self, call: Call) -> Answer:
        """The answer to one request."""
        ...


class InProcessTransport:
    """Implements ``app.kube.transport.Transport`` on a server in this process.

    ``managed``: the client sees managed fields, as those over HTTPS do.
    """

    def __init__(self, server: Server, user: User, *, managed: bool = False) -> None:
        self._server = server
        self._user = user
        self._managed = managed
        self._closed = False

    def _call(self, request: Request) -> Call:
        if self._closed:
            raise TransportError(RequestInfo(request.method, request.target), "the transport is closed")
        headers = {name.lower(): value for name, value in request.headers.items()}
        call = Call(request.method, request.path, request.query, headers, request.body or b"", self._user)
        call.managed = self._managed
        return call

    async def request(self, request: Request) -> Response:
        """Send, and read the whole answer."""
        answer = await self._server.serve(self._call(request))
        if isinstance(answer, Watcher):
            body = b"".join([chunk async for chunk in answer.chunks()])
            return Response(200, _watch_headers(), body)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        """Send, and give the answer as it comes."""
        answer = await self._server.serve(self._call(request))
        if isinstance(answer, Watcher):
            try:
                yield Stream(200, _watch_headers(), answer.chunks())
            finally:
                answer.close()
        else:
            yield Stream(answer.status, answer.headers, _once(answer.body))

    async def close(self) -> None:
        """Refuse further requests."""
        self._closed = True


def _watch_headers() -> CIMultiDict[str]:
    return CIMultiDict({"Content-Type": "application/json"})


async def _once(body: bytes) -> AsyncIterator[bytes]:
    if body:
        yield body
