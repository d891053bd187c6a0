"""A Pod with our readiness gate becomes ready by itself."""

from __future__ import annotations

import pytest

from tests.scenarios.world import World, eventually

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web}
spec:
  terminationGracePeriodSeconds: 1
  readinessGates: [{conditionType: KruisePodReady}]
  containers: [{name: nginx, image: "nginx:1.25"}]
"""


@pytest.mark.behaviour("PM-60")
def test_a_pod_with_the_gate_becomes_ready(world: World) -> None:
    world.apply(POD)
    pod = eventually(lambda: world.pod_is_ready("web"), "Pod web is ready")
    conditions = {condition["type"]: condition for condition in pod["status"]["conditions"]}
    assert conditions["KruisePodReady"]["status"] == "True"
    assert "message" not in conditions["KruisePodReady"]
