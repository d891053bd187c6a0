"""The work queue on virtual time: single cases, then its guarantees under random use."""

import asyncio
from collections import Counter
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from app.kube.queue import QueueShutDown, RateLimits, WorkQueue
from app.kube.resources import ObjectKey
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, virtual


def queue(**limits) -> WorkQueue[str]:
    return WorkQueue("test", VirtualClock(), RateLimits(**limits))


@virtual
async def test_a_key_is_queued_once():
    keys = queue()
    for key in "abab":
        keys.add(key)
    assert len(keys) == 2
    assert [await keys.get(), await keys.get()] == ["a", "b"]
    assert set(keys.processing) == {"a", "b"}


@virtual
async def test_a_delayed_key_runs_once():
    clock, keys = VirtualClock(), queue()
    keys.add_after("a", 60)
    keys.add_after("a", 45)
    assert (await keys.get(), round(clock.monotonic(), 3)) == ("a", 45)
    keys.done("a")
    keys.add_after("a", 100)  # which the time it was first given does not bring forward
    assert (await keys.get(), round(clock.monotonic(), 3)) == ("a", 145)
    keys.done("a")
    with pytest.raises(TimeoutError):
        await clock.wait_for(keys.get(), 1000)


@virtual
async def test_a_failing_key_backs_off_exponentially():
    keys = queue(qps=1e9, burst=10**9)
    delays = []
    for _ in range(5000):  # the exponent does not overflow
        delays.append(keys.add_rate_limited("a"))
        keys.done(await keys.get())
    assert delays == pytest.approx([0.005 * 2**n for n in range(18)] + [1000] * (5000 - 18))
    assert keys.failures("a") == 5000
    assert keys.add_rate_limited("a", 3) == 3  # a given time replaces the back-off
    assert keys.add_rate_limited("b") == pytest.approx(0.005)
    keys.forget("a")
    assert (keys.failures("a"), keys.add_rate_limited("a")) == (0, pytest.approx(0.005))


@virtual
async def test_a_retry_waits_no_longer_than_the_key_has_been_failing():
    """A change may bring the key back early and fail again at once."""
    clock, keys = VirtualClock(), queue()
    for number in range(30):
        assert 0 < keys.add_rate_limited("a") <= number * 0.05 + 0.006
        await clock.sleep(0.05)
        keys.add("a")
        keys.done(await keys.get())
    keys.forget("a")
    assert keys.add_rate_limited("a") == 0.005


@virtual
async def test_the_returned_delay_is_the_actual_one():
    clock, keys = VirtualClock(), queue()
    keys.add_after("early", 2)
    assert keys.add_rate_limited("early", 7) == 2
    assert keys.add_rate_limited("held", 3) == 3
    keys.add("changed")
    await keys.get()
    keys.add("changed")
    assert keys.add_rate_limited("changed", 9) == 0
    keys.done("changed")
    times = []
    for _ in range(3):
        key = await keys.get()
        times.append((key, round(clock.monotonic(), 3)))
        keys.done(key)
    assert times == [("changed", 0), ("early", 2), ("held", 3)]


@virtual
async def test_shutdown_finishes_ready_keys_only():
    keys = queue()
    keys.add("a")
    keys.add_after("later", 1)
    waiting = [asyncio.create_task(keys.get()) for _ in range(3)]
    await asyncio.sleep(0)
    keys.shut_down()
    keys.add("b")
    keys.add_after("b", 1)
    results = await asyncio.gather(*waiting, return_exceptions=True)
    assert results[0] == "a"
    assert [type(result) for result in results[1:]] == [QueueShutDown, QueueShutDown]
    with pytest.raises(QueueShutDown):
        await keys.get()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}  # no timer is left


@virtual
async def test_a_canceled_worker_loses_no_key():
    keys = queue()
    first, second = asyncio.create_task(keys.get()), asyncio.create_task(keys.get())
    await asyncio.sleep(0)
    keys.add("a")  # wakes the first
    first.cancel()
    assert await second == "a"


@virtual
async def test_queue_metrics_are_measured():
    class Metrics(Counter):
        def depth(self, name, keys): self["max depth"] = max(self["max depth"], keys)  # fmt: skip

        def added(self, name): self["added"] += 1  # fmt: skip

        def retried(self, name): self["retried"] += 1  # fmt: skip

        def waited(self, name, seconds): self["waited"] += seconds  # fmt: skip

        def worked(self, name, seconds): self["worked"] += seconds  # fmt: skip

    clock, metrics = VirtualClock(), Metrics()
    keys: WorkQueue[str] = WorkQueue("test", clock, metrics=metrics)
    keys.add("a")
    keys.add("a")
    keys.add("b")
    await clock.sleep(2)
    key = await keys.get()
    await clock.sleep(3)
    keys.done(key)
    keys.add_rate_limited("c")
    assert metrics == {"added": 2, "max depth": 2, "waited": 2, "worked": 3, "retried": 1}


OTHER, ANOTHER = ObjectKey("shop", "d"), ObjectKey("", "e")
actions = st.lists(
    st.tuples(
        st.sampled_from(["add", "after", "limited", "forget", "pause"]),
        st.sampled_from([ObjectKey("tenant", "a"), ObjectKey("tenant", "b"), ObjectKey("tenant", "c"), OTHER, ANOTHER]),
        st.floats(0, 5, allow_nan=False),
    ),
    max_size=60,
)


