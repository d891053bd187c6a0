"""Targets as the API server has them: native ones, and kinds that the operator lists."""

from __future__ import annotations

from dataclasses import fields
from itertools import islice
from typing import Any

import pytest

from app.api import names
from app.features.workloadspread.index import prepare_spread
from app.features.workloadspread.plan.targets import Whitelist, parse_whitelist
from app.features.workloadspread.targets import MAX_HEIGHT, Caches, LiveTargets, Workloads
from app.kube.client import Client
from app.kube.errors import NotFound, ServerError
from app.kube.objects import ObjectMeta, OwnerReference, Workload
from app.kube.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    DEPLOYMENTS,
    NAMESPACES,
    REPLICASETS,
    Resource,
)
from app.kube.store import Store
from tests.features.workloadspread.spreads import spread
from tests.features.workloadspread.world import World, in_world
from tests.kit.cluster import served
from tests.kit.objects import SCALED, defined, owner_of, reference, workload_spec
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import MemoryServer

FLEETS = Resource("example.com", "v1", "fleets", "Fleet")
#: Its replicas are its size.
SIZED = {**SCALED, "scale": {**SCALED["scale"], "specReplicasPath": ".spec.size"}}
LISTED = '{"workloads":[{"Group":"example.com","Kind":"Fleet"%s}]}'


async def fleets(there: World) -> None:
    await there.client.create(CUSTOMRESOURCEDEFINITIONS, defined(FLEETS, subresources=SIZED))
    await served(there.client, FLEETS)
    there.owner = owner_of(await there.create(FLEETS, "shop", {"size": 7, "crew": 2}))


@pytest.mark.behaviour("WS-18", "WS-23", "WS-24")
@in_world
async def test_native_targets_and_their_owners_are_found(there: World) -> None:
    client, spec = there.client, workload_spec(4)
    above = owner_of(await there.create(DEPLOYMENTS, "shop", spec))
    below = await there.create(REPLICASETS, "shop-abc", spec, ownerReferences=[above])
    live = LiveTargets(client, Whitelist)
    prepared = prepare_spread(spread({"a": "50%"}, kind="Deployment"))
    assert await live.wanted(prepared) == 4
    await client.patch(DEPLOYMENTS, "shop", {"spec": {"replicas": 6}}, "ns")
    assert await live.wanted(prepared) == 6, "the current object"
    uid = below["metadata"]["uid"]
    found = await live.above(OwnerReference("apps/v1", "ReplicaSet", "shop-abc", uid, True), "ns")
    assert found is not None
    assert (found.kind, found.name) == ("Deployment", "shop")
    with pytest.raises(NotFound):
        await live.above(OwnerReference("apps/v1", "ReplicaSet", "none", "u", True), "ns")
    await client.patch(DEPLOYMENTS, "shop", {"metadata": {"finalizers": ["example.com/wait"]}}, "ns")
    await client.delete(DEPLOYMENTS, "shop", "ns")
    assert await live.wanted(prepared) == 0
    await client.patch(DEPLOYMENTS, "shop", {"metadata": {"finalizers": None}}, "ns")
    assert await live.wanted(prepared) == 0


@pytest.mark.behaviour("WS-37")
@in_world
async def test_a_place_is_granted_once_a_busy_api_server_answers(there: World) -> None:
    await there.workload(3)
    prepared = prepare_spread(spread({"a": "50%"}))
    live = LiveTargets(Client(there.manager, there.client.clock), Whitelist)
    failing = iter(range(4))
    there.manager.refuse = lambda _: next(failing, None) is not None
    assert await live.wanted(prepared) == 3
    there.manager.refuse = lambda _: True
    with pytest.raises(ServerError):
        await live.wanted(prepared)


@pytest.mark.behaviour("WS-23")
@in_world
async def test_owners_are_not_taken_from_pods_of_other_namespaces(there: World) -> None:
    client, spec = there.client, workload_spec(4)
    above = reference("apps/v1", "Deployment", "shop", "d")
    below = await there.create(REPLICASETS, "shop-abc", spec, ownerReferences=[above])
    live = LiveTargets(client, Whitelist)
    owner = OwnerReference("apps/v1", "ReplicaSet", "shop-abc", below["metadata"]["uid"], True)
    # A user without permissions in "ns" creates Pods that name its ReplicaSet.
    await client.create(NAMESPACES, {"metadata": {"name": "others"}})
    await client.create(REPLICASETS, {"metadata": {"name": "shop-abc"}, "spec": spec}, "others")
    assert await live.above(owner, "others") is None
    former = OwnerReference("apps/v1", "ReplicaSet", "shop-abc", "former", True)
    assert await live.above(former, "ns") is None, "another ReplicaSet has its name"
    found = await live.above(owner, "ns")
    assert found is not None
    assert found.name == "shop"
    counted = LiveTargets(Client(there.manager, there.clock), Whitelist)
    for uid, requests in (("former", 1), ("f" * 1_000_000, 2)):
        before = len(there.manager.requests)
        for _ in range(2):
            assert await counted.above(OwnerReference("apps/v1", "ReplicaSet", "shop-abc", uid, True), "ns") is None
        assert len(there.manager.requests) - before == requests, "long references are not kept"


