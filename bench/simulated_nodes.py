"""Check whether simulated nodes limit other benchmarks: ``python -m bench.simulated_nodes [--pods 1000] [--rounds 2]``.

On a private control plane with simulated nodes, a native ReplicaSet scales up from zero and back down to zero. Prints
the time, and the CPU time of the nodes' process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.resources import PODS, REPLICASETS, SERVICEACCOUNTS
from app.kube.transport import AiohttpTransport
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import running

TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process: int) -> float:
    """Return the CPU time of a process so far, user and system."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def nodes(
    control_plane: ControlPlane, folder: Path, number: int = 3, *, agents: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Run simulated nodes that bind and run Pods. Yields their process once they are Ready; logs to ``folder``."""
    arguments = ["app.sandbox.nodes", "--kubeconfig", str(control_plane.kubeconfig), "--nodes", str(number), "--bind"]
    arguments += ["--agents"] if agents else []
    log = folder / "nodes.log"
    with running(arguments, log) as process:
        while "are Ready" not in log.read_text():
            if process.poll() is not None:
                sys.exit(log.read_text())
            time.sleep(0.1)
        yield process


@asynccontextmanager
async def user(kubeconfig: str) -> AsyncIterator[Client]:
    """Yield a client once Pods can be created in the default namespace."""
    transport = AiohttpTransport(await load_config(kubeconfig))
    client = Client(transport, SystemClock())
    while True:  # Pods require the namespace's service account
        if (await client.list(SERVICEACCOUNTS, "default")).items:
            break
        await asyncio.sleep(0.1)
    try:
        yield client
    finally:
        await transport.close()


async def until(look: Callable[[], Awaitable[bool]], every: float = 0.1) -> None:
    """Poll until ``look`` returns true."""
    while True:
        if await look():
            return
        await asyncio.sleep(every)


def replica_set(name: str) -> dict[str, Any]:
    """Return a ReplicaSet with zero replicas, whose Pods have a grace period of one second."""
    labels = {"app": name}
    containers = [{"name": "main", "image": "nginx:1"}]
    template = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": containers}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


async def scale(client: Client, pods: int) -> float:
    """Scale the ReplicaSet. Returns the seconds until it has exactly this many Pods, all ready."""
    began = time.monotonic()
    await client.patch(REPLICASETS, "big", {"spec": {"replicas": pods}}, "default")
    while True:
        status = (await client.get(REPLICASETS, "big", "default"))["status"]
        if pods and status.get("readyReplicas", 0) == pods:
            break
        # The status does not count terminating Pods, but the scale-down ends only when all Pods are gone.
        if not pods and not (await client.list_page(PODS, "default", label_selector="app=big", limit=1)).items:
            break
        await asyncio.sleep(0.1)
    return time.monotonic() - began


async def measure(kubeconfig: str, process: int, pods: int, rounds: int) -> None:
    async with user(kubeconfig) as client:
        await client.create(REPLICASETS, replica_set("big"), "default")
        print("| ReplicaSet | seconds | CPU of the nodes' process | per Pod |\n|---|---|---|---|")
        for target in (pods, 0) * rounds:
            before = cpu_seconds(process)
            seconds = await scale(client, target)
            cpu = cpu_seconds(process) - before
            print(f"| to {target} | {seconds:.1f} | {cpu:.2f} s | {cpu / pods * 1e3:.2f} ms |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    limits = ["--kube-api-qps=1000", "--kube-api-burst=2000"]
    with (
        ControlPlane(controller_manager_args=limits) as control_plane,
        tempfile.TemporaryDirectory() as folder,
        nodes(control_plane, Path(folder)) as process,
    ):
        asyncio.run(measure(str(control_plane.kubeconfig), process.pid, options.pods, options.rounds))


if __name__ == "__main__":
    main()
