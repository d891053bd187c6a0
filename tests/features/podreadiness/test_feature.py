"""The readiness gate KruisePodReady is added to Pods of OpenKruise workloads, or to all Pods."""

from __future__ import annotations

from typing import Any

import pytest

from tests.features.admitting import World, pod

GATE = {"conditionType": "KruisePodReady"}


def owner(api_version: str, controller: bool | None = True) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": "X", "name": "x", "uid": "u", "controller": controller}


@pytest.mark.behaviour("PM-176", "PM-115", "PW-6", "PW-9")
@pytest.mark.parametrize(
    ("owners", "every_pod", "gated"),
    [
        ([], False, False),
        ([], True, True),
        ([owner("apps/v1")], False, False),
        ([owner("apps.kruise.io/v1alpha1")], False, True),
        ([owner("apps.kruise.io/v9")], False, True),
        ([owner("apps.kruise.io/v1alpha1", controller=False)], False, False),
        ([owner("apps.kruise.io/v1alpha1", controller=None)], False, False),
        ([owner("apps.kruise.io.example/v1")], False, False),
        ([owner("v1", controller=False), owner("apps.kruise.io/v1beta1")], False, True),
    ],
)
def test_pods_of_supported_workloads_get_the_readiness_gate(
    owners: list[dict[str, Any]], every_pod: bool, gated: bool
) -> None:
    answer = World(every_pod_gated=every_pod).create(pod(metadata={"ownerReferences": owners}))
    assert answer.pod["spec"].get("readinessGates") == ([GATE] if gated else None)


@pytest.mark.behaviour("PM-176")
def test_the_gate_is_appended_once() -> None:
    other = {"conditionType": "other"}
    world = World(every_pod_gated=True)
    assert world.create(pod(readinessGates=[other])).pod["spec"]["readinessGates"] == [other, GATE]
    assert world.create(pod(readinessGates=[GATE])).operations == []
