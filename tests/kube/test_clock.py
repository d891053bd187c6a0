import asyncio
from datetime import UTC, datetime, timedelta, timezone
from random import Random

import pytest

from app.kube.clock import Backoff, RejectingBucket, SystemClock, TokenBucket, rfc3339, rfc3339_micro
from tests.kit.virtualtime import Stalled, VirtualClock, run
from tests.kube.fakes import virtual


def test_times_are_written_as_kubernetes_writes_them():
    moment = datetime(2026, 1, 2, 5, 4, 5, 678901, tzinfo=timezone(timedelta(hours=2)))
    assert rfc3339(moment) == "2026-01-02T03:04:05Z"
    assert rfc3339_micro(moment) == "2026-01-02T03:04:05.678901Z"


async def test_the_system_clock_is_the_wall_clock_in_utc():
    clock = SystemClock()
    assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)
    before = clock.monotonic()
    await clock.sleep(-1)
    assert clock.monotonic() >= before


async def test_the_system_clock_times_out():
    clock = SystemClock()
    assert await clock.wait_for(asyncio.sleep(0, "done"), 10) == "done"
    with pytest.raises(TimeoutError):
        await clock.wait_for(asyncio.Event().wait(), 0.001)


def test_virtual_time_detects_a_deadlock():
    async def main() -> None:
        await asyncio.Event().wait()

    with pytest.raises(Stalled):
        run(main())


# ---- buckets and back-off


@virtual
async def test_a_bucket_grants_its_burst_and_then_its_rate():
    clock = VirtualClock()
    bucket = TokenBucket(clock, qps=10, burst=2)
    assert [bucket.try_take() for _ in range(3)] == [True, True, False]
    await clock.sleep(0.1)
    assert [bucket.try_take(), bucket.try_take()] == [True, False]


@virtual
async def test_a_changed_limit_applies_from_now_on():
    clock = VirtualClock()
    bucket = TokenBucket(clock, qps=10, burst=9)
    bucket.limit(qps=1, burst=1)
    assert [bucket.reserve() for _ in range(3)] == [0, 1, 2]
    await clock.sleep(2)
    bucket.limit(qps=10, burst=5)  # what was reserved at the old rate is paid
    assert [round(bucket.reserve(), 3) for _ in range(2)] == [0.1, 0.2]


@virtual
async def test_reserved_tokens_are_paid_by_waiting():
    clock = VirtualClock()
    bucket = TokenBucket(clock, qps=10, burst=1)
    assert [round(bucket.reserve(), 3) for _ in range(4)] == [0, 0.1, 0.2, 0.3]
    await clock.sleep(3600)
    assert [bucket.reserve(), round(bucket.reserve(), 3)] == [0, 0.1]  # a full bucket holds no more than its burst


@virtual
async def test_an_impatient_bucket_rejects_a_flood_without_debt():
    clock = VirtualClock()
    bucket = RejectingBucket(clock, qps=10, burst=5, longest=2)
    waiting, turned_away = [asyncio.create_task(bucket.take()) for _ in range(1000)], 0
    for one in waiting:
        try:
            await one
        except TimeoutError:
            turned_away += 1
    assert turned_away == 1000 - 5 - 20
    before = clock.monotonic()
    await bucket.take()
    assert clock.monotonic() - before <= 0.2


@pytest.mark.parametrize(("qps", "burst"), [(0, 1), (1, 0), (-1, 1)])
def test_a_bucket_that_never_grants_is_refused(qps, burst):
    with pytest.raises(ValueError, match="greater than 0"):
        TokenBucket(VirtualClock(), qps=qps, burst=burst)


def test_backoff_doubles_up_to_its_maximum_and_resets():
    rng = Random(1)
    rng.random = lambda: 0.0
    backoff = Backoff(rng, base=1, cap=5)
    assert [backoff.next() for _ in range(5)] == [1, 2, 4, 5, 5]
    backoff.reset()
    assert backoff.next() == 1


def test_backoff_has_positive_jitter():
    backoff = Backoff(Random(1), base=1, cap=1)
    delays = [backoff.next() for _ in range(100)]
    assert all(1 <= delay <= 2 for delay in delays)
    assert len(set(delays)) > 90
