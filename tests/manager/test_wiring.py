"""What features are given: a client with a request budget for reviews."""

import asyncio
from collections.abc import Iterator
from contextvars import ContextVar
from itertools import islice
from types import SimpleNamespace
from typing import cast

import pytest

from app.framework.feature import AdmissionPart
from app.kube.admission import NAMESPACE, STRANGER
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.errors import NotFound, RequestInfo, Status
from app.kube.resources import NAMESPACES, ObjectKey
from app.manager.limits import (
    ASKED_BURST,
    ASKED_PER_SECOND,
    LONGEST_WAIT_SECONDS,
    STRANGERS_BURST,
    STRANGERS_PER_SECOND,
    KnownCallers,
)
from app.manager.process import Process
from app.manager.wiring import ABSENT_SECONDS, Recorders, admission_context, waiting_for_definitions
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer, virtual

PATH = "/api/v1/namespaces/shop"


def clients_of(server: MemoryServer, clock: VirtualClock, callers: KnownCallers) -> Iterator[Client]:
    process = SimpleNamespace(
        settings=SimpleNamespace(
            own_namespace="kruise-system", gates=SimpleNamespace(enabled=bool), flags=None, policies=None
        ),
        client=Client(server, clock),
        clock=clock,
        rng=None,
        caches=SimpleNamespace(stores=None),
        metrics=SimpleNamespace(of=None),
    )
    context = admission_context(cast("Process", process), cast("Recorders", None), callers)
    while True:
        yield cast("Client", context(cast("AdmissionPart", SimpleNamespace(event_source=""))).client)


@pytest.mark.behaviour("MGR-154", "MGR-165")
@pytest.mark.parametrize(
    "shared", [None, NAMESPACE, STRANGER], ids=["one namespace", "many namespaces", "many strangers"]
)
@virtual
async def test_reviews_of_all_kinds_share_one_limit_on_their_lookups(shared: ContextVar[str] | None) -> None:
    server = MemoryServer({PATH: {"metadata": {"name": "shop", "resourceVersion": "1"}}})
    clock = VirtualClock()
    clients = clients_of(server, clock, KnownCallers())

    async def look_up(client: Client, number: int) -> float:
        if shared is not None:
            shared.set(f"caller-{number}")
        await client.get(NAMESPACES, "shop")
        return clock.monotonic() - began

    began = clock.monotonic()
    flood = [look_up(client, number) for number, client in enumerate(islice(clients, 1_000))]
    answers = await asyncio.gather(*flood, return_exceptions=True)
    waits = [one for one in answers if isinstance(one, float)]
    refused = [one for one in answers if isinstance(one, TimeoutError)]
    granted = ASKED_BURST + ASKED_PER_SECOND * LONGEST_WAIT_SECONDS
    assert (len(waits), len(refused)) == (granted, 1_000 - granted)
    assert waits.count(0) == ASKED_BURST
    assert max(waits) == pytest.approx(LONGEST_WAIT_SECONDS)


@pytest.mark.behaviour("MGR-165")
@virtual
async def test_reviews_of_one_namespace_leave_others_their_share_of_the_lookups() -> None:
    server, clock = MemoryServer({PATH: {"metadata": {"name": "shop"}}}), VirtualClock()
    client = next(clients_of(server, clock, KnownCallers()))

    async def look_up(namespace: str) -> None:
        NAMESPACE.set(namespace)
        await client.get(NAMESPACES, "shop")

    flood = [asyncio.create_task(look_up("hostile")) for _ in range(2_000)]
    await clock.sleep(1)
    before = clock.monotonic()
    await asyncio.gather(*(asyncio.create_task(look_up("shop")) for _ in range(ASKED_BURST // 2)))
    assert clock.monotonic() == before
    await asyncio.gather(*flood, return_exceptions=True)
    await clock.sleep(60)
    before = clock.monotonic()
    await asyncio.gather(*(asyncio.create_task(look_up("shop")) for _ in range(ASKED_BURST)))
    assert clock.monotonic() == before, "alone, it may use the whole budget"


@pytest.mark.parametrize(
    "path",
    ["imagepulljobs/x", "imagepulljobs/x/status", "namespaces/shop/imagepulljobs", "namespaces/shop/imagepulljobs/x"],
)
async def test_a_reconcile_waits_for_a_disabled_kind(path: str) -> None:
    async def reconcile(_: ObjectKey) -> None:
        request = RequestInfo("POST", f"/apis/apps.kruise.io/v1beta1/{path}?dryRun=All")
        raise NotFound(request, Status(code=404, reason="NotFound"))

    key = ObjectKey("shop", "x")
    waiting = waiting_for_definitions(reconcile, lambda: ["imagepulljobs.apps.kruise.io"])
    assert await waiting(key) == Result(requeue_after=ABSENT_SECONDS)
    for absent in ([], ["nodepodprobes.apps.kruise.io"]):
        with pytest.raises(NotFound):
            await waiting_for_definitions(reconcile, lambda absent=absent: absent)(key)


@pytest.mark.behaviour("MGR-154")
@virtual
@pytest.mark.parametrize(
    ("known_ask", "granted"),
    [
        (True, STRANGERS_BURST + STRANGERS_PER_SECOND * LONGEST_WAIT_SECONDS),
        (False, ASKED_BURST + ASKED_PER_SECOND * LONGEST_WAIT_SECONDS),
    ],
)
async def test_unknown_callers_cannot_exhaust_the_budget_of_known_ones(known_ask: bool, granted: float) -> None:
    server, clock, callers = MemoryServer({PATH: {"metadata": {"name": "shop"}}}), VirtualClock(), KnownCallers()
    callers.asked_at = float("inf") if known_ask else float("-inf")
    client = next(clients_of(server, clock, callers))

    async def strange(address: str = "10.0.0.9") -> None:
        STRANGER.set(address)
        await client.get(NAMESPACES, "shop")

    flood = [asyncio.create_task(strange()) for _ in range(2_000)]
    await asyncio.gather(*flood, return_exceptions=True)
    assert len(server.requests) == pytest.approx(granted, abs=1)
    before = clock.monotonic()
    await asyncio.gather(*(client.get(NAMESPACES, "shop") for _ in range(ASKED_BURST)))
    assert clock.monotonic() == before
    # Nor does one address exhaust the budget of another.
    await asyncio.gather(*(asyncio.create_task(strange("10.0.0.1")) for _ in range(STRANGERS_BURST // 2)))
    assert clock.monotonic() == before


@pytest.mark.behaviour("MGR-154")
@virtual
async def test_unknown_callers_share_their_budget_only_while_they_ask() -> None:
    server, clock = MemoryServer({PATH: {"metadata": {"name": "shop"}}}), VirtualClock()
    client = next(clients_of(server, clock, KnownCallers()))

    async def ask(address: str) -> None:
        STRANGER.set(address)
        await client.get(NAMESPACES, "shop")

    async def granted(address: str) -> int:
        before = len(server.requests)
        await asyncio.gather(*(asyncio.create_task(ask(address)) for _ in range(1_000)), return_exceptions=True)
        return len(server.requests) - before

    alone, second, shared = [await granted(address) for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1")]
    assert second == pytest.approx(alone / 2, abs=2)
    assert shared == pytest.approx(alone / 2, abs=2)
    await clock.sleep(2 * ASKED_BURST / ASKED_PER_SECOND)
    assert await granted("10.0.0.1") > shared + ASKED_PER_SECOND
