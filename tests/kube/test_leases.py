"""Leader election on virtual time, with slow and unavailable servers and other leaders."""

import asyncio
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.kube.client import Client
from app.kube.clock import rfc3339_micro
from app.kube.errors import RequestInfo, TransportError
from app.kube.leases import LeaderElector, LeadershipLost, LeaseTimes, identity
from tests.kit.virtualtime import EPOCH, VirtualClock
from tests.kube.fakes import MemoryServer, json_response, running, status_body, until, virtual

PATH = "/apis/coordination.k8s.io/v1/namespaces/kruise-system/leases/kruise-manager"


class Metrics:
    def __init__(self) -> None:
        self.leading: list[bool] = []
        self.slow = 0

    def leader(self, name: str, leading: bool) -> None:
        self.leading.append(leading)

    def slow_path(self, name: str) -> None:
        self.slow += 1


class Candidate:
    """A replica that records when it leads."""

    def __init__(self, server, name: str, *, seed: int = 1, days_ahead: float = 0, **options) -> None:
        self.clock = VirtualClock(EPOCH + timedelta(days=days_ahead))
        self.metrics = Metrics()
        self.elector = LeaderElector(
            Client(server, self.clock),
            name="kruise-manager",
            namespace="kruise-system",
            identity=name,
            rng=Random(seed),
            metrics=self.metrics,
            **{"times": LeaseTimes(15, 10, 2), **options},
        )
        self.leads = False
        self.since: list[float] = []
        self.until: list[float] = []

    async def lead(self) -> None:
        self.leads = True
        self.since.append(self.clock.monotonic())
        try:
            await asyncio.Event().wait()
        finally:
            self.leads = False
            self.until.append(self.clock.monotonic())

    async def run(self) -> None:
        await self.elector.run(self.lead)

    async def leading(self) -> asyncio.Task[None]:
        """Run until it leads."""
        task = asyncio.create_task(self.run())
        await until(lambda: self.leads)
        return task


@virtual
async def test_the_first_candidate_creates_and_renews_the_lease():
    server = MemoryServer()
    one = Candidate(server, "host_1")
    start = rfc3339_micro(one.clock.now())
    async with running(one.run()):
        await until(lambda: one.leads)
        assert (one.elector.leading, one.elector.leader) == (True, "host_1")
        assert server.objects[PATH]["spec"] == {
            "holderIdentity": "host_1",
            "leaseDurationSeconds": 15,
            "acquireTime": start,
            "renewTime": start,
            "leaseTransitions": 0,
        }
        server.requests.clear()
        await one.clock.sleep(60)
        spec = server.objects[PATH]["spec"]
        assert (spec["acquireTime"], spec["leaseTransitions"]) == (start, 0)
        assert spec["renewTime"] > start
        # Renewing costs one request every two seconds.
        assert Counter(request.method for request in server.requests) == {"PATCH": 30}
    assert one.metrics.leading == [True, False]


@virtual
async def test_foreign_fields_of_the_lease_are_kept():
    server = MemoryServer()
    server.objects[PATH] = {
        "metadata": {"name": "kruise-manager", "resourceVersion": "0", "labels": {"team": "a"}},
        "spec": {},
    }
    one = Candidate(server, "host_1")
    async with running(one.run()):
        await until(lambda: one.leads)
    assert server.objects[PATH]["metadata"]["labels"] == {"team": "a"}


@virtual
async def test_a_second_candidate_takes_over_a_released_lease():
    server = MemoryServer()
    one, two = Candidate(server, "host_1"), Candidate(server, "host_2", seed=2)
    async with running(one.run(), two.run()) as (first, _):
        await until(lambda: one.leads)
        await one.clock.sleep(100)
        assert not two.leads
        assert two.elector.leader == "host_1"
        first.cancel()
        await until(lambda: two.leads)
        # Released: no need to wait for it to expire.
        assert two.since[0] - one.until[0] <= 2 * 2.2
        assert server.objects[PATH]["spec"]["leaseTransitions"] == 1


