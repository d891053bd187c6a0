"""Images pulled in advance: on which nodes, how often, with which credentials, and before an in-place update (U-26,
U-84)."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from app.api import names
from tests.scenarios.test_cloneset import new_image, status_is
from tests.scenarios.test_node_operations import nodes_with_images
from tests.scenarios.world import World, eventually

AGENTS = "kruise-daemon-config"
JOB = """
apiVersion: apps.kruise.io/{version}
kind: {kind}
metadata: {{name: {name}}}
spec: {spec}
"""
CLONE_SET = """
apiVersion: apps.kruise.io/v1alpha1
kind: CloneSet
metadata: {name: web, annotations: {apps.kruise.io/image-predownload-parallelism: "2"}}
spec:
  replicas: 4
  selector: {matchLabels: {app: web}}
  updateStrategy: {type: InPlaceIfPossible, maxUnavailable: 1, partition: 3}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: main, image: "nginx:1.25"}]
"""


def apply(world: World, name: str, *, kind: str = "ImagePullJob", version: str = "v1beta1", **spec: Any) -> None:
    body = {"completionPolicy": {}, **spec}
    world.apply(JOB.format(kind=kind, version=version, name=name, spec=json.dumps(body)))


def status(world: World, name: str, kind: str = "imagepulljob") -> dict[str, Any]:
    found: dict[str, Any] = world.get(kind, name).get("status", {})
    return found


def completed(world: World, name: str, kind: str = "imagepulljob") -> dict[str, Any]:
    done = lambda: (found := status(world, name, kind)).get("completionTime") and found  # noqa: E731
    return eventually(done, f"{name} has ended", 120)


@pytest.mark.behaviour("IMG-60", "IMG-61", "IMG-64", "IMG-65")
def test_pull_secrets_reach_agents_and_are_removed(world: World) -> None:
    # [U-84]
    nodes_with_images(world)
    auth = base64.b64encode(b"jane:secret").decode()
    config = base64.b64encode(json.dumps({"auths": {"registry.example": {"auth": auth}}}).encode()).decode()
    world.apply(f"""
apiVersion: v1
kind: Secret
metadata: {{name: regcred}}
type: kubernetes.io/dockerconfigjson
data: {{.dockerconfigjson: {config}}}
""")

    def copies() -> list[dict[str, Any]]:
        source = f"{world.namespace}/regcred"
        return [
            one
            for one in world.list("secret", namespace=AGENTS)
            if one["metadata"].get("annotations", {}).get(names.COPIED_FROM) == source
        ]

    apply(world, "private", image="busybox:1.36", pullSecrets=["regcred"], parallelism=0)
    (copy,) = eventually(copies, "the Secret is copied")
    assert copy["data"] == {".dockerconfigjson": config}
    assert copy["metadata"]["annotations"][names.COPIED_FOR] == f"{world.namespace}/private"
    world.patch("imagepulljob", "private", {"spec": {"parallelism": 9}})
    found = completed(world, "private")
    assert found["succeeded"] == found["desired"]
    eventually(lambda: not copies(), "the copy is deleted")


@pytest.mark.behaviour("IMG-72", "IMG-75")
@pytest.mark.parametrize("version", ["v1beta1", "v1alpha1"])
def test_each_image_of_a_list_is_pulled(world: World, version: str) -> None:
    node = nodes_with_images(world)[-1]
    images, selector = ["busybox:1.35", "busybox:1.36"], {"names": [node]}
    apply(world, "several", kind="ImageListPullJob", version=version, images=images, selector=selector)
    found = completed(world, "several", "imagelistpulljob")
    assert (found["desired"], found["completed"], found["succeeded"]) == (2, 2, 2)
    jobs = {one["spec"]["image"]: one["status"]["succeeded"] for one in world.list("imagepulljob")}
    assert jobs == dict.fromkeys(images, 1)
    assert world.columns("imagelistpulljob", "several")[:4] == ["several", "2", "2", "2"]


@pytest.mark.behaviour("PM-160", "PM-162", "PM-167", "IMG-80")
def test_an_image_is_pulled_on_the_nodes_of_old_pods_before_they_are_updated(world: World) -> None:
    # [U-26]
    nodes_with_images(world)
    world.apply(CLONE_SET)
    eventually(lambda: status_is(world, readyReplicas=4), "four Pods are ready", 120)
    uids = world.uids("-l", "app=web")
    new_image(world, "nginx:1.26")
    (job,) = eventually(lambda: world.list("imagepulljob"), "an ImagePullJob is created")
    owner = job["metadata"]["ownerReferences"][0]
    assert (owner["kind"], owner["name"], owner["controller"]) == ("CloneSet", "web", True)
    assert (job["spec"]["image"], job["spec"]["parallelism"]) == ("nginx:1.26", 2)
    found = completed(world, job["metadata"]["name"])
    assert (found["failed"], found["succeeded"] > 0) == (0, True)
    world.patch("cloneset", "web", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    eventually(lambda: status_is(world, updatedReadyReplicas=4, readyReplicas=4), "all Pods are updated", 120)
    assert world.uids("-l", "app=web") == uids
    eventually(lambda: not world.list("imagepulljob"), "the job is deleted after the rollout", 60)
