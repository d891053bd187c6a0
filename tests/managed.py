"""A simulated cluster on virtual time with everything of ours in it: the manager with its webhooks and controllers, and
an agent on each node."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any

from app.api.crd import manifest
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, EVENTS, NAMESPACES
from app.manager.features import kinds
from app.sandbox.kubelet.program import Pace
from tests.kit.cluster import scenarios
from tests.kube.fakes import running
from tests.sandbox.cluster import Simulated, simulated
from tests.simulation.faults import CALM, FaultyTransport, Weather
from tests.simulation.replicas import SimulatedReplica
from tests.simulation.streams import Streams

Json = dict[str, Any]
GATES = "--feature-gates="
REQUESTS = CONTAINER_RECREATE_REQUEST.resource()
SERVICE = "kruise-webhook-service.kruise-system"


async def define(there: Simulated) -> None:
    """Create our definitions and the manager's namespace."""
    for kind in kinds():
        await there.client.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
    await there.client.create(NAMESPACES, {"metadata": {"name": "kruise-system"}})


@asynccontextmanager
async def managed(
    *flags: str, number: int = 2, pace: Pace | None = None, seed: int = 1, weather: Callable[[], Weather] = lambda: CALM
) -> AsyncIterator[Simulated]:
    """``flags``: ``--feature-gates`` of the manager; ``number``: of nodes; ``weather``: faults of its requests."""
    async with simulated(number, pace=pace, seed=seed, agents=True) as there:
        await define(there)
        gates = "".join(f",{flag.removeprefix(GATES)}" for flag in flags)
        replica = replica_of(there, "replica-0", seed, gates, weather)

        async def review(path: str, body: bytes) -> tuple[int, bytes]:
            return await replica.review(path, body)

        there.api.webhooks.local[SERVICE] = review

        async def serves() -> bool:
            return replica.answers and replica.leads

        async with running(replica.run()):
            await there.until(serves)
            yield there


in_managed = scenarios(managed)


def replica_of(
    there: Simulated, name: str, seed: int = 1, gates: str = "", weather: Callable[[], Weather] = lambda: CALM
) -> SimulatedReplica:
    """Return a replica of the manager in this cluster."""
    clock = there.client.clock
    replica: SimulatedReplica

    def connect(process: str, kill: Callable[[str], None]) -> FaultyTransport:
        inner = there.api.transport("system:serviceaccount:kruise-system:kruise-manager")
        return FaultyTransport(inner, clock, replica.streams, weather, kill)

    replica = SimulatedReplica(name, clock, Streams(f"{name} {seed}"), connect, gates)
    return replica


async def restart_requests(there: Simulated) -> dict[str, Json]:
    """Return the ContainerRecreateRequests by name."""
    return {one["metadata"]["name"]: one for one in (await there.client.list(REQUESTS, "default")).items}


@asynccontextmanager
async def unresponsive_nodes(there: Simulated) -> AsyncIterator[None]:
    """Until a ContainerRecreateRequest is given up, no agent sees one."""
    agents = there.cluster.agents
    assert agents is not None
    held = [(agent.requests, agent.requests.put) for agent in agents.by_node.values()]
    for store, _ in held:
        store.put = lambda _: None  # type: ignore[method-assign, assignment]
    yield

    async def given_up() -> bool:
        return any(one.get("status", {}).get("completionTime") for one in (await restart_requests(there)).values())

    await there.until(given_up, 300)
    for store, put in held:
        store.put = put  # type: ignore[method-assign]


async def events_of(there: Simulated, name: str, reason: str) -> list[Json]:
    """Return the events with this reason about the object of that name."""
    found: Iterable[Json] = (await there.client.list(EVENTS)).items
    return [one for one in found if one["involvedObject"]["name"] == name and one["reason"] == reason]
