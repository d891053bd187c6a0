"""What OpenKruise left behind is taken over as it is: no Pod touched, no new revision, no write but status."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest

from tests.features.daemonset.world import NAMESPACE, Json, SmallCluster, in_cluster, small_cluster
from tests.kube.fakes import virtual
from tests.openkruise import FOLDER, leave

ORDER = ["DaemonSet", "ControllerRevision", "Pod"]


def recorded() -> list[Json]:
    """The DaemonSet, its revisions and its Pods."""
    items: list[Json] = json.loads((FOLDER / "11-daemonset-jobs.json").read_text("utf-8"))["items"]
    mine = [
        one
        for one in items
        if one["kind"] in ORDER
        and [owner["kind"] for owner in one["metadata"].get("ownerReferences", ())] in ([], ["DaemonSet"])
    ]
    return sorted(mine, key=lambda one: ORDER.index(one["kind"]))


def new_daemon_set() -> Json:
    """The DaemonSet as its user created it."""
    made = recorded()[0]
    made["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:1.14.2"
    del made["status"]
    return made


async def lay(cluster: SmallCluster, found: Iterable[Json] = ()) -> None:
    await leave(cluster.user, found or recorded(), NAMESPACE)


@in_cluster(before=lay)
@pytest.mark.behaviour("DS-48", "DS-53", "DS-54", "DS-19", "DS-20", "DS-37", "DS-66", "DS-67", "DS-75")
async def test_adopted_objects_can_be_changed_and_deleted(cluster: SmallCluster) -> None:
    await cluster.settled(updatedNumberScheduled=2, numberAvailable=3)
    await cluster.clock.sleep(30)
    writes = [line for line in cluster.sent.requests if not line.startswith("GET")]
    assert {line for line in writes if not line.endswith(("/daemonsets/ds/status", "/events"))} == set()
    before = {pod["metadata"]["uid"] for pod in await cluster.pods()}
    await cluster.patch({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
    await cluster.settled(updatedNumberScheduled=3, numberAvailable=3)
    assert {pod["metadata"]["uid"] for pod in await cluster.pods()} == before
    assert len(await cluster.revisions()) == 2
    template = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "node1"}}}
    await cluster.patch({"spec": {"template": template}})
    await cluster.settled(desiredNumberScheduled=1, currentNumberScheduled=1, numberAvailable=1)
    assert sorted(await cluster.images()) == ["node1"]


@virtual
@pytest.mark.behaviour("DS-53", "DS-54", "PM-90")
async def test_new_revisions_are_named_as_in_openkruise() -> None:
    ours = new_daemon_set()
    async with small_cluster() as cluster:
        await leave(cluster.user, [ours], NAMESPACE)
        await cluster.settled(updatedNumberScheduled=3, numberAvailable=3)
        containers = [{**ours["spec"]["template"]["spec"]["containers"][0], "image": "nginx:1.15.1"}]
        await cluster.patch({"spec": {"template": {"spec": {"containers": containers}}}})
        status = await cluster.settled(updatedNumberScheduled=2, numberAvailable=3)
        assert status["updateRevision"] == "68f5c79444"
        names = {one["metadata"]["name"]: one["metadata"]["labels"] for one in await cluster.revisions()}
        assert {name: labels["controller-revision-hash"] for name, labels in names.items()} == {
            "ds-578fd4b58b": "578fd4b58b",
            "ds-68f5c79444": "68f5c79444",
        }


@virtual
@pytest.mark.behaviour("DS-53", "DS-54")
async def test_a_revision_with_another_hash_is_kept_without_a_rollout() -> None:
    """Earlier versions of pykruise created such revisions. A hash from elsewhere must not replace Pods either."""

    async def earlier(cluster: SmallCluster) -> None:
        renamed = {"68f5c79444": "7d9c8f6b5", "578fd4b58b": "6c5b8d7f9"}
        items = json.dumps(recorded())
        for theirs, other in renamed.items():
            items = items.replace(theirs, other)
        await lay(cluster, json.loads(items))

    async with small_cluster(before=earlier) as cluster:
        await cluster.settled(updatedNumberScheduled=2, numberAvailable=3)
        before = {pod["metadata"]["uid"] for pod in await cluster.pods()}
        await cluster.patch({"spec": {"updateStrategy": {"rollingUpdate": {"partition": 0}}}})
        status = await cluster.settled(updatedNumberScheduled=3, numberAvailable=3)
        assert status["updateRevision"] == "7d9c8f6b5"
        assert {pod["metadata"]["uid"] for pod in await cluster.pods()} == before
        assert {one["metadata"]["name"] for one in await cluster.revisions()} == {"ds-7d9c8f6b5", "ds-6c5b8d7f9"}
