"""Measure DaemonSets and BroadcastJobs on many nodes: ``python -m bench.daemonset [--nodes 1000]``.

A native DaemonSet and ours are rolled out to all nodes and then updated to another image on 20% of the nodes at a time,
ours also in place. A BroadcastJob runs on all nodes. Finally, the labels of all nodes change while 20 DaemonSets exist.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.daemonset.kind import DAEMON_SET
from app.features.imagepull.kind import NODE_IMAGE
from app.kube.client import Client
from app.kube.resources import NODES, PODS, Resource
from bench.cloneset import CONTROL_PLANE, Meter
from bench.simulated_nodes import nodes, user
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import manager

NATIVE: Final = Resource("apps", "v1", "daemonsets", "DaemonSet")
OURS: Final = DAEMON_SET.resource()
JOBS: Final = BROADCAST_JOB.resource()
NODE_IMAGES: Final = NODE_IMAGE.resource()
SETS: Final = 20
Done = Callable[[], Awaitable[bool]]


def daemon_set(name: str, resource: Resource = OURS, **strategy: Any) -> dict[str, Any]:
    """Return a DaemonSet for all nodes that updates 20% of them at a time."""
    labels = {"app": name}
    containers = [{"name": "main", "image": "nginx:1"}]
    spec = {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "containers": containers}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": "20%", **strategy}},
            "template": {"metadata": {"labels": labels}, "spec": spec},
        },
    }


def named(resource: Resource, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    """Return an object with this name and spec."""
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": {"name": name}, "spec": spec}


async def until(done: Done, every: float = 0.1) -> None:
    """Poll until ``done`` returns true."""
    while True:
        if await done():
            return
        await asyncio.sleep(every)


class Bench:
    """Measures a control plane. ``used`` holds the CPU seconds of each process in the last step."""

    def __init__(self, client: Client, meter: Meter) -> None:
        self.client = client
        self.meter = meter
        self.used: dict[str, float] = {}

    async def step(self, what: str, per: int, change: Awaitable[Any], done: Done, every: float = 0.1) -> float:
        """Make a change and wait until it is complete. Prints time, CPU and writes; returns the seconds."""
        before, began = await self.meter.read(), time.monotonic()
        await change
        await until(done, every)
        seconds = time.monotonic() - began
        await asyncio.sleep(1.0)
        after = await self.meter.read()
        self.used = {name: cpu - before[2][name] for name, cpu in after[2].items()}
        cpu = ", ".join(f"{name} {used / per * 1e3:.2f}" for name, used in self.used.items())
        writes = {key: (count - before[0][key]) / per for key, count in after[0].items()}
        shown = ", ".join(f"{key} {n:.2f}" for key, n in sorted(writes.items(), key=lambda one: -one[1]) if n >= 0.01)
        print(f"| {what} | {seconds:.1f} | {cpu} | {shown} |", flush=True)
        return seconds

    async def settle(self) -> None:
        """Wait until the manager has handled new nodes: only Leases have been written for three seconds."""
        before: dict[str, int] = {}
        while True:
            now = {key: count for key, count in (await self.meter.read())[0].items() if "leases" not in key}
            if now == before:
                return
            before = now
            await asyncio.sleep(3.0)

    def counted(self, resource: Resource, name: str, **wanted: int) -> Done:
        """Return a function that checks whether the status has these values and observes the latest generation."""

        async def look() -> bool:
            found = await self.client.get(resource, name, "default")
            status = found.get("status") or {}
            seen = status.get("observedGeneration", found["metadata"]["generation"]) >= found["metadata"]["generation"]
            return seen and all(status.get(key, 0) == value for key, value in wanted.items())

        return look

    async def gone(self, resource: Resource, name: str) -> None:
        """Delete the object and wait until its Pods are gone."""
        await self.client.delete(resource, name, "default", propagation_policy="Background")

        async def nobody() -> bool:
            found = await self.client.list_page(PODS, "default", label_selector=f"app={name}", limit=1)
            return not found.items

        await until(nobody)


async def daemons(bench: Bench, total: int) -> None:
    """Measure the DaemonSets one by one."""
    image = {"spec": {"template": {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}}}

    async def known() -> bool:
        return len((await bench.client.list(NODE_IMAGES)).items) >= total

    await until(known)  # otherwise NodeImages would be created during the first measurement
    await bench.settle()
    out: dict[str, float] = {}
    update: dict[str, float] = {}
    for what, resource, strategy in (
        ("native", NATIVE, {}),
        ("ours", OURS, {}),
        ("in place", OURS, {"rollingUpdateType": "InPlaceIfPossible"}),
    ):
        name = what.replace(" ", "-")
        client, body = bench.client, daemon_set(name, resource, **strategy)
        made = client.create(resource, body, "default")
        ready = bench.counted(resource, name, desiredNumberScheduled=total, numberAvailable=total)
        out[what] = await bench.step(f"{what}: out to {total}", total, made, ready)
        changed = client.patch(resource, name, image, "default")
        updated = bench.counted(resource, name, updatedNumberScheduled=total, numberAvailable=total)
        update[what] = await bench.step(f"{what}: another image, 20 %", total, changed, updated)
        await bench.gone(resource, name)
    print(
        f"\nout {out['ours'] / out['native']:.2f} ×, rolling {update['ours'] / update['native']:.2f} ×, in place "
        f"{update['in place'] / update['native']:.2f} × the native DaemonSet\n",
        flush=True,
    )


async def broadcast(bench: Bench, total: int) -> None:
    """Measure a BroadcastJob until all its Pods are running."""
    container = {"name": "main", "image": "busybox:1", "command": ["sleep", "3600"]}
    pod = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    pod["automountServiceAccountToken"] = False
    spec = {"template": {"metadata": {"labels": {"app": "once"}}, "spec": pod}}

    async def running() -> bool:
        # The status counts Pods before they run. Request at most one Pod that is not running: listing all Pods would
        # cost the API server more than the job.
        status = (await bench.client.get(JOBS, "once", "default")).get("status") or {}
        if status.get("active", 0) != total:
            return False
        others = await bench.client.list_page(
            PODS, "default", label_selector="app=once", field_selector="status.phase!=Running", limit=1
        )
        return not others.items

    made = bench.client.create(JOBS, named(JOBS, "once", spec), "default")
    await bench.step(f"BroadcastJob: runs on {total}", total, made, running)
    await bench.gone(JOBS, "once")


async def node_events(bench: Bench, total: int) -> None:
    """Measure a label change on every node while DaemonSets without Pods exist."""
    client = bench.client
    for number in range(SETS):
        body = daemon_set(f"idle-{number}")
        body["spec"]["template"]["spec"]["nodeSelector"] = {"idle": str(number)}
        await client.create(OURS, body, "default")
    await bench.settle()

    async def label() -> None:
        for start in range(0, total, 50):
            names = [f"node{number + 1}" for number in range(start, min(start + 50, total))]
            body = {"metadata": {"labels": {"changed": "yes"}}}
            await asyncio.gather(*(client.patch(NODES, name, body) for name in names))

    async def at_once() -> bool:
        return True

    await bench.step(f"a label of each node, under {SETS} DaemonSets", total, label(), at_once)
    for number in range(SETS):
        await client.delete(OURS, f"idle-{number}", "default")


@contextmanager
def cluster(total: int, *more: str, agents: bool = False) -> Iterator[tuple[str, dict[str, int]]]:
    """Run a control plane with ``total`` simulated nodes and our manager."""
    # Simulated nodes renew their leases one by one, which is too slow for so many nodes on a busy machine.
    limits = ["--kube-api-qps=1000", "--kube-api-burst=2000", "--node-monitor-grace-period=1h"]
    with (
        ControlPlane(controller_manager_args=limits) as control_plane,
        tempfile.TemporaryDirectory() as folder,
        nodes(control_plane, Path(folder), total, agents=agents) as simulated,
        manager(control_plane, Path(folder) / "manager", *more) as addresses,
    ):
        processes = {"manager": int(addresses["pid"]), "nodes": simulated.pid}
        processes |= {name: control_plane.run.processes[name].pid for name in CONTROL_PLANE}
        yield str(control_plane.kubeconfig), processes


async def measure(
    kubeconfig: str, processes: dict[str, int], *parts: Callable[[Bench], Awaitable[None]], per: str = "node"
) -> None:
    """Run these parts and print their table."""
    async with user(kubeconfig) as client:
        print(f"| what | seconds | CPU ms per {per} | writes per {per} |\n|---|---|---|---|")
        for part in parts:
            await part(Bench(client, Meter(client, processes)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    options = parser.parse_args()
    with cluster(options.nodes, "--nodeimage-creation-delay=1s") as (kubeconfig, processes):
        parts = [lambda bench, part=part: part(bench, options.nodes) for part in (daemons, broadcast, node_events)]
        asyncio.run(measure(kubeconfig, processes, *parts))


if __name__ == "__main__":
    main()
