"""A cluster without a machine: simulated nodes and the native controllers, over one cache of Pods."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Final

from app.kube.client import Client
from app.kube.store import Store
from app.sandbox import controllers, kubelets
from app.sandbox.agents import Agents
from app.sandbox.kubelet import Pace, Scripts
from app.sandbox.nodes import Nodes, SimulatedNode
from app.sandbox.objects import Pod

#: What a store of Pods must have for all of them.
INDEXES: Final = {**kubelets.INDEXES, **controllers.INDEXES}


class SimulatedCluster:
    """Everything of a cluster but its API server. The same seed and clock give the same history."""

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
        """``agents``: each node has its agent, too."""
        self.pods: Store[Pod] = Store(INDEXES)
        self.nodes = Nodes(client, nodes, rng=rng, bind=True, pace=pace, scripts=scripts, events=events, pods=self.pods)
        scheduler = self.nodes.scheduler
        known = scheduler.nodes if scheduler is not None else None
        self._controllers = controllers.NativeControllers(
            client, rng=rng, pods=self.pods, nodes=known, authority=authority
        )

        self.agents = Agents(client, [node.name for node in nodes], self.nodes.kubelets, rng) if agents else None

    async def register(self) -> None:
        """The nodes are there and Ready."""
        await self.nodes.register()

    async def work(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.nodes.work())
            if self.agents is not None:
                tasks.create_task(self.agents.run())
            for task in self._controllers.tasks():
                tasks.create_task(task)
