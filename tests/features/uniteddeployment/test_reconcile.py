"""The UnitedDeployment controller on the sandbox's API server."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import orjson
import pytest

from app.api import names
from app.features.uniteddeployment import reconcile
from app.features.uniteddeployment.plan import rollout, subsets
from app.features.uniteddeployment.plan.subsets import Claims
from app.features.uniteddeployment.reconcile import Caches, UnitedDeploymentReconciler, _State
from app.features.uniteddeployment.types import CLONE_SET, UnitedDeployment
from app.features.uniteddeployment.writes import SubsetWriter
from app.framework.watched import Stores
from app.kube.client import Client
from app.kube.events import EventRecorder
from app.kube.objects import ObjectMeta, Pod
from app.kube.resources import CONFIGMAPS, PODS
from app.kube.store import Store
from app.kube.wire import Request
from app.workloads.settings import Content
from tests.features.uniteddeployment.world import CLONE_SETS, NAMESPACE, SUBSET, UNITED, World, in_world
from tests.fuzz.cost import counted
from tests.kit.objects import owner_of, workload_spec
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer, json_response, virtual

RESERVE = {
    "type": "Adaptive",
    "adaptive": {"reserveUnschedulablePods": True, "rescheduleCriticalSeconds": 30, "unschedulableDuration": 300},
}


def adaptive(*subsets: dict[str, Any], **strategy: Any) -> dict[str, Any]:
    return {"topology": {"subsets": list(subsets), "scheduleStrategy": {**RESERVE, **strategy}}}


def is_creation(request: Request) -> bool:
    return request.method == "POST" and "/clonesets" in request.path


@pytest.mark.behaviour("UD-66", "UD-67")
@in_world
async def test_the_status_is_written_if_it_differs_and_names_no_deleted_subset(there: World) -> None:
    await there.unite({"name": "a"}, {"name": "b"})
    await there.has(a=2, b=2)
    await there.pods("a", 2)
    await there.settled()
    entries = (await there.status())["subsetStatuses"]
    assert [one["name"] for one in entries] == ["a", "b"]
    await there.writes_nothing()
    await there.respecify({"topology": {"subsets": [{"name": "b"}]}})
    await there.has(b=4)
    await there.settled()
    assert [one["name"] for one in (await there.status())["subsetStatuses"]] == ["b"]


@pytest.mark.behaviour("UD-41", "UD-63")
@in_world
async def test_impossible_shares_keep_the_subset_status(there: World) -> None:
    held = {"manualUpdate": {"partitions": {"b": 2}}}
    await there.unite({"name": "a", "replicas": 1}, {"name": "b"}, updateStrategy=held)
    await there.has(a=1, b=3)
    await there.settled()
    before = (await there.status())["subsetStatuses"]
    assert before == [{"name": "a", "replicas": 1}, {"name": "b", "replicas": 3, "partition": 2}]
    await there.respecify({"replicas": 0})
    await there.says("SubsetUpdated", "False")
    assert (await there.status())["subsetStatuses"] == before
    assert await there.counts() == {"a": 1, "b": 3}


@pytest.mark.behaviour("UD-49", "UD-65", "UD-68")
@in_world
async def test_a_failed_creation_is_retried_and_shrinks_no_other_subset(there: World) -> None:
    await there.unite({"name": "a"}, {"name": "b"})
    await there.has(a=2, b=2)
    there.manager.refuse = is_creation
    await there.respecify({"topology": {"subsets": [{"name": name} for name in "abcd"]}})
    await there.says("SubsetProvisioned", "False")
    assert await there.counts() == {"a": 2, "b": 2}
    assert "the disk is full" in (await there.condition("SubsetProvisioned"))["message"]
    assert (await there.condition("SubsetUpdated"))["reason"] == "Error"
    there.manager.refuse = lambda _: False
    await there.has(a=1, b=1, c=1, d=1)
    await there.settled(30)
    assert (await there.condition("SubsetProvisioned"))["status"] == "True"
    assert (await there.condition("SubsetUpdated"))["status"] == "True"
    found = await there.events("FailedUpdateSubset")
    assert found
    assert all(one["involvedObject"]["resourceVersion"] for one in found)


@pytest.mark.behaviour("UD-33", "UD-68")
@in_world
async def test_a_second_workload_of_a_subset_that_cannot_be_deleted_is_reported(there: World) -> None:
    await there.unite({"name": "a"})
    await there.has(a=4)
    first = (await there.workloads())["a"]
    metadata = {key: first["metadata"][key] for key in ("labels", "annotations", "ownerReferences")}
    later = {key: first[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": {**metadata, "name": "zz-later"}}
    there.manager.refuse = lambda request: request.method == "DELETE"
    await there.client.create(CLONE_SETS, later, NAMESPACE)

    async def said() -> bool:
        reasons = {one["reason"] for one in await there.events()}
        return {"FailedDeleteDuplicatedSubsets", "Failed FindSubsets"} <= reasons

    await there.until(said)
    assert "FailedUpdateSubset" not in {one["reason"] for one in await there.events()}
    there.manager.refuse = lambda _: False

    async def left() -> list[str]:
        return [one["metadata"]["name"] for one in (await there.client.list(CLONE_SETS, NAMESPACE)).items]

    await there.becomes(left, [first["metadata"]["name"]])


@pytest.mark.behaviour("UD-32")
@pytest.mark.parametrize("seen", [True, False])
@in_world
async def test_a_workload_without_subset_label_is_released_and_replaced(there: World, seen: bool) -> None:
    united = await there.unite({"name": "a"}, {"name": "b"})
    await there.has(a=2, b=2)
    if seen:
        await there.settled(30)
    found = (await there.workloads())["a"]["metadata"]
    await there.client.patch(CLONE_SETS, found["name"], {"metadata": {"labels": {SUBSET: None}}}, NAMESPACE)
    await there.settled(60)
    owners = {
        one["metadata"]["name"]: [owner["uid"] for owner in one["metadata"].get("ownerReferences", ())]
        for one in (await there.client.list(CLONE_SETS, NAMESPACE)).items
    }
    assert owners.pop(found["name"]) == []
    assert list(owners.values()) == [[united["metadata"]["uid"]]] * 2
    assert {name: count for name, count in (await there.counts()).items() if name} == {"a": 2, "b": 2}
    assert not [one for one in there.writes if one[0] == "delete"]
    await there.writes_nothing()


@pytest.mark.behaviour("UD-32")
@in_world
async def test_a_workload_that_loses_its_owner_is_adopted_again(there: World) -> None:
    await there.unite({"name": "a"})
    await there.has(a=4)
    await there.settled()
    found = (await there.workloads())["a"]["metadata"]
    await there.client.patch(CLONE_SETS, found["name"], {"metadata": {"ownerReferences": None}}, NAMESPACE)
    await there.settled()
    assert (await there.workloads())["a"]["metadata"].get("ownerReferences") == found["ownerReferences"]


@pytest.mark.behaviour("UD-33")
@in_world
async def test_a_workload_that_is_deleted_before_the_cache_shows_it_is_created_again(there: World) -> None:
    await there.settled()
    there.manager.holds_back = lambda request: "/clonesets" in request.path
    await there.unite({"name": "a"})
    await there.has(a=4)
    await there.client.delete(CLONE_SETS, (await there.workloads())["a"]["metadata"]["name"], NAMESPACE)
    there.manager.holds_back = lambda _: False
    await there.has(a=4)


@pytest.mark.behaviour("UD-32")
@in_world
async def test_foreign_and_unlisted_workloads_are_left_alone(there: World) -> None:
    boss = owner_of(await there.client.create(CONFIGMAPS, {"metadata": {"name": "boss"}}, NAMESPACE))
    for name, subset, owners in (("theirs", "a", [boss]), ("nobodys", "z", [])):
        labels = {"app": "web", SUBSET: subset}
        await there.create(CLONE_SETS, name, workload_spec(), labels=labels, ownerReferences=owners)
    await there.unite({"name": "a"})
    await there.settled(30)
    assert len((await there.client.list(CLONE_SETS, NAMESPACE)).items) == 3
    assert [one for one in there.writes if one[2] in ("theirs", "nobodys") and one[0] != "create"] == []


@pytest.mark.behaviour("UD-26", "UD-56", "UD-57", "UD-60")
@in_world
async def test_reserved_pods_get_substitutes_until_they_run(there: World) -> None:
    await there.unite(**adaptive({"name": "a", "maxReplicas": 2}, {"name": "b"}))
    await there.has(a=2, b=2)
    pending = await there.pods("a", 2, ready=False)
    await there.pods("b", 2)
    stray = await there.pods("a", 1, ready=False, owned=False)
    await there.settled(20)
    assert await there.counts() == {"a": 2, "b": 2}
    await there.settled(15)
    await there.has(a=2, b=4)
    assert await there.labels("a") == ["", "true", "true"]
    found = await there.client.get(PODS, stray[0], NAMESPACE)
    assert "apps.kruise.io/united-deployment-reserved-pod" not in found["metadata"]["labels"]
    await there.pods("b", 2)
    await there.settled()
    assert await there.labels("b") == ["false"] * 4
    await there.report(pending[0], ready=True)
    await there.settled(250)
    assert await there.counts() == {"a": 2, "b": 4}
    await there.settled(60)
    await there.has(a=2, b=3)
    assert await there.labels("a") == ["", "false", "true"]


@pytest.mark.behaviour("UD-56", "UD-57")
@in_world
async def test_nothing_is_written_twice_while_the_cache_lags(there: World) -> None:
    """The first creation gets no response, and the first attempts to list the workloads fail."""
    lost, failed = iter([True]), iter([True, True])
    there.manager.lag = lambda: 5.0
    there.manager.lose = lambda request: is_creation(request) and next(lost, False)
    there.manager.refuse = lambda request: (
        request.method == "GET" and request.query.get("labelSelector") == names.SUBSET_NAME and next(failed, False)
    )
    await there.unite(**adaptive({"name": "a", "maxReplicas": 2}, {"name": "b"}))
    await there.settled(60)
    assert (next(lost, None), next(failed, None)) == (None, None)
    assert [verb for verb, kind, _ in there.writes if kind == "CloneSet"] == ["create", "create"]
    await there.pods("a", 2, ready=False)
    await there.pods("b", 2)
    await there.settled(60)
    requests = [(request.path, request.body) for request in there.manager.requests if request.method == "PATCH"]
    labeled = [one for one in requests if "/pods/" in one[0]]
    assert len(labeled) == len(set(labeled)) > 0


@pytest.mark.behaviour("UD-33")
@in_world
async def test_a_creation_without_response_is_not_repeated_because_another_is_refused(there: World) -> None:
    """Both are in the second batch."""
    there.manager.lag = lambda: 2.0
    posts: list[str] = []

    def refused(request: Request) -> bool:
        if is_creation(request):
            posts.append(request.path)
        return is_creation(request) and len(posts) == 3

    there.manager.refuse, there.manager.status = refused, 403
    there.manager.lose = lambda request: is_creation(request) and len(posts) in (2, 3)
    await there.unite({"name": "a"}, {"name": "b"}, {"name": "c"})
    await there.settled(30)
    made = [verb for verb, kind, _ in there.writes if kind == "CloneSet" and verb == "create"]
    assert (len(posts), len(made)) == (4, 3)


@pytest.mark.behaviour("UD-56")
@in_world
async def test_a_failed_label_write_changes_nothing(there: World) -> None:
    await there.unite(**adaptive({"name": "a", "maxReplicas": 2}, {"name": "b"}))
    await there.has(a=2, b=2)
    await there.pods("b", 2)
    there.manager.refuse = lambda request: request.method == "PATCH" and "/pods/" in request.path
    await there.pods("a", 2, ready=False)
    await there.settled(60)
    assert await there.counts() == {"a": 2, "b": 2}
    assert "the disk is full" in (await there.condition("SubsetUpdated"))["message"]
    there.manager.refuse = lambda _: False
    await there.settled(300)
    assert await there.counts() == {"a": 2, "b": 4}


@pytest.mark.behaviour("UD-70")
@in_world
async def test_failures_of_a_workload_are_reported(there: World) -> None:
    await there.unite({"name": "a"}, {"name": "b"})
    await there.has(a=2, b=2)
    name = (await there.workloads())["a"]["metadata"]["name"]

    async def report(*conditions: dict[str, Any]) -> None:
        required = ("replicas", "readyReplicas", "availableReplicas", "updatedReplicas", "updatedReadyReplicas")
        status = {**dict.fromkeys(required, 0), "conditions": list(conditions)}
        await there.client.patch(CLONE_SETS, name, {"status": status}, NAMESPACE, subresource="status")
        await there.settled()

    failed = {"type": "FailedScale", "status": "True", "message": "exceeded quota"}
    await report(failed, {"type": "Progressing", "status": "False", "message": "too late"})
    assert (await there.condition("SubsetFailure"))["message"] == "a: exceeded quota"
    assert (await there.condition("Progressing"))["message"] == "a: too late"
    assert (await there.condition("Available"))["status"] == "False"
    await report()
    assert await there.condition("SubsetFailure") == {}
    assert (await there.condition("Progressing"))["status"] == "True"


@in_world
async def test_a_terminating_object_is_left_to_garbage_collection(there: World) -> None:
    await there.unite({"name": "a"})
    await there.has(a=4)
    await there.client.patch(UNITED, "web", {"metadata": {"finalizers": ["example.com/wait"]}}, NAMESPACE)
    await there.client.delete(UNITED, "web", NAMESPACE)
    writes = len(there.writes)
    await there.client.delete(CLONE_SETS, (await there.workloads())["a"]["metadata"]["name"], NAMESPACE)
    await there.settled(30)
    assert [one for one in there.writes[writes:] if one[0] == "create"] == []


@pytest.mark.behaviour("UD-51", "UD-52")
@in_world
async def test_patch_and_replicas_of_a_subset_are_one_write_without_a_revision(there: World) -> None:
    await there.unite({"name": "a"}, {"name": "b"})
    await there.has(a=2, b=2)
    revision = (await there.until(there.status))["updatedRevision"]
    writes = len(there.writes)
    patch = {"metadata": {"labels": {"tier": "gold"}}}
    wanted = [{"name": "a", "replicas": 4, "patch": patch}, {"name": "b"}]
    await there.respecify({"replicas": 5, "topology": {"subsets": wanted}})
    await there.has(a=4, b=1)
    await there.settled()
    made = (await there.workloads())["a"]
    assert made["spec"]["template"]["metadata"]["labels"]["tier"] == "gold"
    assert [one[2] for one in there.writes[writes:]].count(made["metadata"]["name"]) == 1
    assert (await there.status())["updatedRevision"] == revision


@pytest.mark.behaviour("UD-29", "MGR-164")
@in_world
async def test_workloads_of_a_large_template_are_built_over_several_reconciles(
    there: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand copies of a large template take gigabytes, and their patches a minute in which no other controller
    runs. One that cannot be built does not hold up the others."""
    monkeypatch.setattr(reconcile, "BUILD_BYTES", 1)
    built: defaultdict[str, list[float]] = defaultdict(list)
    build = rollout.built_workload

    def noted(kind: Any, selector: Any, subset: Any, wanted: Any) -> Any:
        built[subset.name].append(there.clock.monotonic())
        return build(kind, selector, subset, wanted)

    async def hostnames() -> dict[str, str | None]:
        found = (await there.workloads()).items()
        return {name: one["spec"]["template"]["spec"].get("hostname") for name, one in found}

    monkeypatch.setattr(rollout, "built_workload", noted)
    patched = [{"name": "a", "patch": {"spec": {"hostname": "a"}}}, {"name": "b"}]
    patched.append({"name": "c", "patch": {"spec": {"hostname": "c"}}})
    unmergeable = {"name": "a", "patch": {"spec": {"containers": [{"image": "x"}]}}}
    await there.unite(unmergeable, *patched[1:], replicas=3)
    await there.has(b=1, c=1)
    await there.settled()
    (b,), (c,) = built["b"], built["c"]
    assert b < c, "one in each reconcile"
    assert "patch of subset a" in (await there.condition("SubsetUpdated"))["message"]
    await there.respecify({"topology": {"subsets": patched}})
    await there.has(a=1, b=1, c=1)
    await there.settled(30)
    assert await hostnames() == {"a": "a", "b": None, "c": "c"}
    assert (await there.condition("SubsetProvisioned"))["status"] == "True"
    # Replicas change without the template; the workload is written with its patch.
    await there.respecify({"replicas": 6})
    await there.has(a=2, b=2, c=2)
    assert await hostnames() == {"a": "a", "b": None, "c": "c"}


