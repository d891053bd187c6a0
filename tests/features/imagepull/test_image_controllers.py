"""ImagePullJobs with our controllers and the sandbox's API server."""

from __future__ import annotations

import re
from typing import Any

import pytest

from app.kube.resources import NODES, PODS, SECRETS
from tests.features.imagepull.world import AGENTS, BETA, JOBS, NODE_IMAGES, World, in_world

Json = dict[str, Any]


# ---- NodeImages


@pytest.mark.behaviour("IMG-3", "IMG-30", "IMG-31")
@in_world
async def test_a_ready_node_gets_a_node_image_after_thirty_seconds_and_loses_it_when_deleted(there: World) -> None:
    began = there.client.clock.monotonic()
    await there.node("n1", zone="a")
    await there.node("n2", ready=False)
    await there.node("v1", type="virtual-kubelet")
    await there.until(lambda: there.get(NODE_IMAGES, "n1"), 60)
    assert 28 <= there.client.clock.monotonic() - began <= 32
    await there.settled(60)
    node_image = await there.get(NODE_IMAGES, "n1")
    assert node_image["metadata"]["labels"] == {"zone": "a"}
    assert await there.get(NODE_IMAGES, "n2") is None
    assert await there.get(NODE_IMAGES, "v1") is None
    head = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "NodeImage", "spec": {}}
    kept = {"name": "kept", "labels": {"apps.kruise.io/fake-nodeimage": ""}}
    await there.client.create(NODE_IMAGES, {**head, "metadata": kept})
    await there.client.create(NODE_IMAGES, {**head, "metadata": {"name": "nobody"}})
    await there.client.delete(NODES, "n1")
    await there.settled()
    left = (await there.client.list(NODE_IMAGES)).items
    assert [one["metadata"]["name"] for one in left] == ["kept"]


@pytest.mark.behaviour("IMG-32", "IMG-107")
@in_world
async def test_labels_follow_the_node_and_virtual_nodes_are_excluded(there: World) -> None:
    await there.nodes("n1", zone="a")
    before: Any = await there.get(NODE_IMAGES, "n1")
    await there.client.patch(NODE_IMAGES, "n1", {"metadata": {"labels": {"mine": "x"}}})
    await there.client.patch(NODES, "n1", {"metadata": {"labels": {"zone": None, "tier": "b"}}})

    async def labels() -> Any:
        return ((await there.get(NODE_IMAGES, "n1")) or {"metadata": {}})["metadata"].get("labels")

    await there.becomes(labels, {"tier": "b"})
    # A new generation would call both webhooks and reconcile the NodeImage in the agent.
    after: Any = await there.get(NODE_IMAGES, "n1")
    assert (after["metadata"]["generation"], after["spec"]) == (before["metadata"]["generation"], before["spec"])
    await there.client.patch(NODES, "n1", {"metadata": {"labels": {"type": "virtual-kubelet"}}})
    await there.settled()
    assert await there.get(NODE_IMAGES, "n1") is None


@pytest.mark.behaviour("IMG-32", "IMG-36")
@in_world
async def test_a_manual_tag_expires_after_its_pull(there: World) -> None:
    await there.nodes("n1")
    tag = {"tag": "22.04", "createdAt": "2030-01-01T00:00:00Z", "version": 0}
    tag["pullPolicy"] = {"ttlSecondsAfterFinished": 100}
    secrets = [{"namespace": "default", "name": "none"}]
    images = {"ubuntu": {"tags": [tag], "pullSecrets": secrets}}
    await there.client.patch(NODE_IMAGES, "n1", {"spec": {"images": images}})
    await there.settled(60)
    assert await there.tag("n1", "ubuntu", "22.04") is not None
    found = await there.get(NODE_IMAGES, "n1")
    assert not found["spec"]["images"]["ubuntu"].get("pullSecrets")
    await there.settled(50)
    assert await there.tag("n1", "ubuntu", "22.04") is None


