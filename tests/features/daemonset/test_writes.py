"""DaemonSets on a small cluster: limits, budgets, failures, and images pulled in advance."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from app.api.crd import manifest
from app.features.daemonset import writes
from app.features.daemonset.feature import FEATURE
from app.features.imagepull.kind import IMAGE_PULL_JOB
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, NODES, PODS
from app.pods.disruption_budget import Disruption, Verdict
from app.sandbox.kubelet.program import Pace
from app.workloads.image_pulls import IMAGE_PULL_JOBS
from tests.features.daemonset.world import (
    DAEMONSETS,
    GATES,
    NAMESPACE,
    Json,
    SmallCluster,
    in_cluster,
    rolling,
    small_cluster,
    template,
)
from tests.kube.fakes import virtual


class Stingy:
    """A budget that allows the disruption of ``left`` Pods."""

    def __init__(self) -> None:
        self.left = 1
        self.asked: set[str] = set()
        self.granted: set[str] = set()

    async def ask(self, pod: Pod, disruption: Disruption) -> Verdict:
        self.asked.add(pod.metadata.name)
        if pod.metadata.uid not in self.granted:
            if self.left <= 0:
                return Verdict(False)
            self.left -= 1
            self.granted.add(pod.metadata.uid)
        return Verdict(True)


@virtual
@pytest.mark.behaviour("DS-85")
@pytest.mark.parametrize("kind", ["Standard", "InPlaceIfPossible"])
async def test_budgets_are_checked_before_a_pod_is_changed(kind: str) -> None:
    budget = Stingy()
    async with small_cluster(budget=budget) as cluster:
        await cluster.deploy(updateStrategy=rolling(kind, maxUnavailable="100%"))
        await cluster.image("nginx:2")
        await cluster.settled(updatedNumberScheduled=1, numberAvailable=3)
        await cluster.clock.sleep(20)
        assert (await cluster.status())["updatedNumberScheduled"] == 1
        assert len(budget.asked) >= 2
        budget.left = 1000
        await cluster.all_updated()


@in_cluster(nodes=6)
@pytest.mark.behaviour("DS-50", "DS-33")
async def test_in_place_updates_complete_despite_a_burst_limit(cluster: SmallCluster) -> None:
    await cluster.deploy(
        updateStrategy=rolling("InPlaceIfPossible", maxUnavailable="100%"), burstReplicas=2, minReadySeconds=1
    )
    before = await cluster.uids()
    await cluster.image("nginx:2")
    await cluster.all_updated()
    assert await cluster.uids() == before


def state_of(pod: Json) -> Json:
    """Return the record of its in-place update."""
    annotations = pod["metadata"].get("annotations", {})
    state: Json = json.loads(annotations.get("apps.kruise.io/inplace-update-state", "{}"))
    return state


@virtual
@pytest.mark.behaviour("PM-190", "DS-48")
async def test_a_resize_that_the_kubelet_refuses_is_retried_until_it_succeeds() -> None:
    """The resize is retried even if a preDelete hook holds the Pod."""

    def sized(memory: str) -> Json:
        resources = {"limits": {"memory": memory}, "requests": {"memory": memory}}
        return template(containers=[{"name": "main", "image": "nginx:1", "resources": resources}])

    async with small_cluster(replace(GATES, vertical_scaling=True), nodes=1) as cluster:
        strategy, hook = rolling("InPlaceIfPossible"), {"preDelete": {"labelsHandler": {"app": "ds"}}}
        await cluster.deploy(template=sized("2Gi"), updateStrategy=strategy, lifecycle=hook)
        (before,) = await cluster.pods()
        cluster.kubelets.stop("node1")
        await cluster.patch({"spec": {"template": sized("1Gi")}})

        def resized(pods: list[dict[str, Any]]) -> bool:
            return [pod["spec"]["containers"][0]["resources"]["limits"]["memory"] for pod in pods] == ["1Gi"]

        await cluster.until_pods(resized, "it has its new size")
        refused = {
            "type": "PodResizeInProgress",
            "status": "True",
            "reason": "Error",
            "message": 'cannot decrease memory limits: missing container "main" memory usage',
            "lastTransitionTime": rfc3339(cluster.clock.now()),
        }
        name = before["metadata"]["name"]
        await cluster.user.patch(PODS, name, {"status": {"conditions": [refused]}}, NAMESPACE, subresource="status")
        retried: set[str] = set()

        def retried_often(pods: list[Json]) -> bool:
            retried.add(state_of(*pods).get("resizeRetried", ""))
            return len(retried) > 3

        await cluster.until_pods(retried_often, "the resize is retried")
        cluster.kubelets.start("node1")
        await cluster.all_updated()
        (after,) = await cluster.pods()
        assert after["metadata"]["uid"] == before["metadata"]["uid"]
        assert [one["restartCount"] for one in after["status"]["containerStatuses"]] == [0]


@in_cluster
@pytest.mark.behaviour("DS-21", "DS-76")
async def test_a_deleted_daemonset_does_nothing(cluster: SmallCluster) -> None:
    await cluster.deploy()
    finalizers = {"metadata": {"finalizers": ["example.com/hold"]}}
    await cluster.patch(finalizers)
    await cluster.user.delete(DAEMONSETS, "ds", NAMESPACE)
    await cluster.user.delete(PODS, min(await cluster.uids()), NAMESPACE)
    await cluster.clock.sleep(20)
    assert len(await cluster.pods()) == 2


@in_cluster(nodes=8)
@pytest.mark.behaviour("DS-32", "DS-69")
@pytest.mark.parametrize("surge", [False, True])
async def test_creations_stop_at_the_first_refusal_and_are_retried(cluster: SmallCluster, surge: bool) -> None:
    if surge:
        await cluster.deploy(updateStrategy=rolling(maxSurge="100%", maxUnavailable=0))
    refused = cluster.sent.refuses("POST", "/pods", "exceeded quota", times=3)
    await (cluster.image("nginx:2") if surge else cluster.apply())
    await cluster.all_updated()
    events = await cluster.events("FailedCreate")
    assert all(text.startswith("Error creating: ") and "exceeded quota" in text for text in events)
    assert len(refused) == 3  # one creation per attempt


@in_cluster
@pytest.mark.behaviour("DS-22")
async def test_no_pod_is_updated_while_a_missing_one_cannot_be_created(cluster: SmallCluster) -> None:
    await cluster.deploy(updateStrategy=rolling(maxUnavailable=2))
    refused = cluster.sent.refuses("POST", "/pods", "exceeded quota")
    await cluster.user.delete(PODS, min(await cluster.uids()), NAMESPACE)

    await cluster.until(lambda: refused, "a creation is refused")
    await cluster.image("nginx:2")
    await cluster.clock.sleep(60)
    assert len(await cluster.pods()) == 2
    cluster.sent.intercept = lambda _: None
    await cluster.all_updated()


@in_cluster
@pytest.mark.behaviour("DS-45", "PM-45")
async def test_no_more_pods_are_updated_while_one_cannot_be_put_back_into_service(cluster: SmallCluster) -> None:
    """Otherwise a rollout takes more Pods out of service while writes fail."""
    await cluster.deploy(updateStrategy=rolling("InPlaceIfPossible", maxUnavailable=1))
    await cluster.image("nginx:2")

    async def updated() -> list[str]:
        return [one["metadata"]["name"] for one in await cluster.pods() if "nginx:2" in str(one["spec"])]

    (name,) = await cluster.until(updated, "one Pod is updated")
    refused = cluster.sent.refuses("PATCH", f"/pods/{name}/status")
    await cluster.patch({"spec": {"updateStrategy": rolling("InPlaceIfPossible", maxUnavailable=3)}})
    await cluster.clock.sleep(60)
    assert await updated() == [name]
    assert len(refused) > 1
    cluster.sent.intercept = lambda _: None
    await cluster.all_updated()


async def ended(cluster: SmallCluster, phase: str) -> str:
    """Set the phase of the only Pod, wait until it is replaced, and return its name."""
    (name,) = await cluster.uids()
    await cluster.user.patch(PODS, name, {"status": {"phase": phase}}, NAMESPACE, subresource="status")
    await cluster.until_pods(
        lambda pods: [pod["metadata"]["name"] for pod in pods] not in ([], [name]), "its successor"
    )
    return name


@in_cluster(nodes=1)
@pytest.mark.behaviour("DS-29", "DS-25")
async def test_failed_pods_are_replaced_with_backoff(cluster: SmallCluster) -> None:
    await cluster.deploy()
    gaps = []
    cluster.sent.refuses("DELETE", "/pods/", times=3)
    for _ in range(4):
        began = cluster.clock.monotonic()
        await ended(cluster, "Failed")
        gaps.append(cluster.clock.monotonic() - began)
    assert gaps[-1] >= 4 > 2 > gaps[0]  # a refused deletion does not count
    events = await cluster.events("FailedDaemonPod")
    pattern = r"Found failed daemon pod default/ds-\w{5} on node node1, will try to kill it"
    assert events
    assert all(re.fullmatch(pattern, text) for text in events)


@in_cluster(nodes=2)
@pytest.mark.behaviour("DS-69", "DS-28")
async def test_a_refused_deletion_is_reported_and_retried(cluster: SmallCluster) -> None:
    await cluster.deploy()
    refused = cluster.sent.refuses("DELETE", "/pods/", "not now", times=2)
    await cluster.node("node1", {"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}})
    await cluster.settled(desiredNumberScheduled=1, numberMisscheduled=0)
    assert set(await cluster.events("FailedDelete")) == {"Error deleting: not now"}
    (gone,) = {path.rpartition("/")[2] for path in refused}
    assert await cluster.events("SuccessfulDelete") == [f"Deleted pod: {gone}"]


@in_cluster(nodes=1)
@pytest.mark.behaviour("DS-25", "DS-82")
async def test_a_succeeded_pod_is_replaced_like_a_native_one(cluster: SmallCluster) -> None:
    await cluster.deploy()
    name = await ended(cluster, "Succeeded")
    text = f"Found succeeded daemon pod default/{name} on node node1, will try to delete it"
    assert await cluster.events("SucceededDaemonPod") == [text]
    assert await cluster.events("FailedDaemonPod") == []


@in_cluster
@pytest.mark.behaviour("DS-68", "DS-67")
async def test_a_ready_pod_becomes_available_without_further_writes(cluster: SmallCluster) -> None:
    await cluster.apply(minReadySeconds=60)
    await cluster.settled(numberReady=3, numberAvailable=0)
    began = cluster.clock.monotonic()
    await cluster.settled(numberReady=3, numberAvailable=3)
    assert 50 < cluster.clock.monotonic() - began < 70
    await cluster.clock.sleep(5)
    before = len(cluster.sent.requests)
    await cluster.clock.sleep(600)
    assert [line for line in cluster.sent.requests[before:] if not line.startswith("GET")] == []


@virtual
@pytest.mark.behaviour("DS-67", "DS-45", "DS-46")
@pytest.mark.parametrize(("strategy", "expected"), [
    (rolling(maxUnavailable="20%"), {"DELETE Pod": 1, "POST pods": 1, "PATCH Pod status": 1}),
    (rolling("InPlaceIfPossible", maxUnavailable="20%"), {"PATCH Pod": 1, "PATCH Pod status": 2}),
    (rolling(maxSurge="20%"), {"DELETE Pod": 1, "POST pods": 1, "PATCH Pod status": 1}),
], ids=["Standard", "in place", "surge"])  # fmt: skip
async def test_an_update_sends_only_the_needed_requests(strategy: Json, expected: dict[str, int]) -> None:
    """No reads, no event per Pod, and no second write where one suffices."""
    nodes = 30
    async with small_cluster(nodes=nodes) as cluster:
        await cluster.deploy(updateStrategy=strategy)
        # More than 25 events of an object in a row are dropped, so those of the update are not sent.
        await cluster.clock.sleep(5)
        before = len(cluster.sent.requests)
        await cluster.image("nginx:2")
        await cluster.all_updated()
        await cluster.clock.sleep(5)
        of_pods = Counter(
            re.sub(r"/api/v1/namespaces/default/", "", re.sub(r"pods/[^/]+", "Pod", line)).replace("/", " ")
            for line in cluster.sent.requests[before:]
            if "/pods" in line
        )
        assert of_pods == {what: count * nodes for what, count in expected.items()}
        others = [line for line in cluster.sent.requests[before:] if "/pods" not in line]
        assert not [line for line in others if line.startswith("GET")]
        # One revision, and the changes of the status.
        assert len(others) < nodes, others


@pytest.mark.behaviour("DS-72")
def test_the_controller_uses_the_flags_of_openkruise() -> None:
    (part,) = FEATURE.controllers
    assert (part.workers, part.workers_flag) == (3, "daemonset-workers")
    assert "assign-pods-by-scheduler" in FEATURE.flags


@in_cluster(replace(GATES, by_scheduler=False))
@pytest.mark.behaviour("DS-72", "DS-35")
async def test_without_the_scheduler_pods_are_bound_to_their_node(cluster: SmallCluster) -> None:
    await cluster.deploy()
    for pod in await cluster.pods():
        assert pod["spec"]["schedulerName"] == "kubernetes.io/daemonset-controller"
        assert "affinity" not in pod["spec"]


@in_cluster
@pytest.mark.behaviour("DS-39", "DS-28")
async def test_a_pod_waiting_for_a_removed_node_is_deleted(cluster: SmallCluster) -> None:
    await cluster.apply(template=template(schedulerName="none"))
    await cluster.settled(currentNumberScheduled=3, numberReady=0)
    await cluster.user.delete(NODES, "node2", "")
    await cluster.until_pods(lambda pods: len(pods) == 2, "it is deleted")


async def _updating(cluster: SmallCluster, annotations: Json | None = None, **strategy: Any) -> None:
    """Serve ImagePullJobs, and change the image of a DaemonSet."""
    await cluster.user.create(CUSTOMRESOURCEDEFINITIONS, manifest(IMAGE_PULL_JOB))
    await cluster.deploy(annotations=annotations, updateStrategy=rolling(**strategy))
    assert await _jobs(cluster) == []
    await cluster.image("nginx:2")


async def _jobs(cluster: SmallCluster) -> list[Json]:
    return (await cluster.user.list(IMAGE_PULL_JOBS, NAMESPACE)).items


@in_cluster(nodes=1, pace=Pace(restart=2.0))
@pytest.mark.behaviour("PM-45")
async def test_an_update_in_progress_completes_although_planning_fails(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ValueError("planning fails")

    await cluster.deploy(updateStrategy=rolling("InPlaceIfPossible"))
    await cluster.image("nginx:2")
    await cluster.until_pods(lambda pods: state_of(*pods).get("state") == "Updating", "its update begins")
    monkeypatch.setattr(writes, "plan_update", fail)
    await cluster.until_pods(lambda pods: state_of(*pods).get("state") == "Updated", "its update completes")


PULLS = replace(GATES, pre_download_images=True)


@in_cluster(PULLS)
@pytest.mark.behaviour("DS-62", "DS-64", "DS-65")
async def test_images_are_predownloaded_during_an_update(cluster: SmallCluster) -> None:
    annotations = {
        "apps.kruise.io/image-predownload-parallelism": "5",
        "apps.kruise.io/image-predownload-timeout-seconds": "77",
    }
    await _updating(cluster, annotations, maxUnavailable=1, partition=2)
    status = await cluster.settled(updatedNumberScheduled=1, numberAvailable=3)
    (job,) = await _jobs(cluster)
    revision = f"ds-{status['updateRevision']}"
    assert job["metadata"]["name"] == f"{revision}-main"
    spec = job["spec"]
    assert (spec["image"], spec["parallelism"], spec["pullPolicy"]["timeoutSeconds"]) == ("nginx:2", 5, 77)
    (expression,) = spec["podSelector"]["matchExpressions"]
    assert set(expression["values"]) == {revision, status["updateRevision"]}
    message = f"created ImagePullJob {revision}-main for image: nginx:2"
    assert await cluster.events("CreatedImagePullJob") == [message]
    await cluster.patch({"spec": {"updateStrategy": rolling(maxUnavailable=1, partition=0)}})
    await cluster.all_updated()
    await cluster.becomes(lambda: _jobs(cluster), [])


@in_cluster(PULLS)
@pytest.mark.behaviour("DS-62")
async def test_the_jobs_of_a_withdrawn_update_are_deleted_although_the_status_cannot_be_written(
    cluster: SmallCluster,
) -> None:
    await _updating(cluster, maxUnavailable=1, partition=3)
    await cluster.until(lambda: _jobs(cluster), "the image is pulled")
    cluster.sent.refuses("PATCH", "/daemonsets/ds/status")
    await cluster.image("nginx:1")
    await cluster.becomes(lambda: _jobs(cluster), [])


@in_cluster(PULLS)
@pytest.mark.behaviour("DS-65")
async def test_predownload_waits_for_the_first_updated_pods_if_annotated(cluster: SmallCluster) -> None:
    annotations = {"apps.kruise.io/image-predownload-min-updated-ready-pods": "50%"}
    await _updating(cluster, annotations, maxUnavailable=1, partition=2)
    await cluster.settled(updatedNumberScheduled=1, numberAvailable=3)
    await cluster.clock.sleep(30)
    assert await _jobs(cluster) == []
    await cluster.patch({"spec": {"updateStrategy": rolling(maxUnavailable=1, partition=1)}})
    await cluster.settled(updatedNumberScheduled=2, numberAvailable=3)
    await cluster.until(lambda: _jobs(cluster), "the image is pulled")


@in_cluster(PULLS)
@pytest.mark.behaviour("PM-165")
async def test_nothing_is_predownloaded_if_all_nodes_update_at_once(cluster: SmallCluster) -> None:
    await _updating(cluster, maxUnavailable="100%")
    await cluster.all_updated()
    assert await cluster.events("CreatedImagePullJob") == []
    for revision in await cluster.revisions():
        assert revision["metadata"]["labels"]["apps.kruise.io/image-predownload-ignored"] == "true"
