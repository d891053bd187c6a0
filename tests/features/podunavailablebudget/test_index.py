"""The workloads above a Pod, as the Pod creation step reads them."""

from __future__ import annotations

from typing import Any

import pytest

from app.features.podunavailablebudget.index import LiveOwners
from app.features.podunavailablebudget.plan.pods import Workload
from app.kube.client import Client
from app.kube.discovery import MAX_REMEMBERED, KindMapper
from app.kube.objects import OwnerReference
from app.kube.resources import NAMESPACES, REPLICASETS
from tests.features.podunavailablebudget.world import NAMESPACE, SmallCluster, in_cluster
from tests.kit.objects import workload_spec
from tests.kit.transports import Connection

SHOP = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "shop", "uid": "d-1", "controller": True}


def owned(name: str, *owners: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name, "ownerReferences": list(owners)}, "spec": workload_spec()}


@pytest.mark.behaviour("PUB-31")
@in_cluster(controller=False)
async def test_a_forged_owner_uid_brings_no_pod_under_a_budget(cluster: SmallCluster) -> None:
    made = await cluster.user.create(REPLICASETS, owned("web", SHOP), NAMESPACE)
    await cluster.user.create(NAMESPACES, {"metadata": {"name": "elsewhere"}})
    await cluster.user.create(REPLICASETS, owned("web"), "elsewhere")
    await cluster.user.create(REPLICASETS, owned("other"), NAMESPACE)
    owners = LiveOwners(cluster.user)
    uid = made["metadata"]["uid"]
    web = OwnerReference("apps/v1", "ReplicaSet", "web", uid, True)
    own = [Workload("apps", "ReplicaSet", "web")]
    # Users who create Pods can name any owner: first in another namespace, then under another name.
    assert await owners.above(web, "elsewhere") == own
    other = OwnerReference("apps/v1", "ReplicaSet", "other", uid, True)
    assert await owners.above(other, NAMESPACE) == [Workload("apps", "ReplicaSet", "other")]
    for _ in range(2):
        assert await owners.above(web, NAMESPACE) == [*own, Workload("apps", "Deployment", "shop")]


@pytest.mark.behaviour("PUB-31")
@in_cluster(controller=False)
async def test_long_references_to_owners_are_not_kept(cluster: SmallCluster) -> None:
    await cluster.user.create(REPLICASETS, owned("web"), NAMESPACE)
    connection = Connection(cluster.api.transport())
    owners = LiveOwners(Client(connection, cluster.clock))
    await owners.above(OwnerReference("apps/v1", "ReplicaSet", "web", "u", True), NAMESPACE)  # asks for kinds, too
    for uid, requests in (("u", 0), ("u" * 1_000_000, 2)):
        before = len(connection.requests)
        for _ in range(2):
            assert len(await owners.above(OwnerReference("apps/v1", "ReplicaSet", "web", uid, True), NAMESPACE)) == 1
        assert len(connection.requests) - before == requests


@pytest.mark.behaviour("PUB-31")
@in_cluster(controller=False)
async def test_versions_that_cannot_exist_are_not_kept(cluster: SmallCluster) -> None:
    connection = Connection(cluster.api.transport())
    kinds = KindMapper(Client(connection, cluster.clock))
    assert await kinds.find("apps/v1", "ReplicaSet") is not None
    for number in range(MAX_REMEMBERED):
        assert await kinds.find(f"{'x' * 1000}{number}/v1", "ReplicaSet") is None
    assert await kinds.find("apps/v1", "ReplicaSet") is not None
    assert len(connection.requests) == 1


@pytest.mark.behaviour("PUB-31")
@in_cluster(controller=False)
async def test_an_owner_that_cannot_be_read_is_read_again(cluster: SmallCluster) -> None:
    made = await cluster.user.create(REPLICASETS, owned("web", SHOP), NAMESPACE)
    connection = Connection(cluster.api.transport())
    owners = LiveOwners(Client(connection, cluster.clock))
    web = OwnerReference("apps/v1", "ReplicaSet", "web", made["metadata"]["uid"], True)
    connection.refuse = lambda _: True
    assert len(await owners.above(web, NAMESPACE)) == 1
    connection.refuse = lambda _: False
    assert len(await owners.above(web, NAMESPACE)) == 2