@pytest.mark.behaviour("IMG-32")
@in_world
async def test_a_node_stops_pulling_for_a_deleted_job_whose_name_is_used_again(there: World) -> None:
    await there.endless_pulls()
    await there.job(image="nginx:1.28")
    tag = await there.until(lambda: there.tag("n1", tag="1.28"))
    former = {**tag, "tag": "1.27", "ownerReferences": [{**tag["ownerReferences"][0], "uid": "former"}]}
    await there.client.patch(NODE_IMAGES, "n1", {"spec": {"images": {"nginx": {"tags": [former, tag]}}}})
    await there.settled()
    assert await there.tag("n1") is None
    assert await there.tag("n1", tag="1.28") == tag


@pytest.mark.behaviour("IMG-33", "IMG-34", "IMG-35")
@in_world(agents=False)
async def test_an_unresponsive_node_fails_after_ten_minutes(there: World) -> None:
    await there.nodes("n1")
    await there.job()
    await there.until(lambda: there.tag("n1"))
    await there.settled(590)
    assert (await there.status())["active"] == 1
    await there.settled(20)
    status = await there.counts(failed=1, failedNodes=["n1"])
    assert status["message"] == "job has completed"
    found = await there.get(NODE_IMAGES, "n1")
    (tag,) = found["status"]["imageStatuses"]["nginx"]["tags"]
    assert (tag["phase"], tag["message"]) == ("Failed", "node has not responded for a long time")
    assert (found["status"]["desired"], found["status"]["failed"]) == (1, 1)
    await there.settled()
    told = await there.events("PullImageFailed")
    assert {one["involvedObject"]["kind"] for one in told} == {"ImagePullJob", "NodeImage"}
    text = "Failed to pull image nginx:1.27 on node n1 for node has not responded for a long time"
    assert {one["message"] for one in told} == {text}


# ---- ImagePullJobs


@pytest.mark.behaviour("IMG-45", "IMG-48", "IMG-49", "IMG-51", "IMG-52", "IMG-53", "IMG-90")
@in_world
async def test_images_are_pulled_on_a_limited_number_of_nodes_at_once(there: World) -> None:
    await there.nodes("n1", "n2", "n3")
    ends: dict[str, str] = {}
    there.pull = lambda node, image: ends.get(node)
    await there.job(parallelism=2, pullPolicy={"timeoutSeconds": 300})
    status = await there.counts(active=2, succeeded=0, failed=0, desired=3)
    assert status["message"] == "job is running, progress 0.0%"
    assert await there.tag("n3") is None
    found = await there.get(JOBS, "warm", "default")
    assert found["metadata"]["finalizers"] == ["apps.kruise.io/deletion-protection"]
    tag = await there.tag("n1")
    (owner,) = tag["ownerReferences"]
    names = [owner[field] for field in ("apiVersion", "kind", "namespace", "name")]
    assert names == ["apps.kruise.io/v1beta1", "ImagePullJob", "default", "warm"]
    assert "version" not in tag, "as in OpenKruise the first is not written"
    assert tag["imagePullPolicy"] == "IfNotPresent"
    ends["n1"] = "Succeeded"
    await there.until(lambda: there.tag("n3"))
    status = await there.counts(active=2, succeeded=1)
    assert status["message"] == "job is running, progress 33.3%"
    ends["n2"] = "Failed"
    status = await there.counts(active=1, succeeded=1, failed=1, failedNodes=["n2"])
    assert status["message"] == "job is running, progress 66.7%"
    ends["n3"] = "Succeeded"
    status = await there.counts(active=0, succeeded=2, failed=1, message="job has completed")
    assert status["completionTime"]
    await there.settled()
    found = await there.get(JOBS, "warm", "default")
    assert "finalizers" not in found["metadata"]
    assert there.most_at_once == 2


