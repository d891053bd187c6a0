"""Restarts of containers with every option of a request (U-80, U-81)."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest

from tests.scenarios.world import World, eventually, pod, workload

MAIN = '{name: main, image: "nginx:1.25"}'
SLEEPS = 'image: "busybox:1.36", command: [sleep, "100000"]'
CONTAINERS = f"[{MAIN}, {{name: side, {SLEEPS}}}, {{name: other, {SLEEPS}}}]"
STATEFUL_SET = workload("StatefulSet", "replicas: 1", "serviceName: web", grace=2, containers=CONTAINERS)
SIDE = '{name: side, image: "nginx:1.25", command: [sleep, "100000"]}'
ONCE = pod("restartPolicy: Never", name="once", grace=2, containers=f"[{MAIN}, {SIDE}]")


def ask(world: World, pod: str, *containers: str, strategy: dict[str, Any] | None = None, **spec: Any) -> None:
    body = {"podName": pod, "containers": [{"name": one} for one in containers], "strategy": strategy or {}, **spec}
    head = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "ContainerRecreateRequest", "metadata": {"name": "again"}}
    world.apply(json.dumps({**head, "spec": body}))


def ended(world: World) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        found: dict[str, Any] = world.get("containerrecreaterequest", "again").get("status", {})
        return found if found.get("phase") == "Completed" else None

    return eventually(look, "the request has ended", 120)


def phases(status: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["phase"] for one in status["containerRecreateStates"]}


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.behaviour("CRR-4", "CRR-13", "CRR-21", "CRR-33", "CRR-35", "CRR-37", "CRR-38")
def test_two_containers_restart_in_order_while_their_pod_is_out_of_service(world: World) -> None:
    # [U-80, U-81]
    world.apply(STATEFUL_SET)
    eventually(lambda: world.pod_is_ready("web-0"), "the Pod is ready", 120)
    strategy = {"orderedRecreate": True, "unreadyGracePeriodSeconds": 1, "minStartedSeconds": 1}
    ask(world, "web-0", "main", "side", strategy=strategy, ttlSecondsAfterFinished=20)
    request = world.get("containerrecreaterequest", "again")
    assert request["spec"]["strategy"] == {**strategy, "failurePolicy": "Fail", "terminationGracePeriodSeconds": 2}
    assert phases(ended(world)) == {"main": "Succeeded", "side": "Succeeded"}
    row, node = world.columns("containerrecreaterequest", "again"), world.get("pod", "web-0")["spec"]["nodeName"]
    assert row[:4] == ["again", "Completed", "web-0", node]
    found = eventually(lambda: world.pod_is_ready("web-0"), "the Pod is back in service", 60)
    containers = {one["name"]: one for one in found["status"]["containerStatuses"]}
    assert {name: one["restartCount"] for name, one in containers.items()} == {"main": 1, "side": 1, "other": 0}
    # The second was stopped only when the first ran again.
    assert moment(containers["side"]["lastState"]["terminated"]["finishedAt"]) >= moment(
        containers["main"]["state"]["running"]["startedAt"]
    )
    served = next(one for one in found["status"]["conditions"] if one["type"] == "KruisePodReady")
    assert served["status"] == "True"
    assert moment(served["lastTransitionTime"]) >= moment(request["metadata"]["creationTimestamp"])
    gone = lambda: not world.list("containerrecreaterequest")  # noqa: E731
    eventually(gone, "the request is deleted", 60)


@pytest.mark.behaviour("CRR-39", "CRR-40")
@pytest.mark.parametrize(
    ("policy", "after"),
    [("Fail", {"main": "Failed", "side": "Pending"}), ("Ignore", {"main": "Failed", "side": "Failed"})],
)
def test_containers_that_are_not_started_again_have_failed(world: World, policy: str, after: dict[str, str]) -> None:
    # [U-81]
    world.apply(ONCE)
    eventually(lambda: world.pod_is_ready("once"), "the Pod is ready", 120)
    ask(world, "once", "main", "side", strategy={"failurePolicy": policy, "orderedRecreate": True})
    found = ended(world)
    assert phases(found) == after
    assert (
        found["containerRecreateStates"][0]["message"]
        == "the container has exited; the restartPolicy of its Pod does not restart it"
    )
