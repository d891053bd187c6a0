"""Pods without their sidecars are evicted one by one: the plan, and the controller on the sandbox's API server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from app.features.sidecarset.feature import FEATURE
from app.features.sidecarset.kind import SIDECAR_SET
from app.features.sidecarset.missed_pods import NAME, SLOW_RETRY
from app.features.sidecarset.plan.missed_pods import Limits, limits_of, next_step, pod_patch
from app.kube.client import Client, PatchType
from app.kube.objects import Pod, decode_pod
from app.kube.quantities import IntOrPercentError
from app.kube.resources import DEPLOYMENTS, EVENTS, NAMESPACES, PODS, REPLICASETS, Resource
from app.sandbox.apiserver.server import ApiServer
from tests.kit import cluster, objects
from tests.kit.objects import owner_of, workload_spec
from tests.kube.fakes import virtual

pytestmark = pytest.mark.behaviour("SS-137")
Json = dict[str, Any]
SETS = SIDECAR_SET.resource()
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")


# ---- the plan


def pod(name: str, *, ready: bool = True) -> Pod:
    return objects.pod(name, namespace=None, uid=name, ready=ready)


THREE = [pod("a"), pod("b"), pod("c")]


@pytest.mark.parametrize(
    ("pods", "missed", "limits", "evicted", "said"),
    [
        pytest.param(THREE, THREE[:2], Limits(3, 1), "a", "", id="the first Pod"),
        pytest.param(THREE[:2], THREE[:2], Limits(3, 1), "", "", id="one is missing"),
        pytest.param([*THREE, pod("d", ready=False)], THREE, Limits(4, 1), "", "", id="one is not ready"),
        pytest.param([*THREE, pod("d", ready=False)], THREE, Limits(4, 2), "a", "", id="there is room for two"),
        pytest.param(
            [pod("d", ready=False), *THREE], [pod("d", ready=False)], Limits(4, 0), "d", "", id="it serves no Pod"
        ),
        pytest.param(THREE, THREE, Limits(3, 0), "", "allows no Pod to be unavailable", id="none may be unavailable"),
    ],
)
def test_one_pod_at_a_time_is_evicted_within_the_limits(
    pods: list[Pod], missed: list[Pod], limits: Limits, evicted: str, said: str
) -> None:
    step = next_step(pods, missed, limits)
    assert (step.evict.metadata.name if step.evict is not None else "") == evicted
    assert said in step.left
    assert bool(said) is bool(step.left)


def rolling(max_unavailable: int | str) -> Json:
    return {"updateStrategy": {"rollingUpdate": {"maxUnavailable": max_unavailable}}}


@pytest.mark.parametrize(
    ("group", "kind", "spec", "limits"),
    [
        ("apps", "Deployment", {"replicas": 10}, Limits(10, 2)),
        ("apps", "Deployment", {"replicas": 3}, Limits(3, 0)),
        ("apps", "Deployment", {"strategy": {"rollingUpdate": {"maxUnavailable": 0, "maxSurge": 0}}}, Limits(1, 1)),
        ("apps", "ReplicaSet", {"replicas": 4}, Limits(4, 1)),
        ("apps", "StatefulSet", {"replicas": 4}, Limits(4, 1)),
        ("apps.kruise.io", "StatefulSet", {"replicas": 4, **rolling("50%")}, Limits(4, 2)),
        ("apps.kruise.io", "CloneSet", {"replicas": 6}, Limits(6, 2)),
        ("apps.kruise.io", "CloneSet", {"replicas": 6, **rolling(0)}, Limits(6, 0)),
        ("apps", "DaemonSet", {}, Limits(7, 1)),
    ],
)
def test_a_workload_limits_its_replacements(group: str, kind: str, spec: Json, limits: Limits) -> None:
    assert limits_of(group, kind, {"spec": spec, "status": {"desiredNumberScheduled": 7}}) == limits


@pytest.mark.parametrize("value", ["half", True, [1]])
def test_unreadable_limits_are_reported(value: object) -> None:
    with pytest.raises(IntOrPercentError):
        limits_of("apps", "StatefulSet", {"spec": {"replicas": value}})


# ---- the controller


class Shop(cluster.World):
    """A namespace with a ReplicaSet whose Pods the test recreates with their sidecar."""

    def __init__(self, api: ApiServer, client: Client, manager: Any) -> None:
        super().__init__(api, client, manager)
        #: apiVersion and kind of the workload, and the spec of the Deployment above it.
        self.owner = ("", "")
        self.deployment: Json | None = None
        self.uid = ""
        self.made = 0
        #: Smallest number of Pods seen during the replacement.
        self.fewest = 99

    async def start(self, replicas: int) -> None:
        await self.client.create(NAMESPACES, {"metadata": {"name": "shop"}})
        container = {"name": "shipper", "image": "a:1"}
        spec: Json = {"selector": {"matchLabels": {"app": "web"}}, "containers": [container]}
        kind = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "SidecarSet"}
        await self.client.create(SETS, {**kind, "metadata": {"name": "logs"}, "spec": spec})
        body = workload_spec(replicas)
        metadata: Json = {"name": "web"}
        if self.deployment is not None:
            above = {"metadata": {"name": "web"}, "spec": {**body, **self.deployment}}
            metadata["ownerReferences"] = [owner_of(await self.client.create(DEPLOYMENTS, above, "shop"))]
        made = await self.client.create(REPLICASETS, {"metadata": metadata, "spec": body}, "shop")
        self.uid = made["metadata"]["uid"]
        for _ in range(replicas):
            await self.pod(missed=True)

    async def allow(self, disruptions: int) -> None:
        """Set the disruptions that the budget of the Pods allows; the first call creates the budget."""
        selector = {"matchLabels": {"app": "web"}}
        if not (await self.client.list(BUDGETS, "shop")).items:
            spec = {"minAvailable": 2, "selector": selector}
            await self.client.create(BUDGETS, {"metadata": {"name": "web"}, "spec": spec}, "shop")
        status = {"disruptionsAllowed": disruptions, "currentHealthy": 2, "desiredHealthy": 2, "expectedPods": 2}
        body = {"status": status | {"observedGeneration": 1}}
        await self.client.patch(BUDGETS, "web", body, "shop", subresource="status")

    async def pod(self, *, missed: bool = False) -> None:
        self.made += 1
        owner = objects.reference(*self.owner, "web", self.uid)
        annotations = {} if missed else {"kruise.io/sidecarset-injected-list": "logs"}
        metadata = {
            "name": f"web-{self.made}",
            "labels": {"app": "web"},
            "annotations": annotations,
            "ownerReferences": [owner],
        }
        spec = {"containers": [{"name": "main", "image": "n:1"}], "terminationGracePeriodSeconds": 0}
        await self.client.create(PODS, {"metadata": metadata, "spec": spec}, "shop")
        conditions = [{"type": "Ready", "status": "True"}]
        await self._status(f"web-{self.made}", {"phase": "Running", "conditions": conditions})
        if missed:
            created = await self.client.get(PODS, f"web-{self.made}", "shop", decode=decode_pod)
            patch = pod_patch(created, ["logs"], self.client.clock.now())
            await self._status(f"web-{self.made}", patch["status"])

    async def _status(self, name: str, status: Json) -> None:
        await self.client.patch(PODS, name, {"status": status}, "shop", kind=PatchType.STRATEGIC, subresource="status")

    async def pods(self) -> dict[str, bool]:
        found = (await self.client.list(PODS, "shop")).items
        return {one["metadata"]["name"]: "annotations" in one["metadata"] for one in found}

    async def repaired(self, replicas: int) -> None:
        """Recreate deleted Pods a second later, until all have their sidecar."""
        end = self.client.clock.monotonic() + 120
        while len(pods := await self.pods()) < replicas or not all(pods.values()):
            assert self.client.clock.monotonic() < end, f"not within 120 s: {pods}"
            await self.client.clock.sleep(1.0)
            there = len(await self.pods())
            self.fewest = min(self.fewest, there)
            for _ in range(replicas - there):
                await self.pod()


@asynccontextmanager
async def shop(
    replicas: int,
    budget: int | None = None,
    paused: bool = False,
    owner: tuple[str, str] = ("apps/v1", "ReplicaSet"),
    deployment: Json | None = None,
) -> AsyncIterator[Shop]:
    """Run the controller in a namespace whose Pods lack their sidecars. ``budget`` limits disruptions."""

    async def begin(there: Shop) -> None:
        there.owner, there.deployment = owner, deployment
        await there.start(replicas)
        if budget is not None:
            await there.allow(budget)
        if paused:
            await there.client.patch(SETS, "logs", {"spec": {"injectionStrategy": {"paused": True}}})

    async with cluster.cluster(Shop, FEATURE, controllers=[NAME], before=begin) as there:
        yield there


@virtual
async def test_pods_are_replaced_in_turn() -> None:
    async with shop(3) as found:
        await found.repaired(3)
        assert found.fewest == 2
        events = (await found.client.list(EVENTS)).items
        told = sorted(one["involvedObject"]["name"] for one in events if one["reason"] == "EvictedForSidecars")
        assert told == ["web-1", "web-2", "web-3"]


@virtual
async def test_a_budget_delays_replacements() -> None:
    async with shop(2, budget=0) as found:
        await found.client.clock.sleep(60)
        assert sorted(await found.pods()) == ["web-1", "web-2"]
        await found.allow(2)
        await found.repaired(2)


@virtual
async def test_no_pod_is_evicted_while_injection_is_paused() -> None:
    async with shop(2, paused=True) as found:
        await found.client.clock.sleep(60)
        assert sorted(await found.pods()) == ["web-1", "web-2"]


@virtual
async def test_a_deployment_limits_the_replacements_of_its_replicasets() -> None:
    async with shop(3, deployment={}) as found:
        await found.client.clock.sleep(60)
        assert len(await found.pods()) == 3, "a quarter of them is none"
        spec = {"replicas": 9, "strategy": {"rollingUpdate": {"maxUnavailable": 1}}}  # six belong to another ReplicaSet
        await found.client.patch(DEPLOYMENTS, "web", {"spec": spec}, "shop")
        await found.client.clock.sleep(SLOW_RETRY)
        assert len(await found.pods()) == 2


@virtual
async def test_pods_of_other_kinds_are_reported_and_kept() -> None:
    async with shop(1, owner=("example.com/v1", "Gizmo")) as found:
        await found.client.clock.sleep(30)
        assert sorted(await found.pods()) == ["web-1"]
        events = (await found.client.list(EVENTS)).items
        assert [one["reason"] for one in events] == ["SidecarsNotRepaired"]