@pytest.mark.behaviour("IMG-40", "IMG-51", "IMG-103", "IMG-109")
@in_world
async def test_a_job_waits_for_node_images_in_a_new_cluster(there: World) -> None:
    for name, zone in (("n1", "a"), ("n2", "a"), ("n3", "b")):
        await there.node(name, zone=zone)
    await there.node("n4", ready=False, zone="a")
    await there.pod("p1", "n2", app="x")
    await there.job("of-zone", selector={"matchLabels": {"zone": "a"}}, parallelism=2)
    await there.job("of-pods", "b", podSelector={"matchLabels": {"app": "x"}})
    await there.job("named", "c", selector={"names": ["n3", "n9"]})
    await there.job("of-nobody", "d", selector={"names": ["n9"]})
    status = await there.counts("of-nobody", desired=0, message="job has completed, no node was selected")
    assert status["completionTime"]
    status = await there.counts("of-zone", desired=2, active=0)
    assert (status["message"], status.get("completionTime")) == ("job is running, progress 0.0%", None)
    await there.until(lambda: there.get(NODE_IMAGES, "n3"), 60)
    await there.counts("of-zone", desired=2, succeeded=2, message="job has completed")
    await there.counts("of-pods", desired=1, succeeded=1, message="job has completed")
    await there.counts("named", desired=1, succeeded=1, message="job has completed")
    assert [one["involvedObject"]["name"] for one in await there.events("NoNodeSelected")] == ["of-nobody"]


@pytest.mark.behaviour("IMG-109")
@in_world
async def test_a_job_does_not_wait_for_a_deleted_node(there: World) -> None:
    await there.nodes("n1", "n3")
    await there.node("n2")
    there.pull = lambda node, image: None if node == "n3" else "Succeeded"
    await there.job(parallelism=3)
    await there.counts(desired=3, succeeded=1, active=1)
    await there.client.delete(NODES, "n2")
    await there.counts(desired=2, succeeded=1, active=1)
    await there.client.delete(NODES, "n3")
    await there.counts(desired=1, succeeded=1, message="job has completed")


@pytest.mark.behaviour("IMG-40", "IMG-51", "IMG-55", "IMG-93")
@in_world
async def test_an_endless_job_serves_new_nodes_and_repeats_daily(there: World) -> None:
    await there.nodes("n1")
    await there.job(completionPolicy={"type": "Never"})
    await there.counts(succeeded=1, desired=1, message="job is running, progress 100.0%")
    tag = await there.tag("n1")
    assert 85_800 <= tag["pullPolicy"]["ttlSecondsAfterFinished"] < 87_000
    assert tag["pullPolicy"]["activeDeadlineSeconds"] == 1800
    await there.nodes("n2")
    await there.counts(succeeded=2, desired=2)
    await there.settled(87_100)
    tag = await there.tag("n1")
    assert tag.get("version", 0) >= 0
    assert "completionTime" not in await there.counts(succeeded=2)
    assert len([one for one in there.writes if one == ("update", "NodeImage", "n1")]) > 5


@pytest.mark.behaviour("IMG-43", "IMG-41", "IMG-40")
@in_world
async def test_nodes_are_chosen_by_names_by_labels_and_by_pods(there: World) -> None:
    await there.nodes("n1", "n2", zone="a")
    await there.nodes("n3", zone="b")
    never = {"type": "Never"}
    await there.job("named", "a", selector={"names": ["n3", "n9"]})
    await there.job("labeled", "b", selector={"matchLabels": {"zone": "a"}}, completionPolicy=never, parallelism=9)
    await there.job("of-pods", "c", podSelector={"matchLabels": {"app": "x"}}, completionPolicy=never)
    await there.pod("p1", "n2", app="x")
    await there.pod("p2", "n2", app="x")
    await there.pod("p3", "n1", app="y")
    await there.counts("named", desired=1, succeeded=1)
    await there.counts("labeled", desired=2, succeeded=2)
    await there.counts("of-pods", desired=1, succeeded=1)
    assert await there.tag("n2", "c", "latest") is not None
    assert await there.tag("n1", "c", "latest") is None
    await there.client.patch(NODES, "n3", {"metadata": {"labels": {"zone": "a"}}})
    await there.counts("labeled", desired=3, succeeded=3)
    await there.client.patch(PODS, "p3", {"metadata": {"labels": {"app": "x"}}}, "default")
    await there.counts("of-pods", desired=2, succeeded=2)
    await there.client.delete(PODS, "p3", "default", grace_period_seconds=0)
    await there.counts("of-pods", desired=1, succeeded=1)


