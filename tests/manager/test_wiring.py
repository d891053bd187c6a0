"""What features are given: a client with a request budget for reviews."""

import asyncio
from contextvars import ContextVar
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
GRANTED = ASKED_BURST + ASKED_PER_SECOND * LONGEST_WAIT_SECONDS


class Lookups:
    """Requests of reviews to the API server, each with the client of one of the webhooks."""

    def __init__(self) -> None:
        self.server = MemoryServer({PATH: {"metadata": {"name": "shop"}}})
        self.clock, self.callers = VirtualClock(), KnownCallers()
        process = SimpleNamespace(
            settings=SimpleNamespace(
                own_namespace="kruise-system", gates=SimpleNamespace(enabled=bool), flags=None, policies=None
            ),
            client=Client(self.server, self.clock),
            clock=self.clock,
            rng=None,
            caches=SimpleNamespace(stores=None),
            metrics=SimpleNamespace(of=None),
        )
        self._context = admission_context(cast("Process", process), cast("Recorders", None), self.callers)

    async def look_up(self, of: ContextVar[str] | None, value: str) -> float:
        """Return how long one lookup waits. ``of``: what the review's namespace or caller is noted in."""
        client = cast("Client", self._context(cast("AdmissionPart", SimpleNamespace(event_source=""))).client)
        began = self.clock.monotonic()
        if of is not None:
            of.set(value)
        await client.get(NAMESPACES, "shop")
        return self.clock.monotonic() - began

    async def flood(self, number: int, of: ContextVar[str] | None = None, value: str = "{}") -> list[float]:
        """Start lookups at once and return how long those wait that are granted; the others time out."""
        tasks = [asyncio.create_task(self.look_up(of, value.format(one))) for one in range(number)]
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, float | TimeoutError) for one in found)
        return [one for one in found if isinstance(one, float)]


@pytest.mark.behaviour("MGR-154", "MGR-165")
@pytest.mark.parametrize(
    "shared", [None, NAMESPACE, STRANGER], ids=["one namespace", "many namespaces", "many strangers"]
)
@virtual
async def test_reviews_of_all_kinds_share_one_limit_on_their_lookups(shared: ContextVar[str] | None) -> None:
    waits = await Lookups().flood(1_000, shared)
    assert (len(waits), waits.count(0)) == (GRANTED, ASKED_BURST)
    assert max(waits) == pytest.approx(LONGEST_WAIT_SECONDS)


@pytest.mark.behaviour("MGR-165")
@virtual
async def test_reviews_of_one_namespace_leave_others_their_share_of_the_lookups() -> None:
    lookups = Lookups()
    flood = asyncio.create_task(lookups.flood(2_000, NAMESPACE, "hostile"))
    await lookups.clock.sleep(1)
    assert await lookups.flood(ASKED_BURST // 2, NAMESPACE, "shop") == [0] * (ASKED_BURST // 2)
    await flood
    await lookups.clock.sleep(60)
    assert await lookups.flood(ASKED_BURST, NAMESPACE, "shop") == [0] * ASKED_BURST, "alone, it has the whole budget"


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
    [(True, STRANGERS_BURST + STRANGERS_PER_SECOND * LONGEST_WAIT_SECONDS), (False, GRANTED)],
)
async def test_unknown_callers_cannot_exhaust_the_budget_of_known_ones(known_ask: bool, granted: float) -> None:
    lookups = Lookups()
    lookups.callers.asked_at = float("inf") if known_ask else float("-inf")
    assert len(await lookups.flood(2_000, STRANGER, "10.0.0.9")) == pytest.approx(granted, abs=1)
    assert await lookups.flood(ASKED_BURST) == [0] * ASKED_BURST
    # Nor does one address exhaust the budget of another.
    assert await lookups.flood(STRANGERS_BURST // 2, STRANGER, "10.0.0.1") == [0] * (STRANGERS_BURST // 2)


@pytest.mark.behaviour("MGR-154")
@virtual
async def test_unknown_callers_share_their_budget_only_while_they_ask() -> None:
    lookups = Lookups()
    alone, second, shared = [
        len(await lookups.flood(1_000, STRANGER, address)) for address in ("10.0.0.1", "10.0.0.2", "10.0.0.1")
    ]
    assert second == pytest.approx(alone / 2, abs=2)
    assert shared == pytest.approx(alone / 2, abs=2)
    await lookups.clock.sleep(2 * ASKED_BURST / ASKED_PER_SECOND)
    assert len(await lookups.flood(1_000, STRANGER, "10.0.0.1")) > shared + ASKED_PER_SECOND
