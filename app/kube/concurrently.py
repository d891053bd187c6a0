"""Several requests at once, but not all of many, and one at a time about the same object."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Iterable, Iterator
from typing import Any, TypeVar
from weakref import WeakValueDictionary

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
