"""The agents of simulated nodes: the very code of ``pykruise daemon``, one agent per node, over one watch per kind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import Any, Final, TypeVar

from app.api import names
from app.daemon.agent import Agent
from app.daemon.main import USER_AGENT
from app.daemon.objects import (
    NODE_IMAGES,
    NODE_POD_PROBES,
    RECREATE_REQUESTS,
    NodeImage,
    NodePodProbe,
    RecreateRequest,
    decode_node_image,
    decode_node_pod_probe,
    decode_recreate_request,
)
from app.daemon.recreate.worker import BY_POD, pods_of
from app.kube.client import Client
from app.kube.errors import KubeError, NotFound
from app.kube.objects import Object, Pod, decode_pod
from app.kube.reflector import Reflector
from app.kube.resources import PODS
from app.kube.store import Change, Store, key_of
from app.sandbox.cri.pods import PodRuntimes, SimulatedNetwork
from app.sandbox.kubelets import Kubelets

logger = logging.getLogger(__name__)

_LOOK_SECONDS: Final = 1.0
T = TypeVar("T", bound=Object)


class Agents:
    """One agent for each of the nodes; ``run`` until cancelled."""

    def __init__(self, client: Client, nodes: Sequence[str], kubelets: Kubelets, rng: Random) -> None:
        self._client = Client(client.transport, client.clock, user_agent=USER_AGENT)
        runtimes = PodRuntimes(kubelets, client.clock)
        self.by_node = {
            node: Agent(
                node,
                self._client,
                [runtimes.runtime(node)],
                rng,
                network=SimulatedNetwork(),
                watches=False,
            )
            for node in nodes
        }
        # Watches of each agent's own would be four times as many as there are nodes.
        self._node_images: Store[NodeImage] = Store()
        self._requests: Store[RecreateRequest] = Store({BY_POD: pods_of})
        self._probes: Store[NodePodProbe] = Store()
        self._pods: Store[Pod] = Store()
        self._reflectors: list[Reflector[Any]] = [
            Reflector(self._client, NODE_IMAGES, self._node_images, decode=decode_node_image, rng=rng),
            Reflector(
                self._client,
                RECREATE_REQUESTS,
                self._requests,
                decode=decode_recreate_request,
                rng=rng,
                label_selector=f"{names.CRR_ACTIVE}=true",
            ),
            Reflector(self._client, NODE_POD_PROBES, self._probes, decode=decode_node_pod_probe, rng=rng),
            Reflector(self._client, PODS, self._pods, decode=decode_pod, rng=rng, field_selector="spec.nodeName!="),
        ]

    async def run(self) -> None:
        """Work until cancelled; as long as there are no kinds to work on, wait for them."""
        await self._until_served()
        self._node_images.subscribe(lambda change: self._route(change, change.object.metadata.name, "node_images"))
        self._probes.subscribe(lambda change: self._route(change, change.object.metadata.name, "node_pod_probes"))
        self._requests.subscribe(
            lambda change: self._route(change, change.object.metadata.labels.get(names.CRR_NODE_NAME, ""), "requests")
        )
        self._pods.subscribe(lambda change: self._route(change, change.object.spec.node_name, "pods"))
        async with asyncio.TaskGroup() as tasks:
            for reflector in self._reflectors:
                tasks.create_task(reflector.run(), name=f"agents: reflector {reflector.resource.kind}")
            for store in (self._node_images, self._requests, self._probes, self._pods):
                await store.wait_until_ready()
            for agent in self.by_node.values():
                stores: list[Store[Any] | None] = [agent.node_images, agent.requests, agent.node_pod_probes, agent.pods]
                for own in stores:
                    if own is not None:
                        own.replace(own.list())  # that was all
                tasks.create_task(agent.run(), name=f"agent of {agent.node}")

    async def _until_served(self) -> None:
        while True:
            try:
                for resource in (NODE_IMAGES, RECREATE_REQUESTS, NODE_POD_PROBES):
                    await self._client.list_page(resource, limit=1)
            except NotFound:
                pass
            except KubeError as error:
                logger.info("the agents wait: %s", error)
            else:
                return
            await self._client.clock.sleep(_LOOK_SECONDS)

    def _route(self, change: Change[Any], node: str, store: str) -> None:
        """What is about a node goes to its agent."""
        agent = self.by_node.get(node)
        own: Store[Any] | None = getattr(agent, store) if agent is not None else None
        if own is None:
            return
        if change.new is None:
            own.remove(key_of(change.object), change.object)
        else:
            own.put(change.new)
