"""DaemonSets on a small cluster, on virtual time: actions of users and their results."""

from __future__ import annotations

import json

import pytest

from app.kube.resources import PODS
from tests.features.daemonset.world import NAMESPACE, Json, SmallCluster, in_cluster, rolling, template


@in_cluster
@pytest.mark.behaviour("DS-24", "DS-34", "DS-35", "DS-17", "DS-66", "DS-69", "DS-53", "PM-94")
async def test_every_node_gets_a_pod(cluster: SmallCluster) -> None:
    status = await cluster.deploy(annotations={"deprecated.daemonset.template.generation": "+05"})
    pods = await cluster.pods()
    assert sorted(pod["spec"]["nodeName"] for pod in pods) == ["node1", "node2", "node3"]
    for pod in pods:
        labels = pod["metadata"]["labels"]
        assert labels == {
            "app": "ds",
            "controller-revision-hash": status["updateRevision"],
            "pod-template-generation": "5",
        }
        assert pod["metadata"]["generateName"] == "ds-"
        (owner,) = pod["metadata"]["ownerReferences"]
        assert owner["apiVersion"] == "apps.kruise.io/v1beta1"
        assert owner["controller"] is owner["blockOwnerDeletion"] is True
        keys = {one["key"].rpartition("/")[2] for one in pod["spec"]["tolerations"]}
        assert {"not-ready", "unreachable", "disk-pressure", "memory-pressure", "pid-pressure"} <= keys
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [pod["spec"]["nodeName"]]}]}
        required = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
        assert required == {"nodeSelectorTerms": [term]}
    (revision,) = await cluster.revisions()
    assert revision["metadata"]["name"] == f"ds-{status['updateRevision']}"
    assert revision["metadata"]["labels"] == {"app": "ds", "controller-revision-hash": status["updateRevision"]}
    created = await cluster.events("SuccessfulCreate")
    assert sorted(created) == sorted(f"Created pod: {pod['metadata']['name']}" for pod in pods)


@in_cluster
@pytest.mark.behaviour("DS-27", "DS-46", "DS-47")
async def test_with_surge_the_new_pod_is_available_before_the_old_one_is_deleted(cluster: SmallCluster) -> None:
    await cluster.deploy(minReadySeconds=2, updateStrategy=rolling(maxSurge=1, maxUnavailable=0))
    await cluster.image("nginx:2")
    most = 0

    async def look() -> bool:
        nonlocal most
        images = await cluster.images()
        assert all(len(there) == len(set(there)) <= 2 for node, there in images.items() if node)
        most = max(most, sum(len(there) == 2 for node, there in images.items() if node))
        status = await cluster.status()
        assert status["numberReady"] == 3
        return images == {f"node{n}": ["nginx:2"] for n in (1, 2, 3)}

    await cluster.until(look, "all Pods are updated")
    assert most == 1


@in_cluster
@pytest.mark.behaviour("DS-48", "PM-45")
async def test_labels_change_in_place_without_a_restart(cluster: SmallCluster) -> None:
    await cluster.deploy(updateStrategy=rolling("InPlaceIfPossible", maxUnavailable=1))
    changed = template()
    changed["metadata"]["labels"]["tier"] = "gold"
    await cluster.patch({"spec": {"template": changed}})
    await cluster.all_updated()
    await cluster.clock.sleep(5)
    for pod in await cluster.pods():
        assert pod["metadata"]["labels"]["tier"] == "gold"
        assert pod["status"]["containerStatuses"][0]["restartCount"] == 0
        state = json.loads(pod["metadata"]["annotations"]["apps.kruise.io/inplace-update-state"])
        assert state["state"] == "Updated"
    assert await cluster.events("SuccessfulDelete") == []


