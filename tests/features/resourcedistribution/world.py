"""The controller on the sandbox's API server, on virtual time; reflectors fill its caches, as in the manager."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from app.api.crd import manifest
from app.features.resourcedistribution.feature import FEATURE
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.reflector import Reflector
from app.kube.resources import CONFIGMAPS, CUSTOMRESOURCEDEFINITIONS, EVENTS, NAMESPACES, SECRETS, Resource
from app.kube.wire import Request, Response, Stream, Transport
from app.sandbox.apiserver.server import ApiServer
from tests.kit.features import controller_of, stores_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, running, status_body

Json = dict[str, Any]
DISTRIBUTIONS = RESOURCE_DISTRIBUTION.resource()


class Refusing:
    """The manager's connection; what ``refuse`` says of a request is answered with 500, or another ``status``."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self.forward: Callable[[Request], Awaitable[Response]] = transport.request
        self.refuse: Callable[[Request], bool] = lambda _: False
        #: Watches that tell nothing for now; what happens meanwhile they tell later.
        self.holds_back: Callable[[Request], bool] = lambda _: False
        self.status = 500
        self.text = "the disk is full"
        self.requests: list[Request] = []

    async def request(self, request: Request) -> Response:
        self.requests.append(request)
        if self.refuse(request):
            reason = {403: "Forbidden", 409: "Conflict"}.get(self.status, "InternalError")
            return json_response(self.status, status_body(self.status, reason, self.text))
        return await self.forward(request)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._transport.stream(request) as stream:
            yield Stream(stream.status, stream.headers, self._late(request, stream.chunks))

    async def _late(self, request: Request, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            while self.holds_back(request):
                await asyncio.sleep(0.1)
            yield chunk

    async def close(self) -> None:
        await self._transport.close()


class World:
    """What a test does with it."""

    def __init__(self, api: ApiServer, client: Client, manager: Refusing) -> None:
        self.api = api
        self.manager = manager
        self.client = client
        #: Writes of the controller: verb, kind, namespace.
        self.writes: list[tuple[str, str, str]] = []

    async def namespace(self, name: str, **labels: str) -> None:
        await self.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})

    async def distribute(self, resource: Json, name: str = "rd", **targets: Any) -> Json:
        return await self.client.create(
            DISTRIBUTIONS,
            {
                "apiVersion": "apps.kruise.io/v1beta1",
                "kind": "ResourceDistribution",
                "metadata": {"name": name},
                "spec": {"resource": resource, "targets": targets},
            },
        )

    async def change(self, spec: Json, name: str = "rd") -> None:
        await self.client.patch(DISTRIBUTIONS, name, {"spec": spec})

    async def copy(self, namespace: str, name: str = "settings", kind: Resource = CONFIGMAPS) -> Json | None:
        try:
            found: Json = await self.client.get(kind, name, namespace)
        except NotFound:
            return None
        return found

    async def data(self, namespace: str, kind: Resource = CONFIGMAPS) -> Json | None:
        found = await self.copy(namespace, kind=kind)
        return found.get("data") if found is not None else None

    async def status(self, name: str = "rd") -> Json:
        found: Json = (await self.client.get(DISTRIBUTIONS, name)).get("status", {})
        return found

    async def condition(self, type_: str, name: str = "rd") -> Json:
        return next(one for one in (await self.status(name))["conditions"] if one["type"] == type_)

    async def events(self) -> list[Json]:
        return (await self.client.list(EVENTS)).items

    async def until(self, look: Callable[[], Any], seconds: float = 30.0) -> Any:
        end = self.client.clock.monotonic() + seconds
        while True:
            if found := await look():
                return found
            assert self.client.clock.monotonic() < end, f"not within {seconds} s; status {await self.status()}"
            await self.client.clock.sleep(0.05)

    async def settled(self, seconds: float = 5.0) -> None:
        await self.client.clock.sleep(seconds)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    clock, rng = VirtualClock(), Random(1)
    api = ApiServer(clock=clock, rng=rng)
    admin = Client(api.transport(), clock)
    await admin.create(CUSTOMRESOURCEDEFINITIONS, manifest(RESOURCE_DISTRIBUTION))
    while True:
        try:
            await admin.list(DISTRIBUTIONS)
            break
        except NotFound:
            await clock.sleep(0.1)
    found = World(api, admin, Refusing(api.transport("manager", managed_fields=True)))
    ours = Client(found.manager, clock)
    (part,) = FEATURE.controllers
    stores = stores_of(part)
    events = EventRecorder(ours, part.name)
    controller = controller_of(FEATURE, ours, stores.by_name, events=events)

    def note(verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        metadata = (after or before or {}).get("metadata", {})
        if resource in (CONFIGMAPS, SECRETS, DISTRIBUTIONS):
            found.writes.append((verb, resource.kind, metadata.get("namespace", "")))

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
