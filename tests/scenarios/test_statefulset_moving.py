"""A native StatefulSet is moved over as `pykruise plan --from` says: no Pod is made anew."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scenarios.conftest import LEVELS
from tests.scenarios.test_statefulset import KIND, SET, ready, status_is
from tests.scenarios.world import World, eventually

# On the sandbox the native controller is ours, and records revisions of its own form.
pytestmark = pytest.mark.parametrize("world", LEVELS[1:], indirect=True)
NATIVE = SET.replace("apps.kruise.io/v1beta1", "apps/v1")
GIVEN_BY_SERVER = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields")


def pods(world: World) -> dict[str, tuple[str, str]]:
    """Uid and revision of each."""
    found = world.list("pods", "-l", "app=web")
    label = "controller-revision-hash"
    return {one["metadata"]["name"]: (one["metadata"]["uid"], one["metadata"]["labels"][label]) for one in found}


def revisions(world: World) -> list[str]:
    return [one["metadata"]["name"] for one in world.list("controllerrevisions", "-l", "app=web")]


@pytest.mark.behaviour("AS-38", "AS-42", "AS-117")
def test_pods_of_a_native_statefulset_are_adopted(world: World) -> None:
    world.apply(NATIVE)
    native = "statefulsets.apps"

    def native_ready() -> dict[str, Any] | None:
        found = world.get(native, "web")
        return found if found.get("status", {}).get("readyReplicas") == 3 else None

    found = eventually(native_ready, "the native one is ready")
    before, recorded = pods(world), revisions(world)
    told = world.pykruise("plan", "--from", "statefulset/web").stdout
    # Its template is recorded in another form than ours, so a roll-out would begin: the plan says so, and the way out.
    assert "0 of its 3 Pods stay as they are" in told
    assert told.count("adopted, then recreated") == 3
    assert "set spec.updateStrategy.rollingUpdate.partition: 3 in web.yaml" in told
    assert "kubectl delete statefulset.apps web" in told
    # As it is told: exported, deleted alone, made under the other apiVersion.
    for field in GIVEN_BY_SERVER:
        found["metadata"].pop(field, None)
    world.kubectl("delete", native, "web", "-n", world.namespace, "--cascade=orphan")
    found["spec"]["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}
    body = {**{key: value for key, value in found.items() if key != "status"}, "apiVersion": "apps.kruise.io/v1beta1"}
    assert world.create(json.dumps(body)).returncode == 0
    ready(world, "web-0", "web-1", "web-2")

    def adopted() -> bool:
        owners = [one["metadata"].get("ownerReferences") for one in world.list("pods", "-l", "app=web")]
        return all(one and one[0]["apiVersion"].startswith("apps.kruise.io/") for one in owners)

    eventually(adopted, "the Pods are its own")
    eventually(lambda: status_is(world, replicas=3, readyReplicas=3), "it counts them")
    assert pods(world) == before
    assert set(recorded) < set(revisions(world))
    refused = world.pykruise("plan", "--from", "sts/web")
    assert (refused.returncode, "there is no native one" in refused.stderr) == (1, True)
    wrong = world.pykruise("plan", "--from", "deployment/web")
    assert (wrong.returncode, "expected statefulset/NAME" in wrong.stderr) == (2, True)
    world.kubectl("delete", KIND, "web", "-n", world.namespace)
