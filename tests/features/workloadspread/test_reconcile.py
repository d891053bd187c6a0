"""The controller of WorkloadSpread on the sandbox's API server, on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from app.features.workloadspread import reconcile
from app.features.workloadspread.commands import explain_object
from app.framework.commands import report
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.errors import CommandError
from app.kube.jsonvalues import without_managed_fields
from app.kube.objects import Pod, decode_pod
from app.kube.resources import DEPLOYMENTS, NODES, PODS, REPLICASETS
from tests.features.workloadspread.world import CLONE_SETS, SPREADS, World, in_world
from tests.kit.objects import owner_of, workload_spec

COST = "controller.kubernetes.io/pod-deletion-cost"
RECORD = "apps.kruise.io/matched-workloadspread"
A, B = {"name": "a", "maxReplicas": 2}, {"name": "b"}


@pytest.mark.behaviour("WS-45", "WS-19", "WS-50", "WS-56", "WS-74", "WS-55")
@in_world
async def test_target_pods_are_counted_and_priced(there: World) -> None:
    await there.workload(4)
    await there.spread(A, B)
    for name, subset in (("a1", "a"), ("a2", "a"), ("b1", "b"), ("gone", "removed")):
        await there.pod(name, subset)
    await there.pod("foreign", "a", owned=False)
    await there.becomes(there.status, {"a": (2, 0), "b": (1, -1)})

    async def costs() -> list[str]:
        return [await there.annotation(name, COST) for name in ("a1", "a2", "b1", "gone", "foreign")]

    await there.becomes(costs, ["200", "200", "100", "-300", ""])
    # Fewer places move no Pod.
    await there.client.patch(SPREADS, "ws", {"spec": {"subsets": [{**A, "maxReplicas": 1}, B]}}, "ns")
    await there.becomes(there.status, {"a": (2, 0), "b": (1, -1)})
    await there.becomes(lambda: there.annotation("a1", COST), "-100")
    await there.becomes(lambda: there.annotation("a2", COST), "200")


async def one_pod_in_a(there: World) -> None:
    await there.workload(2)
    await there.spread(A, B)
    await there.pod("a1", "a")
    await there.becomes(there.status, {"a": (1, 1), "b": (0, -1)})


@pytest.mark.behaviour("WS-61", "WS-70")
@in_world
async def test_a_pod_that_never_comes_is_reported_and_frees_its_place(there: World) -> None:
    await one_pod_in_a(there)
    now = rfc3339(there.client.clock.now())
    await there.set_status(replicas=1, missingReplicas=0, creatingPods={"late": now}, deletingPods={"a1": now})
    await there.becomes(there.places, (1, 1, 1))
    await there.becomes(there.places, (1, 0, 0), 20)
    await there.becomes(there.places, (0, 0, 1), 20)

    await there.settled()
    assert await there.reasons() >= {"CreatePodFailed", "DeletePodFailed"}


@pytest.mark.behaviour("WS-61")
@pytest.mark.parametrize("key", ["late", "2b0d9d4e-0000-4000-8000-000000000000"], ids=["by name", "by uid"])
@in_world
async def test_a_place_is_kept_for_a_pod_missing_in_the_cache(
    there: World, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the watch lags; otherwise the subset would take one Pod too many."""
    monkeypatch.setitem(Client.list.__kwdefaults__, "page_size", 1)  # the Pod is on the second page
    await one_pod_in_a(there)
    there.manager.holds_back = lambda request: request.path.endswith("/pods")
    await there.set_status(replicas=1, missingReplicas=0, creatingPods={key: rfc3339(there.client.clock.now())})
    await there.pod("late", "a", uid="" if key == "late" else key)

    for _ in range(30):
        await there.client.clock.sleep(4)
        assert await there.places() == (1, 0, 0)
    lists = [one.query.keys() for one in there.manager.requests if one.path.endswith("/pods")]
    assert sum(keys.isdisjoint({"watch", "continue"}) for keys in lists) <= 20, "read periodically, not constantly"
    there.manager.holds_back = lambda _: False
    await there.becomes(there.places, (0, 0, 0))
    assert "CreatePodFailed" not in await there.reasons()


@pytest.mark.behaviour("WS-61")
@in_world
async def test_a_pod_of_another_owner_keeps_no_place(there: World) -> None:
    await there.workload(2)
    await there.spread(A, B)
    await there.pod("mine", owned=False)
    await there.becomes(there.status, {"a": (0, 2), "b": (0, -1)})
    await there.set_status(replicas=0, missingReplicas=1, creatingPods={"mine": rfc3339(there.client.clock.now())})
    await there.client.clock.sleep(45)
    status = (await there.client.get(SPREADS, "ws", "ns"))["status"]
    assert status["subsetStatuses"][0]["missingReplicas"] == 2
    assert "CreatePodFailed" in await there.reasons()


