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
from tests.kube.fakes import running, until


async def seen(client: Client, query: Mapping[str, str], seconds: float) -> tuple[list[dict[str, Any]], bool]:
    """Return the events of a watch during this time, and whether it ended."""
    events: list[dict[str, Any]] = []

    async def watch() -> None:
        async with client.watch(CONFIGMAPS, "default", query) as stream:
            async for chunk in stream.chunks:
                events.extend(orjson.loads(line) for line in chunk.splitlines())

    async with running(watch()) as (task,):
        await asyncio.sleep(seconds)
        return events, task.done()


def config(name: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "data": {}}


@in_api_server
async def test_an_expired_version_ends_in_an_error_event(client: Client, api: ApiServer) -> None:
    first = await client.create(CONFIGMAPS, config("a"), "default")
    await client.create(CONFIGMAPS, config("b"), "default")
    api.compact()
    [event], ended = await seen(client, {"resourceVersion": first["metadata"]["resourceVersion"]}, 1)
    assert (event["type"], ended) == ("ERROR", True)
    status = event["object"]
    assert (status["code"], status["reason"]) == (410, "Expired")
    assert status["message"].startswith("too old resource version: ")


@in_api_server
async def test_a_streaming_list_marks_its_end(client: Client, api: ApiServer) -> None:
    await client.create(CONFIGMAPS, config("a"), "default")
    query = {"sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan", "allowWatchBookmarks": "true"}
    events, ended = await seen(client, query, 130)
    assert ([event["type"] for event in events], ended) == (["ADDED", *["BOOKMARK"] * 3], False)
    assert events[0]["object"]["metadata"]["name"] == "a"
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


@in_api_server
async def test_a_watch_ends_after_its_timeout(client: Client, api: ApiServer) -> None:
    for seconds, ends in ((29, False), (31, True)):
        assert await seen(client, {"timeoutSeconds": "30"}, seconds) == ([], ends)
    assert not any(collection.sinks for collection in api.core.storage.collections.values())


@in_api_server
async def test_a_reflector_follows_changes(client: Client, api: ApiServer) -> None:
    store: Store[Any] = Store()
    async with running(Reflector(client, PODS, store, decode=decode_pod, rng=Random(1)).run()):
        await store.wait_until_ready()
        spec = {"containers": [{"name": "app", "image": "nginx"}]}
        await client.create(PODS, {"metadata": {"name": "web"}, "spec": spec}, "default")
        await until(lambda: len(store) == 1)
        api.compact()
        await asyncio.sleep(3600)
        await client.delete(PODS, "web", "default")
        await until(lambda: len(store) == 0)
