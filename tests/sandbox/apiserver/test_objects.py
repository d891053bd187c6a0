"""Features of the in-process transport only: pages of an old version, notifications of writes."""

from typing import Any

import pytest

from app.kube.client import Client
from app.kube.errors import Gone
from app.kube.resources import CONFIGMAPS, EVENTS, Resource
from app.sandbox.apiserver.server import ApiServer
from tests.kit.cluster import in_api_server


def config(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {"a": "1"}}


@in_api_server
async def test_a_page_is_a_snapshot_until_its_version_expires(client: Client, api: ApiServer) -> None:
    for number in range(3):
        await client.create(CONFIGMAPS, config(f"c{number}"), "default")
    first = await client.list_page(CONFIGMAPS, "default", limit=2)
    await client.delete(CONFIGMAPS, "c2", "default")
    second = await client.list_page(CONFIGMAPS, "default", limit=9, continue_token=first.continue_token)
    assert [[one["metadata"]["name"] for one in page.items] for page in (first, second)] == [["c0", "c1"], ["c2"]]
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


@in_api_server
async def test_on_write_reports_every_write(client: Client, api: ApiServer) -> None:
    told: list[Any] = []
    api.on_write(lambda verb, resource, old, new: told.append((verb, resource.kind, old is None, new is None)))
    await client.create(CONFIGMAPS, config("c"), "default")
    await client.patch(CONFIGMAPS, "c", {"data": {"b": "2"}}, "default")
    await client.delete(CONFIGMAPS, "c", "default")
    assert told == [
        ("create", "ConfigMap", True, False),
        ("update", "ConfigMap", False, False),
        ("delete", "ConfigMap", False, True),
    ]
