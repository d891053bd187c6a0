"""Concurrent work with a limit: what runs, in which order results return, and what a cancellation leaves."""

import asyncio
import inspect

import pytest

from app.kube.admission import STRANGER
from app.kube.concurrency import Coalesced, concurrently
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


# ---- coalesced reads


@virtual
async def test_reads_of_a_key_are_paced_and_the_first_is_immediate() -> None:
    loop = asyncio.get_running_loop()
    start, begun = loop.time(), []

    async def read(key: str) -> float:
        begun.append((key, round(loop.time() - start, 3)))
        return loop.time()

    found = Coalesced(read, interval=0.5)

    async def ask(after: float) -> float:
        await asyncio.sleep(after)
        return round(await found("a") - start, 3)

    answers = await asyncio.gather(*(ask(after) for after in (0.0, 0.1, 0.2, 0.6, 0.7)), found("b"))
    assert sorted(begun) == [("a", 0.0), ("a", 0.5), ("a", 1.0), ("b", 0.0)]
    assert answers[:5] == [0.0, 0.5, 0.5, 1.0, 1.0]


@pytest.mark.behaviour("MGR-154")
@virtual
async def test_a_failure_for_an_unknown_caller_affects_no_other() -> None:
    async def read(_key: str) -> str:
        await asyncio.sleep(1)
        if STRANGER.get():
            raise TimeoutError("its budget is spent")
        return "found"

    found = Coalesced(read)

    async def strange() -> str:
        STRANGER.set("10.0.0.9")
        return await found("a")

    known, stranger = await asyncio.gather(
        *(asyncio.create_task(one) for one in (found("a"), strange())), return_exceptions=True
    )
    assert known == "found"
    assert isinstance(stranger, TimeoutError)
