"""Tools around Advanced StatefulSets: kubectl scale and explain, and the scale subresource."""

from __future__ import annotations

import json

import pytest

from tests.scenarios.conftest import LEVELS
from tests.scenarios.test_statefulset import PARALLEL, ready
from tests.scenarios.world import World, eventually

# This tests kubectl itself; the level with the sandbox has only a part of it. The containers do not matter.
pytestmark = pytest.mark.parametrize("world", LEVELS[1:2], indirect=True)


@pytest.mark.behaviour("AS-135")
def test_kubectl_scales_and_prints_the_columns(world: World) -> None:
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
