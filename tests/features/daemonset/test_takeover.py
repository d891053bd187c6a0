"""What OpenKruise left behind is taken over as it is: no Pod touched, no new revision, no write but status."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any

import orjson
import pytest

from app.features.daemonset import reconcile as daemonset
from app.features.daemonset.plan.settings import Gates
from app.features.daemonset.reconcile import DaemonSetReconciler
from app.features.daemonset.types import DaemonSet
from app.framework.watched import NODES, Stores
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.objects import Node, ObjectMeta, decode_controller_revision, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, PODS, ObjectKey
from tests.features.daemonset.world import DAEMONSETS, NAMESPACE, Json, SmallCluster, in_cluster, small_cluster
from tests.kit.transports import Noting
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import virtual

RECORDED = Path(__file__).resolve().parents[2] / "data" / "openkruise" / "11-daemonset-jobs.json"
DECODERS = {
    "DaemonSet": ("workloads", DaemonSet.model_validate_json),
    "Pod": ("pods", decode_pod),
    "ControllerRevision": ("revisions", decode_controller_revision),
}


def recorded() -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = json.loads(RECORDED.read_text("utf-8"))["items"]
    return [found for found in items if found["kind"] in DECODERS]


@pytest.mark.behaviour("DS-53", "DS-54", "DS-19", "DS-37", "DS-66", "DS-67", "DS-75")
def test_takeover_writes_only_the_status() -> None:
    @virtual
    async def take_over() -> None:
        clock, server = VirtualClock(), Noting()
        client = Client(server, clock)
        stores = Stores(daemonset.WATCHED)
        caches = daemonset.caches_of(stores)
        gates = Gates.of(lambda gate: gate in ("PodWebhook", "InPlaceUpdateEnvFromMetadata"))
        reconciler = DaemonSetReconciler(
            client, caches, stores(NODES), EventRecorder(client, daemonset.NAME), Random(1), gates=gates
        )
        for number in (1, 2, 3):
            stores(NODES).put(Node(metadata=ObjectMeta(name=f"node{number}", uid=f"n{number}")))
        for found in recorded():
            store, decode = DECODERS[found["kind"]]
            getattr(caches, store).put(decode(orjson.dumps(found)))
        for _ in range(2):
            await reconciler(ObjectKey("moving", "ds"))
        writes = [(method, path, body) for method, path, body in server.requests if method != "GET"]
        for method, path, body in writes:
            assert (method, path.rpartition("/")[2]) == ("PATCH", "status"), path
            assert "/daemonsets/" in path
            assert set(body["status"]) <= {"numberUnavailable"}, body

    take_over()


async def lay(cluster: SmallCluster, found: list[Json] | None = None) -> None:
    """What was recorded, under a uid that the API server gives."""
    found = found or recorded()
    (ours,) = [one for one in found if one["kind"] == "DaemonSet"]

    async def served() -> bool:
        try:
            await cluster.user.list(DAEMONSETS, NAMESPACE)
        except NotFound:
            return False
        return True

    await cluster.until(served, "the kind is served")
    created = await cluster.user.create(DAEMONSETS, _bare(ours), NAMESPACE)
    uid = created["metadata"]["uid"]
    await cluster.user.patch(DAEMONSETS, "ds", {"status": ours["status"]}, NAMESPACE, subresource="status")
    for one in found:
        resource = {"ControllerRevision": CONTROLLERREVISIONS, "Pod": PODS}.get(one["kind"])
        owners = one["metadata"].get("ownerReferences") or []
        if resource is None or [owner["kind"] for owner in owners] != ["DaemonSet"]:
            continue
        body = _bare(one)
        body["metadata"]["ownerReferences"] = [{**owners[0], "uid": uid}]
        name = one["metadata"]["name"]
        await cluster.user.create(resource, body, NAMESPACE)
        if one["kind"] == "Pod":
            await cluster.user.patch(PODS, name, {"status": one["status"]}, NAMESPACE, subresource="status")


def _bare(found: Json) -> Json:
    kept = ("name", "labels", "annotations", "generateName")
    metadata = {key: value for key, value in found["metadata"].items() if key in kept}
    return {**{key: value for key, value in found.items() if key != "status"}, "metadata": metadata}


@in_cluster(before=lay)
@pytest.mark.behaviour("DS-48", "DS-54", "DS-20")
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
@pytest.mark.behaviour("DS-53", "DS-54", "DS-56")
async def test_new_revisions_are_named_as_in_openkruise() -> None:
    (ours,) = [one for one in recorded() if one["kind"] == "DaemonSet"]
    async with small_cluster() as cluster:
        body = _bare(ours)
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:1.14.2"
        await cluster.user.create(DAEMONSETS, body, NAMESPACE)
        await cluster.settled(updatedNumberScheduled=3, numberAvailable=3)
        containers = [{**body["spec"]["template"]["spec"]["containers"][0], "image": "nginx:1.15.1"}]
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


@virtual
@pytest.mark.behaviour("DS-53", "DS-56")
async def test_taken_names_are_skipped() -> None:
    async def taken(cluster: SmallCluster) -> None:
        body = {"metadata": {"name": "ds-578fd4b58b"}, "revision": 1, "data": {"spec": {}}}
        await cluster.user.create(CONTROLLERREVISIONS, body, NAMESPACE)

    (ours,) = [one for one in recorded() if one["kind"] == "DaemonSet"]
    async with small_cluster(before=taken) as cluster:
        body = _bare(ours)
        body["spec"]["template"]["spec"]["containers"][0]["image"] = "nginx:1.14.2"
        await cluster.user.create(DAEMONSETS, body, NAMESPACE)
        status = await cluster.settled(updatedNumberScheduled=3, numberAvailable=3)
        assert status["collisionCount"] == 1
        found = {one["metadata"]["name"]: one["metadata"].get("labels") for one in await cluster.revisions()}
        ours_now = f"ds-{status['updateRevision']}"
        assert set(found) == {"ds-578fd4b58b", ours_now}
        assert found[ours_now]["controller-revision-hash"] == status["updateRevision"] != "578fd4b58b"
        labels = {pod["metadata"]["labels"]["controller-revision-hash"] for pod in await cluster.pods()}
        assert labels == {status["updateRevision"]}
