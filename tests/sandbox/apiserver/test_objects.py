"""Creating, reading, changing and deleting objects through the in-process transport."""

import asyncio
from typing import Any

import pytest

from app.kube.client import Client, PatchType
from app.kube.errors import AlreadyExists, ApiError, BadRequest, Conflict, Forbidden, Gone, Invalid, NotFound
from app.kube.resources import (
    CONFIGMAPS,
    DEPLOYMENTS,
    EVENTS,
    LEASES,
    NAMESPACES,
    PODS,
    REPLICASETS,
    Resource,
)
from app.sandbox.apiserver.server import ApiServer
from tests.kit.cluster import in_api_server

PDBS = Resource("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget")


def pod(name: str = "web", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "app", "image": "nginx:1.25"}]}}


def config(name: str = "settings", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "data": {"a": "1"}}


async def refused(awaitable: Any, kind: type[ApiError] = ApiError) -> ApiError:
    with pytest.raises(kind) as caught:
        await awaitable
    return caught.value


def test_a_pod_gets_its_defaults() -> None:
    async def scenario(client: Client, api: ApiServer) -> Any:
        return await client.create(PODS, pod(), "default")

    made = in_api_server(scenario)()
    assert made["spec"]["restartPolicy"] == "Always"
    assert made["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert made["status"] == {"phase": "Pending", "qosClass": "BestEffort"}
    assert made["metadata"]["generation"] == 1


def test_same_seed_same_history() -> None:
    async def scenario(client: Client, api: ApiServer) -> Any:
        made = [await client.create(PODS, {**pod(), "metadata": {"generateName": "w-"}}, "default") for _ in range(3)]
        return [(one["metadata"]["name"], one["metadata"]["uid"]) for one in made]

    assert in_api_server(scenario)() == in_api_server(scenario)()


def test_generation_counts_changes_of_the_spec_alone() -> None:
    async def scenario(client: Client, api: ApiServer) -> Any:
        await client.create(PODS, pod(), "default")
        patch = {"spec": {"containers": [{"name": "app", "image": "nginx:1.26"}]}}
        await client.patch(PODS, "web", patch, "default", kind=PatchType.STRATEGIC)
        await client.patch(PODS, "web", {"status": {"phase": "Running"}}, "default", subresource="status")
        return await client.patch(
            PODS, "web", {"metadata": {"labels": {"a": "b"}}, "status": {"phase": "x"}}, "default"
        )

    changed = in_api_server(scenario)()
    assert changed["metadata"]["generation"] == 2
    assert changed["spec"]["containers"][0]["image"] == "nginx:1.26"
    assert changed["status"]["phase"] == "Running"


def test_a_write_that_changes_nothing_is_no_write() -> None:
    async def scenario(client: Client, api: ApiServer) -> Any:
        made = await client.create(CONFIGMAPS, config(), "default")
        before = api.core.storage.revision
        same = await client.patch(CONFIGMAPS, "settings", {"data": {"a": "1"}}, "default")
        return made, same, api.core.storage.revision - before

    made, same, writes = in_api_server(scenario)()
    assert same == made
    assert writes == 0


@pytest.mark.parametrize(
    ("write", "kind", "message"),
    [
        pytest.param(
            lambda client: client.create(CONFIGMAPS, config(), "default"),
            AlreadyExists,
            'configmaps "settings" already exists',
            id="exists",
        ),
        pytest.param(
            lambda client: client.create(CONFIGMAPS, config("x"), "nowhere"),
            NotFound,
            'namespaces "nowhere" not found',
            id="no-namespace",
        ),
        pytest.param(
            lambda client: client.create(CONFIGMAPS, config("X_"), "default"),
            Invalid,
            'ConfigMap "X_" is invalid: metadata.name: Invalid value: "X_": a lowercase RFC 1123 subdomain',
            id="name",
        ),
        pytest.param(
            lambda client: client.create(CONFIGMAPS, {"data": {}}, "default"),
            Invalid,
            'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required',
            id="no-name",
        ),
        pytest.param(
            lambda client: client.replace(CONFIGMAPS, "settings", config(resourceVersion="1"), "default"),
            Conflict,
            'Operation cannot be fulfilled on configmaps "settings": the object has been modified; please apply',
            id="stale",
        ),
        pytest.param(
            lambda client: client.replace(LEASES, "none", {"metadata": {"name": "none"}}, "default", dry_run=True),
            None,
            "",
            id="create-on-update",
        ),
        pytest.param(
            lambda client: client.get(CONFIGMAPS, "none", "default"),
            NotFound,
            'configmaps "none" not found',
            id="missing",
        ),
        pytest.param(
            lambda client: client.delete(CONFIGMAPS, "settings", "default", uid="other"),
            Conflict,
            'Operation cannot be fulfilled on ConfigMap "settings": the UID in the precondition (other) does not match',
            id="other-uid",
        ),
        pytest.param(
            lambda client: client.create(PODS, {**pod("p"), "spec": {"containers": 3}}, "default"),
            BadRequest,
            'Pod in version "v1" cannot be handled as a Pod: json: cannot unmarshal number into Go struct field '
            "PodSpec.spec.containers of type []v1.Container",
            id="wrong-type",
        ),
        pytest.param(
            lambda client: client.create(CONFIGMAPS, {**config("y"), "dat": 1}, "default", field_validation="Strict"),
            BadRequest,
            'ConfigMap in version "v1" cannot be handled as a ConfigMap: strict decoding error: unknown field "dat"',
            id="unknown-field",
        ),
        pytest.param(
            lambda client: client.delete(NAMESPACES, "kube-system"),
            Forbidden,
            'namespaces "kube-system" is forbidden: this namespace may not be deleted',
            id="immortal",
        ),
    ],
)
def test_refusals_have_the_words_of_a_real_server(write: Any, kind: Any, message: str) -> None:
    async def scenario(client: Client, api: ApiServer) -> Any:
        await client.create(CONFIGMAPS, config(), "default")
        if kind is None:
            return await write(client)
        return (await refused(write(client), kind)).message

    found = in_api_server(scenario)()
    if kind is not None:
        assert found.startswith(message)


@in_api_server
async def test_dry_run_changes_nothing(client: Client, api: ApiServer) -> None:
    before = api.core.storage.revision
    made = await client.create(CONFIGMAPS, config(), "default", dry_run=True)
    assert made["metadata"]["uid"]
    await refused(client.get(CONFIGMAPS, "settings", "default"), NotFound)
    await client.create(CONFIGMAPS, config(), "default")
    await client.delete(CONFIGMAPS, "settings", "default", dry_run=True)
    await client.patch(CONFIGMAPS, "settings", {"data": {"b": "2"}}, "default", dry_run=True)
    assert (await client.get(CONFIGMAPS, "settings", "default"))["data"] == {"a": "1"}
    assert api.core.storage.revision == before + 1


@in_api_server
async def test_a_bound_pod_stops_gracefully(client: Client, api: ApiServer) -> None:
    await client.create(PODS, pod(), "default")
    binding = {"metadata": {"name": "web"}, "target": {"name": "node"}}
    await client.create(PODS, binding, "default", name="web", subresource="binding")
    error = await refused(client.create(PODS, binding, "default", name="web", subresource="binding"), Conflict)
    assert error.message == (
        'Operation cannot be fulfilled on pods/binding "web": pod web is already assigned to node "node"'
    )
    going = await client.delete(PODS, "web", "default")
    assert going["metadata"]["deletionGracePeriodSeconds"] == 30
    still = await client.get(PODS, "web", "default")
    assert still["metadata"]["deletionTimestamp"] == "2030-01-01T00:00:30Z"
    await client.delete(PODS, "web", "default", grace_period_seconds=0)
    await refused(client.get(PODS, "web", "default"), NotFound)


@in_api_server
async def test_a_dry_run_of_a_deletion_leaves_a_running_pod(client: Client, api: ApiServer) -> None:
    await client.create(PODS, {**pod(), "spec": {**pod()["spec"], "nodeName": "node"}}, "default")
    for seconds in (None, 0):
        await client.delete(PODS, "web", "default", dry_run=True, grace_period_seconds=seconds)
    assert "deletionTimestamp" not in (await client.get(PODS, "web", "default"))["metadata"]


@in_api_server
async def test_finalizers_hold_an_object_until_they_are_gone(client: Client, api: ApiServer) -> None:
    await client.create(CONFIGMAPS, config(finalizers=["example.com/hold"]), "default")
    await client.delete(CONFIGMAPS, "settings", "default")
    held = await client.get(CONFIGMAPS, "settings", "default")
    assert held["metadata"]["deletionTimestamp"]
    patch = {"metadata": {"finalizers": ["example.com/hold", "example.com/more"]}}
    error = await refused(client.patch(CONFIGMAPS, "settings", patch, "default"), Invalid)
    assert "no new finalizers can be added if the object is being deleted" in error.message
    await client.patch(CONFIGMAPS, "settings", {"metadata": {"finalizers": None}}, "default")
    await refused(client.get(CONFIGMAPS, "settings", "default"), NotFound)


@pytest.mark.parametrize(
    ("policy", "owner_left", "dependents"),
    [("Background", False, 0), ("Foreground", False, 0), ("Orphan", False, 2)],
)
@in_api_server
async def test_dependents_follow_their_owner(
    client: Client, api: ApiServer, policy: Any, owner_left: bool, dependents: int
) -> None:
    owner = await client.create(CONFIGMAPS, config("owner"), "default")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}
    blocking = {**reference, "blockOwnerDeletion": True}
    for name in ("one", "two"):
        await client.create(CONFIGMAPS, config(name, ownerReferences=[blocking]), "default")
    await client.delete(CONFIGMAPS, "owner", "default", propagation_policy=policy)
    await asyncio.sleep(1)
    found = (await client.list(CONFIGMAPS, "default")).items
    assert len(found) == dependents
    assert not any("ownerReferences" in one["metadata"] for one in found)


