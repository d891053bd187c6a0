"""A user runs a Pod on every node, and updates it node by node, with surge, and in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import yaml

from tests.scenarios.world import World, eventually, workload

KIND = "daemonsets.apps.kruise.io"
DAEMON_SET = workload("DaemonSet", name="ds")


def daemon_set(version: str = "v1beta1", min_ready: int = 0, **strategy: Any) -> str:
    """Return the manifest with these fields of rollingUpdate."""
    found = yaml.safe_load(DAEMON_SET)
    found["apiVersion"] = f"apps.kruise.io/{version}"
    found["spec"]["minReadySeconds"] = min_ready
    if strategy:
        found["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": strategy}
    return yaml.safe_dump(found)


def eligible(world: World) -> list[str]:
    return [
        node["metadata"]["name"]
        for node in world.list("nodes")
        if not any(
            taint["effect"] in ("NoSchedule", "NoExecute") and "unschedulable" not in taint["key"]
            for taint in node["spec"].get("taints") or ()
        )
    ]


def status_is(world: World, **wanted: int) -> dict[str, Any] | None:
    return world.observed(KIND, "ds", **wanted)


def all_updated(world: World) -> dict[str, Any]:
    def look() -> dict[str, Any] | None:
        nodes = len(eligible(world))  # a busy machine's kubelet may be unready for a moment
        return status_is(world, desiredNumberScheduled=nodes, updatedNumberScheduled=nodes, numberAvailable=nodes)

    return eventually(look, "every node has an available new Pod", 120)


def images(world: World) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for pod in world.pods():
        found.setdefault(pod["spec"].get("nodeName", ""), []).append(pod["spec"]["containers"][0]["image"])
    return {node: sorted(there) for node, there in found.items() if node}


def set_image(world: World, image: str) -> None:
    world.patch(KIND, "ds", [{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image}])


def others_wait(world: World) -> None:
    text = f"{world.namespace}/ds number of unavailable DaemonSet pods: 1, is equal to or exceeds allowed maximum: 1"
    reason = "numUnavailable >= maxUnavailable"  # no field selector can have this

    def told() -> bool:
        return any((one["reason"], one["message"]) == (reason, text) for one in world.list("events"))

    eventually(told, "an event says what the others wait for")


def all_told(world: World, reason: str, words: str, names: Iterable[str]) -> bool:
    found = {message.removeprefix(words) for message in world.messages(reason)}
    assert found == set(names), f"{reason}: reported {sorted(found)}, expected {sorted(names)}"
    return True


@pytest.fixture
def private(world: World) -> Iterator[str]:
    """A node that accepts no other Pod."""
    name = eligible(world)[0]
    world.patch("node", name, {"spec": {"taints": [{"key": "example.com/private", "effect": "NoSchedule"}]}})
    yield name
    world.patch("node", name, {"spec": {"taints": None}})


@pytest.mark.alone
@pytest.mark.behaviour("DS-16", "DS-18", "DS-24", "DS-71", "DS-79")
def test_every_eligible_node_gets_a_pod(world: World, private: str) -> None:
    # [U-40]
    world.apply(DAEMON_SET)
    nodes = eligible(world)
    assert private not in nodes
    all_updated(world)
    assert sorted(pod["spec"]["nodeName"] for pod in world.pods()) == sorted(nodes)
    assert world.columns(KIND, "ds")[1:6] == [str(len(nodes))] * 5
    world.patch("node", private, {"spec": {"taints": None}})
    eventually(lambda: private in images(world), "the node that has become eligible has its Pod")
    all_updated(world)


@pytest.mark.behaviour("DS-45", "DS-69", "DS-78", "DS-82", "DS-22")
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1"])
def test_a_standard_update_replaces_pods_node_by_node(world: World, version: str) -> None:
    # [U-41]
    world.apply(daemon_set(version, min_ready=1))
    all_updated(world)
    before = world.uids()
    set_image(world, "nginx:1.26")
    all_updated(world)
    after = world.uids()
    assert not before.keys() & after
    assert {image for there in images(world).values() for image in there} == {"nginx:1.26"}
    eventually(lambda: all_told(world, "SuccessfulDelete", "Deleted pod: ", before), "deletions")
    eventually(lambda: all_told(world, "SuccessfulCreate", "Created pod: ", before | after), "creations")
    others_wait(world)


@pytest.mark.behaviour("DS-48", "DS-51", "PM-45", "DS-36")
def test_an_image_changes_in_place(world: World) -> None:
    # [U-45]
    world.apply(daemon_set(rollingUpdateType="InPlaceIfPossible", maxUnavailable=1))
    all_updated(world)
    before = world.uids()
    set_image(world, "nginx:1.26")
    all_updated(world)
    assert world.uids() == before
    assert {pod["status"]["containerStatuses"][0]["restartCount"] for pod in world.pods()} == {1}
    expected = {f"successfully update pod {name} in-place" for name in before}
    eventually(lambda: world.messages("SuccessfulUpdatePodInPlace") == expected, "each update is reported")
    others_wait(world)


@pytest.mark.behaviour("DS-20", "DS-34")
def test_pods_and_revisions_are_deleted_with_their_daemonset(world: World) -> None:
    world.apply(DAEMON_SET)
    all_updated(world)
    world.kubectl("delete", KIND, "ds", "-n", world.namespace)
    eventually(lambda: not world.list("pods"), "the Pods are deleted", 90)
    eventually(lambda: not world.list("controllerrevisions"), "the revisions are deleted", 90)