@pytest.mark.behaviour("WS-46", "WS-51")
@pytest.mark.parametrize("deleted", [True, False], ids=["deleted", "filter changed"])
@in_world
async def test_workloadspreads_of_two_owners_do_not_take_a_pod_from_each_other(there: World, deleted: bool) -> None:
    labels = {"app": "shop"}
    chosen = {} if deleted else {"targetFilter": {"selector": {"matchLabels": labels}}}
    spec = workload_spec(**labels)
    deployment = owner_of(await there.create(DEPLOYMENTS, "shop", spec))
    there.owner = owner_of(await there.create(REPLICASETS, "shop-1", spec, ownerReferences=[deployment]))
    await there.pod("web")
    for kind, name in (("Deployment", "shop"), ("ReplicaSet", "shop-1")):
        target = {"apiVersion": "apps/v1", "kind": kind, "name": name}
        await there.create(SPREADS, kind.lower(), {"targetRef": target, "subsets": [A, B], **chosen})
    await there.settled()
    await there.writes_nothing(5)
    former: str = orjson.loads(await there.annotation("web", RECORD))["name"]
    left = "replicaset" if former == "deployment" else "deployment"
    if deleted:
        await there.client.delete(SPREADS, former, "ns")
    else:
        await there.change(SPREADS, former, {"spec": {"targetFilter": {"selector": {"matchLabels": {"app": "x"}}}}})
    await there.becomes(lambda: there.annotation("web", RECORD), f'{{"name":"{left}","subset":"a"}}')


