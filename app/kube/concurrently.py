"""Several requests at once, but not all of many."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import TypeVar

T = TypeVar("T")


async def concurrently(work: Iterable[Awaitable[T]], limit: int) -> list[T]:
    """The results in order, of so many at once at most. The first error is raised at once; the others go on."""
    free = asyncio.Semaphore(limit)

    async def limited(one: Awaitable[T]) -> T:
        async with free:
            return await one

    return await asyncio.gather(*(limited(one) for one in work))


async def settled(work: Iterable[Awaitable[T]], limit: int) -> list[T | BaseException]:
    """The same when all is done, with what each raised in place of its result."""
    free = asyncio.Semaphore(limit)

    async def limited(one: Awaitable[T]) -> T:
        async with free:
            return await one

    return await asyncio.gather(*(limited(one) for one in work), return_exceptions=True)


async def together(work: Iterable[Awaitable[T]], limit: int) -> list[T]:
    """The results in order; the first error is raised when all is done."""
    found = await settled(work, limit)
    for one in found:
        if isinstance(one, BaseException):
            raise one
    return [one for one in found if not isinstance(one, BaseException)]
