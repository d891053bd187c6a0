"""A cluster without machines: simulated nodes and built-in controllers that share one Pod cache."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from random import Random
from typing import Any, Final

from app.kube.client import Client
from app.kube.reflector import Reflector
from app.kube.resources import NODES, PODS
from app.kube.store import Store
from app.sandbox import kubelets
from app.sandbox.agents import Agents
from app.sandbox.controllers.daemonset import DaemonSets
from app.sandbox.controllers.deployment import Deployments, ReplicaSets
from app.sandbox.controllers.job import Budgets, Jobs
from app.sandbox.controllers.nodes import NodeLifecycle, Volumes
from app.sandbox.controllers.pods import POD_INDEXES, Revisions
from app.sandbox.controllers.services import Accounts, Services
from app.sandbox.controllers.statefulset import StatefulSets
from app.sandbox.kubelet.program import Pace, Scripts
from app.sandbox.nodes import Nodes, SimulatedNode
from app.sandbox.objects import Node, Pod, decode_node, decode_pod

# The built-in controllers that the scenarios need: ReplicaSets, Deployments, StatefulSets, DaemonSets, Jobs,
# EndpointSlices, PodDisruptionBudgets, volume claims, unresponsive nodes, and the default objects of namespaces. They
# are simplified, but users see the same behavior as on a real cluster. Garbage collection and namespace deletion are
# part of the API server. Each module has a pure planning function followed by the controller.


class NativeControllers:
    """All native controllers, sharing one cache of Pods and Nodes. The caller fills the stores it passes in."""

    def __init__(
        self,
        client: Client,
        *,
        rng: Random,
        pods: Store[Pod] | None = None,
        nodes: Store[Node] | None = None,
        authority: str = "",
    ) -> None:
        self._reflectors: list[Reflector[Any]] = []
        if pods is None:
            pods = Store(POD_INDEXES)
            self._reflectors.append(Reflector(client, PODS, pods, decode=decode_pod, rng=rng))
        if nodes is None:
            nodes = Store()
            self._reflectors.append(Reflector(client, NODES, nodes, decode=decode_node, rng=rng))
        revisions = Revisions(client, rng)
        self._reflectors.append(revisions.reflector)
        sets = ReplicaSets(client, pods, rng)
        self._parts: tuple[Any, ...] = (
            sets,
            Deployments(client, sets.sets, rng),
            StatefulSets(client, pods, revisions, rng),
            DaemonSets(client, pods, nodes, revisions, rng),
            Jobs(client, pods, rng),
            Services(client, pods, rng),
            Budgets(client, pods, rng),
            Volumes(client, rng),
            NodeLifecycle(client, pods, nodes, rng),
            Accounts(client, rng, authority),
        )

    def tasks(self) -> list[Coroutine[Any, Any, None]]:
        """Return the coroutines to run concurrently until canceled."""
        return [*(one.run() for one in self._reflectors), *(task for part in self._parts for task in part.tasks())]


#: Indexes of Pods that the controllers need.
INDEXES: Final = {**kubelets.INDEXES, **POD_INDEXES}


class SimulatedCluster:
    """A cluster without its API server. The same seed and clock produce the same history."""

    def __init__(
        self,
        client: Client,
        nodes: Sequence[SimulatedNode],
        *,
        rng: Random,
        pace: Pace | None = None,
        scripts: Scripts | None = None,
        events: bool = True,
        authority: str = "",
        agents: bool = False,
    ) -> None:
        """Create the cluster. ``agents``: whether each node runs a node agent."""
        self.pods: Store[Pod] = Store(INDEXES)
        self.nodes = Nodes(client, nodes, rng=rng, bind=True, pace=pace, scripts=scripts, events=events, pods=self.pods)
        scheduler = self.nodes.scheduler
        known = scheduler.nodes if scheduler is not None else None
        self._controllers = NativeControllers(client, rng=rng, pods=self.pods, nodes=known, authority=authority)

        self.agents = Agents(client, [node.name for node in nodes], self.nodes.kubelets, rng) if agents else None

    async def register(self) -> None:
        """Register the nodes and make them Ready."""
        await self.nodes.register()

    async def work(self) -> None:
        """Run until canceled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.nodes.work())
            if self.agents is not None:
                tasks.create_task(self.agents.run())
            for task in self._controllers.tasks():
                tasks.create_task(task)
