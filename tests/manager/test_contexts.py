"""What slices are given: a client whose requests are bounded where anybody may make us send them."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from app.kube.client import Client
from app.kube.controller import Result
from app.kube.errors import NotFound, RequestInfo, Status
from app.kube.resources import NAMESPACES, ObjectKey
from app.kube.virtualtime import VirtualClock
from app.manager.contexts import (
    ABSENT_SECONDS,
    ASKED_BURST,
    ASKED_PER_SECOND,
    LONGEST_WAIT_SECONDS,
    Recorders,
    admission_context,
    waiting_for_definitions,
)
from app.manager.process import Process
from app.slices import AdmissionPart
from tests.kube.fakes import MemoryServer, virtual

PATH = "/api/v1/namespaces/shop"


@virtual
async def test_reviews_of_all_kinds_share_one_limit_of_what_they_make_us_ask() -> None:
    server = MemoryServer({PATH: {"metadata": {"name": "shop", "resourceVersion": "1"}}})
    clock = VirtualClock()
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
    context = admission_context(cast("Process", process), cast("Recorders", None))
    part = cast("AdmissionPart", SimpleNamespace(event_source=""))
    clients = [context(part).client, context(part).client]
    flood: list[Any] = [cast("Client", clients[number % 2]).get(NAMESPACES, "shop") for number in range(2_000)]
    answers = await asyncio.gather(*flood, return_exceptions=True)
    refused = [one for one in answers if isinstance(one, TimeoutError)]
    granted = ASKED_BURST + ASKED_PER_SECOND * LONGEST_WAIT_SECONDS
    assert len(server.requests) == pytest.approx(granted, abs=1)
    assert len(refused) == 2_000 - len(server.requests)


@pytest.mark.parametrize(
    "path", ["imagepulljobs/x", "namespaces/shop/imagepulljobs", "namespaces/shop/imagepulljobs/x"]
)
async def test_a_reconcile_that_needs_a_kind_that_is_off_waits_for_it(path: str) -> None:
    async def reconcile(_: ObjectKey) -> None:
        request = RequestInfo("POST", f"/apis/apps.kruise.io/v1beta1/{path}?dryRun=All")
        raise NotFound(request, Status(code=404, reason="NotFound"))

    key = ObjectKey("shop", "x")
    waiting = waiting_for_definitions(reconcile, lambda: ["imagepulljobs.apps.kruise.io"])
    assert await waiting(key) == Result(requeue_after=ABSENT_SECONDS)
    with pytest.raises(NotFound):
        await waiting_for_definitions(reconcile, tuple)(key)
