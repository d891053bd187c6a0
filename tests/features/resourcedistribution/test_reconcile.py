"""A ResourceDistribution's life, through the controller on the sandbox's API server."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from app.features.resourcedistribution.commands import explain_object
from app.features.resourcedistribution.feature import FEATURE
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.kube.errors import CommandError, Invalid
from app.kube.resources import CONFIGMAPS, NAMESPACES, SECRETS, Resource
from app.kube.wire import Request, Response
from tests.kit import cluster
from tests.kit.cluster import Json, scenarios

DISTRIBUTIONS = RESOURCE_DISTRIBUTION.resource()


class World(cluster.World):
    """Writes are those of the controller: verb, kind, namespace."""

    def note(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        metadata = (after or before or {}).get("metadata", {})
        if resource in (CONFIGMAPS, SECRETS, DISTRIBUTIONS):
            self.writes.append((verb, resource.kind, metadata.get("namespace", "")))

    async def namespace_of(self, name: str, **labels: str) -> None:
        await self.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})

    async def distribute(self, resource: Json, name: str = "rd", **targets: Any) -> Json:
        return await self.create(DISTRIBUTIONS, name, {"resource": resource, "targets": targets})

    async def respecify(self, spec: Json) -> None:
        await self.change(DISTRIBUTIONS, "rd", {"spec": spec})

    async def copy(self, namespace: str) -> Json:
        found: Json = await self.client.get(CONFIGMAPS, "settings", namespace)
        return found

    async def data(self, namespace: str, kind: Resource = CONFIGMAPS) -> Json | None:
        found = await self.get(kind, "settings", namespace)
        return found.get("data") if found is not None else None

    async def status(self, name: str = "rd") -> Json:
        return await self.status_of(DISTRIBUTIONS, name)

    async def condition(self, type_: str) -> Json:
        return next(one for one in (await self.status())["conditions"] if one["type"] == type_)


def world() -> AbstractAsyncContextManager[World]:
    return cluster.cluster(World, FEATURE)


in_world = scenarios(world)


def settings(**data: str) -> Json:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": data}


def named(*names: str) -> Json:
    return {"list": [{"name": name} for name in names]}


async def has(there: World, namespace: str, data: Json | None) -> None:
    await there.becomes(lambda: there.data(namespace), data)


async def counts(there: World, **wanted: int) -> None:
    async def look() -> bool:
        status = await there.status()
        return all(status.get(key, 0) == value for key, value in wanted.items())

    await there.until(look)


@pytest.mark.behaviour("RD-20", "RD-21", "RD-36", "RD-50")
@in_world
async def test_copies_go_to_the_targets_and_are_counted(there: World) -> None:
    await there.namespace_of("a", team="x")
    await there.namespace_of("b", team="x")
    await there.namespace_of("c")
    await there.namespace_of("d", team="x")
    await there.distribute(
        settings(a="1"),
        includedNamespaces=named("c", "kube-system"),
        namespaceSelector={"matchLabels": {"team": "x"}},
        excludedNamespaces=named("d"),
    )
    await counts(there, desired=3, succeeded=3, failed=0)
    for namespace in ("a", "b", "c"):
        copy = await there.copy(namespace)
        assert copy["data"] == {"a": "1"}
        annotations, (owner,) = copy["metadata"]["annotations"], copy["metadata"]["ownerReferences"]
        assert annotations["kruise.io/resourcedistribution.resource.from"] == "rd"
        assert len(annotations["kruise.io/resourcedistribution.resource.hashcode"]) == 64
        assert (owner["kind"], owner["controller"], owner["blockOwnerDeletion"]) == ("ResourceDistribution", True, True)
    assert await there.data("d") is None
    assert await there.data("kube-system") is None
    status = await there.status()
    assert {(one["status"], one["reason"]) for one in status["conditions"]} == {("False", "Succeeded")}


@pytest.mark.behaviour("RD-12")
@in_world
async def test_the_api_server_checks_the_envelope_of_the_resource(there: World) -> None:
    """It does so before any webhook, as with OpenKruise's schema."""
    for field in ("apiVersion", "kind"):
        with pytest.raises(Invalid, match=rf"spec\.resource\.{field}: Required value"):
            await there.distribute({key: value for key, value in settings().items() if key != field})
    metadata = {"name": "settings", "labels": {"team": "x"}, "colour": "red"}
    created = await there.distribute(settings() | {"metadata": metadata})
    assert created["spec"]["resource"]["metadata"] == {"name": "settings", "labels": {"team": "x"}}


