"""PodUnavailableBudget for users: U-91, by selector and by target; Pods are deleted, evicted, updated and drained."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.scenarios.world import World, eventually, is_ready
from tests.scenarios.world import workload as workload_of

FORBIDDEN = (
    'podunavailablebudget.policy.kruise.io "shop" is forbidden: pub unavailable allowed is negative (allowed 0, '
)
BUDGET = """
apiVersion: policy.kruise.io/{version}
kind: PodUnavailableBudget
metadata: {{name: shop}}
spec: {{{spec}}}
"""
READINESS_GATE = "example.com/let"
BY_SELECTOR = "selector: {matchLabels: {app: shop}}"
KINDS = {"Deployment": "apps/v1", "CloneSet": "apps.kruise.io/v1beta1"}


def by_target(kind: str) -> str:
    return f"targetRef: {{apiVersion: {KINDS[kind]}, kind: {kind}, name: shop}}"


def workload(kind: str, replicas: int, *pod: str) -> str:
    """Return a manifest; ``pod`` are lines of its Pods' spec."""
    return workload_of(kind, f"replicas: {replicas}", name="shop", version=KINDS[kind], pod=pod)


def budget(spec: str, version: str = "v1beta1") -> str:
    return BUDGET.format(spec=spec, version=version)


def status(world: World) -> dict[str, Any]:
    found: dict[str, Any] = world.get("pub", "shop").get("status") or {}
    return found


def numbers(world: World, *expected: int) -> bool:
    """Return allowed, current, desired and total, as ``kubectl get pub`` prints them."""
    return world.columns("pub", "shop")[1:5] == [str(number) for number in expected]


def pods(world: World) -> list[str]:
    """Return the Pods of the shop that are ready and not terminating."""
    return sorted(pod["metadata"]["name"] for pod in world.pods("-l", "app=shop") if is_ready(pod))


def let_be_ready(world: World) -> int:
    """Open the readiness gate of the Pods that are not ready; return their number."""
    ready = pods(world)
    patch = json.dumps({"status": {"conditions": [{"type": READINESS_GATE, "status": "True"}]}})
    for pod in world.pods("-l", "app=shop"):
        name = pod["metadata"]["name"]
        if name not in ready:
            arguments = ("--subresource=status", "--type=strategic", "-p", patch)
            world.kubectl("patch", "pod", name, "-n", world.namespace, *arguments, check=False)
    return len(ready)