@pytest.mark.behaviour("WS-23")
def test_owner_references_that_form_a_cycle_end_the_search() -> None:
    stores: list[Any] = [Store() for _ in fields(Caches)]
    caches = Caches(*stores)
    for name, above in (("one", "other"), ("other", "one")):
        owner = OwnerReference("apps/v1", "ReplicaSet", above, "u", True)
        caches.replicasets.put(Workload(ObjectMeta(name=name, namespace="ns", owner_references=(owner,))))
    workloads = Workloads(Client(MemoryServer(), VirtualClock()), caches, Whitelist, ())
    above_one = caches.replicasets.list()[0].metadata
    found = list(islice(workloads.keys_above(above_one), MAX_HEIGHT + 1))
    assert len(found) <= MAX_HEIGHT
    assert set(found) == {("apps", "ReplicaSet", "one"), ("apps", "ReplicaSet", "other")}


async def spread_over_fleets(there: World, limit: int | str = 2, path: str = "") -> None:
    """List the kind, and spread the Pods of one object."""
    data = {names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY: LISTED % path}
    metadata = {"name": names.CONFIGURATION_CONFIG_MAP}
    await there.client.create(NAMESPACES, {"metadata": {"name": "kruise-system"}})
    await there.client.create(CONFIGMAPS, {"metadata": metadata, "data": data}, "kruise-system")
    target = {"apiVersion": "example.com/v1", "kind": "Fleet", "name": "shop"}
    await there.spread({"name": "a", "maxReplicas": limit}, {"name": "b"}, targetRef=target)


async def told(there: World, reason: str) -> list[tuple[str, int]]:
    """Return messages and counts of the events with this reason."""
    return [(one["message"], one.get("count", 1)) for one in await there.events(reason)]


@pytest.mark.behaviour("WS-18", "WS-70")
@in_world
async def test_a_kind_that_is_not_served_is_reported_once_and_read_again(there: World) -> None:
    await spread_over_fleets(there)
    text = "spec.targetRef: example.com/v1 serves no namespaced kind Fleet"
    await there.becomes(lambda: told(there, "UnknownWorkload"), [(text, 1)])
    await there.client.clock.sleep(60)
    assert await told(there, "UnknownWorkload") == [(text, 1)]
    await fleets(there)
    await there.pod("p", "a")
    await there.becomes(there.status, {"a": (1, 1), "b": (0, -1)}, 60)


@pytest.mark.behaviour("WS-18", "WS-70")
@in_world
async def test_a_forbidden_target_is_reported_with_the_missing_right(there: World) -> None:
    await fleets(there)
    there.manager.status = 403
    there.manager.text = 'User "kruise" cannot get resource "fleets" in API group "example.com"'
    there.manager.refuse = lambda request: "/fleets/" in request.path
    await spread_over_fleets(there)

    async def said() -> list[str]:
        return [text for text, _ in await told(there, "MissingRight")]

    way_out = "grant it with a ClusterRole labeled pykruise.io/aggregate-to-manager=true"
    await there.becomes(said, [f"The manager is not allowed to read a workload: {there.manager.text}; {way_out}"])
    there.manager.refuse = lambda _: False
    await there.pod("p", "a")
    await there.becomes(there.status, {"a": (1, 1), "b": (0, -1)}, 60)


@pytest.mark.behaviour("WS-15", "WS-16", "WS-17", "WS-18", "WS-19")
@pytest.mark.parametrize(
    ("path", "wanted", "owned"), [("", 7, True), (',"replicasPath":"spec.crew"', 2, True), ("", 7, False)]
)
@in_world
async def test_pods_of_a_listed_kind_are_counted(there: World, path: str, wanted: int, owned: bool) -> None:
    """If it owns no Pods, those that its scale selects."""
    client = there.client
    await fleets(there)
    live = LiveTargets(client, lambda: parse_whitelist(LISTED % path))
    fleet = spread({"a": "50%"}, kind="Fleet", group="example.com/v1")
    assert await live.wanted(prepare_spread(fleet)) == wanted
    await there.pod("p1", "a", owned=owned)
    await client.patch(FLEETS, "shop", {"status": {"selector": "app=shop"}}, "ns", subresource="status")
    await spread_over_fleets(there, "50%", path)
    await there.becomes(there.status, {"a": (1, -(-wanted // 2) - 1), "b": (0, -1)})
    await client.patch(FLEETS, "shop", {"spec": {"size": 20, "crew": 20}}, "ns")
    await there.becomes(there.status, {"a": (1, 9), "b": (0, -1)}, 10)
