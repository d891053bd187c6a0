"""The native controllers the scenarios need, on the toolkit of ``app.kube``: small, and true in what users see.

ReplicaSets, Deployments, StatefulSets, DaemonSets, Jobs, EndpointSlices, PodDisruptionBudgets, volumes of claims, nodes
that fall silent, and what every namespace begins with. Garbage collection and the end of namespaces are the API
server's. Each module holds its pure decision and, below it, the controller.
"""

from __future__ import annotations

from collections.abc import Coroutine
from random import Random
from typing import Any

from app.kube.client import Client
from app.kube.reflector import Reflector
from app.kube.resources import NODES, PODS
from app.kube.store import Store
from app.sandbox.controllers.accounts import Accounts
from app.sandbox.controllers.budgets import Budgets
from app.sandbox.controllers.daemonset import DaemonSets
from app.sandbox.controllers.deployment import Deployments
from app.sandbox.controllers.job import Jobs
from app.sandbox.controllers.nodelifecycle import NodeLifecycle
from app.sandbox.controllers.pods import INDEXES
from app.sandbox.controllers.replicaset import ReplicaSets
from app.sandbox.controllers.revisions import Revisions
from app.sandbox.controllers.services import Services
from app.sandbox.controllers.statefulset import StatefulSets
from app.sandbox.controllers.volumes import Volumes
from app.sandbox.objects import Node, Pod, decode_node, decode_pod

__all__ = ["INDEXES", "NativeControllers"]


class NativeControllers:
    """All of them, over one cache of Pods and Nodes. Given stores are filled by who gives them."""

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
            pods = Store(INDEXES)
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
        """The coroutines to run side by side until cancelled."""
        return [*(one.run() for one in self._reflectors), *(task for part in self._parts for task in part.tasks())]