def delete(world: World, name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return world.kubectl("delete", "pod", name, "-n", world.namespace, "--wait=false", *arguments, check=False)


@pytest.mark.behaviour("PUB-31", "PUB-50", "PUB-51", "PUB-64", "PUB-67", "PUB-94", "PUB-130", "PW-16")
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("by", ["selector", "target"])
def test_deletions_respect_max_unavailable(world: World, kind: str, by: str) -> None:
    # [U-91]
    whom = BY_SELECTOR if by == "selector" else by_target(kind)
    world.apply(budget(f"{whom}, maxUnavailable: 40%"))
    # No replacement Pod becomes ready before the test allows it.
    world.apply(workload(kind, 5, f"readinessGates: [{{conditionType: {READINESS_GATE}}}]"))
    eventually(lambda: let_be_ready(world) == 5, "five Pods are ready", 90)
    eventually(lambda: numbers(world, 2, 5, 3, 5), "the budget counts five Pods", 60)
    names = pods(world)
    for pod in world.list("pods", "-l", "app=shop"):
        assert pod["metadata"]["annotations"]["pub.kruise.io/related-pub"] == "shop"
        assert pod["metadata"]["annotations"]["kruise.io/related-pub"] == "shop"
    done = world.kubectl("delete", "pod", *names, "-n", world.namespace, "--wait=false", check=False)
    refused = [line for line in done.stderr.splitlines() if FORBIDDEN in line]
    assert len(refused) == 3
    assert all("desired 3" in line for line in refused)
    # Deleted Pods are replaced, and then two more may be deleted.
    eventually(lambda: let_be_ready(world) == 5, "five Pods are ready again", 90)
    eventually(lambda: numbers(world, 2, 5, 3, 5), "five Pods are available again", 60)
    assert delete(world, pods(world)[0]).returncode == 0


@pytest.mark.behaviour("PUB-50")
def test_a_scale_in_raises_the_limit_before_its_deletions_are_checked(world: World) -> None:
    world.apply(budget(f"{by_target('Deployment')}, maxUnavailable: 10%"))
    world.apply(workload("Deployment", 10))
    eventually(lambda: numbers(world, 1, 10, 9, 10), "the budget counts ten Pods", 90)
    world.kubectl("scale", "deployment", "shop", "--replicas=3", "-n", world.namespace)
    eventually(lambda: len(world.list("pods", "-l", "app=shop")) == 3, "three Pods are left", 90)
    eventually(lambda: numbers(world, 1, 3, 2, 3), "the budget counts three Pods", 60)


@pytest.mark.behaviour("PUB-63", "PUB-127", "PW-27")
def test_an_eviction_over_the_budget_is_told_to_retry(world: World) -> None:
    world.apply(budget(f"{BY_SELECTOR}, maxUnavailable: 1"))
    world.apply(workload("Deployment", 3))
    eventually(lambda: numbers(world, 1, 3, 2, 3), "the budget counts three Pods", 90)
    names = pods(world)
    # A dry run takes nothing from the budget.
    for _ in range(3):
        assert world.evict(names[0], dry_run=True).returncode == 0
    assert status(world)["unavailableAllowed"] == 1
    world.apply(budget(f"{BY_SELECTOR}, maxUnavailable: 0"))
    eventually(lambda: numbers(world, 0, 3, 3, 3), "no Pod may be missing", 60)
    for dry_run in (False, True):
        answer = world.evict(names[1], dry_run=dry_run).stderr
        assert FORBIDDEN in answer
        assert "TooManyRequests" in answer or "429" in answer


@pytest.mark.behaviour("PUB-94", "PUB-127")
@pytest.mark.alone  # a drain also evicts the Pods of other tests
def test_a_drain_waits_for_the_budget_and_finishes(world: World) -> None:
    world.apply(budget(f"{BY_SELECTOR}, maxUnavailable: 1"))
    world.apply(workload("Deployment", 6).replace("labels: {app: shop}", "labels: {app: shop, team: $ns}"))
    eventually(lambda: numbers(world, 1, 6, 5, 6), "the budget counts six Pods", 90)
    nodes: dict[str, int] = {}
    for pod in world.list("pods", "-l", "app=shop"):
        nodes[pod["spec"]["nodeName"]] = nodes.get(pod["spec"]["nodeName"], 0) + 1
    node, most = max(nodes.items(), key=lambda item: item[1])
    assert most > 1
    try:
        arguments = (f"--pod-selector=team={world.namespace}", "--timeout=100s")
        done = world.kubectl("drain", node, *arguments)
        assert FORBIDDEN in done.stderr
    finally:
        world.kubectl("uncordon", node)
    eventually(lambda: numbers(world, 1, 6, 5, 6), "six Pods are available again", 90)


@pytest.mark.behaviour("PUB-32", "PUB-64")
def test_a_new_budget_covers_existing_pods(world: World) -> None:
    world.apply(workload("Deployment", 2))
    eventually(lambda: len(pods(world)) == 2, "two Pods are ready", 90)
    assert delete(world, pods(world)[0]).returncode == 0
    eventually(lambda: len(pods(world)) == 2, "two Pods are ready again", 90)
    world.apply(budget(f"{BY_SELECTOR}, maxUnavailable: 0", "v1alpha1"))
    eventually(lambda: numbers(world, 0, 2, 2, 2), "the budget counts two Pods", 60)
    name = pods(world)[0]
    assert FORBIDDEN in delete(world, name).stderr
    world.kubectl("annotate", "pod", name, "-n", world.namespace, "pub.kruise.io/no-protect=true")
    assert delete(world, name).returncode == 0


OWN = {
    "CloneSet": "rollingUpdate: {podUpdatePolicy: InPlaceOnly, maxUnavailable: 100%}",
    "StatefulSet": "rollingUpdate: {podUpdatePolicy: InPlaceOnly, maxUnavailable: 100%}",
    "DaemonSet": "rollingUpdate: {rollingUpdateType: InPlaceIfPossible, maxUnavailable: 100%}",
}
SIDECARS = """
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {{name: $ns}}
spec:
  namespaceSelector: {{matchLabels: {{kubernetes.io/metadata.name: $ns}}}}
  selector: {{matchLabels: {{app: shop}}}}
  updateStrategy: {{type: RollingUpdate, maxUnavailable: 100%}}
  containers: [{{name: agent, image: "{image}", command: [sleep, 999d]}}]
"""


def ours(kind: str, image: str, strategy: str = "") -> str:
    """A workload of three Pods, or of one per node."""
    more = {"StatefulSet": ["replicas: 3", "podManagementPolicy: Parallel", "serviceName: shop"], "DaemonSet": []}
    fields = more.get(kind, ["replicas: 3"])
    strategy = f"updateStrategy: {{type: RollingUpdate, {strategy or OWN[kind]}}}"
    gate = "readinessGates: [{conditionType: InPlaceUpdateReady}]"
    containers = f'[{{name: main, image: "{image}", command: [sleep, 999d]}}]'
    return workload_of(kind, *fields, strategy, name="shop", pod=[gate], containers=containers)


def uids(world: World) -> set[str]:
    return {pod["metadata"]["uid"] for pod in world.list("pods", "-l", "app=shop")}


def images(world: World, container: str) -> list[str]:
    return [
        status["image"].rpartition("/")[2]
        for pod in world.list("pods", "-l", "app=shop")
        for status in pod.get("status", {}).get("containerStatuses", [])
        if status["name"] == container and status["ready"]
    ]


def failures(world: World) -> list[str]:
    """Return the failures among the events of the namespace, except those of nodes."""
    told = [event for event in world.list("events") if event.get("source", {}).get("component") != "kubelet"]
    return [event["reason"] for event in told if event["reason"].startswith("Failed")]


@pytest.mark.behaviour("PUB-90", "PW-26", "PM-171")
@pytest.mark.parametrize("kind", [*OWN, "SidecarSet"])
def test_workloads_that_update_pods_check_the_budget_first(world: World, kind: str) -> None:
    """Each workload must update all Pods at once, and the budget allows one at a time. A refusal is not a failure."""
    container = "agent" if kind == "SidecarSet" else "main"
    if kind == "SidecarSet":
        world.apply(SIDECARS.format(image="busybox:1.35"))
        world.apply(workload("Deployment", 3))
    else:
        world.apply(ours(kind, "busybox:1.35"))
    eventually(lambda: len(pods(world)) >= 3 and set(images(world, container)) == {"busybox:1.35"}, "all are ready", 90)
    count = len(pods(world))
    world.apply(budget(f"{BY_SELECTOR}, maxUnavailable: 1, protectTotalReplicas: {count}"))
    eventually(lambda: numbers(world, 1, count, count - 1, count), "the budget counts them", 60)
    before = uids(world)
    world.apply(SIDECARS.format(image="busybox:1.36") if kind == "SidecarSet" else ours(kind, "busybox:1.36"))
    fewest = count

    def updated() -> bool:
        nonlocal fewest
        fewest = min(fewest, len(pods(world)))
        return images(world, container) == ["busybox:1.36"] * count

    eventually(updated, "all Pods are updated", 150)
    assert fewest >= count - 1
    assert uids(world) == before
    assert failures(world) == []


@pytest.mark.behaviour("PUB-90", "PUB-92")
@pytest.mark.parametrize("kind", ["CloneSet", "StatefulSet"])
def test_workloads_that_replace_pods_wait_for_the_budget(world: World, kind: str) -> None:
    """A deletion refused by a budget is not a failure of the workload and continues when the budget allows it."""
    strategy = "rollingUpdate: {podUpdatePolicy: ReCreate, maxUnavailable: 100%}"
    world.apply(ours(kind, "busybox:1.35", strategy))
    eventually(lambda: len(pods(world)) == 3, "three Pods are ready", 90)
    world.apply(budget(f"{BY_SELECTOR}, maxUnavailable: 0"))
    eventually(lambda: numbers(world, 0, 3, 3, 3), "no Pod may be missing", 60)
    before = uids(world)
    world.apply(ours(kind, "busybox:1.36", strategy))
    eventually(lambda: world.messages("PubPreventPodDeletion"), "the workload has checked the budget", 60)
    assert uids(world) == before
    assert failures(world) == []
    world.apply(budget(f"{BY_SELECTOR}, maxUnavailable: 100%"))
    eventually(lambda: images(world, "main") == ["busybox:1.36"] * 3, "all are replaced", 90)
    resource = f"{kind.lower()}s.apps.kruise.io"
    conditions = world.get(resource, "shop")["status"].get("conditions", [])
    assert not [one for one in conditions if one["type"].startswith("Failed") and one["status"] == "True"]