@pytest.mark.behaviour("IMG-50", "IMG-108", "IMG-57")
@in_world
async def test_a_deadline_ends_the_job_and_counts_each_unfinished_node_once(there: World) -> None:
    await there.nodes("n1", "n2", "n3")
    there.pull = lambda node, image: "Succeeded" if node == "n1" else None
    policy = {"activeDeadlineSeconds": 600}
    await there.job(parallelism=2, completionPolicy=policy)
    await there.counts(succeeded=1, active=2)
    await there.settled(610)
    status = await there.counts(message="job exceeds activeDeadlineSeconds")
    assert (status["failed"], status["active"], status["failedNodes"]) == (2, 0, ["n2", "n3"])


@pytest.mark.behaviour("IMG-47")
@pytest.mark.parametrize("ttl", [0, 30])
@in_world
async def test_a_finished_job_expires_after_its_ttl(there: World, ttl: int) -> None:
    await there.nodes("n1")
    await there.job(completionPolicy={"ttlSecondsAfterFinished": ttl})
    if ttl:
        await there.counts(succeeded=1)
        await there.settled(ttl - 5)
        assert await there.get(JOBS, "warm", "default") is not None
    await there.settled(10)
    assert await there.get(JOBS, "warm", "default") is None
    await there.settled(10)
    # The tag is removed with its job.
    assert await there.tag("n1") is None


@pytest.mark.behaviour("IMG-52")
@in_world
async def test_parallelism_zero_pauses_a_job_until_it_is_raised(there: World) -> None:
    await there.nodes("n1", "n2")
    await there.job(parallelism=0)
    await there.settled(20)
    assert (await there.status())["message"] == "job is running, progress 0.0%"
    assert await there.tag("n1") is None
    await there.client.patch(JOBS, "warm", {"spec": {"parallelism": "2"}}, "default")
    await there.counts(succeeded=2)


@pytest.mark.behaviour("IMG-40", "IMG-51", "IMG-52")
@in_world
async def test_a_new_node_is_served_until_the_job_completes(there: World) -> None:
    await there.nodes("n1", "n2", "n3")
    ends = {"n1": "Succeeded", "n2": "Failed"}
    there.pull = lambda node, image: ends.get(node)
    await there.job(parallelism=2)
    await there.counts(desired=3, active=1, succeeded=1, failed=1)
    await there.nodes("n4")
    await there.until(lambda: there.tag("n4"))
    await there.counts(desired=4, active=2, succeeded=1, failed=1)
    ends |= {"n3": "Succeeded", "n4": "Succeeded"}
    await there.counts(desired=4, active=0, succeeded=3, failed=1, message="job has completed")
    await there.nodes("n5")
    await there.settled()
    assert await there.tag("n5") is None
    assert (await there.status())["desired"] == 4


@pytest.mark.behaviour("IMG-56", "IMG-92")
@in_world
async def test_two_jobs_share_a_tag_and_wait_for_the_second_round(there: World) -> None:
    await there.nodes("n1", "n2")
    there.pull = lambda node, image: None if node == "n2" else "Succeeded"
    await there.job("first", parallelism=2)
    await there.counts("first", succeeded=1, active=1)
    there.pull = lambda node, image: None
    await there.job("second", selector={"names": ["n1"]})
    await there.counts("first", succeeded=0, active=2)
    tag = await there.tag("n1")
    assert tag["version"] == 1
    assert [one["name"] for one in tag["ownerReferences"]] == ["first", "second"]
    there.pull = lambda node, image: "Succeeded"
    await there.counts("first", succeeded=2, message="job has completed")
    await there.counts("second", succeeded=1, message="job has completed")


@pytest.mark.behaviour("IMG-106")
@in_world
async def test_a_changed_image_releases_the_former_tag(there: World) -> None:
    await there.nodes("n1")
    await there.job(completionPolicy={"type": "Never"})
    await there.counts(succeeded=1)
    await there.client.patch(JOBS, "warm", {"spec": {"image": "nginx:1.28"}}, "default")
    await there.until(lambda: there.tag("n1", tag="1.28"))
    await there.counts(succeeded=1)
    assert await there.tag("n1") is None


# ---- Pull secrets


