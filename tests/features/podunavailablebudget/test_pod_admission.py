"""The Pod guard of several replicas, on an API server in memory."""

from __future__ import annotations

import asyncio
import copy
from random import Random
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from app.admission.pod_webhooks import PodGuards
from app.features.podunavailablebudget import feature as declared
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.framework.feature import AdmissionContext
from app.framework.watched import Stores
from app.kube.admission import Denied, Operation
from app.kube.client import Client
from app.kube.resources import PODS
from app.manager.flags import parse_flags
from app.manager.gates import parse_gates
from tests.features.podunavailablebudget.world import (
    BUDGETS,
    NAMESPACE,
    Json,
    Replica,
    SmallCluster,
    in_cluster,
    is_allowed,
    refusal,
    small_cluster,
)
from tests.kit.objects import pod_review
from tests.kit.transports import Counting
from tests.kube.fakes import json_response, status_body, until, virtual
from tests.nightly import examples


@pytest.mark.behaviour("PUB-60", "PW-21", "PW-22", "PW-25")
@in_cluster
async def test_unprotected_requests_pass_without_a_request(cluster: SmallCluster) -> None:
    replica = cluster.replicas[0]
    pod = await cluster.pod("alone")
    before = len(replica.sent.requests)
    assert is_allowed(await replica.review(Operation.DELETE, name="alone"))
    assert is_allowed(await replica.review(Operation.DELETE, "status", old=pod))
    assert is_allowed(await replica.review(Operation.CREATE, "binding", object={}, name="alone"))
    assert is_allowed(await replica.review(Operation.CREATE, object=pod))
    assert is_allowed(await replica.delete(pod))
    assert len(replica.sent.requests) == before


@pytest.mark.behaviour("PUB-30", "PUB-60", "PUB-85")
@in_cluster
async def test_evictions_share_one_lookup_per_second_without_budgets(cluster: SmallCluster) -> None:
    replica = cluster.replicas[0]
    await cluster.pod("alone")
    before = len(replica.sent.requests)
    answers = await asyncio.gather(*(replica.evict("alone") for _ in range(20)))
    assert all(map(is_allowed, answers))
    assert is_allowed(await replica.evict("alone"))
    assert replica.sent.requests[before:] == [f"GET {BUDGETS.path('')}"]
    await cluster.clock.sleep(1.1)
    assert is_allowed(await replica.evict("alone"))
    assert len(replica.sent.requests) == before + 2


@pytest.mark.behaviour("PUB-30", "PUB-85")
@in_cluster
async def test_a_replica_that_has_not_seen_the_first_budget_blocks_evictions(cluster: SmallCluster) -> None:
    deaf = Replica(cluster.api, cluster.clock, 9)  # it receives no watch events
    await cluster.made(2)
    assert is_allowed(await deaf.evict("web-0"))
    await cluster.budget(maxUnavailable=0)
    await cluster.numbers(0, 2, 2, 2)
    await cluster.clock.sleep(1.1)
    denied = refusal(await deaf.evict("web-0"))
    assert (denied.code, denied.reason) == (429, "TooManyRequests")
    assert "(allowed 0, desired 2, current 2)" in denied.message


@pytest.mark.behaviour("PUB-30", "MGR-60")
@pytest.mark.parametrize(("namespace", "asked"), [(NAMESPACE, 1), ("elsewhere", 0)])
@in_cluster
async def test_a_manager_of_one_namespace_reads_only_that_namespace(
    cluster: SmallCluster, namespace: str, asked: int
) -> None:
    """It cannot list budgets or read Pods elsewhere, so otherwise it would refuse every drain."""

    async def fetch(where: str, name: str) -> Json | None:
        raise AssertionError(f"Pod {where}/{name} is of no interest")

    sent = Counting(cluster.api.transport())
    everywhere = json_response(403, status_body(403, "Forbidden", "cannot list resource at the cluster scope"))
    sent.intercept = lambda request: everywhere if request.path == BUDGETS.path("") else None
    stores = Stores([declared.BUDGETS])
    if namespace != NAMESPACE:
        body = {"metadata": {"name": "shop", "namespace": namespace}, "spec": {"maxUnavailable": 0}}
        stores(declared.BUDGETS).put(PodUnavailableBudget.model_validate(body))
    context = AdmissionContext(
        client=Client(sent, cluster.clock),
        stores=stores,
        events=None,
        clock=cluster.clock,
        rng=Random(1),
        own_namespace="kruise-system",
        enabled=parse_gates("").enabled,
        flags=parse_flags((f"--namespace={namespace}",)),
        counters=lambda make: make(CollectorRegistry()),
    )
    guards = PodGuards(declared.guarding(context).guards, fetch)
    review = pod_review(Operation.CREATE, {"metadata": {"name": "alone"}}, subresource="eviction", namespace=NAMESPACE)
    assert is_allowed(await guards(review))
    assert sent.requests == [f"GET {BUDGETS.path(NAMESPACE)}"] * asked


