"""Awaiting a decision with a limit, at no cost for one that waits for nothing, as nearly all do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Generator
from types import CoroutineType, coroutine
from typing import Any, TypeVar

T = TypeVar("T")


async def in_time(decision: Awaitable[T], seconds: float) -> T:
    """What a decision comes to. Raises TimeoutError where it waits longer.

    A timer is made only for one that really waits: making and cancelling it is a tenth of a review's time.
    """
    if not isinstance(decision, CoroutineType):
        async with asyncio.timeout(seconds):
            return await decision
    try:
        waits_for = decision.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    async with asyncio.timeout(seconds):
        return await _resumed(decision, waits_for)


@coroutine
def _resumed(begun: Coroutine[Any, Any, T], waits_for: Any) -> Generator[Any, Any, T]:
    """The rest of a coroutine that has begun and waits for something."""
    while True:
        try:
            try:
                value = yield waits_for
            except BaseException as error:  # noqa: BLE001 - it is the coroutine's: a cancellation as well as a failure
                waits_for = begun.throw(error)
            else:
                waits_for = begun.send(value)
        except StopIteration as done:
            found: T = done.value
            return found