@given(actions, st.integers(1, 4), st.integers(1, 4), st.integers(0, 2**32))
@virtual
async def test_no_key_runs_twice_at_once_or_is_lost(steps, workers, share, seed) -> None:
    """Every add is followed by a run that starts after it, and runs of one key never overlap."""
    clock, rng = VirtualClock(), Random(seed)
    keys: WorkQueue[ObjectKey] = WorkQueue("test", clock, share=share)
    busy: set[ObjectKey] = set()
    last_look: dict[ObjectKey, float] = {}
    wanted: dict[ObjectKey, float] = {}

    async def work() -> None:
        while True:
            key = await keys.get()
            assert key not in busy
            busy.add(key)
            assert max(Counter(one.namespace for one in busy if one.namespace).values(), default=0) <= share
            last_look[key] = clock.monotonic()
            await clock.sleep(rng.random())
            busy.remove(key)
            keys.done(key)

    async with running(*(work() for _ in range(workers))):
        for action, key, seconds in steps:
            now = clock.monotonic()
            if action == "pause":
                await clock.sleep(seconds)
            elif action == "forget":
                keys.forget(key)
            else:
                if action == "add":
                    keys.add(key)
                elif action == "after":
                    keys.add_after(key, seconds)
                else:
                    keys.add_rate_limited(key)
                wanted[key] = now
        await clock.sleep(1000)
        assert len(keys) == 0
        assert not busy
        assert not keys._working
    assert set(last_look) == set(wanted)
    for key, moment in wanted.items():
        assert last_look[key] >= moment


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.01, 100)), min_size=1, max_size=30))
@example([("a", 50), ("b", 1), *(("c", 100 - earlier) for earlier in range(70))])  # many outdated entries
@virtual
async def test_delayed_keys_are_never_early_nor_late(wishes) -> None:
    clock, keys = VirtualClock(), queue()
    earliest: dict[str, float] = {}
    for key, seconds in wishes:
        keys.add_after(key, seconds)
        earliest[key] = min(seconds, earliest.get(key, seconds))
    for _ in range(len(earliest)):
        key = await clock.wait_for(keys.get(), 1000)
        assert clock.monotonic() == pytest.approx(earliest.pop(key), abs=0.002)
        keys.done(key)
    assert not earliest


@virtual
async def test_ten_thousand_keys_of_one_namespace_delay_no_other():
    keys: WorkQueue[ObjectKey] = WorkQueue("test", VirtualClock())
    for number in range(10_000):
        keys.add(ObjectKey("tenant", str(number)))
    keys.add(ObjectKey("shop", "web"))
    keys.add(ObjectKey("shop", "api"))
    keys.add(ObjectKey("bank", "vault"))
    taken = [await keys.get() for _ in range(6)]
    assert taken == [
        ObjectKey("tenant", "0"),
        ObjectKey("shop", "web"),
        ObjectKey("bank", "vault"),
        ObjectKey("tenant", "1"),
        ObjectKey("shop", "api"),
        ObjectKey("tenant", "2"),
    ]
    assert len(keys) == 10_003 - 6


@virtual
async def test_failures_of_one_namespace_do_not_delay_others():
    clock = VirtualClock()
    keys: WorkQueue[ObjectKey] = WorkQueue("test", clock, RateLimits(qps=10, burst=100))
    delays = [keys.add_rate_limited(ObjectKey("tenant", str(number))) for number in range(10_000)]
    assert delays[-1] > 900
    assert keys.add_rate_limited(ObjectKey("shop", "web")) == 0.005
    for number in range(2_000):
        keys.add_rate_limited(ObjectKey(f"ns{number}", "one"))
        await clock.sleep(0.2)
    assert len(keys._buckets) <= 256
    assert keys.add_rate_limited(ObjectKey("tenant", "another")) > 900 - 2_000 * 0.2


@virtual
async def test_a_namespace_gets_at_most_its_share_of_workers():
    keys: WorkQueue[ObjectKey] = WorkQueue("test", VirtualClock(), share=2)
    names = [ObjectKey("tenant", str(number)) for number in range(4)]
    for key in names:
        keys.add(key)
    assert [await keys.get(), await keys.get()] == names[:2]
    async with running(keys.get(), keys.get()) as tasks:
        await asyncio.sleep(1)
        assert not any(task.done() for task in tasks)
        keys.add(ObjectKey("shop", "web"))
        await asyncio.sleep(1)
        assert [task.result() for task in tasks if task.done()] == [ObjectKey("shop", "web")]
        keys.done(names[0])
        await asyncio.sleep(1)
        assert {task.result() for task in tasks} == {ObjectKey("shop", "web"), names[2]}
        keys.add(names[0])
    for key in (names[1], names[2]):
        keys.done(key)
    assert [await keys.get(), await keys.get()] == [names[3], names[0]]
    cluster_scoped = [ObjectKey("", str(number)) for number in range(4)]
    for key in cluster_scoped:
        keys.add(key)
    assert [await keys.get() for _ in range(4)] == cluster_scoped
    assert not keys._ready


@virtual
async def test_an_earlier_deadline_replaces_a_later_one():
    clock, keys = VirtualClock(), queue()
    for number in range(10_000):
        keys.add_after("a", 1e9 - number / 1000)
        keys.add_after(f"b{number % 10}", 1e6 - number)
    assert len(keys._heap) < 200
    assert await keys.get() == "b9"
    assert clock.monotonic() == 1e6 - 9_999


@virtual
async def test_what_rounding_leaves_of_a_deadline_does_not_keep_the_queue_busy() -> None:
    clock, keys = VirtualClock(), queue()
    for _ in range(10):
        keys.add_after("a", 1e-15)
        keys.done(await keys.get())
    assert clock.monotonic() >= 0.01
