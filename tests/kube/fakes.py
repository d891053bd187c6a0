"""Test helpers: virtual time, and in-memory API servers that serve as the client's transport."""

import asyncio
import functools
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson

from app.kube.client import Client
from app.kube.errors import RequestInfo, TransportError
from app.kube.patches import merge_patch
from app.kube.wire import Request, Response, Stream
from tests.deadline import Deadline
from tests.kit import virtualtime


def virtual(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run an async test on virtual time: sleeping takes no time, and the order of events is fixed."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        virtualtime.run(test(*args, **kwargs))

    return run


async def until(condition: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a condition, looking every 10 ms of the loop's time; fail after the deadline."""
    loop, deadline = asyncio.get_running_loop(), Deadline(seconds)
    end = loop.time() + seconds if isinstance(loop, virtualtime.VirtualLoop) else None
    while not condition():
        assert not (deadline.passed() if end is None else loop.time() >= end), f"not within {seconds:g} s"
        await asyncio.sleep(0.01)


@asynccontextmanager
async def running(*mains: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run tasks during the test. A task that fails fails the test; the others are canceled at its end."""
    tasks = [asyncio.create_task(main) for main in mains]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
    for result in results:
        if isinstance(result, BaseException) and not isinstance(result, asyncio.CancelledError):
            raise result


def json_response(status: int, body: Any, **headers: str) -> Response:
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, orjson.dumps(body))


def status_body(code: int, reason: str, message: str = "", **more: Any) -> dict[str, Any]:
    return {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason,
            "message": message or reason, **more}  # fmt: skip


class Connections:
    """A transport with scripted responses: ``answers`` in turn for requests, ``streams`` in turn for watches.

    An answer is a Response, an exception, or a function of the request. A stream is a function that yields
    pieces, or an Event to wait for before the answer; watches after the last stream stay open without events.
    """

    def __init__(self) -> None:
        self.answers: deque[Response | Exception | Callable[[Request], Response | Awaitable[Response]]] = deque()
        self.streams: deque[Callable[[], AsyncIterator[bytes]] | Response | Exception | asyncio.Event] = deque()
        self.requests: list[Request] = []
        self.watches: list[Request] = []
        self.open_streams = 0

    async def request(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self.answers.popleft()
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, Response):
            return answer
        result = answer(request)
        return result if isinstance(result, Response) else await result

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        self.watches.append(request)
        script = self.streams.popleft() if self.streams else hang
        if isinstance(script, Exception):
            raise script
        if isinstance(script, asyncio.Event):
            await script.wait()
            script = hang
        self.open_streams += 1
        try:
            if isinstance(script, Response):
                yield Stream(script.status, script.headers, pieces(script.body)())
            else:
                yield Stream(200, {}, script())
        finally:
            self.open_streams -= 1

    async def close(self) -> None:
        return None


def client_for(*answers: Any) -> tuple[Client, Connections]:
    """Return a client whose requests get these answers in turn."""
    connections = Connections()
    connections.answers.extend(answers)
    return Client(connections, virtualtime.VirtualClock()), connections


async def hang() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


def pieces(*chunks: bytes, then_hang: bool = False) -> Callable[[], AsyncIterator[bytes]]:
    """Create a stream of these pieces that then ends, or stays open without events."""

    async def stream() -> AsyncIterator[bytes]:
        for chunk in chunks:
            yield chunk
        if then_hang:
            await asyncio.Event().wait()

    return stream


def obj(name: str, version: int, namespace: str = "shop", **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata | more.pop("metadata", {}), **more}


def event(type_: str, body: dict[str, Any]) -> bytes:
    return orjson.dumps({"type": type_, "object": body}) + b"\n"


def bookmark(version: int, *, end_of_list: bool = False) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(version)}
    if end_of_list:
        metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
    return event("BOOKMARK", {"kind": "Pod", "apiVersion": "v1", "metadata": metadata})


def listing(version: int, *items: dict[str, Any], continue_token: str = "") -> Response:
    metadata = {"resourceVersion": str(version)} | ({"continue": continue_token} if continue_token else {})
    return json_response(200, {"kind": "PodList", "apiVersion": "v1", "metadata": metadata, "items": list(items)})


@dataclass
class MemoryServer:
    """An API server with create, get, merge patch, versions and conflicts, as Leases and Events need them.

    ``fail`` may return a response or raise instead; ``delay`` is the duration of each request.
    """

    objects: dict[str, dict[str, Any]] = field(default_factory=dict)
    fail: Callable[[Request], Response | None] = lambda request: None
    delay: float = 0.0
    version: int = 0
    requests: list[Request] = field(default_factory=list)

    async def request(self, request: Request) -> Response:
        self.requests.append(request)
        if self.delay:
            await asyncio.sleep(self.delay)
        answer = self.fail(request)
        return answer if answer is not None else self._answer(request)

    def _answer(self, request: Request) -> Response:
        body = orjson.loads(request.body) if request.body else {}
        if request.method == "POST":
            path = f"{request.path}/{body['metadata']['name']}"
            if path in self.objects:
                return json_response(409, status_body(409, "AlreadyExists"))
            return self._store(path, body)
        found = self.objects.get(request.path)
        if found is None:
            return json_response(404, status_body(404, "NotFound"))
        if request.method == "GET":
            return json_response(200, found)
        assert request.method == "PATCH"
        expected = body.get("metadata", {}).pop("resourceVersion", None)
        if expected is not None and expected != found["metadata"]["resourceVersion"]:
            return json_response(409, status_body(409, "Conflict"))
        return self._store(request.path, merge_patch(found, body))

    def _store(self, path: str, body: dict[str, Any]) -> Response:
        self.version += 1
        body = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.objects[path] = body
        return json_response(200, body)

    def stream(self, request: Request) -> Any:
        raise TransportError(RequestInfo(request.method, request.target), "no watches here")

    async def close(self) -> None:
        return None
