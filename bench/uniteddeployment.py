"""Compare a UnitedDeployment with Deployments: ``python -m bench.uniteddeployment [--pods 1000] [--rounds 3]``.

On a private control plane with simulated nodes, ten Deployments and a UnitedDeployment with ten subsets scale up in
turn to the same number of ready Pods. Prints the time and the manager's CPU.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.resources import DEPLOYMENTS, PODS
from bench.cloneset import family
from bench.simulated_nodes import cpu_seconds, nodes, until, user
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import manager

UNITED = UNITED_DEPLOYMENT.resource()
PARTS = 10


def deployment(app: str, replicas: int | None) -> dict[str, Any]:
    """Return the spec of a Deployment."""
    pod = {"terminationGracePeriodSeconds": 0, "containers": [{"name": "main", "image": "nginx:1"}]}
    template = {"metadata": {"labels": {"app": app}}, "spec": pod}
    spec = {"selector": {"matchLabels": {"app": app}}, "template": template}
    return spec if replicas is None else {**spec, "replicas": replicas}


async def plain(client: Client, pods: int) -> None:
    """Create ten Deployments concurrently."""
    bodies = [
        {"metadata": {"name": f"plain-{index}"}, "spec": deployment(f"plain-{index}", pods // PARTS)}
        for index in range(PARTS)
    ]
    await asyncio.gather(*(client.create(DEPLOYMENTS, body, "default") for body in bodies))


async def united(client: Client, pods: int) -> None:
    """Create a UnitedDeployment with ten subsets."""
    template = {"deploymentTemplate": {"metadata": {"labels": {"app": "united"}}, "spec": deployment("united", None)}}
    body = {
        "apiVersion": UNITED.api_version,
        "kind": UNITED.kind,
        "metadata": {"name": "united"},
        "spec": {
            "replicas": pods,
            "selector": {"matchLabels": {"app": "united"}},
            "template": template,
            "topology": {"subsets": [{"name": f"s{index}"} for index in range(PARTS)]},
        },
    }
    await client.create(UNITED, body, "default")


async def ready(client: Client, pods: int) -> bool:
    """Return whether the Deployments report at least this many ready Pods in total."""
    found = (await client.list(DEPLOYMENTS, "default")).items
    return sum((one.get("status") or {}).get("readyReplicas") or 0 for one in found) >= pods


async def nothing(client: Client) -> None:
    """Delete all objects and wait until they are gone."""
    for resource in (UNITED, DEPLOYMENTS):
        for one in (await client.list(resource, "default")).items:
            with suppress(NotFound):  # deleted with its owner
                await client.delete(resource, one["metadata"]["name"], "default", propagation_policy="Background")

    async def gone() -> bool:
        pods = (await client.list_page(PODS, "default", limit=1)).items
        return not pods and not (await client.list(DEPLOYMENTS, "default")).items

    await until(gone, 0.5)
    await asyncio.sleep(2.0)


async def measure(kubeconfig: str, process: int, pods: int, rounds: int) -> None:
    took: dict[str, list[float]] = {"ten Deployments": [], "one UnitedDeployment": []}
    cpu: dict[str, list[float]] = {name: [] for name in took}
    async with user(kubeconfig) as client:
        for _ in range(rounds):
            for name, start in (("ten Deployments", plain), ("one UnitedDeployment", united)):
                before = sum(map(cpu_seconds, family(process)))
                began = time.monotonic()
                await start(client, pods)
                await until(partial(ready, client, pods), 0.05)
                took[name].append(time.monotonic() - began)
                await asyncio.sleep(1.0)
                cpu[name].append(sum(map(cpu_seconds, family(process))) - before)
                await nothing(client)
    print("| what | seconds until all are ready | median | manager's CPU ms per Pod |\n|---|---|---|---|")
    for name, seconds in took.items():
        each = ", ".join(f"{one:.1f}" for one in seconds)
        print(f"| {name} | {each} | {median(seconds):.1f} | {median(cpu[name]) / pods * 1e3:.2f} |")
    first, second = (median(seconds) for seconds in took.values())
    print(f"\n{second / first:.2f} × the time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    limits = ["--kube-api-qps=1000", "--kube-api-burst=2000"]
    with (
        ControlPlane(controller_manager_args=limits) as control_plane,
        tempfile.TemporaryDirectory() as folder,
        nodes(control_plane, Path(folder)),
        manager(control_plane, Path(folder) / "manager") as addresses,
    ):
        asyncio.run(measure(str(control_plane.kubeconfig), int(addresses["pid"]), options.pods, options.rounds))


if __name__ == "__main__":
    main()
