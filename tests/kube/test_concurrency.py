"""Concurrent work with a limit: what runs, in which order results return, and what a cancellation leaves."""

import asyncio
import inspect

import pytest

from app.kube.admission import STRANGER
from app.kube.concurrency import Coalesced, KeyedLocks, Remembered, concurrently, settled, together
from tests.kit.virtualtime import VirtualClock
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


@virtual
@pytest.mark.parametrize(
    ("run", "result", "seconds"),
    [(concurrently, "the first failed", 1), (together, "the first failed", 2), (settled, [1, 2, 3], 2)],
)
async def test_work_is_limited_and_an_error_is_raised_when_promised(run, result, seconds) -> None:
    loop = asyncio.get_running_loop()
    active, most, began = 0, 0, loop.time()

    async def work(number: int) -> int:
        nonlocal active, most
        active += 1
        most = max(most, active)
        await asyncio.sleep(1)
        active -= 1
        if not number:
            raise ValueError("the first failed")
        return number

    try:
        found = (await run([work(number) for number in range(4)], 2))[1:]
    except ValueError as error:
        found = str(error)
    assert (found, round(loop.time() - began), most) == (result, seconds, 2)


@virtual
async def test_writes_to_one_object_wait_for_each_other() -> None:
    locks, loop, ends = KeyedLocks(), asyncio.get_running_loop(), {}

    async def write(key: str, name: str) -> None:
        async with locks.of(key):
            await asyncio.sleep(1)
            ends[name] = round(loop.time() - began)

    began = loop.time()
    await asyncio.gather(write("a", "first"), write("a", "second"), write("b", "other"))
    assert ends == {"first": 1, "other": 1, "second": 2}
    assert not locks._locks


# ---- coalesced reads


@virtual
async def test_a_caller_that_leaves_takes_no_answer_from_others() -> None:
    async def read(key: str) -> str:
        await asyncio.sleep(1)
        return key

    found = Coalesced(read)
    leaving, staying = asyncio.create_task(found("a")), asyncio.create_task(found("a"))
    await asyncio.sleep(0.5)
    leaving.cancel()
    assert await staying == "a"
    await asyncio.sleep(0.1)
    assert not found._tasks


@virtual
async def test_what_was_created_before_a_call_is_found_even_if_a_read_began_earlier() -> None:
    existing, reads = ["old"], 0

    async def read(_key: str) -> list[str]:
        nonlocal reads
        reads += 1
        seen = list(existing)
        await asyncio.sleep(1)
        return seen

    found = Coalesced(read)
    earlier = asyncio.create_task(found("a"))
    await asyncio.sleep(0.5)
    existing.append("new")
    assert await asyncio.gather(found("a"), found("a")) == [["old", "new"]] * 2
    assert (await earlier, reads) == (["old"], 2)


@virtual
async def test_a_shutdown_lets_no_reader_wait_forever() -> None:
    async def read(_key: str) -> None:
        await asyncio.Event().wait()

    found = Coalesced(read)
    waiting = []
    for _ in range(2):  # for the current read, and for the next one
        waiting.append(asyncio.create_task(found("a")))
        await asyncio.sleep(0.1)
    for task in found._tasks.values():
        task.cancel()
    await asyncio.wait(waiting, timeout=60)
    assert all(task.cancelled() for task in waiting)


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
@pytest.mark.parametrize("shared", [False, True])
@virtual
async def test_a_failure_for_an_unknown_caller_affects_no_other(shared: bool) -> None:
    reads = 0

    async def read(_key: str) -> str:
        nonlocal reads
        reads += 1
        await asyncio.sleep(1)
        if STRANGER.get():
            raise TimeoutError("its budget is spent")
        return "found"

    found = Coalesced(read, shared=shared)

    async def strange() -> str:
        STRANGER.set("10.0.0.9")
        return await found("a")

    known, stranger = await asyncio.gather(
        *(asyncio.create_task(one) for one in (found("a"), strange())), return_exceptions=True
    )
    assert known == "found"
    assert isinstance(stranger, TimeoutError) is not shared
    assert reads == 2 - shared


@virtual
async def test_a_read_is_remembered_for_a_while_and_a_failure_never() -> None:
    clock, begun = VirtualClock(), 0

    async def read() -> int:
        nonlocal begun
        begun += 1
        if begun == 1:
            raise TimeoutError
        return begun

    found = Remembered(clock, read, seconds=60.0)
    with pytest.raises(TimeoutError):
        await found()
    assert await found() == 2
    await clock.sleep(59.0)
    assert await found() == 2
    await clock.sleep(1.0)
    assert await found() == 3
