"""Compare scaling with and without a WorkloadSpread: ``python -m bench.workloadspread [--pods 1000] [--rounds 3]``.

On a private control plane with simulated nodes, one native ReplicaSet scales up alone and another one under a
WorkloadSpread with three subsets. Prints the time, and the number of Pods in each subset.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from pathlib import Path
from statistics import median
from typing import Any

from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.kube.client import Client
from app.kube.resources import PODS, REPLICASETS
from bench.cloneset import Meter, wait_for
from bench.simulated_nodes import nodes, replica_set, user
from tests.cluster.controlplane import ControlPlane
from tests.scenarios.world import manager

SPREADS = WORKLOAD_SPREAD.resource()


def spread(name: str, pods: int) -> dict[str, Any]:
    """Return a WorkloadSpread with three subsets, of which the last has no limit."""
    patches = [{"metadata": {"labels": {"subset": subset}}} for subset in ("first", "second", "rest")]
    subsets = [
        {"name": "first", "maxReplicas": pods * 3 // 10, "patch": patches[0]},
        {"name": "second", "maxReplicas": pods * 2 // 10, "patch": patches[1]},
        {"name": "rest", "patch": patches[2]},
    ]
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name}
    return {
        "apiVersion": SPREADS.api_version,
        "kind": SPREADS.kind,
        "metadata": {"name": name},
        "spec": {"targetRef": target, "subsets": subsets},
    }


async def grow(client: Client, name: str, pods: int) -> float:
    """Scale up. Returns the seconds until all Pods are ready."""
    began = time.monotonic()
    await client.patch(REPLICASETS, name, {"spec": {"replicas": pods}}, "default")
    await wait_for(client, REPLICASETS, name, pods, False)
    return time.monotonic() - began


async def shrink(client: Client, name: str) -> None:
    await client.patch(REPLICASETS, name, {"spec": {"replicas": 0}}, "default")
    await wait_for(client, REPLICASETS, name, 0, False)
    await asyncio.sleep(3.0)


async def measure(kubeconfig: str, process: int, pods: int, rounds: int) -> None:
    took: dict[str, list[float]] = {"without": [], "under a WorkloadSpread": []}
    cpu: dict[str, list[float]] = {name: [] for name in took}
    counts: list[str] = []
    writes: dict[str, str] = {}
    async with user(kubeconfig) as client:
        meter = Meter(client, {"manager": process})
        await client.create(REPLICASETS, replica_set("alone"), "default")
        await client.create(REPLICASETS, replica_set("spread"), "default")
        await client.create(SPREADS, spread("spread", pods), "default")
        await asyncio.sleep(3.0)
        for _ in range(rounds):
            for what, name in (("without", "alone"), ("under a WorkloadSpread", "spread")):
                before = await meter.read()
                took[what].append(await grow(client, name, pods))
                await asyncio.sleep(1.0)
                after = await meter.read()
                cpu[what].append(after[2]["manager"] - before[2]["manager"])
                more = {key: count - before[0][key] for key, count in after[0].items()}
                writes[what] = ", ".join(
                    f"{key} {count / pods:.2f}" for key, count in sorted(more.items()) if count > pods // 100
                )
                if name == "spread":
                    found = (await client.list(PODS, "default", label_selector="app=spread")).items
                    counted = Counter(one["metadata"]["labels"].get("subset", "none") for one in found)
                    counts.append(", ".join(f"{subset} {counted[subset]}" for subset in sorted(counted)))
                await shrink(client, name)
    print("| Pods | seconds until all are ready | median | manager's CPU ms per Pod | writes per Pod |")
    print("|---|---|---|---|---|")
    for what, seconds in took.items():
        each = ", ".join(f"{one:.1f}" for one in seconds)
        print(f"| {what} | {each} | {median(seconds):.1f} | {median(cpu[what]) / pods * 1e3:.2f} | {writes[what]} |")
    first, second = (median(seconds) for seconds in took.values())
    print(f"\n{second / first:.2f} × the time; subsets: {'; '.join(counts)}")


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
