"""One of several replicas reconciles; one that loses the Lease becomes a candidate again; stopping releases it."""

import asyncio
from random import Random

import pytest

from app.kube.client import Client
from app.kube.leases import LeaderElector, LeadershipLost, LeaseTimes
from app.kube.wire import Request, Response
from app.manager.reconciler import Reconciling
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer, json_response, running, status_body, until, virtual

LEASE = "/apis/coordination.k8s.io/v1/namespaces/kruise-system/leases/kruise-manager"


class Controller:
    """Records its calls; needs a second to finish."""

    def __init__(self, log: list[str], name: str) -> None:
        self._log = log
        self._name = name
        self._stopped = asyncio.Event()

    async def run(self) -> None:
        self._log.append(f"{self._name} starts")
        try:
            await self._stopped.wait()
            await asyncio.sleep(1)
            self._log.append(f"{self._name} finishes")
        except asyncio.CancelledError:
            self._log.append(f"{self._name} is cancelled")
            raise

    def stop(self) -> None:
        self._stopped.set()


def replica(api: MemoryServer, log: list[str], name: str, *, one_term: bool = False) -> Reconciling:
    elector = LeaderElector(
        Client(api, VirtualClock()),
        name="kruise-manager",
        namespace="kruise-system",
        identity=name,
        rng=Random(name),
        times=LeaseTimes(15, 10, 2),
    )
    return Reconciling(lambda: [Controller(log, name)], elector, lambda: log.append(f"{name} leads"), one_term=one_term)


@virtual
@pytest.mark.behaviour("MGR-22", "MGR-124")
async def test_one_replica_reconciles_and_hands_over_after_its_work() -> None:
    api, log = MemoryServer(), []
    first, second = replica(api, log, "first"), replica(api, log, "second")
    async with running(first.run(), second.run()) as (first_run, second_run):
        await until(lambda: log, 10)
        await asyncio.sleep(60)
        leader, other = (first, second) if log[0].startswith("first") else (second, first)
        names = ("first", "second") if leader is first else ("second", "first")
        assert log == [f"{names[0]} leads", f"{names[0]} starts"]
        leader.stop()
        # Within a few checks of a waiting candidate, not after the Lease has expired.
        await until(lambda: len(log) >= 5, 8)
        assert log[2:] == [f"{names[0]} finishes", f"{names[1]} leads", f"{names[1]} starts"]
        other.stop()
        await asyncio.wait_for(asyncio.gather(first_run, second_run), 120)
    assert api.objects[LEASE]["spec"]["holderIdentity"] == ""


@virtual
@pytest.mark.behaviour("MGR-22")
async def test_a_process_ends_with_its_term() -> None:
    """A new process becomes a candidate, without the memory of the old term."""
    api, log = MemoryServer(), []
    run = asyncio.create_task(replica(api, log, "one", one_term=True).run())
    await until(lambda: len(log) == 2, 10)
    api.fail = lambda _: json_response(503, status_body(503, "ServiceUnavailable"))
    with pytest.raises(LeadershipLost):
        await asyncio.wait_for(run, 15)
    assert log[-1] == "one is cancelled"


@virtual
@pytest.mark.behaviour("MGR-23")
async def test_losing_the_lease_stops_reconciling_until_it_is_won_again() -> None:
    api, log = MemoryServer(), []
    down = False

    def fail(request: Request) -> Response | None:
        return json_response(503, status_body(503, "ServiceUnavailable")) if down else None

    api.fail = fail
    one = replica(api, log, "one")
    async with running(one.run()) as (run,):
        await until(lambda: len(log) == 2, 10)
        down = True
        await until(lambda: "one is cancelled" in log, 15)
        assert not run.done()
        down = False
        await until(lambda: log.count("one starts") == 2, 30)
        one.stop()
        await asyncio.wait_for(run, 120)


@virtual
async def test_a_candidate_that_never_led_stops_at_once() -> None:
    api, log = MemoryServer(), []
    holder, waiting = replica(api, log, "holder"), replica(api, log, "waiting")
    async with running(holder.run()) as (holder_run,):
        await until(lambda: len(log) == 2, 10)
        async with running(waiting.run()) as (run,):
            await asyncio.sleep(20)
            waiting.stop()
            await asyncio.wait_for(run, 0.1)
        holder.stop()
        await asyncio.wait_for(holder_run, 120)
    assert not any(line.startswith("waiting") for line in log)


@virtual
async def test_without_election_it_reconciles_until_stopped() -> None:
    log: list[str] = []
    alone = Reconciling(lambda: [Controller(log, "alone")], None)
    async with running(alone.run()) as (run,):
        await until(lambda: log == ["alone starts"], 1)
        alone.stop()
        await asyncio.wait_for(run, 120)
    assert log == ["alone starts", "alone finishes"]


@virtual
async def test_a_term_that_begins_during_the_shutdown_ends_at_once() -> None:
    log: list[str] = []
    alone = Reconciling(lambda: [Controller(log, "alone")], None, lambda: alone.stop())
    await asyncio.wait_for(alone.run(), 1)
    assert log == []


@virtual
async def test_a_controller_without_synced_caches_blocks_no_other(caplog: pytest.LogCaptureFixture) -> None:
    log: list[str] = []

    class Waiting(Controller):
        tries = 0

        async def run(self) -> None:
            self.tries += 1
            if self.tries < 3:
                await asyncio.sleep(120)
                raise TimeoutError("controller waiting: caches did not sync within 120 s")
            await super().run()

    both = [Waiting(log, "waiting"), Controller(log, "other")]
    reconciling = Reconciling(lambda: both, None)
    async with running(reconciling.run()) as (run,):
        await until(lambda: len(log) == 2, 300)
        assert log == ["other starts", "waiting starts"]
        assert caplog.messages == ["controller waiting: caches did not sync within 120 s; still waiting"] * 2
        reconciling.stop()
        await run
    assert sorted(log[2:]) == ["other finishes", "waiting finishes"]
