"""Concurrent work with a limit: what runs, in which order results return, and what a cancellation leaves."""

import asyncio
import inspect

import pytest

from app.kube.concurrency import concurrently
from tests.kube.fakes import virtual


@virtual
@pytest.mark.parametrize("turns", [1, 2])
async def test_a_cancellation_closes_what_has_not_begun(turns: int) -> None:
    """After one turn no work has begun; after two, the first has."""

    async def work() -> None:
        await asyncio.Event().wait()

    given = [work() for _ in range(3)]
    running = asyncio.create_task(concurrently(given, 1))
    for _ in range(turns):
        await asyncio.sleep(0)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert {inspect.getcoroutinestate(one) for one in given} == {inspect.CORO_CLOSED}
