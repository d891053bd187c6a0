"""Live reads of admission: objects stored without webhooks do not block other writes; large objects are remembered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson
import pytest

from app.features.persistentpodstate.pod_admission import STATES
from app.features.podunavailablebudget import webhooks as podunavailablebudget
from app.features.workloadspread import webhooks as workloadspread
from app.features.workloadspread.webhooks import SPREADS
from app.framework.live import LARGE_BYTES, LiveObjects
from app.framework.watched import Stores, Watched
from app.kube.admission import Operation
from app.kube.client import Client
from tests.kit.objects import pod_review
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import Connections, listing, virtual
from tests.kube.hostile import chain

TARGET = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "web"}
Look = Callable[[Client], Awaitable[Sequence[Any]]]


LOOKS = pytest.mark.parametrize(
    ("look", "spec"),
    [
        (
            lambda client: podunavailablebudget.BudgetLookups(True, client, Stores(())).budgets("shop"),
            {"targetRef": TARGET, "maxUnavailable": 1},
        ),
        (
            lambda client: workloadspread.SpreadLookups(client, Stores(()), "kruise-system").others("shop"),
            {"targetRef": TARGET, "subsets": [{"name": "a"}]},
        ),
        (lambda client: LiveObjects(client, Stores(())).list(STATES, "shop"), {"targetRef": TARGET}),
    ],
    ids=["budgets", "spreads", "states"],
)


@LOOKS
@virtual
async def test_an_unreadable_object_does_not_hide_others(look: Look, spec: dict[str, Any]) -> None:
    transport = Connections()
    broken = {"metadata": {"name": "broken", "namespace": "shop"}, "spec": {"targetRef": 3}}
    transport.answers.append(listing(1, broken, {"metadata": {"name": "good", "namespace": "shop"}, "spec": spec}))
    assert [one.metadata.name for one in await look(Client(transport, VirtualClock()))] == ["good"]


@LOOKS
@virtual
async def test_deep_managed_fields_hide_no_object(look: Look, spec: dict[str, Any]) -> None:
    transport = Connections()
    fields = [{"manager": "tenant", "fieldsV1": "HERE"}]
    answer = listing(1, {"metadata": {"name": "deep", "namespace": "shop", "managedFields": fields}, "spec": spec})
    assert b'"HERE"' in answer.body
    transport.answers.append(replace(answer, body=answer.body.replace(b'"HERE"', chain(9_000))))
    assert [one.metadata.name for one in await look(Client(transport, VirtualClock()))] == ["deep"]


@pytest.mark.behaviour("MGR-149")
@virtual
async def test_a_namespace_is_large_as_long_as_its_objects_of_one_kind_are() -> None:
    transport = Connections()
    live = LiveObjects(Client(transport, VirtualClock()), Stores(()))

    async def list_them(watched: Watched[Any], spec: dict[str, Any], text: str) -> tuple[bool, bool]:
        metadata = {"name": "one", "namespace": "shop", "annotations": {"text": text}}
        transport.answers.append(listing(1, {"metadata": metadata, "spec": spec}))
        await live.list(watched, "shop")
        shop, bank = (pod_review(Operation.CREATE, namespace=namespace) for namespace in ("shop", "bank"))
        return live.are_large(shop), live.are_large(bank)

    states, spreads = (STATES, {"targetRef": TARGET}), (SPREADS, {"targetRef": TARGET, "subsets": [{"name": "a"}]})
    assert await list_them(*states, "") == (False, False)
    assert await list_them(*states, "x" * LARGE_BYTES) == (True, False)
    assert await list_them(*spreads, "") == (True, False)
    assert await list_them(*states, "") == (False, False)


@virtual
async def test_without_a_cluster_the_files_of_the_namespace_are_read() -> None:
    stores = Stores((STATES,))
    for namespace in ("shop", "bank"):
        raw = {"metadata": {"name": "web", "namespace": namespace}, "spec": {"targetRef": TARGET}}
        stores(STATES).put(STATES.decode(orjson.dumps(raw)))
    live = LiveObjects(None, stores)
    assert [one.metadata.namespace for one in await live.list(STATES, "shop")] == ["shop"]
    assert (await live.get(STATES, "web", "bank")).metadata.namespace == "bank"
    assert await live.get(STATES, "web", "other") is None