@pytest.mark.behaviour("WS-51")
@in_world
async def test_pods_without_a_subset_take_limited_memory(there: World, monkeypatch: pytest.MonkeyPatch) -> None:
    await there.workload(3)
    pods = []
    for name in ("a", "b", "c"):
        await there.pod(name)
        pods.append(await there.client.get(PODS, name, "ns", decode=decode_pod))
    reader = reconcile.PodReader(Client(there.manager, there.clock))
    read = await reader.read(pods[0], 10_000)
    assert read is not None
    content, size = read
    assert content["spec"]["nodeName"] == "node-1"
    monkeypatch.setattr(reconcile, "KEPT_BYTES", 2 * size + size // 2)

    async def requests(pod: Pod, largest: int = 10_000) -> int:
        before = len(there.manager.requests)
        assert (await reader.read(pod, largest) is not None) == (largest >= size)
        return len(there.manager.requests) - before

    assert [await requests(pod) for pod in (*pods, *pods[:2])] == [0, 1, 1, 0, 0]
    assert await requests(pods[2]) == 1, "there is no room for it"
    assert size < reader.kept_bytes <= reconcile.KEPT_BYTES
    assert [await requests(pods[1], size // 2) for _ in range(2)] == [0, 0], "its size is known"
    for pod in pods:
        reader.forget(pod.metadata.uid)
    assert reader.kept_bytes == 0


@pytest.mark.behaviour("WS-52", "WS-53")
@in_world
async def test_a_pod_that_joined_is_counted_before_the_cache_shows_it(there: World) -> None:
    """Otherwise its place is given to another Pod too."""
    await there.workload(3)
    await there.pod("before")
    await there.settled()
    there.manager.holds_back = lambda request: "/pods" in request.path
    await there.spread(A, B)
    await there.becomes(lambda: there.annotation("before", RECORD), '{"name":"ws","subset":"a"}')
    await there.change(CLONE_SETS, "shop", {"spec": {"replicas": 4}})
    await there.settled()
    assert await there.status() == {"a": (1, 1), "b": (0, -1)}
    there.manager.holds_back = lambda _: False
    await there.settled()
    # Without its record and its node it belongs to no subset.
    await there.client.delete(NODES, "node-1")
    await there.change(PODS, "before", {"metadata": {"annotations": {RECORD: None}}})
    await there.becomes(there.status, {"a": (0, 2), "b": (0, -1)})


@pytest.mark.behaviour("WS-46", "WS-51")
@in_world
async def test_pods_of_a_deployment_join_and_leave_with_their_replicaset(there: World) -> None:
    spec = workload_spec(3, app="shop")
    owner = owner_of(await there.create(DEPLOYMENTS, "shop", spec))
    await there.settled()
    there.manager.holds_back = lambda request: "/replicasets" in request.path
    there.owner = owner_of(await there.create(REPLICASETS, "shop-1", spec, ownerReferences=[owner]))
    await there.spread(A, B, targetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop"})
    await there.pod("early")
    await there.settled()
    there.manager.holds_back = lambda _: False
    await there.becomes(lambda: there.annotation("early", RECORD), '{"name":"ws","subset":"a"}')
    await there.settled()
    await there.pod("late")
    await there.becomes(there.status, {"a": (2, 0), "b": (0, -1)})
    for resource, name, owners, status in (
        (REPLICASETS, "shop-1", [], (0, 2)),
        (REPLICASETS, "shop-1", [owner], (2, 0)),
        (PODS, "late", [], (1, 1)),
    ):
        await there.change(resource, name, {"metadata": {"ownerReferences": owners}})
        await there.becomes(there.status, {"a": status, "b": (0, -1)})


@pytest.mark.behaviour("WS-51")
@in_world
async def test_the_affinity_of_another_pod_of_the_name_assigns_no_subset(there: World) -> None:
    """A subset would be written to the former Pod, which fails and keeps all other Pods from being assigned."""
    await there.workload(3)
    await there.pod("web")
    await there.settled()
    there.manager.holds_back = lambda request: "/pods" in request.path
    await there.client.delete(PODS, "web", "ns", grace_period_seconds=0)
    await there.pod("web", node="")
    await there.spread(A, B)
    await there.becomes(there.status, {"a": (0, 2), "b": (0, -1)})
    written = [request.body for request in there.manager.requests if request.method == "PATCH"]
    assert not [body for body in written if RECORD.encode() in body]


@pytest.mark.behaviour("WS-49", "WS-19")
@in_world
async def test_without_target_or_workloadspread_pods_are_unchanged(there: World) -> None:
    await one_pod_in_a(there)
    await there.becomes(lambda: there.annotation("a1", COST), "200")
    await there.client.delete(CLONE_SETS, "shop", "ns", propagation_policy="Orphan")
    await there.becomes(there.status, {"a": (0, 2), "b": (0, -1)})
    await there.client.delete(SPREADS, "ws", "ns")
    await there.client.clock.sleep(5)
    assert await there.annotation("a1", COST) == "200"
    assert await there.annotation("a1", RECORD) == '{"name":"ws","subset":"a"}'


@pytest.mark.behaviour("WS-27")
@in_world
async def test_the_command_explains_the_next_pod(there: World) -> None:
    await there.workload(3)
    await there.spread(A, B)
    await there.pod("a1", "a")
    await there.pod("a2", "a")
    await there.becomes(there.status, {"a": (2, 0), "b": (0, -1)})
    stored = await there.client.get(SPREADS, "ws", "ns")
    lines = report(await explain_object(there.client, stored, lambda _: True)).text().splitlines()
    assert lines[0] == "WorkloadSpread ws: CloneSet shop wants 3 Pods"
    assert lines[2].split() == ["a", "2", "2", "0", "0", "0", "skipped:", "it", "is", "full"]
    assert lines[4] == "The next Pod goes into b."
    assert lines[7].split()[:4] == ["a1", "-", "a", "200"]
    with pytest.raises(CommandError):
        await explain_object(there.client, {"metadata": {"name": "ws"}}, lambda _: True)


@pytest.mark.behaviour("WS-51", "MGR-164")
@pytest.mark.parametrize("homeless", [False, True], ids=["in a subset", "in none"])
@in_world
async def test_large_pods_are_compared_with_subsets_over_several_reconciles(
    there: World, monkeypatch: pytest.MonkeyPatch, homeless: bool
) -> None:
    """Comparing many large Pods with hundreds of subsets takes minutes, in which no other controller runs. A Pod
    created meanwhile is compared too, whatever its name."""
    compared: list[tuple[str, ...]] = []
    created: list[asyncio.Task[Any]] = []
    adopt = reconcile.adopt

    def noted(fresh: Any, subsets: Any, candidates: Any, *rest: Any) -> Any:
        compared.append(tuple(one.pod.metadata.name for one in candidates))
        if not created:
            created.append(asyncio.create_task(there.pod("0")))
        return adopt(fresh, subsets, candidates, *rest)

    monkeypatch.setattr(reconcile, "adopt", noted)
    await there.workload(4)
    for name in ("b", "a", "c"):
        await there.pod(name)
    await there.pod("huge")
    await there.change(PODS, "huge", {"metadata": {"annotations": {"long": "x" * 20_000}}})
    found = without_managed_fields(await there.client.get(PODS, "a", "ns"))
    monkeypatch.setattr(reconcile, "COMPARE_BYTES", 3 * len(orjson.dumps([found["metadata"], found["spec"]])))
    expression = {"key": "zone", "operator": "In", "values": ["nowhere"]}
    nowhere = {"requiredNodeSelector": {"matchExpressions": [expression]}}
    await there.spread(*({**subset, **nowhere} if homeless else subset for subset in (A, B)))
    await there.settled(30)
    assert sorted(dict.fromkeys(compared)) == [("0",), ("a",), ("b",), ("c",)]
    names = ("0", "a", "b", "c", "huge")
    found = [bool(await there.annotation(name, RECORD)) for name in names]
    assert found == [not homeless] * 4 + [False]
