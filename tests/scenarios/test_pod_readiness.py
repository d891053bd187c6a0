"""A Pod with our readiness gate becomes ready by itself."""

from __future__ import annotations

import pytest

from tests.scenarios.world import World, eventually, pod


@pytest.mark.behaviour("PM-60")
def test_a_pod_with_the_gate_becomes_ready(world: World) -> None:
    world.apply(pod("readinessGates: [{conditionType: KruisePodReady}]"))
    found = eventually(lambda: world.pod_is_ready("web"), "Pod web is ready")
    conditions = {condition["type"]: condition for condition in found["status"]["conditions"]}
    assert conditions["KruisePodReady"]["status"] == "True"
    assert "message" not in conditions["KruisePodReady"]
