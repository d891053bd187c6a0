"""Simulated nodes on any API server: they register, stay Ready and pretend to run Pods.

    python -m app.sandbox.nodes --kubeconfig FILE --nodes 3

keeps three Ready nodes until stopped, then removes them. ``--bind`` replaces the scheduler.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import uvloop

from app.kube import logs
from app.kube.client import Client
from app.kube.clock import Clock, SystemClock, rfc3339, rfc3339_micro
from app.kube.config import load_config
from app.kube.errors import AlreadyExists, KubeError, NotFound
from app.kube.reflector import Reflector
from app.kube.resources import LEASES, NODES, PODS, Resource
from app.kube.store import Store, key_of
from app.kube.transport import AiohttpTransport
from app.sandbox.kubelet.program import Pace, Scripts
from app.sandbox.kubelets import INDEXES, Kubelets
from app.sandbox.objects import Pod, decode_pod
from app.sandbox.scheduler import Scheduler

logger = logging.getLogger(__name__)

LEASE_NAMESPACE: Final = "kube-node-lease"
LEASE_SECONDS: Final = 40
HEARTBEAT_SECONDS: Final = 10.0
MAX_CONCURRENT_REMOVALS: Final = 32
VERSION: Final = "v1.34.0-pykruise-sandbox"
#: Node capacity, large enough for any Pod.
BOUNDLESS: Final[Mapping[str, str]] = {"cpu": "10000", "memory": "100Ti", "pods": "60000", "ephemeral-storage": "100Ti"}


@dataclass(frozen=True, slots=True)
class SimulatedNode:
    """A node to register."""

    name: str
    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    capacity: Mapping[str, str] = field(default_factory=lambda: BOUNDLESS)


def simulated_nodes(
    number: int, *, prefix: str = "node", zones: Sequence[str] = (), capacity: Mapping[str, str] = BOUNDLESS
) -> list[SimulatedNode]:
    """Return nodes ``node1``, ``node2``, …, distributed over the zones in turn, with addresses reserved for
    benchmarks."""
    nodes = []
    for index in range(number):
        labels = {"topology.kubernetes.io/zone": zones[index % len(zones)]} if zones else {}
        nodes.append(
            SimulatedNode(f"{prefix}{index + 1}", f"198.18.{index // 250}.{index % 250 + 1}", labels, capacity)
        )
    return nodes


def node_object(node: SimulatedNode, now: str) -> dict[str, Any]:
    """Return the Node as its kubelet would register it: Ready."""
    labels = {
        "kubernetes.io/hostname": node.name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        **node.labels,
    }
    info = {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": VERSION, "kubeProxyVersion": VERSION}
    unknown = dict.fromkeys(
        ("bootID", "containerRuntimeVersion", "kernelVersion", "machineID", "osImage", "systemUUID"), "sandbox"
    )
    addresses = [{"type": "InternalIP", "address": node.address}, {"type": "Hostname", "address": node.name}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": node.name, "labels": labels},
        "status": {
            "capacity": dict(node.capacity),
            "allocatable": dict(node.capacity),
            "addresses": addresses,
            "conditions": _conditions(now),
            "nodeInfo": info | unknown,
        },
    }


def _conditions(now: str) -> list[dict[str, str]]:
    wanted = {
        "MemoryPressure": ("False", "KubeletHasSufficientMemory"),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure"),
        "PIDPressure": ("False", "KubeletHasSufficientPID"),
        "Ready": ("True", "KubeletReady"),
    }
    return [
        {
            "type": type_,
            "status": status,
            "reason": reason,
            "message": "simulated",
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }
        for type_, (status, reason) in wanted.items()
    ]


class Nodes:
    """Simulated nodes with their kubelets.

    ``bind`` also acts as the scheduler. ``events`` records Pod events as kubelets and schedulers do.
    """

    def __init__(
        self,
        client: Client,
        nodes: Sequence[SimulatedNode],
        *,
        rng: Random,
        bind: bool = False,
        pace: Pace | None = None,
        scripts: Scripts | None = None,
        events: bool = False,
        pods: Store[Pod] | None = None,
        heartbeat_seconds: float = HEARTBEAT_SECONDS,
    ) -> None:
        self._client = client
        self._heartbeat_seconds = heartbeat_seconds
        self._clock: Clock = client.clock
        self._nodes = nodes
        hosts = {node.name: node.address for node in nodes}
        self.pods: Store[Pod] = pods if pods is not None else Store(INDEXES)
        fields = "" if bind else "spec.nodeName!="
        self._reflector = Reflector(client, PODS, self.pods, decode=decode_pod, rng=rng, field_selector=fields)
        self.kubelets = Kubelets(client, hosts, rng=rng, pods=self.pods, pace=pace, scripts=scripts, events=events)
        self.scheduler = Scheduler(client, rng=rng, pods=self.pods, only=hosts, events=events) if bind else None

    async def run(self) -> None:
        """Register the nodes, then run them until canceled."""
        await self.register()
        await self.work()

    async def work(self) -> None:
        """Keep the nodes alive and run the Pods bound to them."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._heartbeats())
            tasks.create_task(self._reflector.run())
            for task in (*self.kubelets.tasks(), *(self.scheduler.tasks() if self.scheduler is not None else ())):
                tasks.create_task(task)

    async def register(self) -> None:
        """Create the nodes, or make existing ones Ready again."""
        for node in self._nodes:
            await self._register(node)
            await self._renew(node)

    async def _register(self, node: SimulatedNode) -> None:
        body = node_object(node, rfc3339(self._clock.now()))
        try:
            await self._client.create(NODES, body)
        except AlreadyExists:
            await self._client.patch(NODES, node.name, {"status": body["status"]}, subresource="status")
        # The API server taints new nodes, and the controller that removes the taint may not be running.
        await self._client.patch(NODES, node.name, {"spec": {"taints": None}})

    async def _renew(self, node: SimulatedNode) -> None:
        """Renew the lease; otherwise the node's Pods would be evicted."""
        now = rfc3339_micro(self._clock.now())
        spec = {"holderIdentity": node.name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": now}
        try:
            await self._client.patch(LEASES, node.name, {"spec": spec}, LEASE_NAMESPACE)
        except NotFound:
            lease = {"metadata": {"name": node.name, "namespace": LEASE_NAMESPACE}, "spec": spec}
            await self._client.create(LEASES, lease, LEASE_NAMESPACE)

    async def _heartbeats(self) -> None:
        while True:
            await self._clock.sleep(self._heartbeat_seconds)
            for node in self._nodes:
                if self.kubelets.is_stopped(node.name):
                    continue
                try:
                    await self._renew(node)
                except KubeError as error:
                    logger.warning("Node %s: failed to renew the lease, retrying: %s", node.name, error)

    async def remove(self) -> None:
        """Force-delete the Pods, because no kubelet would stop them, then delete the nodes."""
        names = {node.name for node in self._nodes}
        keys = [key_of(pod) for pod in self.pods.list() if pod.spec.node_name in names]
        at_once = asyncio.Semaphore(MAX_CONCURRENT_REMOVALS)

        async def remove(resource: Resource, name: str, namespace: str = "") -> None:
            async with at_once:
                with suppress(NotFound):
                    await self._client.delete(resource, name, namespace, grace_period_seconds=0)

        await asyncio.gather(*(remove(PODS, key.name, key.namespace) for key in keys))
        await asyncio.gather(*(remove(LEASES, name, LEASE_NAMESPACE) for name in names))
        await asyncio.gather(*(remove(NODES, name) for name in names))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m app.sandbox.nodes", description=__doc__)
    parser.add_argument("--kubeconfig", default="", help="kubeconfig of the cluster (default: the one kubectl uses)")
    parser.add_argument(
        "--nodes", type=int, default=3, choices=range(1, 1001), metavar="N", help="number of nodes (default: 3)"
    )
    parser.add_argument("--prefix", default="node", help="prefix of the node names (default: node)")
    parser.add_argument("--zones", default="", help="comma-separated zones to distribute the nodes over")
    parser.add_argument("--bind", action="store_true", help="bind Pods to these nodes; replaces the scheduler")
    parser.add_argument("--start-seconds", type=float, default=0.0, help="seconds a container takes to start")
    parser.add_argument(
        "--restart-seconds", type=float, default=0.0, help="seconds a container takes to restart with another image"
    )
    parser.add_argument("--events", action="store_true", help="record Pod events, as kubelets and schedulers do")
    parser.add_argument("--agents", action="store_true", help="run a node agent (pykruise daemon) for each node")
    parser.add_argument("--stop-seconds", type=float, default=0.0, help="seconds a container takes to stop")
    options = parser.parse_args(arguments)
    logs.configure("text", logging.INFO)
    nodes = simulated_nodes(
        options.nodes, prefix=options.prefix, zones=[zone for zone in options.zones.split(",") if zone]
    )
    pace = Pace(options.start_seconds, options.restart_seconds, options.stop_seconds)
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            serving = _serve(
                options.kubeconfig,
                nodes,
                bind=options.bind,
                pace=pace,
                events=options.events,
                agents=options.agents,
            )
            runner.run(serving)
    except KubeError as error:
        logger.error("%s", error)  # noqa: TRY400 - the message says what is wrong and what to do
        return 1
    return 0


async def _serve(
    kubeconfig: str, nodes: Sequence[SimulatedNode], *, bind: bool, pace: Pace, events: bool, agents: bool
) -> None:
    transport = AiohttpTransport(await load_config(kubeconfig))
    client = Client(transport, SystemClock(), user_agent="pykruise-sandbox")
    simulation = Nodes(client, nodes, rng=Random(), bind=bind, pace=pace, events=events)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await simulation.register()
        logger.info("%d nodes are Ready: %s", len(nodes), ", ".join(node.name for node in nodes))
        working = asyncio.create_task(_work(client, simulation, nodes) if agents else simulation.work())
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((working, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if working.done():
            working.result()  # re-raise the error that ended it
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        await simulation.remove()
    finally:
        await transport.close()


async def _work(client: Client, simulation: Nodes, nodes: Sequence[SimulatedNode]) -> None:
    from app.sandbox.agents import Agents  # imports the node agent, which most callers do not need

    agents = Agents(client, [node.name for node in nodes], simulation.kubelets, Random())
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(simulation.work())
        tasks.create_task(agents.run())


if __name__ == "__main__":
    sys.exit(main())