@pytest.mark.parametrize(("days", "seconds"), [(-3, 15), (0, 15), (3, 15), (0, 60)])
@virtual
async def test_a_dead_candidate_is_replaced_when_its_own_lease_expires_whatever_the_clocks(days: float, seconds: int):
    server = MemoryServer()
    one = Candidate(server, "host_1", release=False, times=LeaseTimes(seconds, 10, 2))
    two = Candidate(server, "host_2", seed=2, days_ahead=days)
    async with running(one.run(), two.run()) as (first, _):
        await until(lambda: one.leads)
        await one.clock.sleep(100)
        assert not two.leads
        first.cancel()
        await until(lambda: two.leads, seconds + 60)
    assert seconds - 2 <= two.since[0] - one.until[0] <= seconds + 2 * 2.2


@virtual
async def test_a_leader_that_cannot_renew_stops_before_another_may_lead():
    server = MemoryServer()

    class Line:
        cut = False

        async def request(self, request):
            if self.cut:
                raise TransportError(RequestInfo(request.method, request.path), "no route to host")
            return await server.request(request)

    line = Line()
    one, two = Candidate(line, "host_1"), Candidate(server, "host_2", seed=2)
    leading = await one.leading()
    async with running(two.run()):
        await one.clock.sleep(21)
        line.cut = True
        with pytest.raises(LeadershipLost, match="was not renewed for 10 s"):
            await leading
        assert not two.leads
        await until(lambda: two.leads)
        assert two.since[0] > one.until[0]
    assert one.metrics.leading == [True, False]


@virtual
async def test_the_deadline_starts_when_a_renewal_is_sent():
    """The lease may be written as soon as the request is sent."""
    server = MemoryServer()
    one = Candidate(server, "host_1")
    leading = await one.leading()
    server.delay = 4.0
    sent = len(server.requests)
    await until(lambda: len(server.requests) > sent)
    began = one.clock.monotonic()
    # This renewal still gets its answer; nothing is answered after it.
    await until(lambda: len(server.requests) > sent + 1)
    server.delay = 1_000.0
    with pytest.raises(LeadershipLost):
        await leading
    assert one.until[0] == pytest.approx(began + 10, abs=0.01)


@virtual
async def test_the_deadline_of_a_new_lease_starts_when_it_is_sent():
    server = MemoryServer()
    server.delay = 2.0
    one = Candidate(server, "host_1")
    leading = asyncio.create_task(one.run())
    await until(lambda: any(request.method == "POST" for request in server.requests))
    began = one.clock.monotonic()
    await until(lambda: one.leads)
    server.delay = 1_000.0
    with pytest.raises(LeadershipLost):
        await leading
    assert one.until[0] == pytest.approx(began + 10, abs=0.01)


@virtual
async def test_a_short_outage_is_survived():
    server = MemoryServer()
    one = Candidate(server, "host_1")
    async with running(one.run()):
        await until(lambda: one.leads)
        for failure in (
            TransportError(RequestInfo("PATCH", PATH), "refused"),
            json_response(500, status_body(500, "InternalError")),
        ):

            def fail(request, failure=failure):
                if isinstance(failure, Exception):
                    raise failure
                return failure

            server.fail = fail
            await one.clock.sleep(5)
            server.fail = lambda request: None
            await one.clock.sleep(20)
            assert one.leads
    assert one.since == [0]


@pytest.mark.behaviour("MGR-127")
@virtual
async def test_a_changed_lease_is_renewed_after_a_reread():
    server = MemoryServer()
    one = Candidate(server, "host_1")
    async with running(one.run()):
        await until(lambda: one.leads)
        for _ in range(3):
            server._store(PATH, {**server.objects[PATH], "metadata": {"name": "kruise-manager", "labels": {"a": "b"}}})
            await one.clock.sleep(4)
        assert one.leads
        del server.objects[PATH]
        await one.clock.sleep(4)
        assert one.leads
        assert server.objects[PATH]["spec"]["holderIdentity"] == "host_1"
    assert one.metrics.slow == 4


@virtual
async def test_a_lease_taken_by_another_ends_leadership():
    server = MemoryServer()
    one = Candidate(server, "host_1")
    leading = await one.leading()
    lease = server.objects[PATH]
    server._store(PATH, {**lease, "spec": {**lease["spec"], "holderIdentity": "thief", "leaseDurationSeconds": 3600}})
    with pytest.raises(LeadershipLost):
        await leading
    assert server.objects[PATH]["spec"]["holderIdentity"] == "thief"


