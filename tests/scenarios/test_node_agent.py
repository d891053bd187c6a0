"""What users see of the node agents."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.api import names
from tests.scenarios.test_cloneset import status_is
from tests.scenarios.world import World, eventually, restarts

CLONE_SET = """
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  updateStrategy:
    type: RollingUpdate
    rollingUpdate: {podUpdatePolicy: InPlaceOnly, maxUnavailable: 1}
  template:
    metadata: {labels: {app: web}, annotations: {app-config: one}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
        - name: main
          image: nginx:1.25
          env:
            - {name: CONFIG, valueFrom: {fieldRef: {fieldPath: "metadata.annotations['app-config']"}}}
        - {name: side, image: "busybox:1.36"}
"""


def reported(world: World) -> list[dict[str, Any]] | None:
    """Return the Pods once their agents have reported the environment of their containers."""
    found = world.pods()
    for pod in found:
        text = pod["metadata"].get("annotations", {}).get(names.RUNTIME_CONTAINERS_META, '{"containers": []}')
        containers = json.loads(text)["containers"]
        if len(containers) != 2 or not all("extractedEnvFromMetadataHash" in one["hashes"] for one in containers):
            return None
    return found


@pytest.mark.behaviour("PM-48", "PM-136", "PM-139", "KD-74")
def test_an_annotation_that_feeds_an_env_restarts_that_container_in_place(world: World) -> None:
    # [U-25]
    world.apply(CLONE_SET)
    eventually(lambda: status_is(world, readyReplicas=2), "two Pods are ready")
    before = eventually(lambda: reported(world), "the agents have reported")
    world.patch("cloneset", "web", {"spec": {"template": {"metadata": {"annotations": {"app-config": "two"}}}}})
    eventually(lambda: status_is(world, updatedReadyReplicas=2, readyReplicas=2), "both Pods are updated", 120)
    after = world.pods()
    assert {pod["metadata"]["uid"]: restarts(pod) for pod in after} == {
        pod["metadata"]["uid"]: {"main": 1, "side": 0} for pod in before
    }
    assert {pod["metadata"]["annotations"]["app-config"] for pod in after} == {"two"}
