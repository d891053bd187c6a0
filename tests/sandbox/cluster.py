"""A simulated cluster in virtual time, for tests: in-memory API server, nodes, native controllers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from app.kube.client import Client
from app.kube.resources import PODS, Resource
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.cluster import SimulatedCluster
from app.sandbox.kubelet.program import Pace
from app.sandbox.nodes import simulated_nodes
from tests.kit.cluster import Waiting, scenarios
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, until

CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "110"}


class Simulated(Waiting):
    def __init__(self, api: ApiServer, client: Client, cluster: SimulatedCluster) -> None:
        self.api = api
        self.client = client
        self.clock = client.clock
        self.cluster = cluster

    async def pods(self, selector: str = "") -> list[dict[str, Any]]:
        listing = await self.client.list(PODS, "default", label_selector=selector)
        return sorted(listing.items, key=lambda pod: pod["metadata"]["name"])

    async def get(self, resource: Resource, name: str) -> dict[str, Any]:
        return await self.client.get(resource, name, "default" if resource.namespaced else "")

    async def create(self, resource: Resource, body: dict[str, Any]) -> dict[str, Any]:
        return await self.client.create(resource, body, "default" if resource.namespaced else "")

    async def patch(self, resource: Resource, name: str, body: dict[str, Any]) -> dict[str, Any]:
        return await self.client.patch(resource, name, body, "default" if resource.namespaced else "")

    async def status(self, resource: Resource, name: str, seconds: float = 60.0, **wanted: Any) -> dict[str, Any]:
        """Return the object once its status has the wanted values."""
        last: dict[str, Any] = {}

        async def look() -> bool:
            nonlocal last
            last = (await self.get(resource, name)).get("status", {})
            return all((last.get(key) or None) == (value or None) for key, value in wanted.items())

        try:
            await self.until(look, seconds)
        except AssertionError:
            raise AssertionError(f"{resource.kind} {name}: {last} is not {wanted}") from None
        return last


@asynccontextmanager
async def simulated(
    number: int = 3, *, pace: Pace | None = None, seed: int = 1, agents: bool = False
) -> AsyncIterator[Simulated]:
    clock, rng = VirtualClock(), Random(seed)
    api = ApiServer(clock=clock, rng=rng)
    client = Client(api.transport(), clock)
    nodes = simulated_nodes(number, zones=["a", "b"], capacity=CAPACITY)
    cluster = SimulatedCluster(client, nodes, rng=rng, pace=pace, agents=agents)
    await cluster.register()
    async with running(cluster.work()):
        await until(lambda: cluster.pods.ready, 5)
        yield Simulated(api, client, cluster)
    api.close()


in_simulated = scenarios(simulated)