@in_cluster
@pytest.mark.behaviour("DS-49")
async def test_pods_created_under_standard_are_replaced_by_the_first_update(cluster: SmallCluster) -> None:
    await cluster.deploy()
    before = await cluster.uids()
    await cluster.patch({"spec": {"updateStrategy": rolling("InPlaceIfPossible", maxUnavailable=1)}})
    await cluster.image("nginx:2")
    await cluster.all_updated()
    replaced = await cluster.uids()
    assert not set(replaced.values()) & set(before.values())
    await cluster.image("nginx:3")
    await cluster.all_updated()
    assert await cluster.uids() == replaced


@in_cluster
@pytest.mark.behaviour("DS-18", "DS-28", "DS-71", "DS-66")
async def test_labels_and_taints_add_and_remove_nodes(cluster: SmallCluster) -> None:
    await cluster.node("node3", {"metadata": {"labels": {"gpu": "no"}}})
    await cluster.deploy(template=template(nodeSelector={"kubernetes.io/os": "linux"}))
    taint = {"key": "private", "value": "yes", "effect": "NoSchedule"}
    await cluster.node("node1", {"spec": {"taints": [taint]}})
    await cluster.settled(desiredNumberScheduled=2, numberMisscheduled=1, currentNumberScheduled=2)
    assert len(await cluster.pods()) == 3
    await cluster.node("node1", {"spec": {"taints": [{**taint, "effect": "NoExecute"}]}})
    await cluster.settled(desiredNumberScheduled=2, numberMisscheduled=0)
    assert sorted(await cluster.images()) == ["node2", "node3"]
    await cluster.node("node2", {"metadata": {"labels": {"kubernetes.io/os": "plan9"}}})
    await cluster.settled(desiredNumberScheduled=1, currentNumberScheduled=1)
    await cluster.node("node1", {"spec": {"taints": None}})
    await cluster.settled(desiredNumberScheduled=2, currentNumberScheduled=2, numberAvailable=2)


@in_cluster
@pytest.mark.behaviour("DS-23", "DS-31", "DS-76")
@pytest.mark.parametrize("strategy", [{"type": "OnDelete"}, rolling(paused=True, maxUnavailable=1)])
async def test_on_delete_and_pause_replace_only_deleted_pods(cluster: SmallCluster, strategy: Json) -> None:
    await cluster.deploy(updateStrategy=strategy)
    await cluster.image("nginx:2")
    await cluster.settled(updatedNumberScheduled=0, numberAvailable=3)
    await cluster.clock.sleep(30)
    assert set(map(str, (await cluster.images()).values())) == {"['nginx:1']"}
    victim = (await cluster.pods())[0]
    await cluster.user.delete(PODS, victim["metadata"]["name"], NAMESPACE)
    await cluster.settled(updatedNumberScheduled=1, numberAvailable=3)
    assert (await cluster.images())[victim["spec"]["nodeName"]] == ["nginx:2"]


@in_cluster
@pytest.mark.behaviour("DS-57")
async def test_the_history_limit_counts_revisions_in_use(cluster: SmallCluster) -> None:
    await cluster.deploy(revisionHistoryLimit=1, updateStrategy=rolling(partition=0, maxUnavailable=3))
    await cluster.patch({"spec": {"updateStrategy": rolling(partition=3, maxUnavailable=3)}})
    for image in ("nginx:2", "nginx:3"):
        await cluster.image(image)
        await cluster.settled(updatedNumberScheduled=0)

    async def recorded() -> list[str]:
        found = [one["data"]["spec"]["template"]["spec"]["containers"][0] for one in await cluster.revisions()]
        return sorted(one["image"] for one in found)

    # The unused revision is deleted, although only one is unused.
    await cluster.becomes(recorded, ["nginx:1", "nginx:3"])


