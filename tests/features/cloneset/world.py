"""A small cluster in memory on virtual time: API server, nodes, and the controllers that make CloneSets work."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar

from app.features.cloneset import reconcile as cloneset
from app.features.cloneset.feature import FEATURE
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.plan.settings import Gates
from app.features.cloneset.reconcile import CloneSetReconciler
from app.features.podreadiness import feature as newpods
from app.framework.watched import Stores
from app.kube.client import Client
from app.kube.controller import Controller
from app.kube.events import EventRecorder
from app.kube.resources import PERSISTENTVOLUMECLAIMS, Resource
from app.pods.node_agents import NodeAgents
from app.pods.readiness import InitialMetadata
from app.sandbox.kubelet.program import Pace
from tests.kit.cluster import ManagedCluster, managed, scenarios
from tests.kit.features import controller_of

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

    async def deploy(self, replicas: int = 3, **spec: Any) -> dict[str, Any]:
        """Create a CloneSet, and return its status once its Pods are available."""
        await self.apply(replicas=replicas, **spec)
        return await self.settled(availableReplicas=replicas)

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

    def make(client: Client, stores: Stores, events: EventRecorder, rng: Random) -> list[Controller]:
        caches = cloneset.caches_of(stores)
        options: Any = {"gates": gates, "expectation_timeout": expectation_timeout, "agents": agents}
        reconciler = CloneSetReconciler(client.named(cloneset.NAME), caches, events, rng, **options)
        provided = {InitialMetadata: cloneset.initial_metadata(caches.workloads)}
        readiness = controller_of(newpods.FEATURE, client, {"Pods": caches.pods}, provided=provided)
        sets = Controller(cloneset.NAME, client.clock, reconciler.watches(), reconciler)
        return [sets, readiness] if controllers else []

    async with managed(SmallCluster, FEATURE, cloneset.NAME, make, pace=pace, seed=seed) as cluster:
        yield cluster


in_cluster = scenarios(small_cluster)
