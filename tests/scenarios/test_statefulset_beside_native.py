"""A native StatefulSet and the same manifest with another apiVersion, side by side: Pods, revisions, events and status
are the same at each step, and so is the order in which Pods come and go."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from tests.scenarios.conftest import LEVELS
from tests.scenarios.world import World, eventually, is_ready

# Kubernetes' own native controller; the containers do not matter.
pytestmark = pytest.mark.parametrize("world", LEVELS[1:2], indirect=True)

Json = dict[str, Any]
#: Names that occur in no other word.
NATIVE, ADVANCED = "qqq", "zzz"
KINDS = {NATIVE: "statefulsets.apps", ADVANCED: "statefulsets.apps.kruise.io"}
VERSIONS = {NATIVE: "apps/v1", ADVANCED: "apps.kruise.io/v1beta1"}
COUNTS = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas", "updatedReplicas", "collisionCount")
HASH = "controller-revision-hash"
NEVER = "example.com/never"


def manifest(name: str, policy: str, *, replicas: int, image: str = "nginx:1.25", gate: str = "") -> str:
    pod: Json = {
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": image, "imagePullPolicy": "IfNotPresent"}],
    }
    if gate:
        pod["readinessGates"] = [{"conditionType": gate}]
    spec = {
        "replicas": replicas,
        "serviceName": name,
        "podManagementPolicy": policy,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
    }
    body = {"apiVersion": VERSIONS[name], "kind": "StatefulSet", "metadata": {"name": name}, "spec": spec}
    return json.dumps(body)


class Side:
    """Return one of the two without differences in name and kind."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name

    def apply(self, policy: str, **fields: Any) -> None:
        self.world.apply(manifest(self.name, policy, **fields))

    def delete(self, cascade: str) -> None:
        arguments = ("delete", KINDS[self.name], self.name, "-n", self.world.namespace, f"--cascade={cascade}")
        self.world.kubectl(*arguments)

    def exists(self) -> bool:
        return any(one["metadata"]["name"] == self.name for one in self.world.list(KINDS[self.name]))

    def pods(self) -> dict[int, Json]:
        found = self.world.list("pods", "-l", f"app={self.name}")
        return {int(one["metadata"]["name"].rpartition("-")[2]): one for one in found}

    def revisions(self) -> list[Json]:
        found = self.world.list("controllerrevisions", "-l", f"app={self.name}")
        return sorted(found, key=lambda one: int(one["revision"]))

    def view(self, pods: dict[int, Json], revisions: list[Json]) -> Json:
        """Return everything that is compared. Of the status: counts, revisions by their position in history, and
        whether it is current."""
        found = self.world.get(KINDS[self.name], self.name)
        status = found.get("status", {})
        order = [one["metadata"]["name"] for one in revisions]
        named = ("currentRevision", "updateRevision")
        return {
            "pods": {ordinal: self._pod(pod, order) for ordinal, pod in sorted(pods.items())},
            "revisions": {one["revision"]: self._plain(one["data"]) for one in revisions},
            "status": {key: status.get(key, 0) for key in COUNTS}
            | {key: order.index(status[key]) for key in named if status.get(key) in order},
            "seen": status.get("observedGeneration") == found["metadata"]["generation"],
        }

    def told(self) -> set[tuple[str, str, str]]:
        """Return the events, without those about a late deletion: the native controller's cache may lag."""
        return {
            (one["type"], one["reason"], self._plain(one["message"]))
            for one in self.world.list("events")
            if one["involvedObject"]["kind"] == "StatefulSet"
            and one["involvedObject"]["name"] == self.name
            and not (one["reason"] == "FailedDelete" and one["message"].endswith("not found"))
        }

    def _pod(self, pod: Json, order: list[str]) -> Json:
        metadata, spec = pod["metadata"], pod["spec"]
        labels = {key: value for key, value in metadata["labels"].items() if "kruise.io" not in key and key != HASH}
        owners = [
            [one["kind"], one["controller"], one["blockOwnerDeletion"]] for one in metadata.get("ownerReferences", [])
        ]
        found = {
            "labels": labels,
            "revision": order.index(metadata["labels"][HASH]),
            "owners": owners,
            "names": [metadata["name"], metadata.get("generateName"), spec["hostname"], spec["subdomain"]],
            "image": spec["containers"][0]["image"],
            "gates": [
                one["conditionType"]
                for one in spec.get("readinessGates", [])
                if one["conditionType"] != "KruisePodReady"
            ],
            "ready": serves(pod),
        }
        return self._plain(found)

    def _plain(self, value: Any) -> Any:
        text = re.sub(rf"\b{self.name}\b", "set", json.dumps(value))
        return json.loads(text, object_hook=lambda one: {key: value for key, value in one.items() if value is not None})


def serves(pod: Json) -> bool:
    return is_ready(pod) and "deletionTimestamp" not in pod["metadata"]


Check = Callable[[dict[int, Json], list[str]], None]


def both(world: World) -> tuple[Side, Side]:
    return Side(world, NATIVE), Side(world, ADVANCED)


