"""Connections to an API server that tests can break."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from math import inf
from typing import Any

import orjson

from app.kube.wire import Request, Response, Stream, Transport
from tests.kube.fakes import json_response, status_body

#: The path of an object, optionally with a subresource.
_OBJECT = re.compile(r"/v\w+(/namespaces/(?P<namespace>[^/]+))?/[a-z]+/(?P<name>[^/]+)(/[a-z]+)?$")
REASONS = {403: "Forbidden", 409: "Conflict"}


class Connection:
    """The manager's connection. Requests that ``refuse`` selects are answered with ``status``; answers to requests that
    ``lose`` selects are lost; watch events arrive ``lag`` seconds late, or once ``holds_back`` ends."""

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


class Counting:
    """A transport that counts the writes of the manager and can make them fail."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stream, self.close = inner.stream, inner.close
        self.requests: list[str] = []
        #: Returns an answer instead of the server's, or None to pass the request on.
        self.intercept: Callable[[Request], Response | Exception | None] = lambda _request: None

    async def request(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.path}")
        answer = self.intercept(request)
        if isinstance(answer, Exception):
            raise answer
        return answer if answer is not None else await self._inner.request(request)

    def refuses(self, method: str, part: str, message: str = "no", *, times: float = inf, **details: Any) -> list[str]:
        """Forbid requests whose path contains ``part``, at most ``times``. Return the list of their paths."""
        paths: list[str] = []

        def refuse(request: Request) -> Response | None:
            if request.method != method or part not in request.path or len(paths) >= times:
                return None
            paths.append(request.path)
            return json_response(403, status_body(403, "Forbidden", message, **details))

        self.intercept = refuse
        return paths

    def writes(self) -> Counter[str]:
        """Count the writes by verb and resource."""
        return Counter(
            f"{verb} {path.split('/')[-1] if path.split('/')[-1] in ('status', 'resize') else ''}"
            for verb, path in (line.split(" ") for line in self.requests)
            if verb != "GET"
        )


class Noting:
    """Accepts every write and answers with the sent object under the next resourceVersion."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, Any]] = []
        #: Requests to forbid, with the message "no".
        self.refuse: Callable[[Request], bool] = lambda _: False
        #: Requests without an answer, whose outcome is unknown.
        self.lost: Callable[[Request], bool] = lambda _: False
        #: Objects by path for GET; other paths are not found. A write with another resourceVersion conflicts.
        self.stored: dict[str, dict[str, Any]] = {}
        #: Path → HTTP status and reason with which any request is answered.
        self.answer: dict[str, tuple[int, str]] = {}
        self.version = 1_000_000

    async def request(self, request: Request) -> Response:
        body = orjson.loads(request.body) if request.body else None
        self.requests.append((request.method, request.path, body))
        if self.refuse(request):
            return json_response(403, status_body(403, "Forbidden", "no"))
        if self.lost(request):
            return json_response(500, status_body(500, "InternalError"))
        if request.path in self.answer:
            code, reason = self.answer[request.path]
            return json_response(code, status_body(code, reason))
        if request.method == "GET":
            found = self.stored.get(request.path)
            return json_response(200, found) if found else json_response(404, status_body(404, "NotFound"))
        metadata = body.get("metadata", {}) if isinstance(body, dict) else {}
        path = request.path.removesuffix("/status")
        known = self.stored.get(path)
        if known and metadata.get("resourceVersion", "") not in ("", known["metadata"]["resourceVersion"]):
            return json_response(409, status_body(409, "Conflict"))
        self.version += 1
        if known:
            self.stored[path] = {**known, "metadata": {**known["metadata"], "resourceVersion": str(self.version)}}
        whole: dict[str, Any] = body or {} if request.method == "POST" else {}
        at = _OBJECT.search(request.path) if request.method != "POST" else None
        place = {"namespace": at["namespace"] or "", "name": at["name"]} if at is not None else {}
        metadata = {"uid": f"uid-{self.version}", **place, **metadata, "resourceVersion": str(self.version)}
        return json_response(200, {**whole, "metadata": metadata})

    def stream(self, request: Request) -> Any:
        raise NotImplementedError(request)

    async def close(self) -> None:
        pass


@asynccontextmanager
async def answering(*answers: bytes) -> AsyncIterator[tuple[int, list[bytes], list[asyncio.StreamWriter]]]:
    """Serve these answers in turn, the last one repeatedly; an empty answer closes the connection.

    Yields the port, the requests and the connections, which the client must close before the context ends.
    """
    asked: list[bytes] = []
    connections: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                body = await reader.readexactly(int(length[0].partition(b":")[2])) if length else b""
                answer = answers[min(len(asked), len(answers) - 1)]
                asked.append(head + body)
                if not answer:
                    return
                writer.write(answer)
                if b"Connection: close" in answer:
                    return
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        yield listening.sockets[0].getsockname()[1], asked, connections
        async with asyncio.timeout(60):
            while not all(writer.is_closing() for writer in connections):
                await asyncio.sleep(0.01)
