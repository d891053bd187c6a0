"""The dashboard with the sandbox's API server: its contents, and which clients may see it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import httpx
import orjson
import pytest

from app.api.crd import manifest
from app.dashboard.board import Board, shown
from app.dashboard.overview import workload
from app.dashboard.pages import create_dashboard
from app.framework.commands import Commands
from app.framework.dashboard import SHOWN
from app.kube.client import Client, PatchType
from app.kube.clock import Clock, SystemClock
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, NAMESPACES, NODES, PODS
from app.manager.apidocs import example
from app.manager.features import features
from app.sandbox.apiserver.server import ApiServer
from tests.kit.cluster import served
from tests.kit.objects import owner_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, virtual

pytestmark = pytest.mark.behaviour("CLI-60")
COMMANDS = [one for declared in features() for one in declared.commands() if one.progress is not None]
SECTIONS = [one for declared in features() for one in declared.dashboard()]
KINDS = [kind for declared in features() for kind in declared.kinds]


class Cluster:
    def __init__(self, client: Client, board: Board) -> None:
        self.client = client
        self.board = board

    async def create(self, name: str, **spec: Any) -> dict[str, Any]:
        kind = next(kind for kind in KINDS if kind.kind == name)
        obj = orjson.loads(orjson.dumps(example(kind)))
        obj["spec"] |= spec
        return await self.client.create(kind.resource(), obj, "shop" if kind.namespaced else "")

    async def until(self, section: str, wanted: Any) -> Any:
        async with asyncio.timeout(120), self.board.reader() as reader:
            while True:
                name, payload = await reader.next()
                if name == section and (found := wanted(orjson.loads(payload))):
                    return found


@asynccontextmanager
async def cluster(commands: Sequence[Commands] = COMMANDS, clock: Clock | None = None) -> AsyncIterator[Cluster]:
    clock, rng = clock or SystemClock(), Random(1)
    api = ApiServer(clock=clock, rng=rng)
    client = Client(api.transport(), clock)
    for kind in KINDS:
        await client.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
    await served(client, KINDS[-1].resource())
    await client.create(NAMESPACES, {"metadata": {"name": "shop"}})
    board = Board(client, commands, SECTIONS, rng)
    async with running(board.run()):
        await board.until_ready()
        yield Cluster(client, board)
    api.close()


async def test_the_page_receives_all_rows_and_then_changes() -> None:
    async with cluster() as found:
        made = await found.create("CloneSet")
        await found.create("SidecarSet")
        await found.create("PodUnavailableBudget")
        await found.client.create(NODES, {"metadata": {"name": "n1"}})
        labels = {"app": "web", "controller-revision-hash": "web-1"}
        metadata = {"name": "web-0", "labels": labels, "ownerReferences": [owner_of(made)]}
        spec = {"containers": [{"name": "main", "image": "a:1"}], "nodeName": "n1"}
        await found.client.create(PODS, {"metadata": metadata, "spec": spec}, "shop")
        row = await found.until(
            "workloads", lambda one: one["items"] and one["items"][0]["revisions"] and one["items"][0]
        )
        assert (row["kind"], row["name"], row["revisions"][0]["pods"]) == ("CloneSet", "web", 1)
        lacking = await found.until(
            "sidecarSets", lambda one: one["items"] and one["items"][0]["lacking"] and one["items"]
        )
        assert lacking[0]["lackingPods"] == ["shop/web-0"]
        budget = await found.until("budgets", lambda one: one["items"])
        assert budget[0]["verdict"] == "not computed yet"
        status = {"conditions": [{"type": "Ready", "status": "True"}], "phase": "Running"}
        await found.client.patch(
            PODS, "web-0", {"status": status}, "shop", kind=PatchType.STRATEGIC, subresource="status"
        )
        await found.until("nodes", lambda one: one["items"] and one["items"][0]["pods"]["ready"] == 1)
        await found.client.delete(KINDS[1].resource(), "web", "shop")
        await found.until("workloads", lambda one: all(item["kind"] != "CloneSet" for item in one["items"]))


@virtual
async def test_a_change_is_shown_within_a_second() -> None:
    """This is a second of virtual time, so the result does not depend on the machine's speed."""
    clock = VirtualClock()
    async with cluster(clock=clock) as found:
        made = await found.create("CloneSet")
        await found.until("workloads", lambda one: one["items"])
        resource = next(kind for kind in KINDS if kind.kind == "CloneSet").resource()
        await clock.sleep(60)  # pending events have been sent
        before = clock.monotonic()
        counts = {"availableReplicas": 0, "readyReplicas": 0, "updatedReadyReplicas": 0}
        status = {"observedGeneration": 1, "replicas": 3, "updatedReplicas": 2, **counts}
        await found.client.patch(resource, made["metadata"]["name"], {"status": status}, "shop", subresource="status")
        await found.until("workloads", lambda one: "2 of 3 Pods updated" in json.dumps(one))
        assert clock.monotonic() - before < 1


async def test_pages_are_served_on_loopback_only() -> None:
    async with cluster() as found:
        app: Any = create_dashboard(found.board)

        def client(address: str, host: str = "localhost:8900") -> httpx.AsyncClient:
            transport = httpx.ASGITransport(app, client=(address, 4711))
            return httpx.AsyncClient(transport=transport, base_url=f"http://{host}")

        async with client("127.0.0.1") as http:
            page = await http.get("/")
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
            assert "http" not in page.text.replace("https://", "http").split("<script>")[0]
            found.board.model.model_validate((await http.get("/api/overview")).json())
            assert {"/api/overview", "/api/events"} <= (await http.get("/openapi.json")).json()["paths"].keys()
        for other in (client("10.0.0.7"), client("127.0.0.1", "attacker.example.com")):
            async with other as http:
                for path in ("/", "/api/overview", "/api/events", "/docs"):
                    assert (await http.get(path)).status_code == 403


@pytest.mark.parametrize("value", [None, 7, "x", [], {}, {"name": 7}, {"name": "a" * 10_000}])
@pytest.mark.parametrize("field", ["metadata", "spec", "status"])
def test_objects_of_any_shape_have_a_row(field: str, value: Any) -> None:
    stored = {"metadata": {"name": "web"}, "status": {}, field: value}
    for commands in COMMANDS:
        workload(commands, stored, [])
    for section in SECTIONS:
        section.row(stored, ())


def test_a_section_shows_a_limited_number_of_objects_and_counts_the_rest() -> None:
    found = shown(range(SHOWN + 20), lambda number: -number)
    assert (found["total"], found["more"], len(found["items"])) == (SHOWN + 20, 20, SHOWN)
    assert found["items"][0] == SHOWN + 19
