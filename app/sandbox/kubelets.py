"""The kubelets of simulated nodes: one controller that carries out what :mod:`app.sandbox.kubelet` plans for each Pod.

One patch brings a Pod from bound to running, one request removes it, so that the simulation is not what limits a
measurement. Where no scheduler runs it binds Pods too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

import msgspec

from app.kube.client import Client, PatchType
from app.kube.clock import rfc3339
from app.kube.controller import Controller, Result, Watch
from app.kube.errors import Conflict, NotFound
from app.kube.expectations import is_at_least
from app.kube.objects import ConfigMap, Node, ObjectMeta, Struct, decode_config_map, decode_node, decoder
from app.kube.reflector import Reflector
from app.kube.resources import CONFIGMAPS, NODES, PODS, ObjectKey
from app.kube.store import Change, Store, key_of
from app.sandbox.kubelet import NEVER, Pace, Surroundings, config_maps_of, plan
from app.sandbox.objects import Pod, decode_pod
from app.sandbox.scheduling import choose_node

WORKERS = 32
_ENV = "env"
_SCHEDULER = "default-scheduler"


class _Written(Struct, frozen=True):
    metadata: ObjectMeta = ObjectMeta()


_decode_written = decoder(_Written)


@dataclass(slots=True)
class _Memory:
    """What is remembered of one Pod."""

    #: The version our last write gave it, and when that was.
    version: str = ""
    written_at: float = -NEVER
    #: The node we have bound it to, until the cache shows that.
    bound_to: str = ""


@dataclass(slots=True)
class AddressBook:
    """Pod addresses: 10.x.y.z with a range per node, none given twice while it is in use."""

    nodes: Mapping[str, int]
    in_use: set[str] = field(default_factory=set)
    _next: dict[str, count[int]] = field(default_factory=dict)

    def take(self, node: str) -> str:
        """A free address of the node's range."""
        numbers = self._next.setdefault(node, count(1))
        while True:
            number = next(numbers) % 65534 + 1
            address = f"10.{self.nodes[node] % 250 + 1}.{number >> 8}.{number & 255}"
            if address not in self.in_use:
                self.in_use.add(address)
                return address