@virtual
async def test_the_work_ends_before_the_lease_is_released():
    server = MemoryServer()
    one = Candidate(server, "host_1")
    holders = []

    async def lead() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await one.clock.sleep(60)  # stopping takes longer than the lease lasts without renewal
            holders.append(server.objects[PATH]["spec"]["holderIdentity"])

    task = asyncio.create_task(one.elector.run(lead))
    await until(lambda: one.elector.leading)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert holders == ["host_1"]
    assert server.objects[PATH]["spec"]["holderIdentity"] == ""


@virtual
async def test_results_and_errors_of_the_work_are_returned():
    server = MemoryServer()

    async def done() -> None:
        return None

    async def fails() -> None:
        raise KeyError("x")

    await Candidate(server, "host_1").elector.run(done)
    with pytest.raises(KeyError):
        await Candidate(server, "host_2").elector.run(fails)
    assert server.objects[PATH]["spec"]["holderIdentity"] == ""


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32))
@virtual
async def test_there_are_never_two_leaders(seed) -> None:
    """Three candidates with clocks days apart, on a network that delays, refuses and loses responses."""
    rng, clock = Random(seed), VirtualClock()
    memory = MemoryServer()
    leading: set[str] = set()

    class Network:
        async def request(self, request):
            await asyncio.sleep(rng.choice([0.01, 0.01, 0.5, 3]))
            if rng.random() < 0.1:
                raise TransportError(RequestInfo(request.method, request.path), "lost on the way there")
            answer = await memory.request(request)
            await asyncio.sleep(rng.choice([0.01, 0.01, 0.5, 4, 20]))
            if rng.random() < 0.1:
                raise TransportError(RequestInfo(request.method, request.path), "lost on the way back")
            return answer

    async def candidate(number: int) -> None:
        while True:
            given = {"seed": seed + number, "release": rng.random() < 0.5, "days_ahead": number * 2 - 2}
            elector = Candidate(Network(), f"host_{number}", **given).elector

            async def lead(name: str = f"host_{number}") -> None:
                leading.add(name)
                assert len(leading) == 1
                try:
                    await clock.sleep(rng.choice([1, 30, 300]))
                finally:
                    leading.remove(name)

            with suppress(LeadershipLost):
                await elector.run(lead)
            await clock.sleep(rng.random() * 10)

    async with running(*(candidate(number) for number in range(3))) as tasks:
        await clock.sleep(1000)
        assert not any(task.done() for task in tasks)


def test_impossible_times_are_refused():
    with pytest.raises(
        ValueError, match=r"needs lease duration > renew deadline > retry period > 0, not 10 s, 10 s and 2 s"
    ):
        LeaseTimes(10, 10, 2)


def test_an_identity_is_the_host_and_a_unique_suffix():
    rng = Random(1)
    first, second = identity(rng), identity(rng)
    assert first != second
    assert first.rpartition("_")[0] == second.rpartition("_")[0] != ""


@pytest.mark.parametrize(
    ("holder", "seconds", "left"),
    [("one", 0, ""), ("two", 0, "two"), ("two", 5, "two")],
    ids=["still ours", "taken by another", "seen to be taken"],
)
@virtual
async def test_a_lease_that_changed_is_released_only_by_its_holder(holder: str, seconds: float, left: str) -> None:
    server = MemoryServer()
    candidate = Candidate(server, "one")
    task = await candidate.leading()
    # A write that this candidate has seen no response to.
    server.objects[PATH]["metadata"]["resourceVersion"] = "1000"
    server.objects[PATH]["spec"]["holderIdentity"] = holder
    await asyncio.sleep(seconds)
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    assert server.objects[PATH]["spec"]["holderIdentity"] == left


@virtual
async def test_a_silent_server_does_not_delay_the_end_of_a_leader() -> None:
    server = MemoryServer()
    one = Candidate(server, "host_1")
    leading = await one.leading()
    server.delay = 1_000.0
    leading.cancel()
    await asyncio.wait({leading})
    assert leading.cancelled()
    assert one.clock.monotonic() < 6


@virtual
async def test_a_candidate_reads_the_lease_at_once_when_it_changes() -> None:
    server = MemoryServer()
    first, second = Candidate(server, "one"), Candidate(server, "two", seed=2)
    leading = await first.leading()
    waiting = asyncio.create_task(second.run())
    server.delay = 0.01
    second.elector.wake()
    await asyncio.sleep(10)
    assert len(server.requests) < 20  # it looked once more, and then as rarely as before
    leading.cancel()
    await asyncio.gather(leading, return_exceptions=True)
    second.elector.wake()
    await until(lambda: second.leads, 0.1)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
