"""Compare an Advanced StatefulSet with a native one: ``python -m bench.statefulset [--pods 500] [--ordered 50]``.

With podManagementPolicy Parallel, both scale up from zero and back down to zero; in between, ours updates its image in
place, 20% of the Pods at a time. With OrderedReady, both create their Pods one by one. They run in turn on one control
plane with simulated nodes.
"""

from __future__ import annotations

import argparse
import asyncio
from statistics import median
from typing import Any, Final

from app.features.statefulset.kind import STATEFUL_SET
from app.kube.resources import PODS, STATEFULSETS, Resource
from bench.daemonset import Bench, Done, cluster, measure

OURS: Final = STATEFUL_SET.resource()
NODES: Final = 3
PARALLEL: Final = "Parallel"
ORDERED_READY: Final = "OrderedReady"


def stateful_set(name: str, resource: Resource, policy: str) -> dict[str, Any]:
    """Return a StatefulSet with zero replicas. With policy Parallel, ours is updated in place."""
    labels = {"app": name}
    containers = [{"name": "main", "image": "nginx:1"}]
    pod = {"terminationGracePeriodSeconds": 1, "automountServiceAccountToken": False, "containers": containers}
    spec: dict[str, Any] = {
        "replicas": 0,
        "serviceName": name,
        "podManagementPolicy": policy,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if resource == OURS and policy == PARALLEL:
        pod["readinessGates"] = [{"conditionType": "InPlaceUpdateReady"}]
        spec["updateStrategy"] = {"rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible", "maxUnavailable": "20%"}}
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def nobody(bench: Bench, name: str) -> Done:
    """Return a function that checks whether all Pods of the workload are gone."""

    async def look() -> bool:
        found = await bench.client.list_page(PODS, "default", label_selector=f"app={name}", limit=1)
        return not found.items

    return look


async def lives(bench: Bench, what: str, resource: Resource, policy: str, total: int) -> dict[str, float]:
    """Run all steps of one StatefulSet. Returns the seconds per step, and the manager's total CPU in ms per Pod."""
    name, client, found = f"{what}-{policy.lower()}", bench.client, {"cpu": 0.0}
    await client.create(resource, stateful_set(name, resource, policy), "default")

    async def step(key: str, words: str, change: dict[str, Any], done: Done) -> None:
        changed = client.patch(resource, name, {"spec": change}, "default")
        # Small sets finish fast, so poll more often for a precise time.
        every = 0.1 if policy == PARALLEL else 0.02
        found[key] = await bench.step(f"{what}, {policy}: {words}", total, changed, done, every)
        found["cpu"] += bench.used["manager"] / total * 1e3

    ready = bench.counted(resource, name, readyReplicas=total, updatedReplicas=total)
    await step("out", f"0 → {total} ready", {"replicas": total}, ready)
    if resource == OURS and policy == PARALLEL:
        image = {"template": {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}}
        updated = bench.counted(resource, name, updatedReadyReplicas=total, readyReplicas=total)
        await step("in place", "another image in place, 20 %", image, updated)
    await step("in", f"{total} → 0", {"replicas": 0}, nobody(bench, name))
    await client.delete(resource, name, "default")
    return found


async def beside(bench: Bench, total: int, ordered: int, rounds: int) -> None:
    """Measure both StatefulSets in turn and print the ratio of their times."""
    for policy, pods in ((PARALLEL, total), (ORDERED_READY, ordered)):
        if not pods:
            continue
        native, ours = [], []
        for _ in range(rounds):
            native.append(await lives(bench, "native", STATEFULSETS, policy, pods))
            ours.append(await lives(bench, "ours", OURS, policy, pods))

        def middle(found: list[dict[str, float]], key: str) -> float:
            return median(one[key] for one in found)

        said = [f"out {middle(ours, 'out') / middle(native, 'out'):.2f} ×"]
        if policy == PARALLEL:
            said.append(f"in place {middle(ours, 'in place') / middle(native, 'out'):.2f} × the native scale-up")
        said.append(f"in {middle(ours, 'in') / middle(native, 'in'):.2f} ×")
        said.append(f"the manager's CPU in a Pod's life {middle(ours, 'cpu'):.1f} ms")
        print(f"\n{policy}, {pods} Pods, medians of {rounds}: {', '.join(said)}\n", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=500)
    parser.add_argument("--ordered", type=int, default=50)
    parser.add_argument("--rounds", type=int, default=1)
    given = parser.parse_args()
    with cluster(NODES) as (kubeconfig, processes):
        part = lambda bench: beside(bench, given.pods, given.ordered, given.rounds)  # noqa: E731
        asyncio.run(measure(kubeconfig, processes, part, per="Pod"))


if __name__ == "__main__":
    main()
