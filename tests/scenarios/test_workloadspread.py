"""The Pods of a workload in subsets (U-70, U-72, U-73)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.scenarios.world import World, eventually, workload

MAIN = "[{name: main, image: registry.k8s.io/pause:3.10, resources: {requests: {cpu: 20m, memory: 16Mi}}}]"
CLONE_SET = workload("CloneSet", "replicas: 5", name="shop", grace=30, containers=MAIN)
DEPLOYMENT = CLONE_SET.replace("apps.kruise.io/v1beta1", "apps/v1").replace("kind: CloneSet", "kind: Deployment")
SPREAD = """
apiVersion: apps.kruise.io/v1beta1
kind: WorkloadSpread
metadata: {name: shop}
spec:
  targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: shop}
  subsets:
  - name: base
    maxReplicas: 3
    requiredNodeSelector: {matchExpressions: [{key: kubernetes.io/os, operator: NotIn, values: [none]}]}
    tolerations: [{key: pool, operator: Equal, value: base, effect: NoSchedule}]
    patch: {metadata: {labels: {tier: base}}}
  - name: burst
    patch:
      metadata: {labels: {tier: burst}}
      spec:
        containers:
        - name: main
          env: [{name: TIER, value: burst}]
          resources: {requests: {cpu: 30m}, limits: {memory: 64Mi}}
"""
FOR_DEPLOYMENT = SPREAD.replace("apps.kruise.io/v1beta1, kind: CloneSet", "apps/v1, kind: Deployment")
#: The subsets in reverse order; burst takes two Pods, each with more CPU.
REORDERED = """
apiVersion: apps.kruise.io/v1beta1
kind: WorkloadSpread
metadata: {name: shop}
spec:
  targetRef: {apiVersion: apps.kruise.io/v1beta1, kind: CloneSet, name: shop}
  subsets:
  - name: burst
    maxReplicas: 2
    patch:
      metadata: {labels: {tier: burst}}
      spec:
        containers:
        - name: main
          env: [{name: TIER, value: burst}]
          resources: {requests: {cpu: 40m}, limits: {memory: 64Mi}}
  - name: base
    patch: {metadata: {labels: {tier: base}}}
"""
OF_TEMPLATE = {"requests": {"cpu": "20m", "memory": "16Mi"}}
OF_BURST = {"requests": {"cpu": "30m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
OF_BURST_LATER = {"requests": {"cpu": "40m", "memory": "16Mi"}, "limits": {"memory": "64Mi"}}
COST = "controller.kubernetes.io/pod-deletion-cost"
CLONE_SETS = "clonesets.apps.kruise.io"


def pods(world: World) -> list[dict[str, Any]]:
    return world.pods("-l", "app=shop")


def subset_of(pod: dict[str, Any]) -> str:
    text = pod["metadata"].get("annotations", {}).get("apps.kruise.io/matched-workloadspread")
    return json.loads(text)["subset"] if text else ""


def subsets(world: World) -> Counter[str]:
    return Counter(map(subset_of, pods(world)))


def status(world: World, name: str = "shop") -> dict[str, tuple[int, int]]:
    """Return replicas and missing replicas by subset; empty while Pods are being created."""
    found = world.get("workloadspread", name).get("status", {})
    versions = found.get("versionedSubsetStatuses", {}).values()
    if any(one.get("creatingPods") or one.get("deletingPods") for each in versions for one in each):
        return {}
    return {one["name"]: (one["replicas"], one["missingReplicas"]) for one in found.get("subsetStatuses", [])}


def scale(world: World, kind: str, replicas: int) -> None:
    world.kubectl("scale", kind, "shop", f"--replicas={replicas}", "-n", world.namespace)


def cost_of(pod: dict[str, Any]) -> str:
    found: str = pod["metadata"].get("annotations", {}).get(COST, "")
    return found


def prices(world: World) -> Counter[tuple[str, str]]:
    """Return how many Pods of a subset have which deletion cost."""
    return Counter((subset_of(pod), cost_of(pod)) for pod in pods(world))


def uids(world: World) -> set[str]:
    return set(world.uids("-l", "app=shop").values())


def available(world: World, kind: str, replicas: int) -> None:
    """Wait until the workload's controller counts these Pods: deletion costs of unready Pods do not matter."""
    eventually(
        lambda: world.get(kind, "shop").get("status", {}).get("availableReplicas") == replicas,
        f"{replicas} are available",
    )


def repriced(world: World, expected: dict[tuple[str, str], int]) -> None:
    """Wait until the Pods have these costs and the manager has observed them.

    The manager sees changes in order, so it has seen all costs once it reverts a later change. That change raises the
    highest cost, so no Pod is deleted because of it.
    """
    eventually(lambda: prices(world) == expected, f"the costs are {expected}")
    dearest = max(pods(world), key=lambda pod: int(cost_of(pod)))
    changed = f"{COST}={int(cost_of(dearest)) + 1}"
    world.kubectl("annotate", "pod", dearest["metadata"]["name"], "-n", world.namespace, "--overwrite", changed)
    eventually(lambda: prices(world) == expected, f"the costs are {expected} again")


