"""A container that fails its liveness probe is restarted by a request, as fast as its workload allows."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.api import names
from tests.scenarios.conftest import LEVELS
from tests.scenarios.world import World, eventually, is_ready, restarts

CLONE_SET = """
apiVersion: apps.kruise.io/v1beta1
kind: CloneSet
metadata: {{name: web}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: web}}}}
  updateStrategy: {{type: RollingUpdate, rollingUpdate: {{maxUnavailable: 1}}}}
  template:
    metadata: {{labels: {{app: web}}, annotations: {{{annotations}}}}}
    spec:
      terminationGracePeriodSeconds: 5
      containers:
        - name: main
          image: busybox:1.36
          command:
            - /bin/sh
            - -c
            - trap 'exit 0' TERM; touch /tmp/alive; sleep 15; rm /tmp/alive; while true; do sleep 1; done
          livenessProbe: {{exec: {{command: [cat, /tmp/alive]}}, periodSeconds: 1, failureThreshold: {threshold}}}
        - name: side
          image: busybox:1.36
          command: ["/bin/sh", "-c", "trap 'exit 0' TERM; while true; do sleep 1; done"]
"""
ASKED = f'{names.USING_ENHANCED_LIVENESS}: "true"'


def clone_set(replicas: int = 1, annotations: str = ASKED, threshold: int = 2) -> str:
    return CLONE_SET.format(replicas=replicas, annotations=annotations, threshold=threshold)


def pods(world: World) -> list[dict[str, Any]]:
    return world.list("pods", "-l=app=web")


@pytest.mark.behaviour("PW-18", "PPM-50", "PPM-51", "PPM-52")
def test_a_failing_probe_restarts_only_its_container(world: World) -> None:
    world.apply(clone_set())
    (pod,) = eventually(lambda: [one for one in pods(world) if is_ready(one)], "the Pod is ready")
    main = next(one for one in pod["spec"]["containers"] if one["name"] == "main")
    assert "livenessProbe" not in main
    (saved,) = json.loads(pod["metadata"]["annotations"][names.CONTAINER_PROBE_CONTEXT])
    assert saved["name"] == "main"
    assert saved["livenessProbe"]["exec"] == {"command": ["cat", "/tmp/alive"]}

    def restarted() -> dict[str, Any] | None:
        (found,) = pods(world)
        return found if restarts(found)["main"] and is_ready(found) else None

    found = eventually(restarted, "the container is restarted", 90)
    assert found["metadata"]["uid"] == pod["metadata"]["uid"]
    assert restarts(found) == {"main": 1, "side": 0}
    made = f"liveness-{pod['metadata']['uid']}-main-0"
    request = world.get("containerrecreaterequest", made)
    assert [one["name"] for one in request["spec"]["containers"]] == ["main"]
    name = found["metadata"]["name"]
    eventually(lambda: world.messages("LivenessProbeFailed", about=name), "an event reports it")

    def completed() -> bool:
        status = world.get("containerrecreaterequest", made).get("status", {})
        return status.get("phase") == "Completed" and status["containerRecreateStates"][0]["phase"] == "Succeeded"

    eventually(completed, "the request is completed")


@pytest.mark.behaviour("PPM-50", "PPM-51", "PPM-52")
@pytest.mark.parametrize("world", LEVELS[2:], indirect=True)
def test_a_failing_http_probe_on_a_named_port_restarts_its_container(world: World) -> None:
    """Needs containers that serve HTTP themselves."""
    serves = "mkdir /tmp/www; touch /tmp/www/alive; httpd -p 8080 -h /tmp/www; sleep 15; rm /tmp/www/alive;"
    world.apply(
        clone_set()
        .replace("touch /tmp/alive; sleep 15; rm /tmp/alive;", serves)
        .replace("exec: {command: [cat, /tmp/alive]}", "httpGet: {path: /alive, port: web}")
        .replace("- name: main\n", "- name: main\n          ports: [{name: web, containerPort: 8080}]\n")
    )
    (pod,) = eventually(lambda: [one for one in pods(world) if is_ready(one)], "the Pod is ready")
    (saved,) = json.loads(pod["metadata"]["annotations"][names.CONTAINER_PROBE_CONTEXT])
    assert saved["livenessProbe"]["httpGet"]["port"] == "web"

    def restarted() -> bool:
        (found,) = pods(world)
        return restarts(found)["main"] > 0 and restarts(found)["side"] == 0 and is_ready(found)

    eventually(restarted, "the container is restarted", 90)
    name = pod["metadata"]["name"]
    said = eventually(lambda: world.messages("LivenessProbeFailed", about=name), "an event reports it")
    assert all("Container main failed its liveness probe and will be restarted" in one for one in said)
    made = [one["metadata"]["name"] for one in world.list("containerrecreaterequests")]
    assert f"liveness-{pod['metadata']['uid']}-main-0" in made


@pytest.mark.behaviour("PPM-53", "PPM-55")
def test_pods_that_fail_together_are_restarted_in_turn(world: World) -> None:
    world.apply(clone_set(replicas=3))
    eventually(lambda: len([one for one in pods(world) if is_ready(one)]) == 3, "three Pods are ready")
    fewest = 3

    def all_restarted() -> bool:
        nonlocal fewest
        found = pods(world)
        fewest = min(fewest, sum(map(is_ready, found)))
        return all(restarts(one).get("main") for one in found)

    eventually(all_restarted, "each container is restarted", 180)
    assert fewest >= 2
    said = world.messages("LivenessRestartHeldBack")
    assert any("CloneSet web has" in text and "allows no fewer than 2" in text for text in said), said


@pytest.mark.behaviour("PW-18")
def test_other_pods_keep_their_probes(world: World) -> None:
    world.apply(clone_set(annotations="", threshold=100))
    (pod,) = eventually(lambda: [one for one in pods(world) if is_ready(one)], "the Pod is ready")
    assert any("livenessProbe" in one for one in pod["spec"]["containers"])
    assert names.CONTAINER_PROBE_CONTEXT not in (pod["metadata"].get("annotations") or {})
