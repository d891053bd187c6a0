"""An operator pulls images, restarts containers and probes Pods through the node agents (U-80 … U-86)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.scenarios.world import World, eventually, pod, restarts

SIDE = '{name: side, image: "busybox:1.36", command: [sleep, "100000"]}'
POD = pod(labels="app: web", grace=2, containers=f'[{{name: main, image: "nginx:1.25"}}, {SIDE}]')
REQUEST = """
apiVersion: apps.kruise.io/{version}
kind: ContainerRecreateRequest
metadata: {{name: again}}
spec:
  podName: web
  containers: [{{name: main}}]
  strategy: {{failurePolicy: Fail}}
  activeDeadlineSeconds: 120
  ttlSecondsAfterFinished: 1800
"""


def node_images(world: World) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in world.list("nodeimage", namespace="")}


def nodes_with_images(world: World) -> list[str]:
    """Return the nodes, once each has a NodeImage."""
    found = world.nodes()
    eventually(lambda: node_images(world).keys() >= set(found), "each node has a NodeImage", 90)
    return found


@pytest.mark.behaviour("IMG-30", "IMG-31")
def test_each_node_has_a_node_image_with_its_labels(world: World) -> None:
    for name in nodes_with_images(world):
        labels = world.get("node", name)["metadata"].get("labels", {})
        assert node_images(world)[name]["metadata"].get("labels", {}) == labels


@pytest.mark.behaviour("IMG-43", "IMG-51", "IMG-52")
@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_an_image_is_pulled_on_the_named_nodes(world: World, version: str) -> None:
    nodes = nodes_with_images(world)
    job = f"""
apiVersion: apps.kruise.io/{version}
kind: ImagePullJob
metadata: {{name: warm}}
spec:
  image: "busybox:1.36"
  parallelism: 2
  selector: {{names: [{nodes[0]}, {nodes[-1]}]}}
  completionPolicy: {{type: Always, ttlSecondsAfterFinished: 600}}
"""
    world.apply(job)
    done = lambda: world.get("imagepulljob", "warm").get("status", {}).get("completionTime")  # noqa: E731
    eventually(done, "the job has ended", 120)
    status, count = world.get("imagepulljob", "warm")["status"], len({nodes[0], nodes[-1]})
    assert (status["desired"], status["succeeded"], status["message"]) == (count, count, "job has completed")
    refused = world.apply(job.replace("parallelism: 2", 'parallelism: "10%"').replace("warm", "refused"), check=False)
    assert "parallelism does not support percentage value" in refused.stderr


@pytest.mark.behaviour("CRR-4", "CRR-12", "CRR-20")
@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_one_container_restarts_and_the_other_does_not(world: World, version: str) -> None:
    world.apply(POD)
    eventually(lambda: world.pod_is_ready("web"), "the Pod is ready", 120)
    before = restarts(world.get("pod", "web"))
    world.apply(REQUEST.format(version=version))
    phase = lambda: world.get("containerrecreaterequest", "again").get("status", {}).get("phase")  # noqa: E731
    eventually(lambda: phase() == "Completed", "the request is done", 120)
    status = world.get("containerrecreaterequest", "again")["status"]
    assert [one["phase"] for one in status["containerRecreateStates"]] == ["Succeeded"]
    assert restarts(world.get("pod", "web")) == {"main": before["main"] + 1, "side": before["side"]}
    changed = world.apply(REQUEST.format(version=version).replace("120", "130"), check=False)
    assert "a request is immutable" in changed.stderr


@pytest.mark.behaviour("PPM-13", "PPM-24", "PPM-25", "KD-60")
def test_pod_labels_and_condition_follow_a_probe(world: World) -> None:
    # [U-86]
    world.apply(POD)
    world.apply("""
apiVersion: apps.kruise.io/v1alpha1
kind: PodProbeMarker
metadata: {name: idle}
spec:
  selector: {matchLabels: {app: web}}
  probes:
  - name: ok
    containerName: side
    probe: {exec: {command: ["true"]}, periodSeconds: 1}
    markerPolicy:
    - {state: Succeeded, labels: {idle: "true"}, annotations: {why: "nobody plays"}}
    - {state: Failed, labels: {idle: "false"}}
    podConditionType: game.example/idle
  - name: one-sided
    containerName: side
    probe: {exec: {command: ["true"]}, periodSeconds: 1}
    markerPolicy: [{state: Succeeded, labels: {spare: "yes"}}]
""")

    def seen() -> dict[str, str | None]:
        found = world.get("pod", "web")
        labels, annotations = found["metadata"]["labels"], found["metadata"].get("annotations", {})
        conditions = {one["type"]: one["status"] for one in found["status"].get("conditions", ())}
        return {
            "idle": labels.get("idle"),
            "spare": labels.get("spare"),
            "why": annotations.get("why"),
            "condition": conditions.get("game.example/idle"),
        }

    idle = {"idle": "true", "spare": "yes", "why": "nobody plays", "condition": "True"}
    eventually(lambda: seen() == idle, "the Pod is marked", 120)
    assert world.get("podprobemarker", "idle")["status"]["matchedPods"] == 1
    fails = {"op": "replace", "value": ["false"]}
    body = [{**fails, "path": f"/spec/probes/{number}/probe/exec/command"} for number in (0, 1)]
    world.patch("podprobemarker", "idle", body)
    busy = {"idle": "false", "spare": None, "why": None, "condition": "False"}
    eventually(lambda: seen() == busy, "the marks follow", 60)


@pytest.mark.behaviour("IMG-6", "IMG-12", "IMG-32", "KD-31", "KD-32")
def test_a_manual_tag_is_pulled_and_expires(world: World) -> None:
    # [U-83]
    node = nodes_with_images(world)[0]

    def write(*tags: dict[str, Any], check: bool = True) -> str:
        return world.patch("nodeimage", node, {"spec": {"images": {"ubuntu": {"tags": list(tags)}}}}, check=check)

    def status(tag: str) -> dict[str, Any] | None:
        found = node_images(world)[node].get("status", {}).get("imageStatuses", {}).get("ubuntu", {})
        return next((one for one in found.get("tags", ()) if one["tag"] == tag), None)

    def ended(tag: str) -> dict[str, Any] | None:
        found = status(tag)
        return found if found is not None and found.get("completionTime") else None

    refused = write({"tag": "24.04"}, check=False)
    assert "ttlSecondsAfterFinished" in refused
    policy = {"ttlSecondsAfterFinished": 12}
    write({"tag": "24.04", "pullPolicy": policy}, {"tag": "nowhere", "pullPolicy": {**policy, "backoffLimit": 0}})
    if world.real_containers:
        failed = eventually(lambda: ended("nowhere"), "the missing tag has failed", 120)
        assert (failed["phase"], bool(failed["message"])) == ("Failed", True)
    found = eventually(lambda: ended("24.04"), "the image is pulled", 120)
    assert (found["phase"], found["progress"], found["imageID"][:7]) == ("Succeeded", 100, "ubuntu@")
    spec = node_images(world)[node]["spec"]["images"]["ubuntu"]["tags"]
    assert [(one["tag"], one["pullPolicy"]["timeoutSeconds"]) for one in spec][:1] == [("24.04", 600)]
    gone = lambda: "ubuntu" not in node_images(world)[node]["spec"].get("images", {})  # noqa: E731
    eventually(gone, "the tags are cleared", 90)
    eventually(lambda: status("24.04") is None, "and so are their reports", 90)
