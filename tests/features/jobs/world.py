"""A controller of jobs on the sandbox's API server, on virtual time; reflectors fill its caches, as in the manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from app.api.crd import manifest
from app.api.kind import KindDefinition
from app.framework.feature import Feature
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.reflector import Reflector
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, EVENTS, NAMESPACES, PODS, Resource
from app.kube.wire import Request, Response, Transport
from app.sandbox.apiserver.server import ApiServer
from tests.kit.features import controller_of, stores_of
from tests.kit.virtualtime import VirtualClock, run
from tests.kube.fakes import json_response, running, status_body

Json = dict[str, Any]
NAMESPACE = "work"


class Unreliable:
    """The manager's connection. ``refuse``: answered with 500 unread, ``conflict``: with 409; ``lose``: done, but the
    answer is a 504."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.refuse: Callable[[Request], bool] = lambda _: False
        self.conflict: Callable[[Request], bool] = lambda _: False
        self.lose: Callable[[Request], bool] = lambda _: False

    async def request(self, request: Request) -> Response:
        if self.refuse(request):
            return json_response(500, status_body(500, "InternalError", "the disk is full"))
        if self.conflict(request):
            return json_response(409, status_body(409, "Conflict", "somebody was faster"))
        answer = await self._transport.request(request)
        if self.lose(request):
            return json_response(504, status_body(504, "Timeout", "the answer was lost"))
        return answer

    def stream(self, request: Request) -> Any:
        return self._transport.stream(request)

    async def close(self) -> None:
        await self._transport.close()


class World:
    """What a test does with it."""

    def __init__(self, api: ApiServer, client: Client, manager: Unreliable) -> None:
        self.api = api
        self.client = client
        self.clock = client.clock
        self.manager = manager
        #: Writes of anybody: verb, kind, name.
        self.writes: list[tuple[str, str, str]] = []

    async def create(self, resource: Resource, name: str, spec: Json, **metadata: Any) -> Json:
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        return await self.client.create(resource, body, NAMESPACE if resource.namespaced else "")

    async def get(self, resource: Resource, name: str) -> Json | None:
        try:
            found: Json = await self.client.get(resource, name, NAMESPACE if resource.namespaced else "")
        except NotFound:
            return None
        return found

    async def change(self, resource: Resource, name: str, patch: Json, subresource: str = "") -> Json:
        namespace = NAMESPACE if resource.namespaced else ""
        return await self.client.patch(resource, name, patch, namespace, subresource=subresource)

    async def status(self, resource: Resource, name: str) -> Json:
        found = await self.get(resource, name)
        return (found or {}).get("status", {})

    async def names(self, resource: Resource) -> list[str]:
        return sorted(one["metadata"]["name"] for one in (await self.client.list(resource, NAMESPACE)).items)

    async def pods(self) -> list[Json]:
        return (await self.client.list(PODS, NAMESPACE)).items

    async def pod_status(self, name: str, phase: str, **status: Any) -> None:
        await self.change(PODS, name, {"status": {"phase": phase, **status}}, "status")

    async def events(self) -> list[Json]:
        await self.settled(1.0)
        return (await self.client.list(EVENTS, NAMESPACE)).items

    async def reasons(self) -> list[str]:
        return [one["reason"] for one in await self.events()]

    async def until(self, look: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> Any:
        end = self.clock.monotonic() + seconds
        while True:
            if found := await look():
                return found
            assert self.clock.monotonic() < end, f"not within {seconds} s"
            await self.clock.sleep(0.05)

    async def settled(self, seconds: float = 5.0) -> None:
        await self.clock.sleep(seconds)


@asynccontextmanager
async def world(declared: Feature, kinds: Sequence[KindDefinition]) -> AsyncIterator[World]:
    """The feature's controller over an API server that serves ``kinds``."""
    clock, rng = VirtualClock(), Random(1)
    api = ApiServer(clock=clock, rng=rng)
    admin = Client(api.transport(), clock)
    for kind in kinds:
        await admin.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
    for kind in kinds:
        while True:
            try:
                await admin.list(kind.resource())
                break
            except NotFound:
                await clock.sleep(0.1)
    await admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    found = World(api, admin, Unreliable(api.transport("manager", managed_fields=True)))
    ours = Client(found.manager, clock)
    (part,) = declared.controllers
    stores = stores_of(part)
    events = EventRecorder(ours, part.name)
    controller = controller_of(declared, ours, stores.by_name, events=events)

    def note(verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        metadata = (after or before or {}).get("metadata", {})
        if resource != EVENTS:
            found.writes.append((verb, resource.kind, metadata.get("name", "")))

    async with AsyncExitStack() as stack:
        for one in part.watched:
            store: Any = stores(one)
            reflector: Reflector[Any] = Reflector(ours, one.resource, store, decode=one.decode, rng=rng, keep=one.keep)
            await stack.enter_async_context(running(reflector.run()))
        await stack.enter_async_context(running(events.run()))
        await stack.enter_async_context(running(controller.run()))
        api.on_write(note)
        yield found
    api.close()


def in_world(declared: Feature, kinds: Sequence[KindDefinition], scenario: Callable[[World], Awaitable[None]]) -> None:
    """Run a scenario in a world of its own."""

    async def main() -> None:
        async with world(declared, kinds) as there:
            await scenario(there)

    run(main())
