"""The budget controller: the Pods it counts, the status it writes, and its events."""

from __future__ import annotations

import copy
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import pytest

from app.features.podunavailablebudget import targets
from app.features.podunavailablebudget.plan.status import Expected
from app.features.podunavailablebudget.targets import WATCHED, Caches, Workloads
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.features.statefulset.kind import STATEFUL_SET
from app.framework.watched import Stores
from app.kube.client import Client, PatchType
from app.kube.errors import NotFound
from app.kube.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    DEPLOYMENTS,
    EVENTS,
    NAMESPACES,
    PODS,
    REPLICASETS,
    Resource,
)
from app.kube.wire import Request, Stream
from app.sandbox.apiserver.server import ApiServer
from tests.features.podunavailablebudget.samples import pod
from tests.features.podunavailablebudget.world import (
    BUDGETS,
    NAMESPACE,
    Json,
    SmallCluster,
    in_cluster,
    is_allowed,
)
from tests.kit.objects import SCALED, defined, reference, workload_spec
from tests.kit.transports import Counting
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body, virtual

RELATED = {"pub.kruise.io/related-pub": "shop", "kruise.io/related-pub": "shop"}
STATEFUL_SETS = STATEFUL_SET.resource()
THINGS = Resource("example.com", "v1", "things", "Thing")
#: A kind that controls Pods, with its number of replicas and without.
WITH_SCALE, WITHOUT_SCALE = (defined(THINGS, subresources=parts) for parts in (SCALED, {"status": {}}))


async def thing(cluster: SmallCluster, replicas: int = 3, selector: str = "", name: str = "t") -> Json:
    body = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": name}, "spec": {"replicas": replicas}}
    found = await cluster.user.create(THINGS, body, NAMESPACE)
    if selector:
        await cluster.user.patch(THINGS, name, {"status": {"selector": selector}}, NAMESPACE, subresource="status")
    return found


def of_thing(**spec: Any) -> Json:
    return {"selector": None, "targetRef": {"apiVersion": "example.com/v1", "kind": "Thing", "name": "t"}, **spec}


@pytest.mark.behaviour("PUB-32", "PUB-51")
@in_cluster
async def test_pods_without_a_budget_get_the_one_that_matches(cluster: SmallCluster) -> None:
    owner = await cluster.replicaset(replicas=3)
    await cluster.pod("old", owner)
    await cluster.pod("taken", owner, annotations={"kruise.io/related-pub": "other"})
    await cluster.budget("other", selector={"matchLabels": {"app": "nothing"}})
    await cluster.clock.sleep(0.1)
    await cluster.budget()
    # A Pod of another budget counts as well, and stays with it.
    await cluster.numbers(0, 2, 2, 3)
    assert await cluster.annotations("old") == RELATED
    assert await cluster.annotations("taken") == {"kruise.io/related-pub": "other"}
    assert "other (1)" in (await cluster.events("OverlappingBudgets"))[0]
    # A Pod that bypassed admission gets the oldest budget that matches.
    await cluster.clock.sleep(1.1)
    await cluster.budget("later")
    await cluster.pod("late", owner)
    await cluster.numbers(1, 3, 2, 3)
    assert await cluster.annotations("late") == RELATED
    await cluster.pod("relabeled", owner, labels={"app": "none"})
    await cluster.clock.sleep(1)
    await cluster.user.patch(PODS, "relabeled", {"metadata": {"labels": {"app": "web"}}}, NAMESPACE)
    await cluster.numbers(2, 4, 2, 3)


