"""A small cluster in memory on virtual time: API server, nodes, and the controllers that make CloneSets work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar

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
from app.kube.resources import (
    CUSTOMRESOURCEDEFINITIONS,
    PERSISTENTVOLUMECLAIMS,
    Resource,
)
from app.manager.process import Caches
from app.pods.agents import NodeAgents
from app.pods.readiness import InitialMetadata
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.kubelet.program import Pace
from app.sandbox.nodes import Nodes, simulated_nodes
from tests.kit.cluster import ManagedCluster, scenarios
from tests.kit.features import controller_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, until

CLONESETS = CLONE_SET.resource()
NAMESPACE = "default"


class SmallCluster(ManagedCluster):
    resource: ClassVar[Resource] = CLONESETS

    async def apply(self, name: str = "web", *, version: str = "v1beta1", **spec: Any) -> dict[str, Any]:
        body = {
            "apiVersion": f"apps.kruise.io/{version}",
            "kind": "CloneSet",
            "metadata": {"name": name},
            "spec": {"replicas": 3, "selector": {"matchLabels": {"app": name}}, "template": template(name), **spec},
        }
        return await self.user.create(CLONESETS, body, NAMESPACE)

    async def claims(self) -> list[dict[str, Any]]:
        found = (await self.user.list(PERSISTENTVOLUMECLAIMS, NAMESPACE)).items
        return [claim for claim in found if "deletionTimestamp" not in claim["metadata"]]


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
    """Run the cluster on virtual time."""
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