@in_api_server
async def test_a_namespace_takes_its_content_along(client: Client, api: ApiServer) -> None:
    await client.create(NAMESPACES, {"metadata": {"name": "shop"}})
    await client.create(CONFIGMAPS, config(finalizers=["example.com/hold"]), "shop")
    await client.create(PODS, pod(), "shop")
    going = await client.delete(NAMESPACES, "shop")
    assert going["status"]["phase"] == "Terminating"
    error = await refused(client.create(CONFIGMAPS, config("late"), "shop"), Forbidden)
    assert "because it is being terminated" in error.message
    await asyncio.sleep(100)
    assert (await client.get(NAMESPACES, "shop"))["status"]["phase"] == "Terminating"
    await client.patch(CONFIGMAPS, "settings", {"metadata": {"finalizers": None}}, "shop")
    await asyncio.sleep(100)
    await refused(client.get(NAMESPACES, "shop"), NotFound)


@in_api_server
async def test_lists_are_cut_into_consistent_pages(client: Client, api: ApiServer) -> None:
    for number in range(5):
        await client.create(CONFIGMAPS, config(f"c{number}"), "default")
    first = await client.list_page(CONFIGMAPS, "default", limit=2)
    await client.create(CONFIGMAPS, config("c00"), "default")
    await client.delete(CONFIGMAPS, "c4", "default")
    second = await client.list_page(CONFIGMAPS, "default", limit=9, continue_token=first.continue_token)
    assert [one["metadata"]["name"] for one in first.items + second.items] == ["c0", "c1", "c2", "c3", "c4"]
    assert second.resource_version == first.resource_version
    api.compact()
    with pytest.raises(Gone):
        await client.list_page(CONFIGMAPS, "default", limit=9, continue_token=first.continue_token)