@in_cluster
@pytest.mark.behaviour("DS-20", "DS-75", "DS-69")
async def test_orphans_are_adopted_and_unmatched_pods_released(cluster: SmallCluster) -> None:
    await cluster.deploy()
    pods = await cluster.pods()
    kept = pods[0]["metadata"]
    # An owner reference of the former version.
    alpha = [{**kept["ownerReferences"][0], "apiVersion": "apps.kruise.io/v1alpha1"}]
    await cluster.user.patch(PODS, kept["name"], {"metadata": {"ownerReferences": alpha}}, NAMESPACE)
    lost = pods[1]["metadata"]
    await cluster.user.patch(PODS, lost["name"], {"metadata": {"ownerReferences": None}}, NAMESPACE)
    gone = pods[2]["metadata"]
    await cluster.user.patch(PODS, gone["name"], {"metadata": {"labels": {"app": "else"}}}, NAMESPACE)

    def owned(pods: list[Json]) -> set[str]:
        return {pod["metadata"]["name"] for pod in pods if pod["metadata"].get("ownerReferences")}

    await cluster.until_pods(
        lambda pods: len(pods) == 4 and len(owned(pods)) == 3 and {kept["name"], lost["name"]} < owned(pods),
        "one is adopted, one released and replaced",
    )
    assert gone["name"] not in owned(await cluster.pods())


@in_cluster
@pytest.mark.behaviour("DS-59", "PM-72", "DS-61")
async def test_the_pre_delete_hook_delays_deletion(cluster: SmallCluster) -> None:
    held = template()
    held["metadata"]["labels"]["hold"] = "yes"
    hook = {"preDelete": {"labelsHandler": {"hold": "yes"}, "markPodNotReady": True}}
    await cluster.deploy(template=held, lifecycle=hook)
    new = template(image="nginx:2")
    new["metadata"]["labels"]["hold"] = "yes"
    await cluster.patch({"spec": {"template": new}})

    async def marked() -> list[Json]:
        label = "lifecycle.apps.kruise.io/state"
        return [pod for pod in await cluster.pods() if pod["metadata"]["labels"].get(label) == "PreparingDelete"]

    (pod,) = await cluster.until(marked, "one Pod is held")
    await cluster.clock.sleep(20)
    (pod,) = await marked()
    assert pod["spec"]["nodeName"] == "node3"
    name = pod["metadata"]["name"]
    await cluster.user.patch(PODS, name, {"metadata": {"labels": {"hold": None}}}, NAMESPACE)
    await cluster.settled(updatedNumberScheduled=1)
    # Without the hook, the next Pod is deleted at once although it is held.
    await cluster.until(marked, "the next Pod is held")
    await cluster.patch({"spec": {"lifecycle": None}})
    await cluster.all_updated()


@in_cluster
@pytest.mark.behaviour("DS-54", "PM-93")
async def test_a_restored_template_reuses_its_old_revision(cluster: SmallCluster) -> None:
    first = await cluster.deploy(updateStrategy=rolling(maxUnavailable=1, partition=2), revisionHistoryLimit=1)
    await cluster.image("nginx:2")
    await cluster.settled(updatedNumberScheduled=1, numberAvailable=3)
    await cluster.image("nginx:1")
    status = await cluster.settled(updatedNumberScheduled=2, numberAvailable=3)
    assert status["updateRevision"] == first["updateRevision"]
    for image in ("nginx:3", "nginx:4", "nginx:5"):
        await cluster.patch({"spec": {"updateStrategy": rolling(maxUnavailable="100%", partition=0)}})
        await cluster.image(image)
        await cluster.all_updated()

    async def kept() -> int:
        return len(await cluster.revisions())

    await cluster.becomes(kept, 2)


@in_cluster
@pytest.mark.behaviour("DS-69")
async def test_a_selector_that_matches_everything_does_nothing(cluster: SmallCluster) -> None:
    await cluster.apply(selector={})
    texts = await cluster.until(lambda: cluster.events("SelectingAll"), "the event")
    assert texts == ["This DaemonSet is selecting all pods. A non-empty selector is required."]
    assert await cluster.pods() == []