@pytest.mark.behaviour("IMG-42", "IMG-46", "IMG-60", "IMG-61", "IMG-64", "IMG-65")
@in_world
async def test_pull_secrets_are_copied_shared_and_released(there: World) -> None:
    await there.endless_pulls("regcred")
    await there.job("one", "nginx:1", pullSecrets=["regcred"])
    await there.job("two", "nginx:2", pullSecrets=["regcred", "missing"])
    await there.until(lambda: there.tag("n1", tag="2"))
    await there.settled(2)
    (copy,) = await there.copies()
    assert re.fullmatch("regcred-[0-9a-f]{6}", copy["metadata"]["name"])
    assert copy["type"] == "kubernetes.io/dockerconfigjson"
    annotations = copy["metadata"]["annotations"]
    assert annotations["imagepulljobs.kruise.io/source-key"] == "default/regcred"
    assert annotations["imagepulljobs.kruise.io/references"] == "default/one,default/two"
    assert annotations["imagepulljobs.kruise.io/mode"] == "batch"
    found = await there.get(NODE_IMAGES, "n1")
    reference = {"namespace": "kruise-daemon-config", "name": copy["metadata"]["name"], "mode": "batch"}
    assert found["spec"]["images"]["nginx"]["pullSecrets"] == [reference]
    await there.client.patch(SECRETS, "regcred", {"data": {".dockerconfigjson": "e30K"}}, "default")
    await there.becomes(there.copied, [{".dockerconfigjson": "e30K"}])
    await there.client.delete(JOBS, "one", "default")
    await there.settled(2)
    assert list((await there.users()).values()) == ["default/two"]
    there.pull = lambda node, image: "Succeeded"
    await there.counts("two", succeeded=1, message="job has completed")
    await there.settled(2)
    assert await there.copies() == []
    told = await there.events("PullSecretNotFound")
    assert {one["involvedObject"]["name"] for one in told} == {"two"}


@pytest.mark.behaviour("IMG-62", "IMG-65")
@in_world
async def test_openkruise_copies_are_used_and_released(there: World) -> None:
    await there.nodes("n1")
    await there.secret("regcred")
    for name, jobs in (("regcred-1", "default/warm,default/warm"), ("regcred-2", "default/other")):
        await there.secret(name, namespace=AGENTS)
        annotations = {
            "imagepulljobs.kruise.io/source-key": "default/regcred",
            "imagepulljobs.kruise.io/references": jobs,
            "imagepulljobs.kruise.io/mode": "batch",
        }
        await there.client.patch(SECRETS, name, {"metadata": {"annotations": annotations}}, AGENTS)
    await there.job(pullSecrets=["regcred"])
    await there.counts(succeeded=1)
    found = await there.get(NODE_IMAGES, "n1")
    (reference,) = found["spec"]["images"]["nginx"]["pullSecrets"]
    assert reference["name"] == "regcred-1"
    await there.settled(2)
    assert await there.users() == {"regcred-2": "default/other"}


@pytest.mark.behaviour("IMG-101")
@in_world
async def test_a_late_secret_gives_failed_nodes_another_round(there: World) -> None:
    await there.nodes("n1", "n2")
    there.pull = lambda node, image: "Failed" if node == "n1" else None
    await there.job(parallelism=2, pullSecrets=["late"])
    await there.counts(failed=1, active=1)
    await there.secret("late")
    await there.until(lambda: there.copies())
    there.pull = lambda node, image: "Succeeded"
    await there.counts(succeeded=2, failed=0, message="job has completed")
    tag = await there.tag("n1")
    assert tag["version"] == 1


@pytest.mark.behaviour("IMG-116")
@in_world
async def test_a_changed_policy_takes_effect_while_the_job_runs(there: World) -> None:
    await there.nodes("n1", "n2", "n3")
    there.pull = lambda node, image: {"n1": "Failed", "n2": "Succeeded"}.get(node)
    await there.job(parallelism=3)
    await there.counts(failed=1, succeeded=1, active=1)
    there.pull = lambda node, image: "Succeeded"
    change = {"spec": {"imagePullPolicy": "Always", "pullPolicy": {"timeoutSeconds": 77}}}
    await there.client.patch(JOBS, "warm", change, "default")
    await there.counts(succeeded=3, failed=0, message="job has completed")
    tags = [await there.tag(node) for node in ("n1", "n2", "n3")]
    found = [(tag["imagePullPolicy"], tag["pullPolicy"]["timeoutSeconds"]) for tag in tags if tag is not None]
    assert found == [("Always", 77), ("IfNotPresent", 600), ("Always", 77)]