@in_api_server
async def test_selectors_narrow_lists(client: Client, api: ApiServer) -> None:
    await client.create(PODS, pod("a", labels={"app": "x"}), "default")
    await client.create(PODS, pod("b", labels={"app": "y"}), "default")
    await client.patch(PODS, "b", {"status": {"phase": "Running"}}, "default", subresource="status")

    async def names(**selectors: str) -> list[str]:
        return [one["metadata"]["name"] for one in (await client.list(PODS, **selectors)).items]

    assert await names(label_selector="app in (x, z)") == ["a"]
    assert await names(field_selector="status.phase!=Running") == ["a"]
    assert await names(field_selector="metadata.name=b,spec.nodeName=") == ["b"]
    error = await refused(client.list(PODS, field_selector="spec.nothing=1"), BadRequest)
    assert error.message == "field label not supported: spec.nothing"


@in_api_server
async def test_scale_writes_replicas_only(client: Client, api: ApiServer) -> None:
    template = {"metadata": {"labels": {"app": "x"}}, "spec": pod()["spec"]}
    spec = {"replicas": 2, "selector": {"matchLabels": {"app": "x"}}, "template": template}
    await client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, "default")
    scale = await client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 5}}, "default", subresource="scale")
    assert (scale["kind"], scale["spec"], scale["status"]) == (
        "Scale",
        {"replicas": 5},
        {"replicas": 0, "selector": "app=x"},
    )
    assert (await client.get(DEPLOYMENTS, "web", "default"))["metadata"]["generation"] == 2


