"""Distribute a ConfigMap to many namespaces: ``python -m bench.resourcedistribution [--namespaces 1000]``.

Runs a private control plane. Prints the time and the manager's CPU per copy when the ResourceDistribution is created
and when it changes, the cost of an additional namespace and of restoring a modified copy, and the CPU while idle.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.kube.client import Client
from app.kube.resources import CONFIGMAPS, NAMESPACES
from bench.cloneset import Meter, family
from bench.simulated_nodes import cpu_seconds, until, user
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import manager

DISTRIBUTIONS = RESOURCE_DISTRIBUTION.resource()
REST_SECONDS = 20.0


async def counted(client: Client, generation: int, copies: int) -> None:
    """Wait until the status reports this many successful copies."""

    async def look() -> bool:
        status = (await client.get(DISTRIBUTIONS, "shared")).get("status") or {}
        return bool(status.get("observedGeneration", 0) >= generation and status.get("succeeded") == copies)

    await until(look, 0.05)


class Steps:
    """Prints the cost of each step. The CPU time is divided by ``per``."""

    def __init__(self, client: Client, process: int) -> None:
        self._meter = Meter(client, {"manager": process})

    async def step(self, what: str, work: Any, per: int) -> None:
        before = await self._meter.read()
        began = time.monotonic()
        await work
        seconds = time.monotonic() - began
        await asyncio.sleep(0.5)
        after = await self._meter.read()
        writes = {
            key: count - before[0][key]
            for key, count in after[0].items()
            if count > before[0][key] and ("configmaps" in key or "resourcedistributions" in key)
        }
        cpu = (after[2]["manager"] - before[2]["manager"]) * 1e3
        shown = ", ".join(f"{key} {count}" for key, count in sorted(writes.items())) or "none"
        print(f"| {what} | {seconds:.2f} | {cpu / per:.2f} | {shown} |", flush=True)


async def measure(kubeconfig: str, process: int, namespaces: int) -> None:
    async with user(kubeconfig) as client:
        free = asyncio.Semaphore(32)

        async def namespace(index: int) -> None:
            async with free:
                await client.create(NAMESPACES, {"metadata": {"name": f"team-{index}", "labels": {"team": "yes"}}})

        await asyncio.gather(*map(namespace, range(namespaces)))

        # The control plane is busy until each namespace also has the ConfigMap with the API server's CA certificate.
        async def quiet() -> bool:
            found = await client.list(CONFIGMAPS, field_selector="metadata.name=kube-root-ca.crt")
            return len(found.items) >= namespaces

        await until(quiet, 0.5)
        await asyncio.sleep(3.0)
        steps = Steps(client, process)
        print("| what | seconds | manager's CPU ms per copy | writes |\n|---|---|---|---|")

        async def make() -> None:
            resource = {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": "shared"},
                "data": {"a": "1" * 500},
            }
            spec = {"resource": resource, "targets": {"namespaceSelector": {"matchLabels": {"team": "yes"}}}}
            body = {
                "apiVersion": DISTRIBUTIONS.api_version,
                "kind": DISTRIBUTIONS.kind,
                "metadata": {"name": "shared"},
                "spec": spec,
            }
            await client.create(DISTRIBUTIONS, body)
            await counted(client, 1, namespaces)

        async def change() -> None:
            patch = {"spec": {"resource": {"data": {"a": "2" * 500}}}}
            made = await client.patch(DISTRIBUTIONS, "shared", patch)
            await counted(client, made["metadata"]["generation"], namespaces)

        async def join() -> None:
            await namespace(namespaces)
            await counted(client, 1, namespaces + 1)

        async def drift() -> None:
            await client.patch(CONFIGMAPS, "shared", {"data": {"a": "mine"}}, "team-7")

            async def right() -> bool:
                return bool((await client.get(CONFIGMAPS, "shared", "team-7"))["data"]["a"] != "mine")

            await until(right, 0.05)

        await steps.step(f"{namespaces} copies made", make(), namespaces)
        await steps.step(f"{namespaces} copies changed", change(), namespaces)
        await steps.step("one namespace more", join(), 1)
        await steps.step("one copy put right", drift(), 1)
        await steps.step(f"{REST_SECONDS:.0f} s of rest, all of it", asyncio.sleep(REST_SECONDS), 1)
    print(f"\nmanager's CPU since its start: {sum(map(cpu_seconds, family(process))):.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namespaces", type=int, default=1000)
    options = parser.parse_args()
    with (
        ControlPlane(controller_manager_args=["--kube-api-qps=1000", "--kube-api-burst=2000"]) as control_plane,
        tempfile.TemporaryDirectory() as folder,
        manager(control_plane, Path(folder) / "manager", "--feature-gates=ResourceDistributionGate=true") as addresses,
    ):
        asyncio.run(measure(str(control_plane.kubeconfig), int(addresses["pid"]), options.namespaces))


if __name__ == "__main__":
    main()
