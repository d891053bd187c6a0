"""Containers start in order, by the clock."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from tests.scenarios.world import World, eventually

#: Levels where containers really start, and the sandbox, whose kubelets interpret the commands.
TIMED = [
    pytest.param("sandbox_with_manager", id="sandbox"),
    pytest.param("cluster_with_manager", marks=pytest.mark.cluster, id="real-containers"),
]
BECOMES_READY_AFTER = 2
COMPLETED = "apps.kruise.io/container-launch-priority-completed"


def container(name: str, *, priority: int | None = None, ready: bool = True) -> dict[str, Any]:
    """A container that becomes ready some seconds after its start, or never."""
    when = f"sleep {BECOMES_READY_AFTER}; touch /tmp/ready; " if ready else ""
    env = [{"name": "KRUISE_CONTAINER_PRIORITY", "value": str(priority)}] if priority is not None else []
    return {
        "name": name,
        "image": "busybox:1.36",
        "command": ["sh", "-c", f"trap 'exit 0' TERM; {when}while :; do sleep 1; done"],
        "readinessProbe": {"exec": {"command": ["test", "-e", "/tmp/ready"]}, "periodSeconds": 1},
        "env": env,
    }


def pod(*containers: dict[str, Any], annotation: str | None = None) -> str:
    metadata: dict[str, Any] = {"name": "ordered"}
    if annotation is not None:
        metadata["annotations"] = {"apps.kruise.io/container-launch-priority": annotation}
    spec = {"terminationGracePeriodSeconds": 1, "containers": containers}
    return json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})


def started(world: World) -> Mapping[str, datetime]:
    statuses = world.get("pod", "ordered").get("status", {}).get("containerStatuses", [])
    return {
        status["name"]: datetime.fromisoformat(status["state"]["running"]["startedAt"])
        for status in statuses
        if "running" in status["state"]
    }


def data(world: World) -> list[str]:
    """Return the keys of the barrier ConfigMap."""
    return sorted(world.get("configmap", "ordered-barrier")["data"])


ANY_OWNER = [
    pytest.param(pod(*map(container, "abc"), annotation="Ordered"), ["a", "b", "c"], id="Ordered"),
    pytest.param(
        pod(container("a"), container("b", priority=5), container("c", priority=-1)), ["b", "a", "c"], id="env"
    ),
    pytest.param(
        pod(*map(container, "abc"), annotation='{"a": 1, "b": 2, "c": 3}'), ["c", "b", "a"], id="JSON by container"
    ),
]


@pytest.mark.parametrize("world", TIMED, indirect=True)
@pytest.mark.parametrize(("manifest", "order"), ANY_OWNER)
@pytest.mark.behaviour("PM-145", "PM-146", "PM-147", "PM-148", "PM-151")
def test_containers_start_after_those_of_higher_priority_are_ready(
    world: World, manifest: str, order: list[str]
) -> None:
    world.apply(manifest)
    eventually(lambda: world.pod_is_ready("ordered"), "all containers are ready", 120)
    times = started(world)
    assert sorted(times, key=lambda name: times[name]) == order
    waits = [(times[after] - times[before]).total_seconds() for before, after in pairwise(order)]
    # Times have a resolution of a second: the difference of two may be one short.
    assert all(wait >= BECOMES_READY_AFTER - 1 for wait in waits), waits
    # The kubelet is woken for each container: on its own it would return only after 10 to 15 seconds.
    assert all(wait < 10 for wait in waits), waits
    assert len(data(world)) == 3
    assert world.get("pod", "ordered")["metadata"]["annotations"][COMPLETED] == "true"
    owner = world.get("configmap", "ordered-barrier")["metadata"]["ownerReferences"]
    assert [(reference["kind"], reference["name"], reference.get("controller")) for reference in owner] == [
        ("Pod", "ordered", None)
    ]


# The manager reports what a Pod waits for too late for a test that runs every time.
@pytest.mark.parametrize("world", TIMED[1:], indirect=True)
@pytest.mark.behaviour("PM-145", "PM-148", "PM-150")
def test_containers_after_one_that_never_becomes_ready_never_start(world: World) -> None:
    world.apply(pod(container("a", ready=False), container("b"), annotation="Ordered"))
    eventually(lambda: "a" in started(world), "the first container runs")

    def told() -> bool:
        text = "b cannot start until a (launch priority 0) is ready"
        return any(text in one for one in world.messages("LaunchPriorityWaiting", about="ordered"))

    eventually(told, "the Pod reports what it waits for", 60)
    assert list(started(world)) == ["a"]
    waiting = {s["name"]: s["state"] for s in world.get("pod", "ordered")["status"]["containerStatuses"]}["b"]
    assert waiting["waiting"]["reason"] == "CreateContainerConfigError"
    assert data(world) == ["p_0"]


@pytest.mark.parametrize("world", TIMED, indirect=True)
@pytest.mark.behaviour("PM-149")
def test_a_container_that_restarts_later_blocks_no_other(world: World) -> None:
    world.apply(pod(container("a"), container("b"), annotation="Ordered"))
    eventually(lambda: world.pod_is_ready("ordered"), "all containers are ready", 60)
    before = started(world)
    if world.real_containers:
        world.kubectl("exec", "ordered", "-n", world.namespace, "-c", "a", "--", "kill", "1")
    else:
        world.kubectl("annotate", "pod", "ordered", "-n", world.namespace, "sandbox.pykruise.io/crash=a")
    eventually(lambda: started(world).get("a", before["a"]) > before["a"], "the first container runs again")
    assert started(world)["b"] == before["b"]
    assert data(world) == ["p_-1", "p_0"]