@pytest.mark.behaviour("PUB-122")
@in_cluster
async def test_pods_of_a_deleted_budget_get_another(cluster: SmallCluster) -> None:
    await cluster.budget("former")
    await cluster.made(1)
    await cluster.numbers(1, 1, 0, 1, name="former")
    await cluster.budget(selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    await cluster.numbers(1, 1, 0, 1)
    assert (await cluster.annotations("web-0"))["kruise.io/related-pub"] == "former"
    await cluster.user.delete(BUDGETS, "former", NAMESPACE)

    await cluster.becomes(lambda: cluster.annotations("web-0"), RELATED)


@pytest.mark.behaviour("PUB-32")
@pytest.mark.parametrize(("code", "reason"), [(404, "NotFound"), (409, "Conflict")])
@in_cluster
async def test_a_pod_that_is_gone_before_it_is_annotated_delays_no_status(
    cluster: SmallCluster, code: int, reason: str
) -> None:
    refusal = json_response(code, status_body(code, reason, "deleted or replaced"))
    cluster.sent.intercept = lambda request: refusal if request.method + request.path[-6:] == "PATCH/web-0" else None
    await cluster.made(3)
    await cluster.budget()
    await cluster.numbers(1, 3, 2, 3)


@pytest.mark.behaviour("PUB-52")
@in_cluster
async def test_a_budget_without_pods_is_reported_once(cluster: SmallCluster) -> None:
    await cluster.budget()
    await cluster.numbers(0, 0, 0, 0)
    await cluster.patch({"spec": {"maxUnavailable": 2}}, "shop")
    await cluster.clock.sleep(30)
    (event,) = (await cluster.user.list(EVENTS)).items
    assert (event["message"], event["count"]) == ("No matching pods found", 1)


@pytest.mark.behaviour("PUB-33")
@in_cluster
async def test_a_selector_sums_up_workloads_and_counts_a_deployment_once(cluster: SmallCluster) -> None:
    spec = workload_spec(4)
    deployment = await cluster.user.create(DEPLOYMENTS, {"metadata": {"name": "d"}, "spec": spec}, NAMESPACE)
    above = reference("apps/v1", "Deployment", "d", deployment["metadata"]["uid"])
    sets = []
    for name, replicas in (("d-1", 3), ("d-2", 2)):
        made = {"metadata": {"name": name, "ownerReferences": [above]}, "spec": workload_spec(replicas)}
        sets.append(await cluster.user.create(REPLICASETS, made, NAMESPACE))
    for number, owner in enumerate([*sets, sets[0]]):
        await cluster.pod(f"p{number}", owner)
    lone = await cluster.replicaset("alone", replicas=2)
    await cluster.pod("p9", lone)
    await cluster.pod("nobodys")  # without an owner, but counted
    await cluster.pod("done", await cluster.replicaset("ended", replicas=7))
    await cluster.user.patch(PODS, "done", {"status": {"phase": "Succeeded"}}, NAMESPACE, subresource="status")
    await cluster.budget(maxUnavailable=3)
    await cluster.numbers(2, 5, 3, 6)
    # A target counts the Pods of all its ReplicaSets.
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    await cluster.budget("target", selector=None, targetRef=target, maxUnavailable=3)
    await cluster.numbers(2, 3, 1, 4, name="target")


@pytest.mark.behaviour("PUB-35", "PUB-50")
@in_cluster
async def test_a_missing_or_empty_target_has_no_pods(cluster: SmallCluster) -> None:
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    await cluster.budget(selector=None, targetRef=target, maxUnavailable=None, minAvailable=2)
    await cluster.numbers(0, 0, 0, 0)
    await cluster.made(3)
    await cluster.numbers(1, 3, 2, 3)
    await cluster.user.patch(REPLICASETS, "web", {"spec": {"replicas": 0}}, NAMESPACE)
    await cluster.numbers(0, 0, 2, 0)
    await cluster.user.patch(REPLICASETS, "web", {"spec": {"replicas": 3}}, NAMESPACE)
    await cluster.numbers(1, 3, 2, 3)
    await cluster.user.delete(REPLICASETS, "web", NAMESPACE, propagation_policy="Orphan")
    await cluster.numbers(0, 0, 0, 0)


def lagging(resource: Resource) -> Callable[[SmallCluster], Awaitable[None]]:
    """The controller's watch of this resource shows nothing while ``cluster.lags``."""

    async def prepare(cluster: SmallCluster) -> None:
        inner = cluster.sent.stream

        @asynccontextmanager
        async def stream(request: Request) -> AsyncIterator[Stream]:
            async with inner(request) as found:
                chunks = late(found.chunks) if request.path == resource.path() else found.chunks
                yield Stream(found.status, found.headers, chunks)

        async def late(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
            async for chunk in chunks:
                while cluster.lags:
                    await cluster.clock.sleep(0.1)
                yield chunk

        cluster.sent.stream = stream

    return prepare


@pytest.mark.behaviour("PUB-33", "PUB-35")
@pytest.mark.parametrize("by_target", [False, True])
@in_cluster(prepare=lagging(REPLICASETS))
async def test_a_workload_missing_in_the_cache_still_counts_its_pods(cluster: SmallCluster, by_target: bool) -> None:
    """The ReplicaSet watch lags behind the Pod watch; otherwise all Pods could be deleted in that moment."""
    cluster.lags = True
    await cluster.made(3)
    target = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}
    await cluster.budget(**({"selector": None, "targetRef": target} if by_target else {}))
    await cluster.numbers(1, 3, 2, 3)
    answers = [await cluster.replicas[0].delete(await cluster.get(f"web-{number}")) for number in range(3)]
    assert list(map(is_allowed, answers)) == [True, False, False]


@pytest.mark.behaviour("PUB-54", "PUB-55", "PUB-56")
@pytest.mark.parametrize("happens", ["updated", "deleted", "replaced"])
@in_cluster(prepare=lagging(PODS))
async def test_a_late_cache_does_not_undo_what_was_observed(cluster: SmallCluster, happens: str) -> None:
    """The Pod watch lags longer than a grant lasts: the Pod is read live while the cache still shows its old state."""
    replica, pod = await cluster.begin(3), await cluster.get("web-0")
    owner = await cluster.user.get(REPLICASETS, "web", NAMESPACE)
    cluster.lags = True
    if happens == "updated":
        changed = copy.deepcopy(pod)
        changed["spec"]["containers"][0]["image"] = "nginx:2"
        assert is_allowed(await replica.update(pod, changed))
        body = {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}
        await cluster.user.patch(PODS, "web-0", body, NAMESPACE, kind=PatchType.STRATEGIC)
        await cluster.is_ready("web-0", ready=False)
    else:
        assert is_allowed(await replica.delete(pod))
        await cluster.gone("web-0")
        if happens == "replaced":
            await cluster.pod("web-0", owner)
    await cluster.clock.sleep(25)
    status = await cluster.numbers(0, 2, 2, 3)
    assert not {"disruptedPods", "unavailablePods"} & set(status)
    for number in range(2):
        await cluster.patch({"metadata": {"labels": {"number": str(number)}}}, "shop")
        await cluster.clock.sleep(2)
        await cluster.numbers(0, 2, 2, 3)
    assert not is_allowed(await replica.delete(await cluster.get("web-1")))
    cluster.lags = False
    if happens == "deleted":
        await cluster.pod("web-9", owner)
    elif happens == "updated":
        await cluster.is_ready("web-0", image="nginx:2")
    await cluster.numbers(1, 3, 2, 3)


@pytest.mark.behaviour("PUB-96", "PUB-125")
@in_cluster
async def test_pods_of_deleted_workloads_may_always_be_deleted(cluster: SmallCluster) -> None:
    async def going(name: str) -> None:
        """Delete it while its Pods are not collected yet."""
        body = {"metadata": {"finalizers": ["example.com/wait"]}}
        await cluster.user.patch(REPLICASETS, name, body, NAMESPACE)
        await cluster.user.delete(REPLICASETS, name, NAMESPACE)

    await cluster.made(3)
    await cluster.pod("other", await cluster.replicaset("other", replicas=1))
    await cluster.budget(maxUnavailable=None, minAvailable=4)
    await cluster.numbers(0, 4, 4, 4)
    assert not is_allowed(await cluster.replicas[0].delete(await cluster.get("web-0")))
    await going("web")
    await cluster.numbers(0, 4, 4, 1)  # one of them still wants its Pod
    await going("other")
    await cluster.numbers(4, 4, 0, 0)
    # A Pod without an owner does not belong to a deleted workload.
    await cluster.pod("nobodys")
    await cluster.numbers(1, 5, 4, 0)


@pytest.mark.behaviour("PUB-33")
@virtual
async def test_a_deleted_workload_is_read_once() -> None:
    """Users who create Pods can give them any owners."""
    clock = VirtualClock()
    api = ApiServer(clock=clock, rng=Random(7))
    sent = Counting(api.transport())
    caches = Caches.of(Stores(WATCHED))
    for number in range(3):
        uid = f"{number}" * 1_000_000
        owner = reference("apps/v1", "ReplicaSet", f"r{number % 2}", uid)
        caches.pods.put(pod(f"web-{number}", owners=[owner]))
    workloads = Workloads(Client(sent, clock), caches, lambda: ())
    of_web = PodUnavailableBudget.model_validate(
        {"metadata": {"name": "shop", "namespace": "web"}, "spec": {"selector": {"matchLabels": {"app": "web"}}}}
    )
    tracemalloc.start()
    for _ in range(3):
        found = await workloads.members(of_web)
        assert (len(found.pods), found.expected) == (3, Expected(0, gone=True))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000_000
    assert sorted(sent.requests) == [f"GET {REPLICASETS.path('web', name)}" for name in ("r0", "r0", "r1")]
    api.close()


@pytest.mark.behaviour("PUB-34")
@pytest.mark.parametrize("owned", [True, False])
@in_cluster(kinds=(WITH_SCALE,))
async def test_an_unwatched_kind_is_read_through_its_scale(cluster: SmallCluster, owned: bool) -> None:
    owner = await thing(cluster, 3, "" if owned else "app=web")
    await cluster.budget(**of_thing())
    for number in range(2):
        await cluster.pod(f"p{number}", owner if owned else None, "Thing")
    await cluster.numbers(0, 2, 2, 3)
    assert await cluster.annotations("p0") == RELATED
    # The kind is not watched, so its change is found by polling.
    await cluster.user.patch(THINGS, "t", {"spec": {"replicas": 2}}, NAMESPACE)
    await cluster.numbers(1, 2, 1, 2)
    finalizers = ["example.com/slow"] if owned else []
    await cluster.user.patch(THINGS, "t", {"metadata": {"finalizers": finalizers}}, NAMESPACE)
    await cluster.user.delete(THINGS, "t", NAMESPACE, propagation_policy="Orphan")
    await cluster.numbers(0, 0, 0, 0)


@pytest.mark.behaviour("PUB-34", "PUB-37")
@in_cluster(kinds=(WITHOUT_SCALE,))
async def test_a_kind_without_scale_counts_its_pods_and_protects_none(cluster: SmallCluster) -> None:
    owner = await thing(cluster)
    for number in range(2):
        await cluster.pod(f"p{number}", owner, "Thing")
    await cluster.budget(**of_thing())
    await cluster.numbers(2, 2, 0, -1)
    await cluster.budget("named", selector={"matchLabels": {"app": "web"}}, protectTotalReplicas=2)
    await cluster.numbers(1, 2, 1, 2, name="named")


@pytest.mark.behaviour("PUB-34")
@in_cluster(kinds=(WITHOUT_SCALE,))
async def test_many_workloads_without_replicas_cost_one_read(cluster: SmallCluster) -> None:
    for number in range(5):
        await cluster.pod(f"p{number}", await thing(cluster, name=f"t{number}"), "Thing")
    await cluster.budget()
    await cluster.numbers(5, 5, 0, 0)
    assert len({sent for sent in cluster.sent.requests if "/things/" in sent}) == 1


@pytest.mark.behaviour("PUB-34")
@in_cluster(kinds=(WITHOUT_SCALE,))
async def test_a_kind_listed_among_statefulsets_reports_its_replicas(cluster: SmallCluster) -> None:
    owner = await thing(cluster, 3)
    for number in range(3):
        await cluster.pod(f"p{number}", owner, "Thing")
    await cluster.budget(**of_thing())
    await cluster.budget("selected")
    await cluster.numbers(3, 3, 0, -1)
    await cluster.numbers(3, 3, 0, 0, name="selected")
    listed = {"workloads": [{"Group": "example.com", "Version": "v1", "Kind": "Thing"}]}
    data = {"PPS_Watch_Custom_Workload_WhiteList": json.dumps(listed)}
    await cluster.user.create(NAMESPACES, {"metadata": {"name": "kruise-system"}})
    await cluster.user.create(CONFIGMAPS, {"metadata": {"name": "kruise-configuration"}, "data": data}, "kruise-system")
    await cluster.numbers(1, 3, 2, 3)
    await cluster.numbers(1, 3, 2, 3, name="selected")
    await cluster.user.patch(THINGS, "t", {"spec": {"replicas": None}}, NAMESPACE)
    await cluster.numbers(3, 3, 0, 0, name="selected")
    await cluster.user.delete(THINGS, "t", NAMESPACE, propagation_policy="Orphan")
    await cluster.numbers(0, 0, 0, 0)


@pytest.mark.behaviour("PUB-34", "PUB-50", "PUB-96")
@in_cluster
async def test_an_advanced_statefulset_is_watched_so_that_scale_in_is_not_delayed(cluster: SmallCluster) -> None:
    body = {"apiVersion": STATEFUL_SETS.api_version, "kind": "StatefulSet", "metadata": {"name": "web"}}
    owner = await cluster.user.create(STATEFUL_SETS, {**body, "spec": workload_spec(5)}, NAMESPACE)
    for number in range(5):
        await cluster.pod(f"web-{number}", owner, "StatefulSet")
    target = {"apiVersion": STATEFUL_SETS.api_version, "kind": "StatefulSet", "name": "web"}
    await cluster.budget(selector=None, targetRef=target, maxUnavailable="20%")
    await cluster.numbers(1, 5, 4, 5)
    before, since = len(cluster.sent.requests), cluster.clock.monotonic()
    await cluster.user.patch(STATEFUL_SETS, "web", {"spec": {"replicas": 2}}, NAMESPACE)
    await cluster.numbers(4, 5, 1, 2)
    assert cluster.clock.monotonic() - since < 1.0
    assert not [line for line in cluster.sent.requests[before:] if line.startswith("GET") and "watch" not in line]
    await cluster.user.patch(STATEFUL_SETS, "web", {"spec": {"replicas": None}}, NAMESPACE)
    await cluster.numbers(5, 5, 0, 1)
    await cluster.user.delete(STATEFUL_SETS, "web", NAMESPACE, propagation_policy="Orphan")
    await cluster.numbers(0, 0, 0, 0)


@pytest.mark.behaviour("PUB-36")
@in_cluster
async def test_a_kind_that_is_not_served_is_reported_and_retried(cluster: SmallCluster) -> None:
    await cluster.budget(**of_thing())
    assert await cluster.event("UnknownWorkload") == "spec.targetRef: example.com/v1 serves no namespaced kind Thing"
    assert await cluster.status() == {}
    await cluster.user.create(CUSTOMRESOURCEDEFINITIONS, WITH_SCALE)

    async def served() -> Json | None:
        try:
            return await thing(cluster, 1)
        except NotFound:
            return None

    owner = await cluster.until(served, "the kind is served")
    await cluster.pod("p0", owner, "Thing")
    await cluster.numbers(1, 1, 0, 1)


@pytest.mark.behaviour("PUB-36")
@in_cluster(kinds=(WITH_SCALE,))
async def test_one_selector_causes_a_limited_number_of_reads(
    cluster: SmallCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "MAX_READ", 2)
    for number in range(5):
        await cluster.pod(f"p{number}", await thing(cluster, 1, name=f"t{number}"), "Thing")
    await cluster.budget()
    assert await cluster.event("UnknownWorkload") == (
        "spec.selector: selects Pods of more than 2 workloads of kinds that are not watched; use a targetRef or a "
        "narrower selector"
    )
    assert len({sent for sent in cluster.sent.requests if "/things/" in sent and "scale" in sent}) == 0
    for number in range(3):
        await cluster.gone(f"p{number}")
    await cluster.numbers(1, 2, 1, 2)


@pytest.mark.behaviour("PUB-36")
@in_cluster(kinds=(WITH_SCALE,))
async def test_a_forbidden_workload_is_reported_with_the_missing_right(cluster: SmallCluster) -> None:
    await thing(cluster)
    text = 'things.example.com "t" is forbidden: User "kruise" cannot get resource "things" in API group "example.com"'
    refusal = json_response(403, status_body(403, "Forbidden", text))
    cluster.sent.intercept = lambda request: refusal if "/things/t" in request.path else None
    await cluster.budget(**of_thing())
    assert text in await cluster.event("MissingRight")


@pytest.mark.behaviour("PUB-34", "PUB-36")
@in_cluster(kinds=(WITH_SCALE,))
async def test_the_right_to_read_scales_is_enough(cluster: SmallCluster) -> None:
    owner = await thing(cluster, 2)
    refusal = json_response(403, status_body(403, "Forbidden", "things are not for you"))
    cluster.sent.intercept = lambda request: refusal if request.path.endswith("/things/t") else None
    await cluster.budget(**of_thing())
    await cluster.pod("p0", owner, "Thing")
    await cluster.numbers(0, 1, 1, 2)


@pytest.mark.behaviour("PUB-53")
@in_cluster
async def test_an_unusable_stored_value_is_reported(cluster: SmallCluster) -> None:
    await cluster.budget(maxUnavailable="many")
    await cluster.event("CalculateExpectedPodCountFailed")


@pytest.mark.behaviour("PUB-54", "PUB-55", "PUB-56")
@in_cluster
async def test_grants_are_released_when_done_or_expired(cluster: SmallCluster) -> None:
    replica = await cluster.begin(4, max_unavailable=3)
    stays, goes, changes = [await cluster.get(f"web-{number}") for number in range(3)]
    changed = copy.deepcopy(changes)
    changed["spec"]["containers"][0]["image"] = "nginx:2"
    for decision in (await replica.delete(stays), await replica.delete(goes), await replica.update(changes, changed)):
        assert is_allowed(decision)
    status = await cluster.numbers(0, 1, 1, 4)
    assert (set(status["disruptedPods"]), set(status["unavailablePods"])) == ({"web-0", "web-1"}, {"web-2"})
    await cluster.gone("web-1")
    await cluster.user.patch(PODS, "web-2", {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}, NAMESPACE)
    await cluster.is_ready("web-2", ready=False)
    await cluster.clock.sleep(2)
    await cluster.is_ready("web-2")
    # Long before ten seconds: the deletion and the recovery were observed.
    status = await cluster.numbers(1, 2, 1, 4)
    assert set(status["disruptedPods"]) == {"web-0"}
    assert "unavailablePods" not in status
    assert await cluster.events("NotDeleted") == []
    looked = cluster.sent.refuses("GET", "/pods/web-0")  # a Pod that cannot be read is not gone
    await cluster.clock.sleep(20)
    assert looked
    assert set((await cluster.numbers(1, 2, 1, 4))["disruptedPods"]) == {"web-0"}
    cluster.sent.intercept = lambda _: None
    await cluster.clock.sleep(20)
    await cluster.numbers(2, 3, 1, 4)
    assert await cluster.events("NotDeleted") == ["Pod was expected by PUB default/shop to be deleted but it wasn't"]


@pytest.mark.behaviour("PUB-56", "PUB-90")
@in_cluster
@pytest.mark.parametrize("replaced", [True, False])
async def test_a_pod_that_recovered_unobserved_is_not_waited_for(
    cluster: SmallCluster, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A workload controller in the same process updates the Pod, which is ready within a second: no reconcile sees it
    unhealthy, and its Ready condition keeps its timestamp."""
    refused: list[tuple[str, str]] = []
    monkeypatch.setattr(cluster.asked, "_refused", lambda pod, user: refused.append((pod.metadata.name, user)))
    await cluster.begin(3)
    since = cluster.now()
    for name in ("web-0", "web-1", "web-2"):
        await cluster.is_ready(name, container_id=f"containerd://{name}", since=since)
    await cluster.numbers(1, 3, 2, 3)
    assert await cluster.update_granted("web-0")
    assert not await cluster.update_granted("web-1")
    assert refused == [("web-1", "kruise-manager")]
    body = {"spec": {"containers": [{"name": "main", "image": "nginx:2"}]}}
    await cluster.user.patch(PODS, "web-0", body, NAMESPACE, kind=PatchType.STRATEGIC)
    after = "containerd://other" if replaced else "containerd://web-0"
    await cluster.is_ready("web-0", container_id=after, image="docker.io/library/nginx:2", since=since)
    started = cluster.clock.monotonic()
    await cluster.numbers(1, 3, 2, 3)
    waited = cluster.clock.monotonic() - started
    assert waited < 1 if replaced else 9 < waited < 12
    assert await cluster.update_granted("web-1")


@pytest.mark.behaviour("PUB-54")
@in_cluster
async def test_a_grant_completes_for_a_pod_that_was_already_terminating(cluster: SmallCluster) -> None:
    await cluster.begin(3)
    await cluster.user.patch(PODS, "web-0", {"metadata": {"finalizers": ["example.com/stay"]}}, NAMESPACE)
    await cluster.user.delete(PODS, "web-0", NAMESPACE)
    await cluster.numbers(0, 2, 2, 3)
    entry = {"status": {"disruptedPods": {"web-0": cluster.now()}}}
    await cluster.user.patch(BUDGETS, "shop", entry, NAMESPACE, subresource="status")
    await cluster.clock.sleep(1)
    assert "disruptedPods" not in await cluster.status()


GARBAGE = "\x00{[\u2028" * 50
LONG_AGO, TO_COME = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"
HOSTILE_STATUSES = [
    pytest.param({"disruptedPods": {f"x{number}": TO_COME for number in range(3000)}}, id="to come"),
    pytest.param({"unavailablePods": {f"x{number}": LONG_AGO for number in range(3000)}}, id="long ago"),
    pytest.param({"disruptedPods": {GARBAGE: TO_COME, "": LONG_AGO, "web-0": "2030-01-01T00:00:00+14:00"}}, id="names"),
    pytest.param({"unavailableAllowed": -(2**31), "currentAvailable": -5, "desiredAvailable": -1}, id="negative"),
    pytest.param({"unavailableAllowed": 2**31 - 1, "observedGeneration": 10**15}, id="too many"),
]


@pytest.mark.behaviour("PUB-54", "PUB-58", "PUB-67")
@pytest.mark.parametrize("held", HOSTILE_STATUSES)
@in_cluster
async def test_an_invalid_status_is_replaced_and_grants_nothing(cluster: SmallCluster, held: Json) -> None:
    """Users who can write a status can write anything into it."""
    replica = await cluster.begin(3)
    forged = {**await cluster.status(), **held}
    await cluster.user.patch(BUDGETS, "shop", {"status": forged}, NAMESPACE, subresource="status")
    await cluster.clock.sleep(1)
    await cluster.numbers(1, 3, 2, 3)
    found = [is_allowed(await replica.delete(await cluster.get(f"web-{number}"))) for number in range(3)]
    assert found.count(True) == 1


@pytest.mark.behaviour("PUB-3", "PUB-30", "PUB-41", "PUB-64", "PUB-120", "PUB-122")
@pytest.mark.parametrize(
    "text", [GARBAGE, "[" * 20_000, "null", "{]", "\ud83d\ude00", "x" * 30_000, " ", "../shop", "-1", "1e9"]
)
@in_cluster
async def test_garbage_in_annotations_frees_no_pod_and_blocks_no_other(cluster: SmallCluster, text: str) -> None:
    """Covers every annotation of budgets and Pods that is read."""
    written = ("kruise.io/pub-protect-operations", "pub.kruise.io/protect-total-replicas")
    await cluster.budget(annotations=dict.fromkeys(written, text))
    read = (
        "pub.kruise.io/no-protect",
        "apps.kruise.io/inplace-update-state",
        "apps.kruise.io/inplace-update-grace",
        "kruise.io/sidecarset-hash",
        "kruise.io/sidecarset-inplace-update-state",
    )
    owner = await cluster.replicaset(replicas=3)
    for number in range(3):
        await cluster.pod(f"web-{number}", owner, annotations=dict.fromkeys(read, text))
    if text != "-1":  # which is a number
        await cluster.numbers(1, 3, 2, 3)
    for number in range(3):
        related = {"metadata": {"annotations": {"pub.kruise.io/related-pub": text}}}
        await cluster.user.patch(PODS, f"web-{number}", related, NAMESPACE)

    async def budgets() -> set[str]:
        return {(await cluster.annotations(f"web-{number}"))["pub.kruise.io/related-pub"] for number in range(3)}

    await cluster.becomes(budgets, {"shop"})
    pods = [await cluster.get(f"web-{number}") for number in range(3)]
    await cluster.clock.sleep(1)
    found = [is_allowed(await cluster.replicas[0].delete(pod)) for pod in pods]
    assert found.count(True) == (await cluster.status())["totalReplicas"] - 2