@pytest.mark.behaviour("IMG-113")
@in_world
async def test_a_job_without_access_to_its_secrets_pulls_and_reports_them(there: World) -> None:
    await there.endless_pulls("regcred")
    there.forbidden.add("default")
    await there.job(pullSecrets=["regcred"])
    await there.counts(active=1)
    assert await there.copies() == []
    (told,) = await there.events("PullSecretForbidden")
    assert told["message"] == (
        "the manager may not read Secrets in namespace default; pulling without regcred. To allow it, add default"
        " to imagePullJob.secretNamespaces in the chart values, or bind ClusterRole"
        " kruise-manager-pull-secrets-role there to the manager's ServiceAccount"
    )
    there.forbidden.clear()
    await there.until(lambda: there.copies())
    there.pull = lambda node, image: "Succeeded"
    await there.counts(succeeded=1, message="job has completed")


@pytest.mark.behaviour("IMG-32", "IMG-113")
@pytest.mark.parametrize("status", [403, 500])
@in_world
async def test_owners_and_secrets_that_cannot_be_read_are_kept_and_delay_nothing_else(
    there: World, status: int
) -> None:
    await there.nodes("n1")
    there.manager.status = status
    there.manager.refuse = lambda request: request.path.endswith(("/imagepulljobs/former", "/secrets/none"))
    tag = {"tag": "22.04", "createdAt": "2030-01-01T00:00:00Z", "pullPolicy": {"ttlSecondsAfterFinished": 100}}
    owner = {"apiVersion": BETA, "kind": "ImagePullJob", "namespace": "default", "name": "former", "uid": "1"}
    owned = {**tag, "tag": "24.04", "ownerReferences": [owner], "pullPolicy": {"ttlSecondsAfterFinished": 1000}}
    secrets = [{"namespace": "default", "name": "none"}]
    images = {"ubuntu": {"tags": [tag, owned], "pullSecrets": secrets}}
    await there.client.patch(NODE_IMAGES, "n1", {"spec": {"images": images}})
    await there.settled(120)
    found = await there.get(NODE_IMAGES, "n1")
    (left,) = found["spec"]["images"]["ubuntu"]["tags"]
    assert (left["tag"], left["ownerReferences"]) == ("24.04", [owner])
    assert found["spec"]["images"]["ubuntu"]["pullSecrets"] == secrets


@pytest.mark.behaviour("IMG-64")
@in_world
async def test_secret_names_cannot_select_other_secrets(there: World) -> None:
    await there.endless_pulls()
    await there.secret("regcred", namespace=AGENTS)
    wanted = ["", "..", f"../../{AGENTS}/secrets/regcred", "a?b", "%2e%2e"]
    await there.job(pullSecrets=wanted)
    await there.counts(active=1)
    assert there.guarded.asked == ["a%3Fb"]
    (told,) = [one["message"] for one in await there.events("PullSecretNotFound")]
    assert told.endswith(": " + ", ".join(wanted))


@pytest.mark.behaviour("IMG-64")
@in_world
async def test_a_source_is_polled_less_often_as_the_job_ages(there: World) -> None:
    await there.endless_pulls("regcred")
    await there.job(pullSecrets=["regcred"])
    await there.counts(active=1)
    await there.settled(3_600)
    young = len(there.guarded.asked)
    there.writes.clear()
    await there.settled(3_600)
    assert 20 < young < 60
    assert len(there.guarded.asked) - young <= 12
    assert [one for one in there.writes if one[1] == "Secret"] == []
    (copy,) = await there.copies()
    await there.client.delete(SECRETS, copy["metadata"]["name"], AGENTS)
    await there.until(lambda: there.copies(), 301)
