"""kubectl drain, and the eviction API with PodDisruptionBudgets."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.peers.test_argocd import GATE, let_pods_be_ready
from tests.peers.test_autoscaling import workload
from tests.scenarios.world import World, eventually, is_ready

pytestmark = pytest.mark.peers

KINDS = ("CloneSet", "StatefulSet", "UnitedDeployment", "DaemonSet")


def created(world: World, *kinds: str, **changes: Any) -> None:
    """Create workloads named after their kinds, whose Pods have the kind as the label ``app``."""
    for kind in kinds:
        text = json.dumps(workload(kind))
        manifest = json.loads(text.replace('"web"', json.dumps(kind.lower())))
        if kind == "DaemonSet":
            del manifest["spec"]["replicas"]
        manifest["spec"] |= changes
        world.apply(json.dumps(manifest))


def pods(world: World, *kinds: str) -> list[dict[str, Any]]:
    """Return the ready Pods of workloads of these kinds."""
    wanted = ",".join(kind.lower() for kind in kinds)
    return [pod for pod in world.pods("-l", f"app in ({wanted})") if is_ready(pod)]


def test_drain_moves_all_pods_except_those_of_a_daemon_set(world: World) -> None:
    created(world, *KINDS)
    nodes = len(world.list("nodes"))
    eventually(lambda: len(pods(world, *KINDS)) == 6 + nodes, "all Pods are ready", 40)
    node = pods(world, "CloneSet")[0]["spec"]["nodeName"]
    daemon = next(one for one in pods(world, "DaemonSet") if one["spec"]["nodeName"] == node)

    def on_node() -> list[str]:
        return [one["metadata"]["labels"]["app"] for one in pods(world, *KINDS) if one["spec"]["nodeName"] == node]

    drain = ("drain", node, "--ignore-daemonsets", "--timeout=90s")
    try:
        world.kubectl(*drain, "--pod-selector=app in (cloneset,statefulset,uniteddeployment)")
        eventually(lambda: on_node() == ["daemonset"], "only the daemon is left", 40)
        eventually(lambda: len(pods(world, *KINDS)) == 6 + nodes, "the others run elsewhere", 40)
        assert daemon["metadata"]["uid"] in {one["metadata"]["uid"] for one in pods(world, "DaemonSet")}
        # kubectl only ignores native DaemonSets; ours starts a new Pod on the same node.
        world.kubectl(*drain, "--pod-selector=app=daemonset")
        eventually(lambda: on_node() == ["daemonset"], "a new daemon runs there", 40)
        assert daemon["metadata"]["uid"] not in {one["metadata"]["uid"] for one in pods(world, "DaemonSet")}
    finally:
        world.kubectl("uncordon", node)


BUDGETS = """
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: native}
spec: {maxUnavailable: 25%, selector: {matchLabels: {app: cloneset}}}
---
apiVersion: policy.kruise.io/v1beta1
kind: PodUnavailableBudget
metadata: {name: ours}
spec: {maxUnavailable: 2, selector: {matchLabels: {app: cloneset}}}
"""


def test_both_budgets_hold_over_the_same_pods(world: World) -> None:
    template = workload("CloneSet")["spec"]["template"]
    template["metadata"]["labels"]["app"] = "cloneset"
    template["spec"]["readinessGates"] = [{"conditionType": GATE}]
    created(world, "CloneSet", replicas=4, template=template)

    def ready() -> bool:
        let_pods_be_ready(world, "app=cloneset")
        return len(pods(world, "CloneSet")) == 4

    eventually(ready, "four Pods are ready", 40)
    world.apply(BUDGETS)

    def native(allowed: int) -> bool:
        """Return whether the native budget allows this many; it reads the replicas from the scale subresource."""
        found = world.get("pdb", "native").get("status", {})
        return (found.get("disruptionsAllowed"), found.get("expectedPods")) == (allowed, 4)

    def ours(allowed: int) -> bool:
        return world.get("pub", "ours").get("status", {}).get("unavailableAllowed") == allowed

    eventually(lambda: native(1) and ours(2), "both budgets count four Pods", 40)
    first, second, third, _ = pods(world, "CloneSet")
    assert world.evict(first["metadata"]["name"]).returncode == 0
    refused = world.evict(second["metadata"]["name"])
    assert "Cannot evict pod as it would violate the pod's disruption budget." in refused.stderr
    world.kubectl("patch", "pdb", "native", "-n", world.namespace, "-p", '{"spec": {"maxUnavailable": 3}}')
    eventually(lambda: native(2), "the native budget is larger", 40)
    # Our budget's grant for the refused eviction is still valid, so the same Pod may be evicted.
    assert world.evict(second["metadata"]["name"]).returncode == 0
    refused = world.evict(third["metadata"]["name"])
    assert "pub unavailable allowed is negative" in refused.stderr
    assert "TooManyRequests" in refused.stderr
    eventually(ready, "four Pods are ready again", 40)
    eventually(lambda: ours(2), "the budget recovers", 40)
    assert world.evict(third["metadata"]["name"]).returncode == 0
