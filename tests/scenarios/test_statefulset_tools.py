"""Tools around Advanced StatefulSets: kubectl scale and explain, the scale subresource, and our own commands."""

from __future__ import annotations

import json
import os

import pytest

from tests.scenarios.conftest import LEVELS
from tests.scenarios.test_cloneset_tools import pykruise
from tests.scenarios.test_statefulset import KIND, PARALLEL, images, new_image, patch, ready, status_is
from tests.scenarios.world import World, eventually

# This tests kubectl itself; the level with the sandbox has only a part of it. The containers do not matter.
pytestmark = pytest.mark.parametrize("world", LEVELS[1:2], indirect=True)


@pytest.mark.behaviour("AS-135")
def test_kubectl_scale_and_the_columns(world: World) -> None:
    world.apply(PARALLEL.replace("replicas: 3", "replicas: 0"))
    path = f"/apis/apps.kruise.io/v1beta1/namespaces/{world.namespace}/statefulsets/web/scale"

    def selector() -> bool:
        return bool(json.loads(world.kubectl("get", "--raw", path).stdout)["status"].get("selector") == "app=web")

    eventually(selector, "an autoscaler finds the selector")
    assert "scaled" in world.kubectl("scale", "asts", "web", "-n", world.namespace, "--replicas=2").stdout
    ready(world, "web-0", "web-1")
    head, row = world.kubectl("get", "asts", "web", "-n", world.namespace, "-o", "wide").stdout.splitlines()
    assert head.split() == ["NAME", "DESIRED", "CURRENT", "UPDATED", "READY", "AGE", "CONTAINERS", "IMAGES"]
    assert row.split()[1:5] == ["2"] * 4
    text = world.kubectl("explain", "asts.spec.reserveOrdinals").stdout
    assert "Ordinals to skip" in text


@pytest.mark.behaviour("AS-122")
def test_our_own_commands(world: World) -> None:
    world.apply(PARALLEL)
    ready(world, "web-0", "web-1", "web-2")
    file = f"/tmp/pykruise-sts-{os.getpid()}.yaml"
    try:
        with open(file, "w", encoding="utf-8") as changed:
            changed.write(PARALLEL.replace("nginx:1.25", "nginx:1.26"))
        told = pykruise(world, "plan", "-f", file).splitlines()
    finally:
        os.unlink(file)
    assert "the template changes" in told[0]
    turns = [line.split()[1] for line in told[2:]]
    assert turns == ["web-2", "web-1", "web-0"]
    new_image(world, partition=2)
    pykruise(world, "rollout", "status", KIND, "web")
    assert [name for name, image in images(world).items() if image == "nginx:1.26"] == ["web-2"]
    assert "the partition (2) keeps it" in pykruise(world, "explain", "pod", "web-0")
    pykruise(world, "rollout", "pause", KIND, "web")
    patch(world, updateStrategy={"rollingUpdate": {"partition": 0}})
    assert "the update is paused" in pykruise(world, "explain", "pod", "web-0")
    pykruise(world, "rollout", "resume", KIND, "web")
    pykruise(world, "rollout", "status", KIND, "web")
    pykruise(world, "rollout", "undo", KIND, "web")
    pykruise(world, "rollout", "status", KIND, "web")
    assert set(images(world).values()) == {"nginx:1.25"}
    pykruise(world, "rollout", "restart", KIND, "web")
    pykruise(world, "rollout", "status", KIND, "web")
    assert status_is(world, readyReplicas=3, updatedReplicas=3)
