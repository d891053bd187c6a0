"""Features of the in-process transport only: seeds, pages of an old version, notifications of writes."""

from typing import Any

import pytest

from app.kube.client import Client
from app.kube.errors import Gone
from app.kube.resources import CONFIGMAPS, EVENTS, PODS, Resource
from app.sandbox.apiserver.server import ApiServer
from tests.kit.cluster import in_api_server


def pod(name: str = "web", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "spec": {"containers": [{"name": "app", "image": "nginx:1.25"}]}}


def config(name: str = "settings", **metadata: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, **metadata}, "data": {"a": "1"}}


def test_the_same_seed_has_the_same_history() -> None:
    async def scenario(client: Client, api: ApiServer) -> Any:
        made = [await client.create(PODS, {**pod(), "metadata": {"generateName": "w-"}}, "default") for _ in range(3)]
        return [(one["metadata"]["name"], one["metadata"]["uid"]) for one in made]

    assert in_api_server(scenario)() == in_api_server(scenario)()


@in_api_server
async def test_lists_are_paged_consistently(client: Client, api: ApiServer) -> None:
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
async def test_events_appear_in_both_groups(client: Client, api: ApiServer) -> None:
    event = {"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "namespace": "default"}, "message": "hi"}
    await client.create(EVENTS, event, "default")
    newer = Resource("events.k8s.io", "v1", "events", "Event")
    found = await client.get(newer, "e", "default")
    assert (found["apiVersion"], found["note"], found["regarding"]["kind"]) == ("events.k8s.io/v1", "hi", "Pod")


def test_on_write_reports_every_write() -> None:
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