def settle(sides: tuple[Side, Side], what: str, wanted: Callable[[Json], bool], check: Check | None = None) -> None:
    """Wait until both have the ``wanted`` status and are equal. ``check`` must hold all the time."""

    def look() -> bool:
        views = []
        for side in sides:
            pods, revisions = side.pods(), side.revisions()
            if check is not None:
                check(pods, [one["metadata"]["name"] for one in revisions])
            views.append(side.view(pods, revisions))
        if not all(one["seen"] and wanted(one["status"]) for one in views):
            return False
        native, advanced = views
        assert native == advanced
        return True

    eventually(look, what, 120)


def ready(count: int) -> Callable[[Json], bool]:
    return lambda status: status["replicas"] == status["readyReplicas"] == status["updatedReplicas"] == count


def in_order_up(pods: dict[int, Json], _order: list[str]) -> None:
    """OrderedReady: a Pod is created when those before it are ready."""
    if not all(ordinal in pods and serves(pods[ordinal]) for ordinal in range(max(pods, default=0))):
        raise OrderError(f"{max(pods)} was created although one before it is not ready: {summary(pods)}")


def in_order_down(pods: dict[int, Json], _order: list[str]) -> None:
    """OrderedReady: Pods are deleted one at a time, the last first."""
    leaving = [ordinal for ordinal, pod in pods.items() if "deletionTimestamp" in pod["metadata"]]
    if leaving and leaving != [max(pods)]:
        raise OrderError(f"{leaving} are going: {summary(pods)}")


def updated_from_the_end(pods: dict[int, Json], order: list[str]) -> None:
    """A rollout starts at the last ordinal, and never has more than one Pod unavailable."""
    newest = [ordinal for ordinal, pod in pods.items() if pod["metadata"]["labels"][HASH] == order[-1]]
    if newest and any(ordinal not in newest for ordinal in pods if ordinal > min(newest)):
        raise OrderError(f"{newest} were updated first: {summary(pods)}")
    if sum(not serves(pod) for pod in pods.values()) > 1:
        raise OrderError(f"more than one is unavailable: {summary(pods)}")


class OrderError(Exception):
    """Waiting does not repair it."""


def summary(pods: dict[int, Json]) -> dict[int, tuple[str, bool]]:
    return {ordinal: (pod["metadata"]["labels"][HASH], serves(pod)) for ordinal, pod in pods.items()}


def uids(side: Side) -> dict[int, str]:
    return {ordinal: pod["metadata"]["uid"] for ordinal, pod in side.pods().items()}


@pytest.mark.behaviour("AS-38", "PM-80", "AS-48", "AS-55", "AS-57", "AS-60", "AS-120", "AS-123")
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_an_advanced_statefulset_behaves_like_a_native_one(world: World, policy: str) -> None:
    sides, ordered = both(world), policy == "OrderedReady"

    def apply(**fields: Any) -> None:
        for side in sides:
            side.apply(policy, **fields)

    # Scale out and in.
    apply(replicas=3)
    settle(sides, "three are ready", ready(3), in_order_up if ordered else None)
    apply(replicas=5)
    settle(sides, "five are ready", ready(5), in_order_up if ordered else None)
    apply(replicas=3)
    settle(sides, "three are left", ready(3), in_order_down if ordered else None)

    # An ordered rollout.
    apply(replicas=3, image="nginx:1.26")
    settle(sides, "all are updated", ready(3), updated_from_the_end)

    # A Pod that never becomes ready blocks the next rollout.
    apply(replicas=3, image="nginx:1.27", gate=NEVER)
    settle(
        sides,
        "the rollout stops at the first Pod",
        lambda status: (status["replicas"], status["readyReplicas"], status["updatedReplicas"]) == (3, 2, 1),
        updated_from_the_end,
    )
    apply(replicas=3, image="nginx:1.28")
    settle(sides, "the change is observed", lambda status: status.get("updateRevision") == 3)
    for side in sides:
        world.kubectl("delete", "pod", f"{side.name}-2", "-n", world.namespace, "--wait=false")
    settle(sides, "it continues once the Pod is deleted", ready(3))

    # The set is deleted without its Pods, and adopts them again.
    before = [uids(side) for side in sides]
    for side in sides:
        side.delete("orphan")
    eventually(lambda: not any(side.exists() for side in sides), "the sets are deleted")

    def left_alone() -> bool:
        pods = [pod for side in sides for pod in side.pods().values()]
        return len(pods) == 6 and not any(pod["metadata"].get("ownerReferences") for pod in pods)

    eventually(left_alone, "their Pods have no owner")
    apply(replicas=3, image="nginx:1.28")
    settle(sides, "they are adopted", ready(3))
    assert [uids(side) for side in sides] == before

    def told_alike() -> bool:
        native, advanced = (side.told() for side in sides)
        assert native == advanced, native ^ advanced
        return bool(native)

    eventually(told_alike, "both have the same events")

    # Deleted with all dependents.
    for side in sides:
        side.delete("background")

    def nothing_left() -> bool:
        left = [one["metadata"]["name"] for side in sides for one in (*side.pods().values(), *side.revisions())]
        assert not left, f"left: {left}"
        return True

    eventually(nothing_left, "nothing is left", 90)
