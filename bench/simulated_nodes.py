"""Whether simulated nodes limit a measurement: ``python -m bench.simulated_nodes [--pods 1000] [--rounds 2]``.

A native ReplicaSet goes from nothing to that many ready Pods and back, on a private control plane whose Pods the
simulated nodes bind, run and remove. Measured are the time, and the CPU that the nodes' process took of it.
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
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


@contextmanager
def nodes(
    control_plane: ControlPlane, folder: Path, number: int = 3, *, agents: bool = False
) -> Iterator[subprocess.Popen[bytes]]:
    """Simulated nodes that bind Pods and run them, ready; ``folder`` takes their log."""
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
    """A client of an API server whose default namespace takes Pods."""
    transport = AiohttpTransport(await load_config(kubeconfig))
    client = Client(transport, SystemClock())
    while True:  # without its service account a namespace takes no Pods
        if (await client.list(SERVICEACCOUNTS, "default")).items:
            break
        await asyncio.sleep(0.1)
    try:
        yield client
    finally:
        await transport.close()


async def until(look: Callable[[], Awaitable[bool]], every: float = 0.1) -> None:
    """Look again and again, until it is so."""
    while True:
        if await look():
            return
        await asyncio.sleep(every)


def replica_set(name: str) -> dict[str, Any]:
    """A ReplicaSet of no Pods yet, whose Pods end at once."""
    labels = {"app": name}
    containers = [{"name": "main", "image": "nginx:1"}]
    template = {"metadata": {"labels": labels}, "spec": {"terminationGracePeriodSeconds": 1, "containers": containers}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


async def scale(client: Client, pods: int) -> float:
    """Seconds until the ReplicaSet has exactly that many Pods, all ready."""
    began = time.monotonic()
    await client.patch(REPLICASETS, "big", {"spec": {"replicas": pods}}, "default")
    while True:
        status = (await client.get(REPLICASETS, "big", "default"))["status"]
        if pods and status.get("readyReplicas", 0) == pods:
            break
        # The status stops counting a Pod when it is told to go; here it is gone when nobody has it.
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
