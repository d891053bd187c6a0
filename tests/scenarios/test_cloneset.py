"""A user scales, updates and deletes a CloneSet."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
import yaml

from tests.scenarios.test_launch_order import BECOMES_READY_AFTER, container
from tests.scenarios.world import World, eventually, restarts, workload

ROLLING = "{podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 1, partition: 0, maxSurge: 0}"
CLONE_SET = workload("CloneSet", "replicas: 3", f"updateStrategy: {{type: RollingUpdate, rollingUpdate: {ROLLING}}}")


def status_is(world: World, **wanted: int) -> dict[str, Any] | None:
    return world.observed("cloneset", "web", **wanted)


def new_image(world: World, image: str, *, containers: int = 1) -> None:
    path = "/spec/template/spec/containers"
    operations = [{"op": "replace", "path": f"{path}/{n}/image", "value": image} for n in range(containers)]
    world.patch("cloneset", "web", operations)


@pytest.mark.behaviour("CS-100", "CS-142", "CS-156", "CS-68", "CS-116", "CS-144")
def test_three_replicas_are_created(world: World) -> None:
    # [U-10]
    world.apply(CLONE_SET)
    found = eventually(lambda: status_is(world, readyReplicas=3), "three Pods are ready")
    assert world.columns("cloneset", "web")[1:4] == ["3", "3", "3"]
    uid = found["metadata"]["uid"]
    made = world.pods()
    assert [pod["metadata"]["ownerReferences"][0]["uid"] for pod in made] == [uid] * 3
    assert {"availableReplicas", "currentRevision", "labelSelector", "updateRevision", "updatedReplicas"} <= set(
        found["status"]
    )
    told = {f"succeed to create pod {pod['metadata']['name']}" for pod in made}
    eventually(lambda: world.messages("SuccessfulCreate") >= told, "an event per Pod")


@pytest.mark.behaviour("CS-130", "CS-162", "PM-174")
def test_the_image_of_all_pods_changes_in_place(world: World) -> None:
    # [U-14]
    world.apply(CLONE_SET)
    eventually(lambda: status_is(world, readyReplicas=3), "three Pods are ready")
    before = {pod["metadata"]["name"]: pod for pod in world.pods()}
    new_image(world, "nginx:1.26")
    eventually(
        lambda: status_is(world, readyReplicas=3, updatedReadyReplicas=3, updatedAvailableReplicas=3),
        "all are updated",
        120,
    )
    after = {pod["metadata"]["name"]: pod for pod in world.pods()}
    assert after.keys() == before.keys()
    for name, pod in after.items():
        assert pod["metadata"]["uid"] == before[name]["metadata"]["uid"]
        assert pod["status"]["podIP"] == before[name]["status"]["podIP"]
        assert pod["spec"]["containers"][0]["image"] == "nginx:1.26"
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 1
        assert pod["metadata"]["labels"]["lifecycle.apps.kruise.io/state"] == "Normal"
    status = world.get("cloneset", "web")["status"]
    assert status["currentRevision"] == status["updateRevision"]


def test_a_pod_without_managed_fields_can_be_applied(world: World) -> None:
    """Writes of the manager, the scheduler and the kubelet have no managed fields; a user's server-side apply still
    works."""
    world.apply(CLONE_SET.replace("replicas: 3", "replicas: 1"))
    eventually(lambda: status_is(world, readyReplicas=1), "the Pod is ready")
    name = world.pods()[0]["metadata"]["name"]

    def metadata() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            world.kubectl("get", "--raw", f"/api/v1/namespaces/{world.namespace}/pods/{name}").stdout
        )["metadata"]
        return found

    assert "managedFields" not in metadata()
    labeled = f"{{apiVersion: v1, kind: Pod, metadata: {{name: {name}, labels: {{team: blue}}}}}}"
    world.kubectl("apply", "--server-side", "-n", world.namespace, "-f", "-", stdin=labeled)
    found = metadata()
    assert found["labels"]["team"] == "blue"
    assert {"before-first-apply", "kubectl"} <= {entry["manager"] for entry in found["managedFields"]}


@pytest.mark.behaviour("PM-31", "PM-32", "PM-36", "PM-44", "CS-122")
def test_containers_of_higher_priority_change_first(world: World) -> None:
    """Two containers change first, together; the third follows when both are ready again. [U-29]"""
    names = ("late", "first", "too")
    template = {
        "metadata": {
            "labels": {"app": "web"},
            "annotations": {"apps.kruise.io/container-launch-priority": '{"late": 1, "first": 2, "too": 2}'},
        },
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container(name) for name in names]},
    }
    spec = {"replicas": 1, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    spec["updateStrategy"] = {"type": "RollingUpdate", "rollingUpdate": {"podUpdatePolicy": "InPlaceOnly"}}
    manifest = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "metadata": {"name": "web"}, "spec": spec}
    world.apply(json.dumps(manifest))
    eventually(lambda: status_is(world, readyReplicas=1), "the Pod is ready", 120)
    (before,) = world.pods()
    new_image(world, "busybox:1.35", containers=3)
    eventually(lambda: status_is(world, readyReplicas=1, updatedReadyReplicas=1), "the Pod is updated", 120)
    (after,) = world.pods()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    statuses = {status["name"]: status for status in after["status"]["containerStatuses"]}
    assert restarts(after) == dict.fromkeys(names, 1)
    state = json.loads(after["metadata"]["annotations"]["apps.kruise.io/inplace-update-state"])
    assert [batch["containers"] for batch in state["containerBatchesRecord"]] == [["first", "too"], ["late"]]
    times = {name: datetime.fromisoformat(one["state"]["running"]["startedAt"]) for name, one in statuses.items()}
    # Times have a resolution of a second: the difference of two may be one short.
    wait = (times["late"] - max(times["first"], times["too"])).total_seconds()
    assert wait >= BECOMES_READY_AFTER - 1, times


@pytest.mark.behaviour("PM-12")
def test_the_image_of_a_native_sidecar_changes_in_place(world: World) -> None:
    body = yaml.safe_load(CLONE_SET)
    mesh = {"name": "mesh", "image": "nginx:1.25", "restartPolicy": "Always"}
    body["spec"]["replicas"] = 1
    body["spec"]["updateStrategy"]["rollingUpdate"]["podUpdatePolicy"] = "InPlaceOnly"
    body["spec"]["template"]["spec"]["initContainers"] = [mesh]
    world.apply(json.dumps(body))
    eventually(lambda: status_is(world, readyReplicas=1), "the Pod is ready", 60)
    (before,) = world.pods()
    mesh["image"] = "nginx:1.26"
    world.apply(json.dumps(body))
    eventually(lambda: status_is(world, updatedReadyReplicas=1, readyReplicas=1), "the Pod is updated", 120)
    (after,) = world.pods()
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    (sidecar,), (main,) = after["status"]["initContainerStatuses"], after["status"]["containerStatuses"]
    assert (sidecar["restartCount"], main["restartCount"]) == (1, 0)
    assert sidecar["image"].endswith("nginx:1.26")


@pytest.mark.behaviour("PM-38", "PM-49", "PM-13", "PM-190")
@pytest.mark.parametrize(
    ("ordered", "image", "restarted"),
    [
        (False, "nginx:1.26", False),
        (True, "nginx:1.26", False),
        (True, "nginx:1.25", False),
        (True, "nginx:1.26", True),
    ],
    ids=["at once", "in launch order", "resources only", "after a restart"],
)
def test_memory_grows_and_shrinks_in_place_right_after_the_start(
    world: World, ordered: bool, image: str, restarted: bool
) -> None:
    def template(image: str, first: str, second: str) -> dict[str, Any]:
        found = yaml.safe_load(CLONE_SET)["spec"]["template"]
        if ordered:
            found["metadata"]["annotations"] = {"apps.kruise.io/container-launch-priority": "Ordered"}
        sizes = {"main": first, "side": second}
        found["spec"]["containers"] = [
            {"name": name, "image": image, "resources": {"requests": {"memory": size}, "limits": {"memory": size}}}
            for name, size in sizes.items()
        ]
        return found

    body = yaml.safe_load(CLONE_SET)
    body["spec"] |= {"replicas": 1, "template": template("nginx:1.25", "64Mi", "128Mi")}
    world.apply(json.dumps(body))
    eventually(lambda: status_is(world, readyReplicas=1), "the Pod is ready", 60)
    (before,) = world.pods()
    if restarted:
        # The kubelet finds no statistics of the replaced containers.
        body["spec"]["template"] = template(image, "64Mi", "128Mi")
        world.apply(json.dumps(body))
        eventually(lambda: status_is(world, updatedReadyReplicas=1, readyReplicas=1), "the image is updated", 180)
    body["spec"]["template"] = template(image, "128Mi", "64Mi")
    world.apply(json.dumps(body))
    eventually(lambda: status_is(world, updatedReadyReplicas=1, readyReplicas=1), "the Pod is updated", 180)

    def sizes() -> dict[str, str]:
        (after,) = world.pods()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        statuses = after["status"]["containerStatuses"]
        return {one["name"]: one["resources"]["limits"]["memory"] for one in statuses}

    # A kubelet occasionally refuses dozens of times to lower the memory of a replaced container.
    eventually(lambda: sizes() == {"main": "128Mi", "side": "64Mi"}, "the containers have their new sizes", 420)


@pytest.mark.behaviour("CS-118", "CS-119", "CS-105", "CS-117", "CS-115", "CS-106")
def test_pods_and_claims_are_paired_by_name(world: World) -> None:
    """Without a provisioner no Pod runs, but names and claims still match. [U-22]"""
    manifest = CLONE_SET.replace(
        "  updateStrategy:",
        "  scaleStrategy: {enablePVCReuse: true}\n"
        "  volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce],"
        " resources: {requests: {storage: 1Mi}}}}]\n  updateStrategy:",
    )
    world.apply(manifest)
    eventually(lambda: len(world.pods()) == 3, "three Pods")
    ids = {pod["metadata"]["labels"]["apps.kruise.io/cloneset-instance-id"] for pod in world.pods()}
    claims = {claim["metadata"]["name"] for claim in world.list("pvc")}
    assert claims == {f"data-web-{id_}" for id_ in ids}
    assert {pod["metadata"]["name"] for pod in world.pods()} == {f"web-{id_}" for id_ in ids}
    gone = sorted(ids)[0]
    uid = world.get("pod", f"web-{gone}")["metadata"]["uid"]
    world.kubectl("delete", "pod", f"web-{gone}", "-n", world.namespace, "--wait=false")
    eventually(
        lambda: any(pod["metadata"]["name"] == f"web-{gone}" and pod["metadata"]["uid"] != uid for pod in world.pods()),
        "the replacement has its name",
    )
    assert {claim["metadata"]["name"] for claim in world.list("pvc")} == claims
    world.patch("cloneset", "web", {"spec": {"replicas": 1}})
    eventually(lambda: len(world.pods()) == 1, "one is left")

    def left() -> bool:
        found = [claim for claim in world.list("pvc") if "deletionTimestamp" not in claim["metadata"]]
        return len(found) == 1

    eventually(left, "the claims of deleted Pods are deleted")