@pytest.mark.behaviour("PW-21", "PUB-127")
@in_cluster
async def test_an_eviction_is_retried_later_while_budgets_are_unknown(cluster: SmallCluster) -> None:
    replica = cluster.replicas[0]
    await cluster.made(1)
    replica.sent.intercept = lambda _: json_response(500, status_body(500, "InternalError", "etcd is away"))
    denied = refusal(await replica.evict("web-0"))
    assert (denied.code, denied.reason) == (429, "TooManyRequests")
    assert denied.message == "looking up PodUnavailableBudgets: etcd is away"
    replica.sent.intercept = lambda _: json_response(404, status_body(404, "NotFound", "no such kind"))
    assert is_allowed(await replica.evict("web-0"))


@pytest.mark.behaviour("PW-21")
@pytest.mark.parametrize(
    "broken",
    [
        {"spec": 7},
        {"status": {"conditions": [7]}},
        {"metadata": {"name": "x", "labels": {"a": 1}, "annotations": {"pub.kruise.io/related-pub": "shop"}}},
    ],
)
@in_cluster
async def test_an_unreadable_pod_is_a_bad_request(cluster: SmallCluster, broken: Json) -> None:
    await cluster.budget()
    related = {"name": "x", "namespace": NAMESPACE, "annotations": {"pub.kruise.io/related-pub": "shop"}}
    denied = refusal(await cluster.replicas[0].delete({"metadata": related, **broken}))
    assert denied.code == 400
    assert "expected a Pod" in denied.message


@pytest.mark.behaviour("PW-21")
@in_cluster
async def test_an_eviction_of_an_unreadable_pod_is_refused_and_of_a_missing_pod_allowed(cluster: SmallCluster) -> None:
    replica = await cluster.begin(1)
    assert is_allowed(await replica.evict("nobody"))
    replica.sent.intercept = lambda _: json_response(403, status_body(403, "Forbidden", "no pods for you"))
    denied = await replica.evict("web-0")
    assert denied == Denied("no pods for you", code=400)


@pytest.mark.behaviour("PUB-62", "PUB-67", "PUB-69", "PUB-127", "PUB-130", "PW-24")
@in_cluster
async def test_a_refusal_names_its_operation_and_is_recorded(cluster: SmallCluster) -> None:
    replica = await cluster.begin(1, max_unavailable=0)
    pod = await cluster.get("web-0")
    text = (
        'podunavailablebudget.policy.kruise.io "shop" is forbidden: pub unavailable allowed is negative '
        "(allowed 0, desired 1, current 1)"
    )
    assert await replica.delete(pod) == Denied(text, 403, "Forbidden")
    assert await replica.evict("web-0") == Denied(text, 429, "TooManyRequests")
    changed = copy.deepcopy(pod)
    changed["spec"]["containers"][0]["image"] = "nginx:2"
    assert await replica.update(pod, changed) == Denied(text, 403, "Forbidden")
    assert replica.refused == [("web-0", "jane")] * 3
    # A change of irrelevant fields is no update.
    labeled = copy.deepcopy(pod)
    labeled["metadata"]["labels"]["x"] = "y"
    assert is_allowed(await replica.update(pod, labeled))
    unprotected = copy.deepcopy(pod)
    unprotected["metadata"]["annotations"]["pub.kruise.io/no-protect"] = "true"
    assert is_allowed(await replica.update(pod, unprotected))