@pytest.mark.behaviour("RD-30", "RD-35", "RD-37", "RD-41", "RD-23", "RD-38", "RD-71")
@in_world
async def test_changes_to_data_labels_and_targets_reach_the_copies(there: World) -> None:
    await there.namespace_of("a")
    await there.namespace_of("b")
    resource = settings(a="1", old="x")
    resource["metadata"]["labels"] = {"tier": "gold", "old": "yes"}
    await there.distribute(resource, includedNamespaces=named("a"))
    await has(there, "a", {"a": "1", "old": "x"})
    await there.client.patch(CONFIGMAPS, "settings", {"metadata": {"labels": {"mine": "yes"}}}, "a")
    labels = {"tier": "silver", "old": None}
    await there.respecify({"resource": {"metadata": {"labels": labels}, "data": {"a": "2", "old": None}}})
    await has(there, "a", {"a": "2"})
    copy = await there.copy("a")
    assert copy["metadata"]["labels"] == {"tier": "silver", "mine": "yes"}
    await there.respecify({"targets": {"includedNamespaces": named("b")}})
    await has(there, "b", {"a": "2"})
    await has(there, "a", None)


@pytest.mark.behaviour("RD-33", "RD-54")
@in_world
async def test_drift_is_repaired_with_one_write(there: World) -> None:
    for index in range(20):
        await there.namespace_of(f"n{index}")
    await there.distribute(settings(a="1"), allNamespaces=True, excludedNamespaces=named("default"))
    await counts(there, succeeded=21)  # kube-node-lease too
    await there.settled()
    del there.writes[:]
    await there.client.patch(CONFIGMAPS, "settings", {"data": {"a": "mine"}}, "n7")
    await has(there, "n7", {"a": "1"})
    await there.settled()
    assert there.writes == [("update", "ConfigMap", "n7")] * 2  # the user's, and ours
    await there.client.delete(CONFIGMAPS, "settings", "n3")
    await has(there, "n3", {"a": "1"})
    await there.settled()
    assert [one for one in there.writes if one[1] == "ResourceDistribution"] == []


@pytest.mark.behaviour("RD-33", "RD-34", "RD-52", "RD-55", "RD-72", "RD-76")
@in_world
async def test_a_foreign_object_is_reported_and_not_changed(there: World) -> None:
    await there.namespace_of("a")
    await there.namespace_of("b")
    foreign = await there.client.create(CONFIGMAPS, settings(theirs="yes"), "a")
    await there.distribute(settings(a="1"), includedNamespaces=named("a", "b", "missing"))
    await counts(there, desired=3, succeeded=1, failed=2)
    assert await there.data("b") == {"a": "1"}
    condition = await there.condition("ConflictOccurred")
    assert (condition["status"], condition["failedNamespaces"]) == ("True", ["a"])
    assert "a/settings already exists" in condition["reason"]
    assert await there.copy("a") == foreign
    await there.settled()
    (event,) = await there.events("ConflictOccurred")
    assert event["type"] == "Warning"
    assert event["message"].startswith("in a: ")
    # Once it is deleted, the copy is created.
    await there.client.delete(CONFIGMAPS, "settings", "a")
    await there.until(lambda: there.data("a"), 90)
    await counts(there, succeeded=2, failed=1)


@pytest.mark.behaviour("RD-22", "RD-30", "RD-52")
@in_world
async def test_copies_follow_created_deleted_and_relabeled_namespaces(there: World) -> None:
    await there.distribute(
        settings(a="1"), includedNamespaces=named("later"), namespaceSelector={"matchLabels": {"team": "x"}}
    )
    await counts(there, desired=1, failed=1)
    condition = await there.condition("NamespaceNotExists")
    assert (condition["status"], condition["failedNamespaces"]) == ("True", ["later"])
    await there.namespace_of("later")
    await counts(there, desired=1, succeeded=1, failed=0)
    await there.namespace_of("c", team="x")
    await has(there, "c", {"a": "1"})
    await there.client.patch(NAMESPACES, "c", {"metadata": {"labels": {"team": None}}})
    await has(there, "c", None)
    await counts(there, desired=1, succeeded=1)
    await there.client.delete(NAMESPACES, "later")
    await counts(there, desired=1, succeeded=0, failed=1)


@pytest.mark.behaviour("RD-70")
@in_world
async def test_a_secret_with_string_data_is_written_once_and_repaired(there: World) -> None:
    await there.namespace_of("a")
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "settings"}, "stringData": {"k": "v"}}
    await there.distribute(secret, includedNamespaces=named("a"))
    await counts(there, succeeded=1)
    assert await there.data("a", SECRETS) == {"k": "dg=="}
    await there.settled(200)
    assert [one[0] for one in there.writes if one[1] == "Secret"] == ["create"]
    assert "dg==" not in str(await there.events())
    await there.client.patch(SECRETS, "settings", {"data": {"k": "eA=="}}, "a")
    await there.becomes(lambda: there.data("a", SECRETS), {"k": "dg=="})


@pytest.mark.behaviour("RD-40", "RD-73")
@pytest.mark.parametrize("late", [False, True])
@in_world
async def test_copies_are_deleted_with_the_distribution(there: World, late: bool) -> None:
    await there.namespace_of("a")
    await there.distribute(settings(a="1"), includedNamespaces=named("a"))
    await has(there, "a", {"a": "1"})
    # The cache may show the deletion late, and something else may hold the object back.
    there.manager.holds_back = lambda request: late and request.path.endswith("/resourcedistributions")
    await there.client.patch(DISTRIBUTIONS, "rd", {"metadata": {"finalizers": ["example.com/slow"]}})
    await there.client.delete(DISTRIBUTIONS, "rd", propagation_policy="Foreground")
    await has(there, "a", None)
    await there.settled()
    assert await there.data("a") is None
    assert [one[0] for one in there.writes if one[1] == "ConfigMap"] == ["create", "delete"]


