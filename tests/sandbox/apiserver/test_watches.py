"""Watches in virtual time; tests/conformance compares their events with a real server."""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Any

import orjson

from app.kube.client import Client
from app.kube.objects import decode_pod
from app.kube.reflector import Reflector
from app.kube.resources import CONFIGMAPS, PODS
from app.kube.store import Store
from app.sandbox.apiserver.server import ApiServer
from tests.kit.cluster import in_api_server
from tests.kube.fakes import until


class Watching:
    """A watch in the background, and the events so far."""

    def __init__(self, client: Client, query: Mapping[str, str], namespace: str = "default") -> None:
        self.events: list[dict[str, Any]] = []
        self.ended = False
        self._task = asyncio.create_task(self._run(client, namespace, query))

    async def _run(self, client: Client, namespace: str, query: Mapping[str, str]) -> None:
        async with client.watch(CONFIGMAPS, namespace, query) as stream:
            async for chunk in stream.chunks:
                self.events += [orjson.loads(line) for line in chunk.splitlines()]
        self.ended = True

    def short(self) -> list[tuple[str, str]]:
        return [(event["type"], event["object"]["metadata"].get("name", "")) for event in self.events]

    async def seen(self, count: int) -> None:
        await until(lambda: len(self.events) >= count)

    def stop(self) -> None:
        self._task.cancel()


def config(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "labels": labels}, "data": {}}


@in_api_server
async def test_an_expired_version_ends_in_an_error_event(client: Client, api: ApiServer) -> None:
    first = await client.create(CONFIGMAPS, config("a"), "default")
    await client.create(CONFIGMAPS, config("b"), "default")
    api.compact()
    watching = Watching(client, {"resourceVersion": first["metadata"]["resourceVersion"]})
    await until(lambda: watching.ended)
    assert [event["type"] for event in watching.events] == ["ERROR"]
    status = watching.events[0]["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith("too old resource version: ")


@in_api_server
async def test_a_streaming_list_marks_its_end(client: Client, api: ApiServer) -> None:
    await client.create(CONFIGMAPS, config("a"), "default")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    watching = Watching(client, query)
    await watching.seen(2)
    assert watching.short() == [("ADDED", "a"), ("BOOKMARK", "")]
    assert watching.events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
    await asyncio.sleep(130)
    assert watching.short()[2:] == [("BOOKMARK", ""), ("BOOKMARK", "")]
    watching.stop()


@in_api_server
async def test_a_watch_ends_after_its_timeout(client: Client, api: ApiServer) -> None:
    watching = Watching(client, {"timeoutSeconds": "30"})
    await asyncio.sleep(29)
    assert not watching.ended
    await asyncio.sleep(2)
    assert watching.ended
    assert not any(collection.sinks for collection in api.core.storage.collections.values())


@in_api_server
async def test_a_reflector_follows_changes(client: Client, api: ApiServer) -> None:
    store: Store[Any] = Store()
    task = asyncio.create_task(Reflector(client, PODS, store, decode=decode_pod, rng=Random(1)).run())
    await store.wait_until_ready()
    spec = {"containers": [{"name": "app", "image": "nginx"}]}
    await client.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
    await until(lambda: len(store) == 1)
    api.compact()
    await asyncio.sleep(3600)
    await client.delete(PODS, "web", "default")
    await until(lambda: len(store) == 0)
    task.cancel()