@in_api_server
async def test_a_budget_guards_against_evictions(client: Client, api: ApiServer) -> None:
    await client.create(PODS, pod(labels={"app": "x"}), "default")
    ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    await client.patch(PODS, "web", {"status": ready}, "default", subresource="status")
    budget = {"metadata": {"name": "web"}, "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "x"}}}}
    await client.create(PDBS, budget, "default")
    status = {"observedGeneration": 1, "disruptionsAllowed": 0, "desiredHealthy": 1, "currentHealthy": 1,
              "expectedPods": 1}  # fmt: skip
    await client.patch(PDBS, "web", {"status": status}, "default", subresource="status")
    eviction = {"metadata": {"name": "web"}}
    error = await refused(client.create(PODS, eviction, "default", name="web", subresource="eviction"))
    assert error.code == 429
    assert error.causes[0].message == "The disruption budget web needs 1 healthy pods and has 1 currently"
    await client.patch(PDBS, "web", {"status": {"disruptionsAllowed": 1}}, "default", subresource="status")
    await client.create(PODS, eviction, "default", name="web", subresource="eviction")
    await refused(client.get(PODS, "web", "default"), NotFound)
    assert (await client.get(PDBS, "web", "default"))["status"]["disruptionsAllowed"] == 0


@in_api_server
async def test_events_are_seen_in_both_groups(client: Client, api: ApiServer) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default"}, "message": "hi"}
    await client.create(EVENTS, event, "default")
    newer = Resource("events.k8s.io", "v1", "events", "Event")
    found = await client.get(newer, "e", "default")
    assert (found["apiVersion"], found["note"], found["regarding"]["kind"]) == ("events.k8s.io/v1", "hi", "Pod")


@in_api_server
async def test_many_are_deleted_by_selector(client: Client, api: ApiServer) -> None:
    for name, app in (("a", "x"), ("b", "x"), ("c", "y")):
        await client.create(REPLICASETS, {"metadata": {"name": name, "labels": {"app": app}}, "spec": {
            "selector": {"matchLabels": {"app": app}},
            "template": {"metadata": {"labels": {"app": app}}, "spec": pod()["spec"]}}}, "default")  # fmt: skip
    request = client._request("DELETE", REPLICASETS.path("default"), {"labelSelector": "app=x"})
    assert (await client.transport.request(request)).status == 200
    assert [one["metadata"]["name"] for one in (await client.list(REPLICASETS, "default")).items] == ["c"]


def test_writes_are_told() -> None:
    async def scenario(client: Client, api: ApiServer) -> Any:
        told: list[Any] = []
        api.on_write(lambda verb, resource, old, new: told.append((verb, resource.kind, old is None, new is None)))
        await client.create(CONFIGMAPS, config(), "default")
        await client.patch(CONFIGMAPS, "settings", {"data": {"b": "2"}}, "default")
        await client.delete(CONFIGMAPS, "settings", "default")
        return told

    assert in_api_server(scenario)() == [
        ("create", "ConfigMap", True, False),
        ("update", "ConfigMap", False, False),
        ("delete", "ConfigMap", False, True),
    ]
