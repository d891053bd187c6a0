"""A user scales, updates and deletes an Advanced StatefulSet."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.scenarios.conftest import LEVELS
from tests.scenarios.world import World, eventually, workload

SET = workload("StatefulSet", "replicas: 3", "serviceName: web")
PARALLEL = SET.replace("serviceName: web", "serviceName: web\n  podManagementPolicy: Parallel")
IN_PLACE = PARALLEL.replace(
    "    spec:\n", "    spec:\n      readinessGates: [{conditionType: InPlaceUpdateReady}]\n"
).replace(
    "  template:",
    "  updateStrategy: {rollingUpdate: {podUpdatePolicy: InPlaceIfPossible, maxUnavailable: 2}}\n  template:",
)
KIND = "statefulsets.apps.kruise.io"
#: Levels for tests that do not depend on containers.
WITHOUT_CONTAINERS = pytest.mark.parametrize("world", LEVELS[:2], indirect=True)


def status_is(world: World, **wanted: int) -> dict[str, Any] | None:
    return world.observed(KIND, "web", **wanted)


def new_image(world: World, image: str = "nginx:1.26", **spec: Any) -> None:
    operations: list[dict[str, Any]] = [
        {"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": image},
        *({"op": "add", "path": f"/spec/updateStrategy/rollingUpdate/{key}", "value": spec[key]} for key in spec),
    ]
    world.patch(KIND, "web", operations)


def pods(world: World) -> dict[str, dict[str, Any]]:
    return {pod["metadata"]["name"]: pod for pod in world.pods("-l", "app=web")}


def images(world: World) -> dict[str, str]:
    return {name: pod["spec"]["containers"][0]["image"] for name, pod in pods(world).items()}


def ready(world: World, *names: str) -> None:
    def look() -> bool:
        found = status_is(world, replicas=len(names), readyReplicas=len(names))
        return found is not None and set(pods(world)) == set(names)

    eventually(look, f"{', '.join(names)} are ready", 90)


@pytest.mark.behaviour("AS-40", "AS-55", "AS-116", "AS-117", "AS-123")
def test_a_native_manifest_works_with_our_api_version(world: World) -> None:
    # [U-30]
    world.apply(SET)
    ready(world, "web-0", "web-1", "web-2")
    assert world.columns(KIND, "web")[1:5] == ["3", "3", "3", "3"]
    found = world.get(KIND, "web")
    assert found["spec"]["podManagementPolicy"] == "OrderedReady"
    status = found["status"]
    assert (status["labelSelector"], status["currentRevision"]) == ("app=web", status["updateRevision"])
    made = pods(world)
    born = [made[f"web-{n}"]["metadata"]["creationTimestamp"] for n in range(3)]
    assert born == sorted(born)
    one = made["web-1"]
    labels = one["metadata"]["labels"]
    assert (labels["statefulset.kubernetes.io/pod-name"], labels["apps.kubernetes.io/pod-index"]) == ("web-1", "1")
    assert labels["controller-revision-hash"] == status["updateRevision"]
    assert (one["spec"]["hostname"], one["spec"]["subdomain"]) == ("web-1", "web")

    told = {f"create Pod web-{n} in StatefulSet web successful" for n in range(3)}
    eventually(lambda: world.messages("SuccessfulCreate") >= told, "an event per Pod")


@pytest.mark.behaviour("AS-57", "AS-140")
@WITHOUT_CONTAINERS
def test_a_broken_template_is_repaired_on_request(world: World) -> None:
    broken = SET.replace("    spec:\n", "    spec:\n      readinessGates: [{conditionType: example.com/never}]\n")
    world.apply(broken.replace("replicas: 3", "replicas: 2"))
    eventually(lambda: status_is(world, replicas=1, readyReplicas=0, updatedReplicas=1), "web-0 exists, not ready")
    world.apply(SET.replace("replicas: 3", "replicas: 2"))
    eventually(lambda: status_is(world, replicas=1, readyReplicas=0, updatedReplicas=0), "everything waits for it")
    assert "repair-ordered-ready" in world.pykruise("explain", "pod", "web-0").stdout
    world.kubectl("annotate", KIND, "web", "-n", world.namespace, "pykruise.io/repair-ordered-ready=true")
    ready(world, "web-0", "web-1")


@pytest.mark.behaviour("AS-79", "AS-81", "AS-88")
def test_a_rollout_respects_the_partition_and_continues_without_it(world: World) -> None:
    # [U-31, U-32]
    world.apply(PARALLEL.replace("replicas: 3", "replicas: 5"))
    ready(world, *(f"web-{n}" for n in range(5)))
    new_image(world, partition=4, maxUnavailable=3)
    eventually(lambda: status_is(world, updatedReadyReplicas=1, readyReplicas=5), "web-4 is updated", 90)
    assert [name for name, image in sorted(images(world).items()) if image == "nginx:1.26"] == ["web-4"]
    world.patch(KIND, "web", {"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    found = eventually(lambda: status_is(world, updatedReadyReplicas=5, availableReplicas=5), "all are updated", 120)
    assert found["status"]["currentRevision"] == found["status"]["updateRevision"]


@pytest.mark.behaviour("AS-109", "AS-123", "PM-76")
def test_statefulset_pods_are_updated_in_place(world: World) -> None:
    # [U-33]
    world.apply(IN_PLACE)
    ready(world, "web-0", "web-1", "web-2")
    before = pods(world)
    new_image(world)
    eventually(lambda: status_is(world, updatedReadyReplicas=3, updatedAvailableReplicas=3), "all are updated", 120)
    for name, pod in pods(world).items():
        assert pod["metadata"]["uid"] == before[name]["metadata"]["uid"]
        assert pod["status"]["podIP"] == before[name]["status"]["podIP"]
        assert pod["spec"]["containers"][0]["image"] == "nginx:1.26"
        assert "pod-template-hash" not in pod["metadata"]["labels"]
    revision = world.get(KIND, "web")["status"]["updateRevision"]
    text = f"successfully update pod web-2 in-place(revision {revision})"
    eventually(lambda: text in world.messages("SuccessfulUpdatePodInPlace"), "the event of web-2")


@pytest.mark.behaviour("AS-60", "AS-89")
@WITHOUT_CONTAINERS
def test_a_marked_pod_is_replaced_and_scaling_in_keeps_the_first(world: World) -> None:
    world.apply(SET)
    ready(world, "web-0", "web-1", "web-2")
    old = pods(world)["web-1"]["metadata"]["uid"]
    world.kubectl("label", "pod", "web-1", "-n", world.namespace, "apps.kruise.io/specified-delete=true")

    def replaced() -> bool:
        found = pods(world).get("web-1")
        return found is not None and found["metadata"]["uid"] != old

    eventually(replaced, "web-1 is another")
    ready(world, "web-0", "web-1", "web-2")
    world.kubectl("scale", KIND, "web", "-n", world.namespace, "--replicas=1")
    ready(world, "web-0")
    world.kubectl("delete", KIND, "web", "-n", world.namespace, "--wait=false")
    eventually(lambda: not pods(world), "all are gone", 60)


CLAIMS = """  persistentVolumeClaimRetentionPolicy: {whenScaled: Delete, whenDeleted: Retain}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Mi}}}
  template:
