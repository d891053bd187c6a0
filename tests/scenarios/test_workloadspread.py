"""The Pods of a workload in subsets (U-70)."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from tests.scenarios.world import World, eventually

CLONE_SET = """
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {name: shop}
spec:
  replicas: 5
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      containers: [{name: main, image: registry.k8s.io/pause:3.10}]
"""
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
    patch: {metadata: {labels: {tier: burst}}, spec: {containers: [{name: main, env: [{name: TIER, value: burst}]}]}}
"""
FOR_DEPLOYMENT = SPREAD.replace("apps.kruise.io/v1beta1, kind: CloneSet", "apps/v1, kind: Deployment")
COST = "controller.kubernetes.io/pod-deletion-cost"


def pods(world: World) -> list[dict[str, Any]]:
    found = world.list("pods", "-l", "app=shop")
    return [pod for pod in found if not pod["metadata"].get("deletionTimestamp")]


def subset_of(pod: dict[str, Any]) -> str:
    text = pod["metadata"].get("annotations", {}).get("apps.kruise.io/matched-workloadspread")
    return json.loads(text)["subset"] if text else ""


def subsets(world: World) -> Counter[str]:
    return Counter(map(subset_of, pods(world)))


def status(world: World, name: str = "shop") -> dict[str, tuple[int, int]]:
    """Replicas and missing by subset; empty while Pods are on their way."""
    found = world.get("workloadspread", name).get("status", {})
    versions = found.get("versionedSubsetStatuses", {}).values()
    if any(one.get("creatingPods") or one.get("deletingPods") for each in versions for one in each):
        return {}
    return {one["name"]: (one["replicas"], one["missingReplicas"]) for one in found.get("subsetStatuses", [])}


def scale(world: World, kind: str, replicas: int) -> None:
    world.kubectl("scale", kind, "shop", f"--replicas={replicas}", "-n", world.namespace)


@pytest.mark.behaviour("WS-23", "WS-27", "WS-28", "WS-31", "WS-32", "WS-33", "WS-54", "WS-55", "WS-60", "WS-73")
def test_pods_of_a_cloneset_fill_subsets_from_the_first_and_leave_from_the_last(world: World) -> None:
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
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")
    eventually(
        lambda: (
            {(subset_of(pod), pod["metadata"]["annotations"].get(COST)) for pod in pods(world)}
            == {("base", "200"), ("burst", "100")}
        ),
        "the last subset is the cheapest",
    )
    scale(world, "clonesets.apps.kruise.io", 3)
    eventually(lambda: subsets(world) == {"base": 3}, "the Pods of burst went")
    scale(world, "clonesets.apps.kruise.io", 2)
    eventually(lambda: status(world) == {"base": (2, 1), "burst": (0, -1)}, "a place in base is free")
    scale(world, "clonesets.apps.kruise.io", 4)
    eventually(lambda: subsets(world) == {"base": 3, "burst": 1}, "it is taken first")


@pytest.mark.behaviour("WS-40", "WS-41", "WS-57", "WS-46")
def test_a_roll_out_of_a_deployment_fills_subsets_from_the_front_again(world: World) -> None:
    world.apply(FOR_DEPLOYMENT)
    world.apply(DEPLOYMENT)
    eventually(lambda: subsets(world) == {"base": 3, "burst": 2}, "placed through the ReplicaSet")
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")
    world.apply(DEPLOYMENT.replace("labels: {app: shop}}\n    spec", "labels: {app: shop, version: two}}\n    spec"))

    def rolled_out() -> bool:
        found = pods(world)
        return len(found) == 5 and all(pod["metadata"]["labels"].get("version") == "two" for pod in found)

    eventually(rolled_out, "all Pods are of the new version")
    assert subsets(world) == {"base": 3, "burst": 2}
    eventually(
        lambda: len(world.get("workloadspread", "shop")["status"]["versionedSubsetStatuses"]) == 1,
        "the version that is gone is forgotten",
    )


@pytest.mark.behaviour("WS-51", "WS-53", "WS-59")
def test_pods_that_were_there_before_are_put_into_the_subset_that_fits(world: World) -> None:
    world.apply(CLONE_SET)
    eventually(lambda: len([pod for pod in pods(world) if pod["spec"].get("nodeName")]) == 5, "all have nodes")
    before = {pod["metadata"]["uid"] for pod in pods(world)}
    world.apply(SPREAD)
    eventually(lambda: sum(subsets(world).values()) == 5 and "" not in subsets(world), "all are in a subset")
    assert subsets(world) == {"base": 3, "burst": 2}
    assert {pod["metadata"]["uid"] for pod in pods(world)} == before
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")


@pytest.mark.behaviour("WS-26")
def test_pods_of_a_statefulset_are_placed_by_their_ordinals(world: World) -> None:
    stateful = CLONE_SET.replace("apps.kruise.io/v1beta1", "apps/v1").replace("kind: CloneSet", "kind: StatefulSet")
    world.apply(SPREAD.replace("apps.kruise.io/v1beta1, kind: CloneSet", "apps/v1, kind: StatefulSet"))
    world.apply(stateful.replace("replicas: 5", "replicas: 5\n  podManagementPolicy: Parallel"))

    def placed() -> bool:
        return {pod["metadata"]["name"]: subset_of(pod) for pod in pods(world)} == {
            f"shop-{ordinal}": "base" if ordinal < 3 else "burst" for ordinal in range(5)
        }

    eventually(placed, "ordinals 0 to 2 are in base")


@pytest.mark.behaviour("WS-42", "WS-43", "WS-44", "PW-23")
def test_a_place_is_free_as_soon_as_its_pod_is_evicted_or_deleted(world: World) -> None:
    world.apply(SPREAD)
    world.apply(CLONE_SET)
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")
    evicted, deleted = [pod["metadata"]["name"] for pod in pods(world) if subset_of(pod) == "base"][:2]
    path = f"/api/v1/namespaces/{world.namespace}/pods/{evicted}/eviction"
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": evicted}}
    dry = {**eviction, "deleteOptions": {"dryRun": ["All"]}}
    world.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(dry))
    assert status(world) == {"base": (3, 0), "burst": (2, -1)}, "a dry run changes nothing"
    world.kubectl("create", "--raw", path, "-f", "-", stdin=json.dumps(eviction))
    world.kubectl("delete", "pod", deleted, "-n", world.namespace, "--wait=false")
    eventually(
        lambda: (
            subsets(world) == {"base": 3, "burst": 2}
            and not {evicted, deleted} & {pod["metadata"]["name"] for pod in pods(world)}
        ),
        "those that replace them are in base again",
    )
    eventually(lambda: status(world) == {"base": (3, 0), "burst": (2, -1)}, "the status counts them")


@pytest.mark.behaviour("WS-64", "WS-65", "WS-66", "WS-67", "WS-47", "WS-48")
def test_pods_that_find_no_node_move_on_to_the_next_subset(world: World) -> None:
    adaptive = SPREAD.replace(
        "  subsets:", "  scheduleStrategy: {type: Adaptive, adaptive: {rescheduleCriticalSeconds: 2}}\n  subsets:"
    ).replace("operator: NotIn, values: [none]", "operator: In, values: [none]")
    world.apply(adaptive)
    world.apply(CLONE_SET)
    eventually(lambda: subsets(world) == {"burst": 5}, "all have moved on")
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
        "without Adaptive no condition stands",
    )
