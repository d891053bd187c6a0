"""Run coroutines concurrently with a limit or in batches, share reads among simultaneous callers, and cache results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from app.kube.admission import NAMESPACE, STRANGER
from app.kube.clock import Clock
from app.kube.errors import KubeError

T = TypeVar("T")
R = TypeVar("R")


async def concurrently(work: Iterable[Awaitable[T]], limit: int) -> list[T]:
    """Return the results in order, with at most ``limit`` running at once. The first error is raised immediately; the
    others keep running."""
    return await asyncio.gather(*_limited(work, limit))


async def settled(work: Iterable[Awaitable[T]], limit: int) -> list[T | BaseException]:
    """Like ``concurrently``, but wait for all and return exceptions in place of results."""
    return await asyncio.gather(*_limited(work, limit), return_exceptions=True)


async def together(work: Iterable[Awaitable[T]], limit: int) -> list[T]:
    """Return the results in order. The first error is raised after all have finished."""
    results: list[T] = []
    for one in await settled(work, limit):
        if isinstance(one, BaseException):
            raise one
        results.append(one)
    return results


def batches(given: Sequence[T], limit: int | None = None) -> Iterator[Sequence[T]]:
    """Yield batches of 1, 2, 4, … items, at most ``limit`` each, so that only a few are tried if all would fail."""
    start, size = 0, 1
    while start < len(given):
        yield given[start : start + size]
        start, size = start + size, size * 2 if limit is None else min(size * 2, limit)


async def in_batches(
    write: Callable[[T], Awaitable[R]], given: Sequence[T], *, limit: int | None = None, stop: bool = True
) -> AsyncIterator[tuple[T, R | KubeError]]:
    """Write the items in :func:`batches`. Yield each item with its result or API error. With ``stop``, end after the
    first batch with an error."""
    for batch in batches(given, limit):
        answers = await asyncio.gather(*map(write, batch), return_exceptions=True)
        for one, answer in zip(batch, answers, strict=True):
            if isinstance(answer, BaseException) and not isinstance(answer, KubeError):
                raise answer
            yield one, answer
        if stop and any(isinstance(answer, KubeError) for answer in answers):
            return


async def cancel(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended. Does not raise their errors."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def task_group() -> AsyncIterator[asyncio.TaskGroup]:
    """Open a TaskGroup. The first failure cancels the other tasks and is raised unwrapped."""
    try:
        async with asyncio.TaskGroup() as group:
            yield group
    except BaseExceptionGroup as failures:
        raise _first_error(failures) from None


def _first_error(failures: BaseExceptionGroup[BaseException]) -> BaseException:
    found = failures.exceptions[0]
    return _first_error(found) if isinstance(found, BaseExceptionGroup) else found


class KeyedLocks:
    """One lock per key. Writes to one object are serialized, because the API server rejects one of two concurrent
    writes."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def of(self, key: str) -> asyncio.Lock:
        """Return the lock for a key. It is dropped when no task holds it or waits for it."""
        return self._locks.setdefault(key, asyncio.Lock())


def _limited(work: Iterable[Awaitable[T]], limit: int) -> Iterator[asyncio.Task[T]]:
    free = asyncio.Semaphore(limit)

    async def limited(one: Awaitable[T]) -> T:
        async with free:
            return await one

    def begun(one: Awaitable[T]) -> asyncio.Task[T]:
        task = asyncio.create_task(limited(one))
        if asyncio.iscoroutine(one):
            # If the task is canceled before the coroutine starts, the coroutine must be closed explicitly.
            task.add_done_callback(lambda _: one.close())
        return task

    return map(begun, work)


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
#: The event loop; the address of an unknown caller and the namespace, which have rate limits of their own; the key.
_ReadKey: TypeAlias = "tuple[asyncio.AbstractEventLoop, tuple[str, str], K]"


class Coalesced(Generic[K, V]):
    """Coalesces concurrent reads of a key: the callers share one read that starts after their calls.

        deployments = Coalesced(lambda key: client.get(DEPLOYMENTS, key.name, key.namespace))
        await deployments(key)

    ``read`` returns the value for a key; its exceptions are raised to all waiting callers. Two reads of a key start at
    least ``interval`` seconds apart. Unknown callers and reviews of different namespaces do not share reads: a
    read that exceeds the rate limit of one must not fail for the others. Set ``shared`` if reads are not rate-limited.
    """

    def __init__(self, read: Callable[[K], Awaitable[V]], *, interval: float = 0.0, shared: bool = False) -> None:
        self._read = read
        self._shared = shared
        self._interval = interval
        self._next: dict[_ReadKey[K], asyncio.Future[V]] = {}
        self._tasks: dict[_ReadKey[K], asyncio.Task[None]] = {}

    async def __call__(self, key: K) -> V:
        """Return the value from a read that starts after this call."""
        loop = asyncio.get_running_loop()
        asked = (loop, ("", "") if self._shared else (STRANGER.get(), NAMESPACE.get()), key)
        answer = self._next.get(asked)
        if answer is None:
            answer = self._next[asked] = loop.create_future()
        if asked not in self._tasks:
            # A separate task, so that canceling one caller does not cancel the read for the others.
            self._tasks[asked] = asyncio.create_task(self._serve(asked))
        return await asyncio.shield(answer)

    async def _serve(self, asked: _ReadKey[K]) -> None:
        loop, due = asked[0], 0.0
        try:
            while True:
                await asyncio.sleep(max(0.0, due - loop.time()))
                answer = self._next.pop(asked, None)
                if answer is None:
                    return
                due = loop.time() + self._interval
                try:
                    value = await self._read(asked[2])
                except Exception as error:  # noqa: BLE001  # raised to the callers
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


class Remembered(Generic[V]):
    """Caches the result of ``read`` for some seconds. Failed reads are not cached."""

    def __init__(self, clock: Clock, read: Callable[[], Awaitable[V]], *, seconds: float) -> None:
        self._clock = clock
        self._read = read
        self._seconds = seconds
        #: The expiry time and the value.
        self._known: tuple[float, V] | None = None

    async def __call__(self) -> V:
        """Return the cached value, or read it."""
        now = self._clock.monotonic()
        if self._known is None or now >= self._known[0]:
            self._known = (now + self._seconds, await self._read())
        return self._known[1]
