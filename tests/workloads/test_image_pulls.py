"""ImagePullJobs of in-place updates: when they are created and deleted."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.cloneset.plan.settings import Gates
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS
from app.workloads.image_pulls import IMAGE_PULL_JOBS
from tests.features.cloneset.world import NAMESPACE, SmallCluster, in_cluster, rolling, template
from tests.kit.objects import defined
from tests.kube.fakes import json_response, status_body

GATES = Gates(pre_download=True)
CREATED, IGNORED = "apps.kruise.io/pre-predownload-created", "apps.kruise.io/image-predownload-ignored"


def changed(*containers: str) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": one, "image": "nginx:2"} for one in containers]}}}}


CHANGE = changed("main")


async def ready(
    cluster: SmallCluster, replicas: int = 4, *, served: bool = True, containers: Any = None, **strategy: Any
) -> None:
    """Serve ImagePullJobs, and create a CloneSet whose Pods are ready."""
    if served:
        await cluster.user.create(CUSTOMRESOURCEDEFINITIONS, defined(IMAGE_PULL_JOBS))
    pods = template(**({"containers": containers} if containers else {}))
    await cluster.deploy(replicas=replicas, template=pods, updateStrategy=rolling(**strategy))


async def jobs(cluster: SmallCluster) -> list[dict[str, Any]]:
    return (await cluster.user.list(IMAGE_PULL_JOBS, NAMESPACE)).items


async def labels_of_update_revision(cluster: SmallCluster) -> dict[str, str]:
    name = (await cluster.status())["updateRevision"]
    found = next(one for one in await cluster.revisions() if one["metadata"]["name"] == name)
    labels: dict[str, str] = found["metadata"]["labels"]
    return labels


def asked(cluster: SmallCluster) -> list[str]:
    return [line for line in cluster.sent.requests if "imagepulljobs" in line]


@in_cluster(GATES)
@pytest.mark.behaviour("PM-168", "CS-139", "PM-162", "PM-167", "PM-160", "CS-166")
async def test_jobs_exist_before_the_first_pod_changes_and_end_with_the_rollout(cluster: SmallCluster) -> None:
    await ready(cluster, partition=2, inPlaceUpdateStrategy={"imagePreDownloadParallelism": 4})
    assert asked(cluster) == []
    await cluster.patch(CHANGE)
    status = await cluster.settled(updatedReadyReplicas=2)
    (job,) = await jobs(cluster)
    assert job["metadata"]["name"] == f"{status['updateRevision']}-main"
    assert (job["spec"]["image"], job["spec"]["parallelism"]) == ("nginx:2", 4)
    assert (await labels_of_update_revision(cluster))[CREATED] == "true"
    expected = [f"created ImagePullJob {job['metadata']['name']} for image: nginx:2"]
    assert await cluster.events("CreatedImagePullJob") == expected
    theirs = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "ImagePullJob", "metadata": {"name": "theirs"}}
    await cluster.user.create(IMAGE_PULL_JOBS, {**theirs, "spec": job["spec"]}, NAMESPACE)
    order = [line for line in cluster.sent.requests if "imagepulljobs" in line or line.startswith("PATCH /api/v1")]
    changes = [line for line in order if not line.endswith("/status")]
    assert "imagepulljobs" in changes[0]
    await cluster.patch({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    await cluster.settled(updatedReadyReplicas=4)

    async def only_theirs() -> bool:
        return [one["metadata"]["name"] for one in await jobs(cluster)] == ["theirs"]

    await cluster.until(only_theirs, "the CloneSet's job is deleted")
    assert len(asked(cluster)) == 3  # one creation, one list, one deletion


@in_cluster(GATES)
@pytest.mark.behaviour("CS-139", "PM-161")
async def test_jobs_wait_for_the_first_updated_pods_to_be_ready(cluster: SmallCluster) -> None:
    await ready(cluster, partition=4, inPlaceUpdateStrategy={"imagePreDownloadMinUpdatedReadyPods": 1})
    await cluster.patch(CHANGE)
    await cluster.clock.sleep(30)
    assert asked(cluster) == []
    await cluster.patch({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 3}}}})
    await cluster.settled(updatedReadyReplicas=1)
    await cluster.until(lambda: jobs(cluster), "a job")


@in_cluster(GATES)
@pytest.mark.behaviour("CS-10", "CS-139", "PM-161")
@pytest.mark.parametrize(("text", "waits"), [("50%", True), ("nonsense", False)])
async def test_an_annotation_percentage_is_waited_for(cluster: SmallCluster, text: str, waits: bool) -> None:
    """OpenKruise 1.9 rounds it up, and later releases lose it."""
    annotations = {"apps.kruise.io/image-predownload-min-updated-ready-pods": text}
    await ready(cluster, 5, partition=3)
    await cluster.patch({"metadata": {"annotations": annotations}})
    await cluster.patch(CHANGE)
    await cluster.settled(updatedReadyReplicas=2)
    await cluster.clock.sleep(5)
    assert (asked(cluster) == []) is waits
    await cluster.patch({"metadata": {"annotations": dict.fromkeys(annotations, "40%")}})
    await cluster.until(lambda: jobs(cluster), "a job")


@in_cluster(GATES)
@pytest.mark.behaviour("CS-138")
async def test_a_cluster_without_image_jobs_is_reported_once_and_the_rollout_continues(cluster: SmallCluster) -> None:
    await ready(cluster, served=False)
    await cluster.patch(CHANGE)
    status = await cluster.settled(updatedReadyReplicas=4)
    (message,) = await cluster.events("FailedCreateImagePullJob")
    assert message == (
        f"failed to create ImagePullJob {status['updateRevision']}-main: "
        "this cluster does not serve ImagePullJobs of apps.kruise.io/v1beta1"
    )
    assert not {CREATED, IGNORED} & set(await labels_of_update_revision(cluster))
    assert len(asked(cluster)) == 1
    assert "conditions" not in status


@in_cluster(GATES)
@pytest.mark.behaviour("PM-168", "PM-162", "CS-167")
@pytest.mark.parametrize(("code", "reason", "reported"), [(403, "Forbidden", True), (409, "AlreadyExists", False)])
async def test_a_refused_image_job_is_reported_and_not_retried_and_blocks_no_other(
    cluster: SmallCluster, code: int, reason: str, reported: bool
) -> None:
    refused = json_response(code, status_body(code, reason, "quota"))
    cluster.sent.intercept = lambda request: refused if "imagepulljobs" in request.path else None
    await ready(cluster, containers=[{"name": one, "image": "nginx:1"} for one in ("main", "side")])
    await cluster.patch(changed("main", "side"))
    await cluster.settled(updatedReadyReplicas=4)
    update = (await cluster.status())["updateRevision"]
    messages = [f"failed to create ImagePullJob {update}-{one}: quota" for one in ("main", "side") if reported]
    assert sorted(await cluster.events("FailedCreateImagePullJob")) == messages
    assert (await labels_of_update_revision(cluster))[CREATED] == "true"
    assert len([line for line in asked(cluster) if line.startswith("POST")]) == 2


@in_cluster
@pytest.mark.behaviour("CS-138")
async def test_without_the_gate_no_job_is_created(cluster: SmallCluster) -> None:
    await ready(cluster)
    await cluster.patch(CHANGE)
    await cluster.settled(updatedReadyReplicas=4)
    assert asked(cluster) == []
    assert not {CREATED, IGNORED} & set(await labels_of_update_revision(cluster))