@pytest.mark.behaviour("UD-26")
@in_world
async def test_the_spec_is_read_once(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """This takes long for a large spec, and every change of a Pod causes a reconcile."""
    read: list[str] = []
    content = reconcile.content_of

    def noted(united: UnitedDeployment) -> Content:
        read.append(united.name)
        return content(united)

    monkeypatch.setattr(reconcile, "content_of", noted)
    await there.unite({"name": "a"})
    await there.has(a=4)
    for name in await there.pods("a", 2):
        await there.change(PODS, name, {"metadata": {"annotations": {"a": "b"}}})
        await there.settled()
    assert read == ["web"]
    await there.respecify({"replicas": 2})
    await there.has(a=2)
    assert read == ["web"] * 2


@virtual
@pytest.mark.behaviour("UD-50")
async def test_a_pod_that_cannot_be_deleted_does_not_keep_the_next_subset_stuck() -> None:
    server = MemoryServer(fail=lambda request: json_response(403 if request.path.endswith("/a-0") else 200, {}))
    client = Client(server, VirtualClock())
    pods = [Pod(metadata=ObjectMeta(name=name, namespace=NAMESPACE, uid=name)) for name in ("a-0", "b-0")]
    errors = await SubsetWriter(client, EventRecorder(client, "tests")).delete_pods(pods)
    assert [error.partition(":")[0] for error in errors] == ["Pod a-0"]
    assert [request.path.rpartition("/")[2] for request in server.requests] == ["a-0", "b-0"]


@virtual
async def test_a_new_object_costs_the_same_however_many_workloads_other_namespaces_have() -> None:
    def steps(workloads: int) -> int:
        stores = Stores(reconcile.WATCHED)
        cache = stores(reconcile.WORKLOADS[CLONE_SET])
        for number in range(workloads):
            metadata = {"name": f"w{number}", "namespace": "others", "uid": f"{number}", "labels": {SUBSET: "a"}}
            cache.put(subsets.decode_subset_workload(orjson.dumps({"metadata": metadata})))
        client = Client(MemoryServer(), VirtualClock())
        caches = Caches(stores(reconcile.UNITED), Store(), Store(), {CLONE_SET: cache})
        reconciler = UnitedDeploymentReconciler(client, caches, EventRecorder(client, "tests"))
        metadata = {"name": "web", "namespace": NAMESPACE, "uid": "u"}
        spec = {"selector": {}, "topology": {"subsets": [{"name": "a"}]}}
        united = UnitedDeployment.model_validate({"metadata": metadata, "spec": spec})
        with counted() as count:
            reconciler._awaits_predecessor(
                united, _State("u", client.clock.monotonic()), CLONE_SET, Claims({}, [], [], [])
            )
        return count[0]

    assert steps(100) == steps(1)