@pytest.mark.behaviour("RD-31")
@in_world
async def test_an_unreadable_resource_is_skipped_and_others_are_synced(there: World) -> None:
    await there.namespace_of("a")
    wrong = {"kind": "Pod"}, {"apiVersion": "example.com/v1"}, {"metadata": {}}
    for number, resource in enumerate(settings() | change for change in wrong):
        await there.distribute(resource, f"wrong-{number}", allNamespaces=True)
    await there.distribute(settings(a="1"), includedNamespaces=named("a"))
    await counts(there, succeeded=1)
    await there.settled()
    assert [await there.status(f"wrong-{number}") for number in range(3)] == [{}, {}, {}]


@pytest.mark.behaviour("RD-33")
@pytest.mark.parametrize("foreign", [True, False])
@in_world
async def test_an_object_deleted_before_it_is_read_is_recreated(there: World, foreign: bool) -> None:
    await there.namespace_of("a")
    if foreign:
        await there.client.create(CONFIGMAPS, settings(a="theirs"), "a")
    else:
        await there.distribute(settings(a="1"), includedNamespaces=named("a"))
        await has(there, "a", {"a": "1"})
    forward, gone = there.manager.forward, []

    async def taken_away(request: Request) -> Response:
        if request.method == "GET" and request.path.endswith("/configmaps/settings") and not gone:
            gone.append(request)
            await there.client.delete(CONFIGMAPS, "settings", "a")
        return await forward(request)

    there.manager.forward = taken_away
    if foreign:
        await there.distribute(settings(a="2"), includedNamespaces=named("a"))
    else:
        await there.respecify({"resource": settings(a="2")})
    await has(there, "a", {"a": "2"})
    assert gone
    await counts(there, desired=1, succeeded=1, failed=0)
    assert await there.events() == []


@pytest.mark.behaviour("RD-32", "RD-55")
@in_world
async def test_a_terminating_namespace_blocks_no_other_and_is_retried(there: World) -> None:
    for index in range(8):
        await there.namespace_of(f"n{index}")
    there.manager.refuse = lambda request: (request.method, "/n0/configmaps" in request.path) == ("POST", True)
    await there.distribute(settings(a="1"), allNamespaces=True, excludedNamespaces=named("default", "kube-node-lease"))
    await counts(there, desired=8, succeeded=7, failed=1)
    condition = await there.condition("CreateResourceFailed")
    assert (condition["status"], condition["failedNamespaces"]) == ("True", ["n0"])
    assert "the disk is full" in condition["reason"]
    there.manager.refuse = lambda _: False
    await counts(there, desired=8, succeeded=8, failed=0)
    assert (await there.condition("CreateResourceFailed"))["status"] == "False"


@in_world
async def test_copies_are_explained_without_their_content(there: World) -> None:
    for name in ("a", "b", "c", "d"):
        await there.namespace_of(name, team="x")
    await there.client.create(CONFIGMAPS, settings(secret="theirs"), "b")
    await there.distribute(
        settings(secret="1"),
        includedNamespaces=named("a", "nowhere"),
        namespaceSelector={"matchLabels": {"team": "x"}},
        excludedNamespaces=named("d"),
    )
    await counts(there, desired=4, succeeded=2, failed=2)
    found = await explain_object(there.client, await there.client.get(DISTRIBUTIONS, "rd"), lambda _: True)
    assert found.head == "ResourceDistribution rd: ConfigMap settings, 2 of 4 copies up to date"
    conflict = "ConfigMap b/settings is not a copy and is left unchanged"
    assert list(found.rows) == [
        ("a", "up to date", "listed in includedNamespaces"),
        ("b", "conflict", f"namespaceSelector selects it; {conflict}"),
        ("c", "up to date", "namespaceSelector selects it"),
        ("d", "none", "listed in excludedNamespaces"),
        ("nowhere", "none", "listed in includedNamespaces; the namespace does not exist"),
    ]
    assert found.todo == [
        "delete or rename ConfigMap b/settings, or exclude the namespace",
        "create namespace nowhere, or remove it from includedNamespaces",
    ]
    assert "theirs" not in found.text()


@pytest.mark.parametrize(
    ("resource", "said"), [({"kind": "Pod"}, "cannot be distributed"), ({"apiVersion": "v1", "kind": "Secret"}, "name")]
)
@in_world
async def test_a_resource_that_cannot_be_distributed_is_reported(there: World, resource: Json, said: str) -> None:
    await there.distribute(settings())
    found = await there.client.get(DISTRIBUTIONS, "rd")
    with pytest.raises(CommandError, match=said):
        await explain_object(there.client, {**found, "spec": {**found["spec"], "resource": resource}}, lambda _: True)
