"""Decisions have a time limit, whether they wait or not."""

import asyncio
from typing import Any

import pytest

from app.admission.running import in_time


async def at_once() -> int:
    return 7


async def later() -> int:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    async with asyncio.timeout(120):
        return await asyncio.to_thread(lambda: 7)


async def fails() -> int:
    raise ValueError("no")


async def fails_later() -> int:
    await asyncio.sleep(0)
    raise ValueError("no")


async def gives_up() -> int:
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await asyncio.sleep(0)
        raise
    return 0


@pytest.mark.parametrize("decide", [at_once, later])
async def test_a_decision_is_returned(decide: Any) -> None:
    assert await in_time(decide(), 20) == 7
    assert await in_time(asyncio.create_task(decide()), 20) == 7


@pytest.mark.parametrize("decide", [fails, fails_later])
async def test_a_failure_affects_only_its_own_request(decide: Any) -> None:
    with pytest.raises(ValueError, match="no"):
        await in_time(decide(), 20)


async def test_a_decision_that_takes_too_long_is_abandoned() -> None:
    with pytest.raises(TimeoutError):
        await in_time(gives_up(), 0.01)


async def test_a_decision_is_canceled_with_its_caller() -> None:
    task = asyncio.create_task(in_time(gives_up(), 20))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
