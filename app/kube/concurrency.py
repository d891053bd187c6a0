"""Run coroutines side by side, with a limit, and share one call among those that ask at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Hashable, Iterable, Iterator
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from app.kube.callers import STRANGER

T = TypeVar("T")


async def concurrently(work: Iterable[Awaitable[T]], limit: int) -> list[T]:
    """The results in order, of so many at once at most. The first error is raised at once; the others go on."""
    return await asyncio.gather(*_limited(work, limit))


async def settled(work: Iterable[Awaitable[T]], limit: int) -> list[T | BaseException]:
    """The same when all is done, with what each raised in place of its result."""
    return await asyncio.gather(*_limited(work, limit), return_exceptions=True)


async def together(work: Iterable[Awaitable[T]], limit: int) -> list[T]:
    """The results in order; the first error is raised when all is done."""
    found = await settled(work, limit)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]


class KeyedLocks:
    """Writes of one object go one after the other, for of two at once an API server refuses one."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        """The lock of a key; it is forgotten with the last who holds it or waits for it."""
        return self._locks.setdefault(key, asyncio.Lock())


def _limited(work: Iterable[Awaitable[T]], limit: int) -> Iterator[Coroutine[Any, Any, T]]:
    free = asyncio.Semaphore(limit)

    async def limited(one: Awaitable[T]) -> T:
        async with free:
            return await one

    return (limited(one) for one in work)


# Reads that arrive together are one: whoever asks gets an answer that was read after asking.
#
#     deployments = Coalesced(lambda key: client.get(DEPLOYMENTS, key.name, key.namespace))
#     await deployments(key)
#
# While a read is under way further ones for the same key wait for the next, so nobody gets an answer that is older
# than the question. A stranger shares reads with nobody else: one that fails because its budget is spent fails no
# other.

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
#: In which loop, for which stranger, and for which key.
_Asked: TypeAlias = "tuple[asyncio.AbstractEventLoop, str, K]"


class Coalesced(Generic[K, V]):
    """``read`` gives the value of a key; what it raises is raised to all who asked together. Two reads of a key begin
    at least ``interval`` seconds apart. ``shared``: no budget limits the reads, so strangers may share them."""

    def __init__(self, read: Callable[[K], Awaitable[V]], *, interval: float = 0.0, shared: bool = False) -> None:
        self._read = read
        self._shared = shared
        self._interval = interval
        self._next: dict[_Asked[K], asyncio.Future[V]] = {}
        self._tasks: dict[_Asked[K], asyncio.Task[None]] = {}
        #: How often it was asked, and read.
        self.asked = 0
        self.reads = 0

    async def __call__(self, key: K) -> V:
        """The value, read from now on."""
        self.asked += 1
        loop = asyncio.get_running_loop()
        asked = (loop, "" if self._shared else STRANGER.get(), key)
        answer = self._next.get(asked)
        if answer is None:
            answer = self._next[asked] = loop.create_future()
        if asked not in self._tasks:
            # A task of its own: that one who asks gives up must not take the others with it.
            self._tasks[asked] = asyncio.create_task(self._serve(asked))
        return await asyncio.shield(answer)

    async def _serve(self, asked: _Asked[K]) -> None:
        loop, due = asked[0], 0.0
        try:
            while True:
                await asyncio.sleep(max(0.0, due - loop.time()))
                answer = self._next.pop(asked, None)
                if answer is None:
                    return
                due = loop.time() + self._interval
                self.reads += 1
                try:
                    value = await self._read(asked[2])
                except Exception as error:  # noqa: BLE001  # it is raised where it was asked
                    answer.set_exception(error)
                    answer.exception()
                except BaseException:
                    answer.cancel()
                    raise
                else:
                    answer.set_result(value)
        finally:
            del self._tasks[asked]
            if (left := self._next.pop(asked, None)) is not None:
                left.cancel()