def resources(world: World) -> set[tuple[str, str]]:
    found = ((subset_of(pod), pod["spec"]["containers"][0]["resources"]) for pod in pods(world))
    return {(subset, json.dumps(asked, sort_keys=True)) for subset, asked in found}


def asked(**expected: dict[str, Any]) -> set[tuple[str, str]]:
    return {(subset, json.dumps(one, sort_keys=True)) for subset, one in expected.items()}


@pytest.mark.behaviour("WS-23", "WS-27", "WS-28", "WS-31", "WS-32", "WS-33", "WS-54", "WS-55", "WS-60")
def test_a_cloneset_fills_subsets_in_order_and_scales_in_from_the_last(world: World) -> None:
    world.apply(SPREAD)
    world.apply(CLONE_SET)
    eventually(lambda: subsets(world) == {"base": 3, "burst": 2}, "the first three are in base, the others in burst")
    for pod in pods(world):
        subset, spec = subset_of(pod), pod["spec"]
        assert pod["metadata"]["labels"]["tier"] == subset
        assert ("TIER" in [env["name"] for env in spec["containers"][0].get("env", [])]) is (subset == "burst")
        assert any(one.get("key") == "pool" for one in spec["tolerations"]) is (subset == "base")
        required = "requiredDuringSchedulingIgnoredDuringExecution"
        assert (required in spec["affinity"]["nodeAffinity"]) is (subset == "base")
    assert resources(world) == asked(base=OF_TEMPLATE, burst=OF_BURST)
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")
    eventually(
        lambda: prices(world) == {("base", "200"): 3, ("burst", "100"): 2}, "Pods of the last subset are the cheapest"
    )
    available(world, CLONE_SETS, 5)
    scale(world, CLONE_SETS, 3)
    eventually(lambda: subsets(world) == {"base": 3}, "the Pods of burst are deleted")
    scale(world, CLONE_SETS, 2)
    eventually(lambda: status(world) == {"base": (2, 1), "burst": (0, -1)}, "a place in base is free")
    scale(world, CLONE_SETS, 4)
    eventually(lambda: subsets(world) == {"base": 3, "burst": 1}, "it is taken first")


@pytest.mark.behaviour("WS-32", "WS-54", "WS-55", "WS-62", "WS-74")
def test_excess_pods_are_deleted_first_and_a_new_order_changes_the_costs(world: World) -> None:
    world.apply(SPREAD)
    world.apply(CLONE_SET)
    available(world, CLONE_SETS, 5)
    repriced(world, {("base", "200"): 3, ("burst", "100"): 2})
    before = uids(world)

    world.apply(SPREAD.replace("maxReplicas: 3", "maxReplicas: 1"))
    repriced(world, {("base", "200"): 1, ("base", "-100"): 2, ("burst", "100"): 2})
    assert uids(world) == before, "a change of a subset moves no Pod"
    kept = {pod["metadata"]["uid"] for pod in pods(world) if cost_of(pod) != "-100"}
    scale(world, CLONE_SETS, 3)
    eventually(lambda: uids(world) == kept, "the surplus Pods of base are deleted before those of burst")
    eventually(lambda: status(world) == {"base": (1, 0), "burst": (2, -1)}, "base is full")

    world.apply(REORDERED)
    repriced(world, {("burst", "200"): 2, ("base", "100"): 1})
    assert uids(world) == kept
    assert resources(world) == asked(base=OF_TEMPLATE, burst=OF_BURST), "existing Pods do not change"
    scale(world, CLONE_SETS, 2)
    eventually(lambda: subsets(world) == {"burst": 2}, "base is now the last subset")
    scale(world, CLONE_SETS, 1)
    eventually(lambda: status(world) == {"burst": (1, 1), "base": (0, -1)}, "a place in burst is free")
    scale(world, CLONE_SETS, 3)
    eventually(lambda: subsets(world) == {"burst": 2, "base": 1}, "it is taken first")
    old_and_new = asked(burst=OF_BURST) | asked(burst=OF_BURST_LATER) | asked(base=OF_TEMPLATE)
    assert resources(world) == old_and_new, "a new Pod gets the current patch"


