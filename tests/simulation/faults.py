"""Faults drawn from a seed: a transport that misbehaves like a bad network and an overloaded API server."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from random import Random
from typing import Any

import orjson
from multidict import CIMultiDict

from app.kube.clock import Clock
from app.kube.errors import RequestInfo, TransportError
from app.kube.wire import Request, Response, Stream, Transport
from tests.simulation.streams import Streams

#: The client's request timeout (that of ``AiohttpTransport``).
TIMEOUT_SECONDS = 60.0
_WRITES = frozenset({"POST", "PUT", "PATCH", "DELETE"})


@dataclass(frozen=True, slots=True)
class Weather:
    #: Refused without effect: 409 on PUT and PATCH, 429 with Retry-After, 500 and 503.
    conflict: float = 0.0
    overload: float = 0.0
    error: float = 0.0
    #: No answer arrives: the request or the answer is lost.
    lost_request: float = 0.0
    lost_answer: float = 0.0
    #: The request or the answer takes seconds.
    slow: float = 0.0
    #: Watches, per chunk of events: the connection ends, stalls for minutes, or repeats the chunk.
    watch_ends: float = 0.0
    watch_stalls: float = 0.0
    watch_repeats: float = 0.0
    #: Watches, on opening: the resourceVersion is too old (410).
    watch_expired: float = 0.0
    #: Per request: the process dies right before it is sent, or right after it takes effect.
    killed: float = 0.0
    #: The plural of the only affected resource; empty: all.
    only: str = ""

    def of(self, resource: str) -> Weather:
        return CALM if self.only and self.only != resource else self

    def without(self, *names: str) -> Weather:
        return replace(self, **dict.fromkeys(names, 0.0))

    @property
    def text(self) -> str:
        rates = {name: getattr(self, name) for name in FAULTS}
        told = ", ".join(f"{name} {rate:g}" for name, rate in rates.items() if rate) or "nothing else wrong"
        return f"{told} of {self.only}" if self.only else told


#: The rate of a fault during a squall.
SQUALL = 0.5
#: Faults that may last without blocking progress.
DRIZZLE = ("conflict", "conflict", "error")
CALM = Weather()
#: No request succeeds.
CUT_OFF = Weather(lost_request=1.0, watch_ends=1.0)
FAULTS = tuple(field.name for field in fields(Weather) if field.name != "only")


def weather(rng: Random) -> Weather:
    """Draw the rates of faults: most are low, some high."""

    def rate(usual: float) -> float:
        draw = rng.random()
        return 0.0 if draw < 0.3 else usual if draw < 0.8 else usual * 6

    return Weather(
        conflict=rate(0.02),
        overload=rate(0.02),
        error=rate(0.02),
        lost_request=rate(0.015),
        lost_answer=rate(0.02),
        slow=rate(0.02),
        watch_ends=rate(0.02),
        watch_stalls=rate(0.01),
        watch_repeats=rate(0.05),
        watch_expired=rate(0.05),
        killed=rate(0.004),
    )


class CountingTransport:
    """Reports writes that change nothing. ``revision``: the last revision of the store; ``counts``: whether to
    report."""

    def __init__(
        self,
        inner: Transport,
        revision: Callable[[], int],
        counts: Callable[[], bool],
        wasted: Callable[[Request], None],
    ) -> None:
        self._inner = inner
        self._revision = revision
        self._counts = counts
        self._wasted = wasted
        self.stream = inner.stream
        self.close = inner.close

    async def request(self, request: Request) -> Response:
        if request.method not in ("PUT", "PATCH") or "/leases/" in request.path or "dryRun" in request.query:
            return await self._inner.request(request)
        before = self._revision()
        response = await self._inner.request(request)
        if response.status == 200 and self._counts():
            version = orjson.loads(response.body)["metadata"].get("resourceVersion", "")
            if version.isdigit() and int(version) <= before:
                self._wasted(request)
        return response


class FaultyTransport:
    """A client's faulty connection. ``kill`` ends the client's process; None means that it cannot be killed.

    The faults of each sender, verb and resource are drawn from a random stream of their own.
    """

    def __init__(
        self,
        inner: Transport,
        clock: Clock,
        streams: Streams,
        now: Callable[[], Weather],
        kill: Callable[[str], None] | None = None,
        frozen: Callable[[str], float] = lambda _resource: 0.0,
        left_behind: Callable[[Coroutine[Any, Any, None]], object] = lambda work: work.close(),
    ) -> None:
        self._inner = inner
        self._clock = clock
        self._streams = streams
        self._weather = now
        self._kill = kill
        #: Time until which watches of a resource are frozen.
        self._frozen = frozen
        #: Runs requests that are in flight when their sender ends.
        self._left_behind = left_behind
        self.dead = False
        #: Failed requests by resource.
        self.failed: Counter[str] = Counter()

    async def request(self, request: Request) -> Response:
        try:
            response = await self._sent(request)
        except TransportError:
            self.failed[resource_of(request.path)] += 1
            raise
        if response.status >= 400:
            self.failed[resource_of(request.path)] += 1
        return response

    async def _sent(self, request: Request) -> Response:
        rng, weather = self._stream_of(request, request.method), self._weather().of(resource_of(request.path))
        info = RequestInfo(request.method, request.target)
        await self._alive(rng, weather, f"before {request.method} {request.path}", info)
        await self._clock.sleep(rng.expovariate(500.0))
        late = rng.uniform(0.2, 8.0) if rng.random() < weather.slow else 0.0
        if late and rng.random() < 0.5:
            await self._on_its_way(request, late)
            late = 0.0
        if rng.random() < weather.lost_request:
            await self._clock.sleep(rng.choice((0.0, 0.0, 10.0, TIMEOUT_SECONDS)))
            raise TransportError(info, "simulated: connection reset by peer")
        refused = _refusal(rng, request, weather)
        if refused is not None:
            return refused
        self._check(info)
        response = await self._inner.request(request)
        if self._weather() is CUT_OFF:
            raise TransportError(info, "simulated: connection reset before the answer")
        await self._alive(rng, weather, f"after {request.method} {request.path}", info)
        if late:
            await self._clock.sleep(late)
        if rng.random() < 0.3:  # a timer for every answer would cost a tenth of the time
            await self._clock.sleep(rng.expovariate(200.0))
        if request.method in _WRITES and rng.random() < weather.lost_answer:
            await self._clock.sleep(rng.choice((0.0, 0.0, 10.0, TIMEOUT_SECONDS)))
            raise TransportError(info, "simulated: connection reset before the answer")
        self._check(info)
        return response

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        rng, weather = self._stream_of(request, "WATCH"), self._weather().of(resource_of(request.path))
        info = RequestInfo("WATCH", request.path)
        await self._alive(rng, weather, f"before WATCH {request.path}", info)
        await self._clock.sleep(rng.expovariate(500.0))
        if rng.random() < weather.lost_request:
            raise TransportError(info, "simulated: connection refused")
        refused = _refusal(rng, request, weather)
        if refused is None and request.query.get("resourceVersion") and rng.random() < weather.watch_expired:
            refused = status(410, "Expired", "too old resource version: simulated")
        if refused is not None:
            yield Stream(refused.status, refused.headers, _once(refused.body))
            return
        async with self._inner.stream(request) as stream:
            yield Stream(stream.status, stream.headers, self._events(rng, stream.chunks, info))

    async def close(self) -> None:
        self.dead = True

    async def _events(self, rng: Random, chunks: AsyncIterator[bytes], info: RequestInfo) -> AsyncIterator[bytes]:
        resource = resource_of(info.path.partition("?")[0])
        async for chunk in chunks:
            weather = self._weather().of(resource)
            await self._clock.sleep(rng.expovariate(300.0))
            if self._frozen(resource) > self._clock.monotonic():
                while (seconds := self._frozen(resource) - self._clock.monotonic()) > 0:
                    await self._clock.sleep(max(seconds, 0.001))  # a smaller step may be rounded to zero
                if rng.random() < 0.5:  # a relist shows all missed events at once
                    yield _EXPIRED
                    return
            if rng.random() < weather.watch_stalls:
                await self._stand_still(rng.choice((2.0, 20.0, 150.0)))
                if rng.random() < 0.3:  # too far behind: the missed events are compacted
                    yield _EXPIRED
                    return
            self._check(info)
            if rng.random() < weather.watch_ends:
                if rng.random() < 0.5:
                    yield chunk[: rng.randrange(len(chunk))]
                    raise TransportError(info, "simulated: connection reset during a watch")
                return
            yield chunk
            if rng.random() < weather.watch_repeats and b'"BOOKMARK"' not in chunk:
                yield chunk

    async def _stand_still(self, seconds: float) -> None:
        """Stall until the faults end, but at most ``seconds``."""
        until = self._clock.monotonic() + seconds
        while self._weather() != CALM and self._clock.monotonic() < until:
            await self._clock.sleep(2.0)

    async def _on_its_way(self, request: Request, seconds: float) -> None:
        """Delay a request. A patch arrives even if its sender has died; creations and deletions do not, because no
        sender could undo them."""
        arrives = self._clock.monotonic() + seconds
        try:
            await self._clock.sleep(seconds)
        except asyncio.CancelledError:
            if request.method == "PATCH" and not self.dead:
                self._left_behind(self._arrives(request, arrives))
            raise

    async def _arrives(self, request: Request, at: float) -> None:
        await self._clock.sleep(max(0.0, at - self._clock.monotonic()))
        if self._weather() is not CUT_OFF:
            await self._inner.request(request)

    def _stream_of(self, request: Request, verb: str) -> Random:
        return self._streams(f"{request.headers.get('User-Agent')} {verb} {resource_of(request.path)}")

    async def _alive(self, rng: Random, weather: Weather, when: str, info: RequestInfo) -> None:
        self._check(info)
        if self._kill is not None and rng.random() < weather.killed:
            self.dead = True
            self._kill(when)
            await asyncio.Future()  # the kill cancels this task

    def _check(self, info: RequestInfo) -> None:
        if self.dead:
            raise TransportError(info, "simulated: this process is dead")


def _refusal(rng: Random, request: Request, weather: Weather) -> Response | None:
    if request.method in ("PUT", "PATCH") and rng.random() < weather.conflict:
        return status(409, "Conflict", "simulated: the object has been modified; please apply your changes")
    if rng.random() < weather.overload:
        return status(429, "TooManyRequests", "simulated: too many requests", {"Retry-After": "1"})
    if rng.random() < weather.error:
        return status(rng.choice((500, 503)), "InternalError", "simulated: etcdserver: leader changed")
    return None


@lru_cache(maxsize=4096)
def resource_of(path: str) -> str:
    """Return the plural of the resource in a path."""
    parts = path.strip("/").split("/")
    rest = parts[2:] if parts[0] == "api" else parts[3:]
    named = rest[2:] if rest[:1] == ["namespaces"] and len(rest) > 2 else rest
    return named[0] if named else ""


def status(code: int, reason: str, message: str, headers: dict[str, str] | None = None) -> Response:
    body = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason}
    return Response(code, CIMultiDict(headers or {}), orjson.dumps(body | {"message": message}))


_EXPIRED = orjson.dumps({"type": "ERROR", "object": orjson.loads(status(410, "Expired", "too old").body)}) + b"\n"


async def _once(body: bytes) -> AsyncIterator[bytes]:
    yield body
