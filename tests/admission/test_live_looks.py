"""What admission reads live: objects stored without webhooks do not block other writes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from app.features.persistentpodstate.pod_admission import STATES
from app.features.podunavailablebudget import webhooks as podunavailablebudget
from app.features.workloadspread import webhooks as workloadspread
from app.framework.watched import LiveObjects, Stores
from app.kube.client import Client
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
        (
            lambda client: LiveObjects(client, Stores(())).list(STATES, "shop"),
            {"targetRef": TARGET},
        ),
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
