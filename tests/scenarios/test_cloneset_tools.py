"""Generic tools work on CloneSets: kubectl scale, wait, drain, autoscalers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scenarios.conftest import LEVELS
from tests.scenarios.test_cloneset import CLONE_SET, status_is
from tests.scenarios.world import World, eventually

# This tests kubectl itself; the level with the sandbox has only a part of it.
pytestmark = pytest.mark.parametrize("world", LEVELS[1:], indirect=True)


def ready(world: World, replicas: int) -> dict[str, Any]:
    return eventually(lambda: status_is(world, replicas=replicas, readyReplicas=replicas), f"{replicas} Pods are ready")


@pytest.mark.behaviour("CS-1", "CS-2", "CS-3", "CS-43")
def test_kubectl_scales_and_prints_the_columns(world: World) -> None:
    world.apply(CLONE_SET)
    ready(world, 3)
    assert "scaled" in world.kubectl("scale", "clone", "web", "-n", world.namespace, "--replicas=5").stdout
    ready(world, 5)
    selector = world.kubectl(
        "get", "--raw", f"/apis/apps.kruise.io/v1beta1/namespaces/{world.namespace}/clonesets/web/scale"
    ).stdout
    assert json.loads(selector)["status"] == {"replicas": 5, "selector": "app=web"}
    head, row = world.kubectl("get", "clone", "web", "-n", world.namespace, "-o", "wide").stdout.splitlines()
    assert head.split() == [
        "NAME", "DESIRED", "UPDATED", "UPDATED_READY", "UPDATED_AVAILABLE", "READY", "TOTAL", "AGE", "CONTAINERS",
        "IMAGES", "SELECTOR",
    ]  # fmt: skip
    cells = row.split()
    assert cells[1:7] == ["5"] * 6
    assert cells[8:] == ["main", "nginx:1.25", "app=web"]
    world.kubectl("scale", "clone", "web", "-n", world.namespace, "--replicas=1")
    ready(world, 1)


@pytest.mark.behaviour("CS-1")
def test_kubectl_explains_the_fields_of_both_versions(world: World) -> None:
    """kubectl uses v1beta1 by default, where rollout fields have their own block. [U-03]"""
    whole = world.kubectl("explain", "cloneset").stdout
    assert ("GROUP:      apps.kruise.io" in whole, "VERSION:    v1beta1" in whole) == (True, True)
    older = ("cloneset.spec.updateStrategy.partition", "--api-version=apps.kruise.io/v1alpha1")
    for asked in (older, ("cloneset.spec.updateStrategy.rollingUpdate.partition",)):
        text = world.kubectl("explain", *asked).stdout
        assert "FIELD: partition" in text
        assert "Pods that keep the old template" in " ".join(text.split())


@pytest.mark.behaviour("CS-119")
@pytest.mark.alone
def test_kubectl_drain_moves_the_pods_to_other_nodes(world: World) -> None:
    world.apply(CLONE_SET)
    ready(world, 3)
    node = world.pods()[0]["spec"]["nodeName"]
    before = {pod["metadata"]["uid"] for pod in world.pods() if pod["spec"]["nodeName"] == node}
    try:
        world.kubectl("drain", node, "--ignore-daemonsets", "--force", "--timeout=90s", "--pod-selector=app=web")

        def elsewhere() -> bool:
            found = [pod["spec"].get("nodeName", "") for pod in world.pods()]
            return len(found) == 3 and not {"", node} & set(found)

        eventually(elsewhere, "three Pods run elsewhere", 90)
        assert not before & {pod["metadata"]["uid"] for pod in world.pods()}
        ready(world, 3)
    finally:
        world.kubectl("uncordon", node)


@pytest.mark.behaviour("CS-2")
def test_an_autoscaler_raises_a_cloneset_to_its_minimum(world: World) -> None:
    world.apply(CLONE_SET)
    ready(world, 3)
    world.autoscale("CloneSet", least=5, most=6, wanted=5)
    ready(world, 5)
