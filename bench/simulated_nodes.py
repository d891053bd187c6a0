"""Whether simulated nodes limit a measurement: ``python -m bench.simulated_nodes [--pods 1000] [--rounds 2]``.

A native ReplicaSet goes from nothing to that many ready Pods and back, on a private control plane whose Pods the
simulated nodes bind, run and remove. Measured are the time, and the CPU that the nodes' process took of it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from app.kube.client import Client
from app.kube.clock import SystemClock
from app.kube.config import load_config
from app.kube.resources import PODS, REPLICASETS, SERVICEACCOUNTS
from app.kube.transport import AiohttpTransport
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import running

LABELS = {"app": "big"}
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(process: int) -> float:
    """User and system time of a process so far."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


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
    transport = AiohttpTransport(await load_config(kubeconfig))
    client = Client(transport, SystemClock())
    while True:  # without its service account a namespace takes no Pods
        if (await client.list(SERVICEACCOUNTS, "default")).items:
            break
        await asyncio.sleep(0.1)
    containers = [{"name": "main", "image": "nginx:1"}]
    template = {"metadata": {"labels": LABELS}, "spec": {"terminationGracePeriodSeconds": 1, "containers": containers}}
    spec = {"replicas": 0, "selector": {"matchLabels": LABELS}, "template": template}
    await client.create(REPLICASETS, {"metadata": {"name": "big"}, "spec": spec}, "default")
    print("| ReplicaSet | seconds | CPU of the nodes' process | per Pod |\n|---|---|---|---|")
    for target in (pods, 0) * rounds:
        before = cpu_seconds(process)
        seconds = await scale(client, target)
        cpu = cpu_seconds(process) - before
        print(f"| to {target} | {seconds:.1f} | {cpu:.2f} s | {cpu / pods * 1e3:.2f} ms |", flush=True)
    await transport.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    limits = ["--kube-api-qps=1000", "--kube-api-burst=2000"]
    with ControlPlane(controller_manager_args=limits) as control_plane, tempfile.TemporaryDirectory() as folder:
        kubeconfig = str(control_plane.kubeconfig)
        arguments = ["app.sandbox.nodes", "--kubeconfig", kubeconfig, "--nodes", "3", "--bind"]
        log = Path(folder) / "nodes.log"
        with running(arguments, log) as process:
            while "are Ready" not in log.read_text():
                if process.poll() is not None:
                    sys.exit(log.read_text())
                time.sleep(0.1)
            asyncio.run(measure(kubeconfig, process.pid, options.pods, options.rounds))


if __name__ == "__main__":
    main()
