"""A small cluster in memory on virtual time: API server, nodes with a scheduler, and the controllers of DaemonSets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar

from app.features.daemonset import reconcile as daemonset
from app.features.daemonset.feature import FEATURE
from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.plan.settings import Gates
from app.features.daemonset.reconcile import DaemonSetReconciler
from app.features.podreadiness import feature as newpods
from app.framework.watched import Stores
from app.kube.client import Client
from app.kube.controller import Controller
from app.kube.events import EventRecorder
from app.kube.objects import Node
from app.kube.resources import NODES, Resource
from app.kube.store import Store
from app.sandbox.kubelet.program import Pace
from tests.kit.cluster import ManagedCluster, managed, scenarios
from tests.kit.features import controller_of
from tests.kube.fakes import until

DAEMONSETS = DAEMON_SET.resource()
NAMESPACE = "default"
Json = dict[str, Any]
#: The default gates.
GATES = Gates(template_hash=False, short_hash=True)


class SmallCluster(ManagedCluster):
    resource: ClassVar[Resource] = DAEMONSETS
    owner: ClassVar[str] = "ds"
    nodes = 3

    async def apply(self, name: str = "ds", *, annotations: Json | None = None, **spec: Any) -> Json:
        whole = {"selector": {"matchLabels": {"app": name}}, "template": template(name), **spec}
        return await self.create(name, whole, annotations=annotations or {})

    async def image(self, image: str, name: str = "ds") -> None:
        await self.patch({"spec": {"template": template(name, image)}}, name)

    async def images(self) -> dict[str, list[str]]:
        """Return the images of live Pods by node."""
        found: dict[str, list[str]] = {}
        for pod in await self.pods():
            found.setdefault(pod["spec"].get("nodeName", ""), []).append(pod["spec"]["containers"][0]["image"])
        return {node: sorted(there) for node, there in found.items()}

    async def node(self, name: str, body: Json) -> None:
        await self.user.patch(NODES, name, body)

    async def all_updated(self) -> Json:
        """Return the status once every node has an available updated Pod."""
        counts = ("desiredNumberScheduled", "updatedNumberScheduled", "numberAvailable")
        return await self.settled(**dict.fromkeys(counts, self.nodes), numberUnavailable=0)

    async def deploy(self, **spec: Any) -> Json:
        """Create a DaemonSet, and return its status once every node has an available Pod."""
        await self.apply(**spec)
        return await self.all_updated()


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
    """Run the cluster on virtual time. ``before`` runs before all controllers; ``options`` are the reconciler's."""
    cluster_nodes: list[Store[Node]] = []

    def make(client: Client, stores: Stores, events: EventRecorder, rng: Random) -> list[Controller]:
        caches = daemonset.caches_of(stores)
        cluster_nodes.append(stores(daemonset.NODES))
        reconciler = DaemonSetReconciler(
            client.named(daemonset.NAME), caches, cluster_nodes[0], events, rng, gates=gates, **options
        )
        sets = Controller(daemonset.NAME, client.clock, reconciler.watches(), reconciler)
        return [sets, controller_of(newpods.FEATURE, client, {"Pods": caches.pods})]

    where: Any = {"nodes": nodes, "pace": pace, "seed": seed, "before": before}
    async with managed(SmallCluster, FEATURE, daemonset.NAME, make, **where) as cluster:
        await until(lambda: len(cluster_nodes[0]) == nodes)
        cluster.nodes = nodes
        yield cluster


in_cluster = scenarios(small_cluster)
