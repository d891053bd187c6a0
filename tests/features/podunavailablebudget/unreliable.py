"""An unreliable network for managers on virtual time: it delays and loses messages, and partitions replicas."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random

from app.kube.clock import Clock
from app.kube.errors import RequestInfo, TransportError
from app.kube.wire import Request, Response, Stream, Transport

#: Probability that a request is lost, and that its response is.
LOST, ANSWER_LOST = 0.05, 0.1
#: Seconds a request takes at most, and a watch event.
SLOW, LAG = 0.2, 1.5


class Adverse:
    """A transport over an unreliable network. ``cut_off`` fails every request."""

    def __init__(self, inner: Transport, clock: Clock, rng: Random) -> None:
        self._inner = inner
        self._clock = clock
        self._rng = rng
        self.cut_off = False

    async def request(self, request: Request) -> Response:
        """Watches whose events may be delayed or lost."""
        await self._clock.sleep(self._rng.random() * SLOW)
        drawn = self._rng.random()
        if self.cut_off or drawn < LOST:
            raise _no_answer(request)
        answer = await self._inner.request(request)
        await self._clock.sleep(self._rng.random() * SLOW)
        if self.cut_off or drawn > 1 - ANSWER_LOST:
            raise _no_answer(request)
        return answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        if self.cut_off:
            raise _no_answer(request)
        async with self._inner.stream(request) as stream:
            yield Stream(stream.status, stream.headers, self._late(request, stream.chunks))

    async def _late(self, request: Request, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            await self._clock.sleep(self._rng.random() ** 4 * LAG)
            if self.cut_off:
                raise _no_answer(request)
            yield chunk

    async def close(self) -> None:
        await self._inner.close()


def _no_answer(request: Request) -> TransportError:
    return TransportError(RequestInfo(request.method, request.path), "no answer")
