"""A native StatefulSet is migrated as `pykruise plan --from` says: no new Pods and no new revision."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scenarios.conftest import LEVELS
from tests.scenarios.test_migrate import are_adopted
from tests.scenarios.test_statefulset import KIND, SET, new_image, ready, status_is
from tests.scenarios.world import World, eventually

# On the sandbox the native controller is simulated, and its revisions have another form. The containers do not matter.
pytestmark = pytest.mark.parametrize("world", LEVELS[1:2], indirect=True)
NATIVE = SET.replace("apps.kruise.io/v1beta1", "apps/v1")
GIVEN_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


def pods(world: World) -> dict[str, tuple[str, str]]:
    found = world.list("pods", "-l", "app=web")
    label = "controller-revision-hash"
    return {one["metadata"]["name"]: (one["metadata"]["uid"], one["metadata"]["labels"][label]) for one in found}


def revisions(world: World) -> list[str]:
    return [one["metadata"]["name"] for one in world.list("controllerrevisions", "-l", "app=web")]


@pytest.mark.behaviour("AS-38", "PM-80", "AS-117", "PM-87")
def test_pods_of_a_native_statefulset_are_adopted(world: World) -> None:
    world.apply(NATIVE)
    native = "statefulsets.apps"

    def native_ready() -> dict[str, Any] | None:
        found = world.get(native, "web")
        return found if found.get("status", {}).get("readyReplicas") == 3 else None

    found = eventually(native_ready, "the native one is ready")
    before, recorded = pods(world), revisions(world)
    told = world.pykruise("plan", "--from", "statefulset/web").stdout
    # Its template is recorded without `creationTimestamp: null`, which must not cause a rollout.
    assert "all of its Pods are kept" in told
    assert told.count("adopted as it is") == 3
    assert "kubectl delete statefulset.apps web" in told
    # As documented: exported, deleted without its Pods, created under the other apiVersion.
    for field in GIVEN_BY_SERVER:
        found["metadata"].pop(field, None)
    world.kubectl("delete", native, "web", "-n", world.namespace, "--cascade=orphan")
    body = {**{key: value for key, value in found.items() if key != "status"}, "apiVersion": "apps.kruise.io/v1beta1"}
    assert world.create(json.dumps(body)).returncode == 0
    ready(world, "web-0", "web-1", "web-2")

    eventually(lambda: are_adopted(world, "web"), "it has adopted the Pods")
    moved = eventually(
        lambda: status_is(world, readyReplicas=3, updatedReplicas=3, currentReplicas=3), "it counts them"
    )
    assert [moved["status"][key] for key in ("currentRevision", "updateRevision")] == recorded * 2
    assert (pods(world), revisions(world)) == (before, recorded)
    # The next change is an update from the revision that Kubernetes recorded, and back to it.
    new_image(world)
    eventually(lambda: status_is(world, readyReplicas=3, updatedReadyReplicas=3), "another image is rolled out", 120)
    (added,) = set(revisions(world)) - set(recorded)
    new_image(world, "nginx:1.25")
    back = eventually(
        lambda: status_is(world, readyReplicas=3, updatedReadyReplicas=3), "the former image is back", 120
    )
    assert (back["status"]["updateRevision"], set(revisions(world))) == (recorded[0], {*recorded, added})
    refused = world.pykruise("plan", "--from", "sts/web")
    assert (refused.returncode, "not found; list the existing ones" in refused.stderr) == (1, True)
    wrong = world.pykruise("plan", "--from", "deployment/web")
    assert (wrong.returncode, "expected statefulset/NAME" in wrong.stderr) == (2, True)
    world.kubectl("delete", KIND, "web", "-n", world.namespace)
