"""A small cluster in memory on virtual time: API server, nodes with a scheduler, and the controllers of DaemonSets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar

from app.api.crd import manifest
from app.features.daemonset import reconcile as daemonset
from app.features.daemonset.feature import FEATURE
from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.plan.settings import Gates
from app.features.daemonset.reconcile import DaemonSetReconciler
from app.features.podreadiness import feature as newpods
from app.kube.client import Client
from app.kube.controller import Controller
from app.kube.events import EventRecorder
from app.kube.reflector import ReflectorMetrics
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, NODES, Resource
from app.manager.process import Caches
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.kubelet.program import Pace
from app.sandbox.kubelets import Kubelets
from app.sandbox.nodes import Nodes, simulated_nodes
from tests.kit.cluster import ManagedCluster, scenarios
from tests.kit.features import controller_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, until

DAEMONSETS = DAEMON_SET.resource()
NAMESPACE = "default"
Json = dict[str, Any]
#: As `Gates.of` has them where nothing is switched.
GATES = Gates(template_hash=False, short_hash=True)


class SmallCluster(ManagedCluster):
    resource: ClassVar[Resource] = DAEMONSETS
    kubelets: Kubelets

    async def apply(self, name: str = "ds", *, annotations: Json | None = None, **spec: Any) -> Json:
        whole = {"selector": {"matchLabels": {"app": name}}, "template": template(name), **spec}
        return await self.create(name, whole, annotations=annotations or {})

    async def patch(self, body: Any, name: str = "ds") -> None:
        await super().patch(body, name)

    async def status(self, name: str = "ds") -> Json:
        return await super().status(name)

    async def settled(self, name: str = "ds", seconds: float = 300.0, **wanted: int) -> Json:
        return await super().settled(name, seconds, **wanted)

    async def image(self, image: str, name: str = "ds") -> None:
        await self.patch({"spec": {"template": template(name, image)}}, name)

    async def images(self) -> dict[str, list[str]]:
        """Node → images of its live Pods."""
        found: dict[str, list[str]] = {}
        for pod in await self.pods():
            found.setdefault(pod["spec"].get("nodeName", ""), []).append(pod["spec"]["containers"][0]["image"])
        return {node: sorted(there) for node, there in found.items()}

    async def node(self, name: str, body: Json) -> None:
        await self.user.patch(NODES, name, body)

    async def all_updated(self, nodes: int = 3) -> Json:
        """The status once every node has an available new Pod."""
        return await self.settled(
            desiredNumberScheduled=nodes, updatedNumberScheduled=nodes, numberAvailable=nodes, numberUnavailable=0
        )


def template(name: str = "ds", image: str = "nginx:1", **spec: Any) -> Json:
    containers = [{"name": "main", "image": image}]
    return {
        "metadata": {"labels": {"app": name}},
        "spec": {"containers": containers, "terminationGracePeriodSeconds": 1, **spec},
    }


def rolling(kind: str = "Standard", **strategy: Any) -> Json:
    return {"type": "RollingUpdate", "rollingUpdate": {"rollingUpdateType": kind, **strategy}}


@asynccontextmanager
async def small_cluster(
    gates: Gates = GATES,
    *,
    nodes: int = 3,
    pace: Pace | None = None,
    seed: int = 7,
    before: Callable[[SmallCluster], Awaitable[None]] | None = None,
    **options: Any,
) -> AsyncIterator[SmallCluster]:
    """The cluster, running, to be used on virtual time. ``before``: what happens before any controller starts;
    ``options`` are the reconciler's."""
    clock, rng = VirtualClock(), Random(seed)
    api = ApiServer(clock=clock, rng=rng)
    cluster = SmallCluster(api, clock)
    await cluster.user.create(CUSTOMRESOURCEDEFINITIONS, manifest(DAEMON_SET))
    if before is not None:
        await before(cluster)
    simulation = Nodes(Client(api.transport(), clock), simulated_nodes(nodes), rng=rng, bind=True, pace=pace)
    cluster.kubelets = simulation.kubelets
    client = Client(cluster.sent, clock)
    caches = Caches("kruise-system", declared=[FEATURE])
    events = EventRecorder(client, daemonset.NAME)
    stores = daemonset.caches_of(caches.stores)
    cluster_nodes = caches.stores(daemonset.NODES)
    reconciler = DaemonSetReconciler(
        client.named(daemonset.NAME), stores, cluster_nodes, events, rng, gates=gates, **options
    )
    made = [
        Controller(daemonset.NAME, clock, reconciler.watches(), reconciler, workers=daemonset.WORKERS),
        controller_of(newpods.FEATURE, client, {"Pods": stores.pods}),
    ]
    reflectors = [reflector.run() for reflector in caches.controller_reflectors(client, rng, ReflectorMetrics())]
    mains = [simulation.run(), events.run(), *reflectors, *(one.run() for one in made)]
    try:
        async with running(*mains):
            await until(lambda: all(store.ready for store in (stores.pods, stores.workloads, cluster_nodes)))
            await until(lambda: len(cluster_nodes) == nodes)
            yield cluster
    finally:
        api.close()


in_cluster = scenarios(small_cluster)