"""
WRITES = """      - name: main
        image: "nginx:1.25"
        command: [sh, -c, "echo started >> /data/starts; trap exit TERM; while true; do sleep 0.1; done"]
        volumeMounts: [{name: data, mountPath: /data}]
"""


@pytest.fixture
def folders(world: World, tmp_path: Path) -> Iterator[list[Path]]:
    """Create a folder for each of three claims on the machine of all nodes; the sandbox creates volumes by itself."""
    made = [tmp_path / f"web-{n}" for n in range(3)]
    volumes = [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": f"$ns-{n}"},
            "spec": {
                "capacity": {"storage": "1Mi"},
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "claimRef": {"namespace": "$ns", "name": f"data-web-{n}"},
                "hostPath": {"path": str(folder), "type": "DirectoryOrCreate"},
            },
        }
        for n, folder in enumerate(made)
    ]
    world.apply("\n---\n".join(map(json.dumps, volumes)))
    yield made
    names = [f"{world.namespace}-{n}" for n in range(3)]
    world.kubectl("delete", "persistentvolumes", *names, "--wait=false", check=False)


@pytest.mark.behaviour("AS-65", "AS-66", "AS-68", "AS-72")
def test_pods_are_recreated_with_their_claims(world: World, folders: list[Path]) -> None:
    text = PARALLEL.replace("  template:\n", CLAIMS)
    world.apply(text[: text.index("      containers:")] + "      containers:\n" + WRITES)
    ready(world, "web-0", "web-1", "web-2")

    def claims() -> dict[str, str]:
        found = world.list("pvc")
        return {
            one["metadata"]["name"]: one["metadata"]["uid"]
            for one in found
            if "deletionTimestamp" not in one["metadata"]
        }

    before, old = claims(), pods(world)["web-1"]["metadata"]["uid"]
    assert set(before) == {f"data-web-{n}" for n in range(3)}
    world.kubectl("delete", "pod", "web-1", "-n", world.namespace, "--wait=false")
    eventually(lambda: pods(world).get("web-1", {}).get("metadata", {}).get("uid", old) != old, "web-1 is another")
    ready(world, "web-0", "web-1", "web-2")
    assert claims() == before
    if world.real_containers:
        assert [(folder / "starts").read_text().count("started") for folder in folders] == [1, 2, 1]
    # Scaling in deletes a claim with its Pod; deleting the set deletes none.
    world.kubectl("scale", KIND, "web", "-n", world.namespace, "--replicas=2")
    kept = {name: uid for name, uid in before.items() if name != "data-web-2"}
    eventually(lambda: claims() == kept, "the claim of web-2 is deleted")
    world.kubectl("delete", KIND, "web", "-n", world.namespace, "--wait=false")
    eventually(lambda: not pods(world), "all Pods are gone", 60)
    assert claims() == kept
