"""Which callers count as API servers, and how strangers take turns."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import orjson
import pytest

from app.kube.client import Client
from app.kube.reflector import ReflectorMetrics
from app.manager.limits import MANY_REVIEWS, REPORT_SECONDS, KnownCallers, Turns, plain_address
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import Connections, listing, running, until, virtual

pytestmark = pytest.mark.behaviour("MGR-154")


@virtual
async def test_api_servers_are_recognized_by_their_own_addresses() -> None:
    transport, callers = Connections(), KnownCallers()
    slice_ = {"metadata": {"name": "kubernetes", "namespace": "default"}, "addressType": "IPv4"}
    slice_ |= {"endpoints": [{"addresses": ["10.0.0.1"]}, {"addresses": ["10.0.0.2", "fd00::1"]}, {}]}

    async def changed() -> AsyncIterator[bytes]:
        await moved.wait()
        yield orjson.dumps({"type": "MODIFIED", "object": {**slice_, "endpoints": None}}) + b"\n"
        await asyncio.Event().wait()

    moved = asyncio.Event()
    transport.answers.append(listing(1, slice_))
    transport.streams.append(changed)
    reflector = callers.watch(Client(transport, VirtualClock()), Random(1), ReflectorMetrics())
    reflector._streaming_list = False
    assert callers.knows("127.0.0.1")
    assert not callers.knows("10.0.0.1")
    async with running(reflector.run()):
        await until(lambda: callers.knows("10.0.0.1"))
        for address in ("::ffff:10.0.0.2", "fd00::1", "::1"):
            assert callers.knows(plain_address(address))
        assert not callers.knows("10.0.0.3")
        moved.set()
        await until(lambda: not callers.knows("10.0.0.1"))
        assert callers.knows("127.0.0.1")
    assert transport.requests[0].path == "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    assert transport.requests[0].query["fieldSelector"] == "metadata.name=kubernetes"


@virtual
@pytest.mark.parametrize(
    ("known_ask", "order", "rest"), [(True, "abaa", 0.25), (False, "aaba", 0.0)], ids=["with known callers", "without"]
)
async def test_unknown_callers_take_turns_by_address_and_yield_to_known_callers(
    known_ask: bool, order: str, rest: float
) -> None:
    callers = KnownCallers()
    callers.asked_at = float("inf") if known_ask else float("-inf")
    turns, loop, granted = Turns(callers), asyncio.get_running_loop(), []

    async def take(address: str) -> None:
        await turns.wait(address, seconds=1.0)
        granted.append((address, round(loop.time() - start, 2)))

    start = loop.time()
    await asyncio.gather(*(take(address) for address in ("a", "a", "a", "b")))
    assert granted == [(address, number * rest) for number, address in enumerate(order)]


@virtual
@pytest.mark.behaviour("MGR-163")
async def test_a_manager_called_only_by_strangers_reports_it_once_with_the_fix(
    caplog: pytest.LogCaptureFixture,
) -> None:
    callers, published = KnownCallers(), list[bool]()
    reporting = callers.report(VirtualClock(), published.append)
    async with running(reporting):
        callers.posted("10.244.0.9")
        await asyncio.sleep(REPORT_SECONDS * 1.5)
        assert published == []
        for _ in range(MANY_REVIEWS):
            callers.posted("10.244.0.9")
        await asyncio.sleep(REPORT_SECONDS * 2)
        assert published == [True]
        callers.posted("")
        await asyncio.sleep(REPORT_SECONDS * 2)
        assert published == [True, False]
    (warning,) = (record.getMessage() for record in caplog.records)
    assert "--client-ca-file" in warning
    assert "10.244.0.9" in warning


@virtual
async def test_a_disconnected_caller_has_no_turn() -> None:
    callers = KnownCallers()
    callers.asked_at = float("inf")
    turns = Turns(callers)
    gone = asyncio.create_task(turns.wait("a"))
    await asyncio.sleep(0)
    gone.cancel()
    await turns.wait("b")
    await turns.wait("a")
    assert gone.cancelled()