class Kubelets:
    """The kubelets of the nodes named in ``hosts`` (name → address). ``bind``: also be the scheduler."""

    def __init__(
        self, client: Client, hosts: Mapping[str, str], *, rng: Random, bind: bool = False, pace: Pace | None = None
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._hosts = hosts
        self._bind = bind
        self._pace = pace if pace is not None else Pace()
        self._memories: dict[str, _Memory] = {}
        self._pods_on: Counter[str] = Counter()
        self._addresses = AddressBook({name: number for number, name in enumerate(hosts)})
        self.pods: Store[Pod] = Store({_ENV: _env_index})
        self.config_maps: Store[ConfigMap] = Store()
        self.nodes: Store[Node] = Store()
        self.pods.subscribe(self._note)
        fields = "" if bind else "spec.nodeName!="
        self.reflectors: list[Reflector[Any]] = [
            Reflector(client, PODS, self.pods, decode=decode_pod, rng=rng, field_selector=fields),
            Reflector(client, CONFIGMAPS, self.config_maps, decode=decode_config_map, rng=rng),
            Reflector(client, NODES, self.nodes, decode=decode_node, rng=rng),
        ]
        self.controller = Controller(
            "sandbox-kubelets",
            client.clock,
            [
                Watch(self.pods, self._of_pod),
                Watch(self.config_maps, self._of_config_map),
                Watch(self.nodes, self._of_node),
            ],
            self._reconcile,
            workers=WORKERS,
        )

    def tasks(self) -> list[Any]:
        """The coroutines to run side by side until cancelled."""
        return [*(reflector.run() for reflector in self.reflectors), self.controller.run()]

    # ---- what changes concern

    def _note(self, change: Change[Pod]) -> None:
        """Keep count of Pods and addresses."""
        for pod, sign in ((change.old, -1), (change.new, 1)):
            if pod is not None and pod.spec.node_name:
                self._pods_on[pod.spec.node_name] += sign
        shown = change.object
        memory = self._memories.get(shown.metadata.uid)
        if memory is not None and memory.bound_to and (shown.spec.node_name or change.new is None):
            self._pods_on[memory.bound_to] -= 1
            memory.bound_to = ""
        if change.new is None:
            self._memories.pop(shown.metadata.uid, None)
            self._addresses.in_use.discard(shown.status.pod_ip)
        elif shown.status.pod_ip:
            self._addresses.in_use.add(shown.status.pod_ip)

    def _of_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        pod = change.new
        if pod is None:
            return ()
        return (key_of(pod),) if pod.spec.node_name in self._hosts or self._is_to_bind(pod) else ()

    def _of_config_map(self, change: Change[ConfigMap]) -> Iterable[ObjectKey]:
        key = key_of(change.object)
        return [key_of(pod) for pod in self.pods.by_index(_ENV, str(key))]

    def _of_node(self, _change: Change[Node]) -> Iterable[ObjectKey]:
        return [key_of(pod) for pod in self.pods.list() if self._is_to_bind(pod)] if self._bind else ()

    def _is_to_bind(self, pod: Pod) -> bool:
        unbound = not pod.spec.node_name and not pod.spec.scheduling_gates
        return self._bind and unbound and pod.metadata.deletion_timestamp is None

    # ---- one Pod

    async def _reconcile(self, key: ObjectKey) -> Result | None:
        pod = self.pods.by_key(key)
        if pod is None:
            return None
        memory = self._memories.setdefault(pod.metadata.uid, _Memory())
        if memory.version and not is_at_least(pod.metadata.resource_version, memory.version):
            return None  # our own write is still on its way into the cache, and its event comes
        try:
            if self._is_to_bind(pod):
                node = await self._bind_to_node(pod, memory)
                pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
            if pod.spec.node_name not in self._hosts:
                return None
            return await self._carry_out(pod, memory)
        except (NotFound, Conflict):
            return None  # gone, or another Pod of the same name: its events come

    async def _carry_out(self, pod: Pod, memory: _Memory) -> Result | None:
        now = self._clock.monotonic()
        metadata = pod.metadata
        todo = plan(
            pod,
            Surroundings(
                host_ip=self._hosts[pod.spec.node_name],
                pod_ip=self._address(pod),
                now=self._clock.now(),
                since_write=now - memory.written_at,
                config_maps=self._config_map_data,
                pace=self._pace,
            ),
        )
        if todo.status:
            await self._patch_status(pod, todo.status, memory)
        if todo.remove:
            await self._client.delete(PODS, metadata.name, metadata.namespace, grace_period_seconds=0, uid=metadata.uid)
        return Result(requeue_after=todo.again_after)

    async def _patch_status(self, pod: Pod, status: Mapping[str, Any], memory: _Memory) -> None:
        metadata = pod.metadata
        written = await self._client.patch(
            PODS,
            metadata.name,
            {"metadata": {"uid": metadata.uid}, "status": status},
            metadata.namespace,
            kind=PatchType.STRATEGIC,
            subresource="status",
            decode=_decode_written,
        )
        memory.version, memory.written_at = written.metadata.resource_version, self._clock.monotonic()

    def _config_map_data(self, namespace: str, name: str) -> Mapping[str, str] | None:
        found = self.config_maps.get(name, namespace)
        return found.data if found is not None else None

    def _address(self, pod: Pod) -> str:
        """The Pod's address: the one it has, or a free one if it is about to start."""
        if pod.status.start_time is not None or pod.spec.host_network or pod.metadata.deletion_timestamp is not None:
            return pod.status.pod_ip
        return self._addresses.take(pod.spec.node_name)

    async def _bind_to_node(self, pod: Pod, memory: _Memory) -> str:
        """Bind the Pod; '' if no node suits, which the Pod's condition then says."""
        metadata = pod.metadata
        ours = [node for node in self.nodes.list() if node.metadata.name in self._hosts]
        node = choose_node(pod, ours, self._pods_on)
        if node:
            memory.bound_to = node
            self._pods_on[node] += 1
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            body = {"metadata": {"name": metadata.name, "uid": metadata.uid}, "target": target}
            await self._client.create(PODS, body, metadata.namespace, name=metadata.name, subresource="binding")
            return node
        if not any(c.type == "PodScheduled" and c.reason == "Unschedulable" for c in pod.status.conditions):
            condition = {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": f"0/{len(ours)} nodes are available",
                "lastTransitionTime": rfc3339(self._clock.now()),
            }
            await self._patch_status(pod, {"conditions": [condition]}, memory)
        return ""


def _env_index(pod: Pod) -> list[str]:
    return [str(ObjectKey(pod.metadata.namespace, name)) for name in config_maps_of(pod)]