@pytest.mark.behaviour("PUB-63", "PUB-66", "PUB-123")
@in_cluster
async def test_a_resize_subresource_is_treated_like_an_update(cluster: SmallCluster) -> None:
    replica = await cluster.begin(2)
    resources = {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}
    old = await cluster.get("web-0")
    old["spec"]["containers"][0]["resources"] = resources
    new = copy.deepcopy(old)
    new["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "1500m"
    assert is_allowed(await replica.update(old, new, "resize"))
    assert set((await cluster.status())["unavailablePods"]) == {"web-0"}
    other = {**old, "metadata": {**old["metadata"], "name": "web-1"}}
    assert not is_allowed(await replica.update(other, {**new, "metadata": other["metadata"]}, "resize"))


@pytest.mark.behaviour("PUB-126")
@in_cluster
async def test_removing_the_annotation_keeps_a_pod_protected(cluster: SmallCluster) -> None:
    replica = await cluster.begin(1, max_unavailable=0)
    old = await cluster.get("web-0")
    new = copy.deepcopy(old)
    new["metadata"]["annotations"] = {}
    new["spec"]["containers"][0]["image"] = "nginx:2"
    assert not is_allowed(await replica.update(old, new))
    # An update that assigns a budget is judged by that budget.
    assert not is_allowed(await replica.update(new, {**old, "spec": {"containers": []}}))


@pytest.mark.behaviour("PW-27")
@pytest.mark.parametrize("how", ["request", "options", "eviction", "request of an eviction"])
@in_cluster
async def test_a_dry_run_is_checked_without_a_grant(cluster: SmallCluster, how: str) -> None:
    replica, dry = await cluster.begin(2), {"dryRun": ["All"]}
    for name in ("web-0", "web-1"):
        pod = await cluster.get(name)
        if how == "request":
            assert is_allowed(await replica.delete(pod, dry_run=True))
        elif how == "options":
            assert is_allowed(await replica.delete(pod, options=dry))
        elif how == "request of an eviction":
            assert is_allowed(await replica.evict(name, dry_run=True))
        else:
            assert is_allowed(await replica.evict(name, eviction={"deleteOptions": dry}))
    assert (await cluster.status()).get("disruptedPods") is None
    assert is_allowed(await replica.delete(await cluster.get("web-0")))
    assert not is_allowed(await replica.delete(await cluster.get("web-1"), dry_run=True))


@pytest.mark.behaviour("PUB-64", "PUB-124")
@in_cluster(2)
async def test_a_grant_of_one_replica_is_not_charged_by_another(cluster: SmallCluster) -> None:
    await cluster.begin(3)
    pod = await cluster.get("web-0")
    found = await asyncio.gather(*(replica.delete(pod) for replica in cluster.replicas * 3))
    assert all(map(is_allowed, found))
    assert (await cluster.status())["unavailableAllowed"] == 0


@pytest.mark.behaviour("PUB-30", "PUB-85")
@in_cluster
async def test_a_replica_with_a_stale_cache_still_applies_a_new_budget(cluster: SmallCluster) -> None:
    await cluster.begin(2)
    deaf = Replica(cluster.api, cluster.clock, 1)
    # It only knows one of another namespace.
    elsewhere = {"metadata": {"name": "shop", "namespace": "elsewhere"}, "spec": {"maxUnavailable": 1}}
    deaf.budgets.put(PodUnavailableBudget.model_validate(elsewhere))
    assert is_allowed(await deaf.evict("web-0"))
    assert (await cluster.status())["unavailableAllowed"] == 0
    assert not is_allowed(await deaf.evict("web-1"))
    assert not is_allowed(await deaf.delete(await cluster.get("web-1")))


@pytest.mark.behaviour("PUB-121")
@in_cluster(controller=False)
async def test_a_budget_without_status_is_awaited_and_then_refuses(cluster: SmallCluster) -> None:
    await cluster.budget()
    replica = cluster.replicas[0]
    pod = await cluster.pod("web-0", annotations={"pub.kruise.io/related-pub": "shop"})
    began = cluster.clock.monotonic()
    assert "not computed yet: try again" in refusal(await replica.delete(pod)).message
    assert 1.5 < cluster.clock.monotonic() - began < 3
    assert refusal(await replica.evict("web-0")).code == 429

    async def compute() -> None:
        await cluster.clock.sleep(0.5)
        status = {"unavailableAllowed": 1, "currentAvailable": 1, "desiredAvailable": 1, "totalReplicas": 1}
        body = {"status": {**status, "observedGeneration": 1}}
        await cluster.user.patch(BUDGETS, "shop", body, NAMESPACE, subresource="status")

    later, _ = await asyncio.gather(replica.delete(pod), compute())
    assert is_allowed(later)


@pytest.mark.behaviour("PUB-59", "PUB-122")
@in_cluster
async def test_a_pod_of_a_deleted_budget_falls_under_another_match(cluster: SmallCluster) -> None:
    await cluster.budget(maxUnavailable=0)
    owner = await cluster.replicaset(replicas=1)
    pod = await cluster.pod("web-0", owner, annotations={"pub.kruise.io/related-pub": "former"})
    await cluster.numbers(0, 1, 1, 1)
    assert '"shop" is forbidden' in refusal(await cluster.replicas[0].delete(pod)).message
    # The controller has assigned it to that budget by now; without any budget it keeps the annotation unprotected.
    assert (await cluster.annotations("web-0"))["pub.kruise.io/related-pub"] == "shop"
    await cluster.user.delete(BUDGETS, "shop", NAMESPACE)
    await cluster.clock.sleep(0.1)
    assert is_allowed(await cluster.replicas[0].delete(await cluster.get("web-0")))
    assert (await cluster.annotations("web-0"))["pub.kruise.io/related-pub"] == "shop"


@pytest.mark.behaviour("PUB-82", "PUB-83")
@in_cluster
async def test_a_failed_charge_refuses_the_deletion(cluster: SmallCluster) -> None:
    replica, pod = await cluster.begin(2), await cluster.get("web-0")
    for code, reason in ((409, "Conflict"), (403, "Forbidden"), (500, "InternalError")):
        answer = json_response(code, status_body(code, reason, f"because of {reason}"))
        replica.sent.intercept = lambda r, answer=answer: answer if r.method == "PATCH" else None  # type: ignore[misc]
        denied = refusal(await replica.delete(pod))
        assert denied.code == 403
        assert f"because of {reason}" in denied.message
    replica.sent.intercept = lambda _: None
    assert is_allowed(await replica.delete(pod))


@pytest.mark.behaviour("PUB-129", "PW-20")
@in_cluster(removals=False, updates=False)
async def test_with_the_gate_off_nothing_is_checked(cluster: SmallCluster) -> None:
    replica, pod = await cluster.begin(1, max_unavailable=0), await cluster.get("web-0")
    assert is_allowed(await replica.delete(pod))
    assert is_allowed(await replica.evict("web-0"))
    assert is_allowed(await replica.update(pod, {**pod, "spec": {}}))


@pytest.mark.behaviour("PUB-80", "PUB-85")
@pytest.mark.parametrize("how", ["calm", "adverse", "clocks"])
@pytest.mark.parametrize("seed", range(examples(12)))
def test_replicas_together_respect_the_limit(seed: int, how: str) -> None:
    """Deleted Pods linger and are replaced; requests and responses get lost, watches lag, replicas lose their
    connection, leaders change, and clocks differ by seconds."""
    adverse = how == "adverse"

    @virtual
    async def test() -> None:
        rng = Random(seed)
        count, allowed = 12, rng.randint(0, 4)
        # As admission annotates new Pods.
        related = {"pub.kruise.io/related-pub": "shop"}
        drawn = {"adverse": rng} if adverse else {"clocks": rng} if how == "clocks" else {}
        async with small_cluster(rng.randint(1, 4), **drawn) as cluster:
            await cluster.budget(maxUnavailable=allowed)
            owner = await cluster.replicaset(replicas=count)
            for number in range(count):
                await cluster.pod(f"web-{number}", owner, annotations=related)
            await cluster.numbers(allowed, count, count - allowed, count)
            # A replica whose cache has no budget yet reads no evicted Pod.
            await until(lambda: all(replica.budgets.list() for replica in cluster.replicas))
            fresh = iter(range(1000, 2000))
            worst = count

            async def go(name: str) -> None:
                await cluster.clock.sleep(rng.random())
                await cluster.gone(name)
                await cluster.clock.sleep(rng.random() * 3)
                await cluster.pod(f"web-{next(fresh)}", owner, annotations=related)

            async def attack() -> None:
                nonlocal worst
                for _ in range(25):
                    await cluster.clock.sleep(rng.random())
                    found = (await cluster.user.list(PODS, NAMESPACE)).items
                    pod: Any = rng.choice([one for one in found if one["status"]["phase"] == "Running"])
                    replica = rng.choice(cluster.replicas)
                    if replica.network is not None:
                        replica.network.cut_off = rng.random() < 0.1
                    decision = await (
                        replica.delete(pod) if rng.random() < 0.5 else replica.evict(pod["metadata"]["name"])
                    )
                    found = (await cluster.user.list(PODS, NAMESPACE)).items
                    there = {one["metadata"]["name"] for one in found if one["status"]["phase"] == "Running"}
                    name = pod["metadata"]["name"]
                    if is_allowed(decision) and name in there and name not in going:
                        going.add(name)
                        tasks.append(asyncio.create_task(go(name)))
                    worst = min(worst, len(there - going))

            going: set[str] = set()
            tasks: list[asyncio.Task[None]] = []
            await asyncio.gather(*(attack() for _ in range(6)))
            await asyncio.gather(*tasks)
            assert worst >= count - allowed
            assert allowed == 0 or len(going) > allowed
            for replica in cluster.replicas:
                if replica.network is not None:
                    replica.network.cut_off = False
            # Grants that were not used are returned.
            await cluster.numbers(allowed, count, count - allowed, count)

    test()
