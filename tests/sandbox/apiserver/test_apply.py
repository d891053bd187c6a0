"""Server-side apply: who manages what, conflicts, and what goes when its last manager drops it."""

from typing import Any

import pytest

from app.kube.client import Client, PatchType
from app.kube.errors import Conflict
from app.kube.resources import CONFIGMAPS, DEPLOYMENTS
from app.sandbox.apiserver.fieldsets import changes, fields_of, merged, pruned
from app.sandbox.apiserver.schemas import kind_field
from app.sandbox.apiserver.server import ApiServer
from tests.kit.cluster import in_api_server

POD = kind_field("v1", "Pod")


async def apply(client: Client, manager: str, data: dict[str, str], *, force: bool = False) -> Any:
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}
    return await client.patch(
        CONFIGMAPS, "c", body, "default", kind=PatchType.APPLY, field_manager=manager, force=force
    )


@in_api_server
async def test_managers_share_an_object(client: Client, api: ApiServer) -> None:
    await apply(client, "one", {"a": "1"})
    both = await apply(client, "two", {"b": "2"})
    assert both["data"] == {"a": "1", "b": "2"}
    assert [entry["fieldsV1"] for entry in both["metadata"]["managedFields"]] == [
        {"f:data": {"f:a": {}}},
        {"f:data": {"f:b": {}}},
    ]
    less = await apply(client, "one", {"c": "3"})
    assert less["data"] == {"b": "2", "c": "3"}


@in_api_server
async def test_a_conflict_names_manager_and_field(client: Client, api: ApiServer) -> None:
    await apply(client, "one", {"a": "1"})
    with pytest.raises(Conflict) as caught:
        await apply(client, "two", {"a": "2"})
    assert caught.value.message == 'Apply failed with 1 conflict: conflict with "one": .data.a'
    forced = await apply(client, "two", {"a": "2"}, force=True)
    assert [entry["manager"] for entry in forced["metadata"]["managedFields"]] == ["two"]


@in_api_server
async def test_what_was_written_before_belongs_to_its_writer(client: Client, api: ApiServer) -> None:
    body = {"metadata": {"name": "c"}, "data": {"a": "1"}}
    await client.create(CONFIGMAPS, body, "default", field_manager="maker")
    with pytest.raises(Conflict, match='conflict with "maker" using v1'):
        await apply(client, "one", {"a": "2"})


@in_api_server
async def test_an_update_takes_fields_over(client: Client, api: ApiServer) -> None:
    await apply(client, "one", {"a": "1", "b": "1"})
    await client.patch(CONFIGMAPS, "c", {"data": {"a": "2"}}, "default", field_manager="hand")
    found = (await client.get(CONFIGMAPS, "c", "default"))["metadata"]["managedFields"]
    assert {entry["manager"]: entry["fieldsV1"] for entry in found} == {
        "one": {"f:data": {"f:b": {}}},
        "hand": {"f:data": {"f:a": {}}},
    }


@in_api_server
async def test_the_same_again_is_no_write(client: Client, api: ApiServer) -> None:
    first = await apply(client, "one", {"a": "1"})
    before = api.core.storage.revision
    assert await apply(client, "one", {"a": "1"}) == first
    assert api.core.storage.revision == before


@in_api_server
async def test_containers_are_merged_by_name(client: Client, api: ApiServer) -> None:
    def deployment(*containers: dict[str, Any]) -> dict[str, Any]:
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": list(containers)}}
        spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"}, "spec": spec}

    async def send(manager: str, body: Any) -> Any:
        return await client.patch(DEPLOYMENTS, "d", body, "default", kind=PatchType.APPLY, field_manager=manager)

    await send("one", deployment({"name": "a", "image": "a:1"}))
    both = await send("two", deployment({"name": "b", "image": "b:1"}))
    assert [one["name"] for one in both["spec"]["template"]["spec"]["containers"]] == ["a", "b"]
    left = await send("one", deployment({"name": "c", "image": "c:1"}))
    assert [one["name"] for one in left["spec"]["template"]["spec"]["containers"]] == ["b", "c"]


def test_fields_of_keyed_lists_and_whole_ones() -> None:
    pod = {"spec": {"containers": [{"name": "a", "image": "x", "command": ["y"]}]}}
    assert fields_of(POD, pod) == {
        "f:spec": {"f:containers": {'k:{"name":"a"}': {".": {}, "f:name": {}, "f:image": {}, "f:command": {}}}}
    }


def test_changes_tell_added_from_gone() -> None:
    old = {"metadata": {"labels": {"a": "1", "b": "1"}}}
    new = {"metadata": {"labels": {"a": "2", "c": "1"}}}
    touched, gone = changes(POD, old, new)
    assert touched == {"f:metadata": {"f:labels": {"f:a": {}, "f:c": {}}}}
    assert gone == {"f:metadata": {"f:labels": {"f:b": {}}}}


def test_merging_and_pruning_leave_the_rest() -> None:
    live = {"spec": {"containers": [{"name": "a", "image": "x"}, {"name": "b", "image": "y"}]}}
    applied = {"spec": {"containers": [{"name": "b", "image": "z"}]}}
    both = merged(POD, live, applied)
    assert [one["image"] for one in both["spec"]["containers"]] == ["x", "z"]
    less = pruned(POD, both, {("f:spec", "f:containers", 'k:{"name":"a"}')})
    assert less == applied