@pytest.mark.behaviour("WS-40", "WS-41", "WS-57", "WS-46")
def test_a_deployment_rollout_fills_subsets_from_the_first_again(world: World) -> None:
    world.apply(FOR_DEPLOYMENT)
    world.apply(DEPLOYMENT)
    eventually(lambda: subsets(world) == {"base": 3, "burst": 2}, "placed through the ReplicaSet")
    available(world, "deployment", 5)
    scale(world, "deployment", 3)
    eventually(lambda: subsets(world) == {"base": 3}, "the Pods of burst are deleted")
    scale(world, "deployment", 5)
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")
    world.apply(DEPLOYMENT.replace("labels: {app: shop}}\n    spec", "labels: {app: shop, version: two}}\n    spec"))

    def rolled_out() -> bool:
        found = pods(world)
        return len(found) == 5 and all(pod["metadata"]["labels"].get("version") == "two" for pod in found)

    eventually(rolled_out, "all Pods are of the new version")
    assert subsets(world) == {"base": 3, "burst": 2}
    assert resources(world) == asked(base=OF_TEMPLATE, burst=OF_BURST)
    eventually(
        lambda: len(world.get("workloadspread", "shop")["status"]["versionedSubsetStatuses"]) == 1,
        "the removed version has no entry",
    )


@pytest.mark.behaviour("WS-51", "WS-53", "WS-59")
def test_existing_pods_join_the_subset_that_fits(world: World) -> None:
    world.apply(CLONE_SET)
    eventually(lambda: len([pod for pod in pods(world) if pod["spec"].get("nodeName")]) == 5, "all have nodes")
    before = uids(world)
    world.apply(SPREAD)
    eventually(lambda: sum(subsets(world).values()) == 5 and "" not in subsets(world), "all are in a subset")
    assert subsets(world) == {"base": 3, "burst": 2}
    assert uids(world) == before
    assert {json.dumps(pod["spec"]["containers"][0]["resources"], sort_keys=True) for pod in pods(world)} == {
        json.dumps(OF_TEMPLATE, sort_keys=True)
    }, "the patch does not apply to existing Pods"
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")


@pytest.mark.behaviour("WS-26")
def test_statefulset_pods_are_placed_by_ordinal(world: World) -> None:
    stateful = CLONE_SET.replace("apps.kruise.io/v1beta1", "apps/v1").replace("kind: CloneSet", "kind: StatefulSet")
    world.apply(SPREAD.replace("apps.kruise.io/v1beta1, kind: CloneSet", "apps/v1, kind: StatefulSet"))
    world.apply(stateful.replace("replicas: 5", "replicas: 5\n  podManagementPolicy: Parallel"))

    def placed() -> bool:
        return {pod["metadata"]["name"]: subset_of(pod) for pod in pods(world)} == {
            f"shop-{ordinal}": "base" if ordinal < 3 else "burst" for ordinal in range(5)
        }

    eventually(placed, "ordinals 0 to 2 are in base")


@pytest.mark.behaviour("WS-42", "WS-43", "WS-44", "PW-23")
def test_an_evicted_or_deleted_pod_releases_its_place_at_once(world: World) -> None:
    world.apply(SPREAD)
    world.apply(CLONE_SET)
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")
    evicted, deleted = [pod["metadata"]["name"] for pod in pods(world) if subset_of(pod) == "base"][:2]
    assert world.evict(evicted, dry_run=True).returncode == 0
    assert status(world) == {"base": (3, 0), "burst": (2, -1)}, "a dry run changes nothing"
    assert world.evict(evicted).returncode == 0
    world.kubectl("delete", "pod", deleted, "-n", world.namespace, "--wait=false")
    eventually(
        lambda: (
            subsets(world) == {"base": 3, "burst": 2}
            and not {evicted, deleted} & {pod["metadata"]["name"] for pod in pods(world)}
        ),
        "their replacements are in base again",
    )
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")


@pytest.mark.behaviour("WS-64", "WS-65", "WS-66", "WS-67", "WS-47", "WS-48")
def test_unschedulable_pods_move_to_the_next_subset(world: World) -> None:
    adaptive = SPREAD.replace(
        "  subsets:", "  scheduleStrategy: {type: Adaptive, adaptive: {rescheduleCriticalSeconds: 2}}\n  subsets:"
    ).replace("operator: NotIn, values: [none]", "operator: In, values: [none]")
    world.apply(adaptive)
    world.apply(CLONE_SET)
    eventually(lambda: subsets(world) == {"burst": 5}, "all have been rescheduled")
    assert all(pod["spec"].get("nodeName") for pod in pods(world))
    found = world.get("workloadspread", "shop")["status"]["subsetStatuses"]
    conditions = {one["name"]: one["conditions"][0] for one in found}
    assert (conditions["base"]["status"], conditions["base"]["reason"]) == ("False", "PodUnschedulable")
    assert (conditions["burst"]["status"], conditions["burst"]["reason"]) == ("True", "Sufficient")
    world.apply(SPREAD)
    eventually(
        lambda: (
            not any(one.get("conditions") for one in world.get("workloadspread", "shop")["status"]["subsetStatuses"])
        ),
        "without Adaptive there is no condition",
    )
