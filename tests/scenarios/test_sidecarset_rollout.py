"""Rollouts of SidecarSets for users: U-61, U-63 … U-67."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.scenarios.test_sidecarset import POD, SIDECARSET, deployment
from tests.scenarios.world import World, eventually, is_ready, restarts

OTHER_IMAGE = SIDECARSET.replace("busybox:1.36", "busybox:1.35")
HOT = """
apiVersion: apps.kruise.io/v1beta1
kind: SidecarSet
metadata: {name: $ns, labels: {team: $ns}}
spec:
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: $ns}}
  selector: {matchLabels: {app: nginx}}
  containers:
  - name: mesh
    image: busybox:1.36
    command: [sleep, 999d]
    upgradeStrategy: {upgradeType: HotUpgrade, hotUpgradeEmptyImage: "busybox:latest"}
"""


def with_strategy(manifest: str, strategy: str) -> str:
    return f"{manifest}  updateStrategy: {strategy}\n"


def counts(world: World, *wanted: int) -> bool:
    """Return whether the set's status is current and has these numbers of matched, updated, ready, and updated ready
    Pods."""
    found = world.get("sidecarset", world.namespace)
    status = found.get("status", {})
    assert status.get("observedGeneration") == found["metadata"]["generation"], status
    fields = ("matchedPods", "updatedPods", "readyPods", "updatedReadyPods")
    assert tuple(status.get(field, 0) for field in fields) == wanted, status
    return True


def images(pod: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["image"] for one in pod["spec"]["containers"]}


def annotation(pod: dict[str, Any], key: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(pod["metadata"]["annotations"][key])
    return found


def upgradable(world: World) -> tuple[str, str] | None:
    conditions = world.get("pod", "web")["status"]["conditions"]
    found = [one for one in conditions if one["type"] == "SidecarSetUpgradable"]
    return (found[0]["status"], found[0]["reason"]) if found else None


def started(world: World, *names: str, labels: str = "") -> None:
    for name in names:
        world.apply(POD.replace("name: web,", f"name: {name},").replace("{app: nginx}", f"{{app: nginx{labels}}}"))


@pytest.mark.behaviour("SS-86", "SS-95", "SS-98", "SS-99", "SS-105", "SS-107")
def test_the_sidecar_restarts_in_place_and_the_app_container_does_not(world: World) -> None:  # U-61
    world.apply(SIDECARSET)
    started(world, "web")
    eventually(lambda: counts(world, 1, 1, 1, 1), "the Pod is counted")
    before = world.get("pod", "web")
    ids = {one["name"]: one for one in before["status"]["containerStatuses"]}
    world.apply(OTHER_IMAGE)
    eventually(lambda: counts(world, 1, 1, 1, 1), "the Pod is updated and ready", 120)
    after = world.get("pod", "web")
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert images(after) == {"sidecar1": "busybox:1.35", "nginx": "nginx:1.25"}
    now = {one["name"]: one for one in after["status"]["containerStatuses"]}
    assert now["nginx"]["containerID"] == ids["nginx"]["containerID"]
    assert restarts(after) == {"sidecar1": 1, "nginx": 0}
    state = annotation(after, "kruise.io/sidecarset-inplace-update-state")[world.namespace]
    found = world.get("sidecarset", world.namespace)
    assert state["revision"] == found["metadata"]["annotations"]["kruise.io/sidecarset-hash"]
    assert state["updateTimestamp"]
    assert state["lastContainerStatuses"] == {"sidecar1": {"imageID": ids["sidecar1"]["imageID"]}}
    eventually(lambda: upgradable(world) == ("True", "AllSidecarsetUpgradable"), "the Pod is upgradable")
    record = annotation(after, "kruise.io/sidecarset-hash")[world.namespace]
    assert record["controllerRevision"] == found["status"]["latestRevision"]

    wanted = f"SidecarSet {world.namespace}: sidecar1 busybox:1.36 → busybox:1.35"
    assert eventually(lambda: world.messages("SidecarsUpdated"), "the Pod's event") == {wanted}
    assert len(world.list("events", "--field-selector=reason=SidecarsUpdated")) == 1


@pytest.mark.behaviour("SS-95", "SS-103")
@pytest.mark.parametrize(("partition", "unavailable", "updated"), [(50, 10, 50), (80, 30, 20)])
def test_partition_and_max_unavailable_are_respected(
    world: World, partition: int, unavailable: int, updated: int
) -> None:  # U-63
    share = 10 if world.real_containers else 1
    pods = 100 // share
    strategy = f"{{partition: {partition // share}, maxUnavailable: {unavailable // share}}}"
    world.apply(with_strategy(SIDECARSET, strategy))
    world.apply(deployment(pods))
    eventually(lambda: counts(world, pods, pods, pods, pods), "all Pods are ready", 240)
    world.apply(with_strategy(OTHER_IMAGE, strategy))

    def done() -> bool:
        late = sum(not is_ready(pod) for pod in world.list("pod"))
        assert late <= unavailable // share, f"{late} Pods are not ready"
        return counts(world, pods, updated // share, pods, updated // share)

    eventually(done, "all Pods outside the partition are updated", 240)
    found = [images(pod)["sidecar1"] for pod in world.list("pod")]
    assert found.count("busybox:1.35") == updated // share
    assert all(restarts(pod)["nginx"] == 0 for pod in world.list("pod"))


@pytest.mark.behaviour("SS-92", "SS-87")
def test_only_the_selected_pod_is_updated(world: World) -> None:  # U-65
    strategy = '{selector: {matchLabels: {canary.release: "true"}}}'
    world.apply(with_strategy(SIDECARSET, strategy))
    started(world, "a", "b", "c")
    started(world, "d", labels=', canary.release: "true"')
    eventually(lambda: counts(world, 4, 4, 4, 4), "all Pods are ready", 120)
    world.apply(with_strategy(OTHER_IMAGE, strategy))
    eventually(lambda: counts(world, 4, 1, 4, 1), "one Pod is updated", 120)
    assert images(world.get("pod", "d"))["sidecar1"] == "busybox:1.35"
    # Another Pod joins by its label.
    world.kubectl("label", "pod", "a", "-n", world.namespace, "canary.release=true")
    eventually(lambda: counts(world, 4, 2, 4, 2), "a second Pod is updated", 120)
    assert images(world.get("pod", "a"))["sidecar1"] == "busybox:1.35"


@pytest.mark.behaviour("SS-78", "SS-79", "SS-80", "SS-81", "SS-82", "SS-84")
def test_a_hot_upgrade_switches_containers(world: World) -> None:  # U-66
    world.apply(HOT)
    started(world, "web")
    eventually(lambda: counts(world, 1, 1, 1, 1), "the Pod is ready", 120)
    pod = world.get("pod", "web")
    assert images(pod) == {"mesh-1": "busybox:1.36", "mesh-2": "busybox:latest", "nginx": "nginx:1.25"}
    env = {one["name"]: one for one in pod["spec"]["containers"][1]["env"]}
    for name, key in (("SIDECARSET_VERSION", "version"), ("SIDECARSET_VERSION_ALT", "versionalt")):
        path = f"metadata.annotations['{key}.sidecarset.kruise.io/mesh-2']"
        assert env[name]["valueFrom"]["fieldRef"]["fieldPath"] == path
    working = "kruise.io/sidecarset-working-hotupgrade-container"
    for image, first, second, twin in (
        ("busybox:1.35", "busybox:latest", "busybox:1.35", "mesh-2"),
        ("busybox:1.36", "busybox:1.36", "busybox:latest", "mesh-1"),
    ):
        world.apply(HOT.replace("image: busybox:1.36", f"image: {image}"))
        eventually(lambda: counts(world, 1, 1, 1, 1), "the other twin works and the first idles", 120)
        pod = world.get("pod", "web")
        assert (images(pod)["mesh-1"], images(pod)["mesh-2"]) == (first, second)
        assert annotation(pod, working) == {"mesh": twin}
        version = pod["metadata"]["annotations"][f"version.sidecarset.kruise.io/{twin}"]
        assert int(version) > 1
        assert pod["metadata"]["annotations"][f"versionalt.sidecarset.kruise.io/{twin}"] == "0"
        if world.real_containers:
            seen = world.kubectl("exec", "web", "-n", world.namespace, "-c", twin, "--", "env").stdout
            assert f"SIDECARSET_VERSION={version}" in seen.splitlines()
    assert restarts(pod)["nginx"] == 0
    assert world.messages("ResetContainerSucceed") == {"reset sidecar container image empty successfully"}


@pytest.mark.behaviour("SS-71", "SS-72")
def test_a_pod_given_an_older_revision_is_rolled_forward(world: World) -> None:  # U-67
    world.apply(with_strategy(SIDECARSET, "{paused: true}"))
    eventually(lambda: counts(world, 0, 0, 0, 0), "the set is observed")
    first = world.get("sidecarset", world.namespace)["status"]["latestRevision"]
    chosen = f"  injectionStrategy: {{revision: {{revisionName: {first}}}}}\n"
    world.apply(with_strategy(OTHER_IMAGE, "{paused: true}") + chosen)
    eventually(lambda: counts(world, 0, 0, 0, 0), "the change is observed")
    started(world, "web")
    eventually(lambda: counts(world, 1, 0, 1, 0), "the Pod is counted as outdated")
    assert images(world.get("pod", "web"))["sidecar1"] == "busybox:1.36"
    world.apply(with_strategy(OTHER_IMAGE, "{paused: false}") + chosen)
    eventually(lambda: counts(world, 1, 1, 1, 1), "the Pod is updated", 120)
    assert images(world.get("pod", "web"))["sidecar1"] == "busybox:1.35"
    spec = world.get("sidecarset", world.namespace)["spec"]
    assert spec["injectionStrategy"]["revision"]["revisionName"] == first
