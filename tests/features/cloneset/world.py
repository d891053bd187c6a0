"""A small cluster in memory on virtual time: API server, nodes, and the controllers that make CloneSets work."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from app.api.crd import manifest
from app.features.cloneset import reconcile as cloneset
from app.features.cloneset.feature import FEATURE
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.plan.settings import Gates
from app.features.cloneset.reconcile import CloneSetReconciler
from app.features.podreadiness import feature as newpods
from app.kube.client import Client
from app.kube.controller import Controller
from app.kube.events import EventRecorder
from app.kube.reflector import ReflectorMetrics
from app.kube.resources import CONTROLLERREVISIONS, CUSTOMRESOURCEDEFINITIONS, EVENTS, PERSISTENTVOLUMECLAIMS, PODS
from app.kube.wire import Request, Response, Transport
from app.manager.process import Caches
from app.pods.agents import NodeAgents
from app.pods.readiness import InitialMetadata
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.kubelet.program import Pace
from app.sandbox.nodes import Nodes, simulated_nodes
from tests.kit.cluster import scenarios
from tests.kit.features import controller_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, until

CLONESETS = CLONE_SET.resource()
NAMESPACE = "default"


class Counting:
    """A transport that counts the writes of the manager, and may fail them."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stream = inner.stream
        self.requests: list[str] = []
        #: Answers instead of the server, or None to let the request through.
        self.intercept: Callable[[Request], Response | Exception | None] = lambda _request: None

    async def request(self, request: Request) -> Response:
        self.requests.append(f"{request.method} {request.path}")
        answer = self.intercept(request)
        if isinstance(answer, Exception):
            raise answer
        return answer if answer is not None else await self._inner.request(request)

    async def close(self) -> None:
        await self._inner.close()

    def writes(self) -> Counter[str]:
        """Verb and kind of resource of what was not a read."""
        return Counter(
            f"{verb} {path.split('/')[-1] if path.split('/')[-1] in ('status', 'resize') else ''}"
            for verb, path in (line.split(" ") for line in self.requests)
            if verb != "GET"
        )


class SmallCluster:
    """What a test sees: a client of the user, and what the manager has sent."""

    def __init__(self, api: ApiServer, clock: VirtualClock) -> None:
        self.api = api
        self.clock = clock
        self.user = Client(api.transport(), clock)
        self.sent = Counting(api.transport())

    async def apply(self, name: str = "web", *, version: str = "v1beta1", **spec: Any) -> dict[str, Any]:
        labels = {"app": name}
        body = {
            "apiVersion": f"apps.kruise.io/{version}",
            "kind": "CloneSet",
            "metadata": {"name": name},
            "spec": {"replicas": 3, "selector": {"matchLabels": labels}, "template": template(name), **spec},
        }
        return await self.user.create(CLONESETS, body, NAMESPACE)

    async def patch(self, body: Any, name: str = "web") -> None:
        await self.user.patch(CLONESETS, name, body, NAMESPACE)

    async def status(self, name: str = "web") -> dict[str, Any]:
        found = await self.user.get(CLONESETS, name, NAMESPACE)
        return found.get("status") or {}

    async def pods(self) -> list[dict[str, Any]]:
        found = (await self.user.list(PODS, NAMESPACE)).items
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def claims(self) -> list[dict[str, Any]]:
        found = (await self.user.list(PERSISTENTVOLUMECLAIMS, NAMESPACE)).items
        return [claim for claim in found if "deletionTimestamp" not in claim["metadata"]]

    async def revisions(self) -> list[dict[str, Any]]:
        return (await self.user.list(CONTROLLERREVISIONS, NAMESPACE)).items

    async def events(self, reason: str) -> list[str]:
        found = (await self.user.list(EVENTS, NAMESPACE)).items
        return [event["message"] for event in found if event["reason"] == reason]

    async def until(self, condition: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
        """The first true thing the async ``condition`` returns."""
        deadline = self.clock.monotonic() + seconds
        found = None
        while self.clock.monotonic() < deadline:
            found = await condition()
            if found:
                return found
            await self.clock.sleep(0.02)
        raise AssertionError(f"not within {seconds} s: {what}; {await self.status()}")

    async def settled(self, name: str = "web", seconds: float = 300.0, **wanted: int) -> dict[str, Any]:
        """The status once it says so."""

        async def look() -> dict[str, Any] | None:
            found = await self.user.get(CLONESETS, name, NAMESPACE)
            status = found.get("status") or {}
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            return status if current and all(status.get(key, 0) == value for key, value in wanted.items()) else None

        return await self.until(look, f"{name}: {wanted}", seconds)


def template(name: str = "web", image: str = "nginx:1", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": image}]
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": containers, **spec}}


def rolling(policy: str = "InPlaceIfPossible", **strategy: Any) -> dict[str, Any]:
    block = {"podUpdatePolicy": policy, "maxUnavailable": 1, **strategy}
    return {"type": "RollingUpdate", "rollingUpdate": block}


@asynccontextmanager
async def small_cluster(
    gates: Gates | None = None,
    *,
    pace: Pace | None = None,
    controllers: bool = True,
    expectation_timeout: float = 300.0,
    agents: NodeAgents | None = None,
    seed: int = 7,
) -> AsyncIterator[SmallCluster]:
    """The cluster, running, to be used on virtual time."""
    clock, rng = VirtualClock(), Random(seed)
    api = ApiServer(clock=clock, rng=rng)
    cluster = SmallCluster(api, clock)
    await cluster.user.create(CUSTOMRESOURCEDEFINITIONS, manifest(CLONE_SET))
    nodes = Nodes(Client(api.transport(), clock), simulated_nodes(3), rng=rng, bind=True, pace=pace)
    client = Client(cluster.sent, clock)
    caches = Caches("kruise-system", declared=[FEATURE])
    events = EventRecorder(client, cloneset.NAME)
    stores = cloneset.caches_of(caches.stores)
    reconciler = CloneSetReconciler(
        client.named(cloneset.NAME),
        stores,
        events,
        rng,
        gates=gates,
        expectation_timeout=expectation_timeout,
        agents=agents,
    )
    provided = {InitialMetadata: cloneset.initial_metadata(stores.workloads)}
    made = [
        Controller(cloneset.NAME, clock, reconciler.watches(), reconciler, workers=cloneset.WORKERS),
        controller_of(newpods.FEATURE, client, {"Pods": stores.pods}, provided=provided),
    ]
    reflectors = [reflector.run() for reflector in caches.controller_reflectors(client, rng, ReflectorMetrics())]
    mains = [nodes.run(), events.run(), *reflectors, *(one.run() for one in made if controllers)]
    try:
        async with running(*mains):
            await until(lambda: all(store.ready for store in (stores.pods, stores.workloads)))
            yield cluster
    finally:
        api.close()


in_cluster = scenarios(small_cluster)
