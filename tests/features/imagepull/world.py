"""The image controllers on the sandbox's API server, on virtual time, with node agents of a few lines."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from app.api.crd import manifest
from app.features.imagepull.feature import FEATURE
from app.features.imagepull.kind import (
    IMAGE_LIST_PULL_JOB,
    IMAGE_PULL_JOB,
    NODE_IMAGE,
    job_with_defaults,
    list_job_with_defaults,
)
from app.framework.feature import Feature
from app.framework.watched import Scope
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.controller import Controller
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.reflector import Reflector
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, EVENTS, NAMESPACES, NODES, PODS, SECRETS, Resource
from app.kube.wire import Request, Response, Transport
from app.sandbox.apiserver.server import ApiServer
from tests.kit.features import context, stores_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, running, status_body

Json = dict[str, Any]
JOBS, LISTS, NODE_IMAGES = IMAGE_PULL_JOB.resource(), IMAGE_LIST_PULL_JOB.resource(), NODE_IMAGE.resource()
AGENTS = "kruise-daemon-config"
BETA = "apps.kruise.io/v1beta1"


class Guarded:
    """A transport by which some namespaces' Secrets may not be read."""

    def __init__(self, inner: Transport, forbidden: set[str]) -> None:
        self._inner = inner
        self._forbidden = forbidden
        #: Secrets that were asked for by name outside of the agents' namespace.
        self.asked: list[str] = []
        self.stream, self.close = inner.stream, inner.close

    async def request(self, request: Request) -> Response:
        if found := re.fullmatch(r"/api/v1/namespaces/([^/]+)/secrets/([^/?]+).*", request.target):
            namespace, name = found.groups()
            if namespace != AGENTS:
                assert request.method == "GET"
                self.asked.append(name)
            if namespace in self._forbidden:
                return json_response(403, status_body(403, "Forbidden", f'secrets "{name}" is forbidden'))
        elif request.target.startswith("/api/v1/secrets"):
            raise AssertionError("Secrets of all namespaces were asked for")
        return await self._inner.request(request)


class World:
    """What a test does with it."""

    guarded: Guarded

    def __init__(self, api: ApiServer, client: Client) -> None:
        self.api = api
        self.client = client
        #: Writes of anybody: verb, kind, name.
        self.writes: list[tuple[str, str, str]] = []
        #: What the agent of a node does with an image: the end it comes to, or nothing yet.
        self.pull: Callable[[str, str], str | None] = lambda node, image: "Succeeded"
        #: Namespaces whose Secrets the controllers may not read.
        self.forbidden: set[str] = set()
        #: How many nodes pulled at once, at most.
        self.most_at_once = 0

    async def node(self, name: str, ready: bool = True, **labels: str) -> None:
        since = rfc3339(self.client.clock.now())
        condition = {"type": "Ready", "status": str(ready), "lastTransitionTime": since}
        await self.client.create(NODES, {"metadata": {"name": name, "labels": labels}})
        await self.client.patch(NODES, name, {"status": {"conditions": [condition]}}, subresource="status")

    async def nodes(self, *names: str, **labels: str) -> None:
        """Nodes with their NodeImages."""
        for name in names:
            await self.node(name, **labels)
        for name in names:
            await self.until(lambda name=name: self.get(NODE_IMAGES, name), 60)

    async def job(self, name: str = "warm", image: str = "nginx:1.27", **spec: Any) -> Json:
        body = {
            "apiVersion": BETA,
            "kind": "ImagePullJob",
            "metadata": {"name": name},
            "spec": {"image": image, "completionPolicy": {}, **spec},
        }
        return await self.client.create(JOBS, job_with_defaults(body), "default")

    async def list_job(self, *images: str, name: str = "several", **spec: Any) -> Json:
        body = {
            "apiVersion": BETA,
            "kind": "ImageListPullJob",
            "metadata": {"name": name},
            "spec": {"images": list(images), "completionPolicy": {}, **spec},
        }
        return await self.client.create(LISTS, list_job_with_defaults(body), "default")

    async def pod(self, name: str, node: str, **labels: str) -> None:
        body = {"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "m", "image": "i"}]}}
        body["spec"]["nodeName"] = node
        await self.client.create(PODS, body, "default")

    async def secret(self, name: str, content: str = "e30=", namespace: str = "default") -> None:
        body = {
            "metadata": {"name": name},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": content},
        }
        await self.client.create(SECRETS, body, namespace)

    async def get(self, resource: Resource, name: str, namespace: str = "") -> Json | None:
        try:
            found: Json = await self.client.get(resource, name, namespace)
        except NotFound:
            return None
        return found

    async def status(self, name: str = "warm", resource: Resource = JOBS) -> Json:
        found = await self.get(resource, name, "default")
        return (found or {}).get("status") or {}

    async def counts(self, name: str = "warm", resource: Resource = JOBS, **wanted: Any) -> Json:
        async def look() -> bool:
            status = await self.status(name, resource)
            return all(status.get(key) == value for key, value in wanted.items())

        await self.until(look)
        return await self.status(name, resource)

    async def tag(self, node: str, image: str = "nginx", tag: str = "1.27") -> Json | None:
        found = await self.get(NODE_IMAGES, node) or {}
        tags = found.get("spec", {}).get("images", {}).get(image, {}).get("tags", [])
        return next((one for one in tags if one["tag"] == tag), None)

    async def copies(self) -> list[Json]:
        return (await self.client.list(SECRETS, AGENTS)).items

    async def events(self) -> list[Json]:
        return (await self.client.list(EVENTS)).items

    async def until(self, look: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> Any:
        end = self.client.clock.monotonic() + seconds
        while True:
            if found := await look():
                return found
            assert self.client.clock.monotonic() < end, f"not within {seconds} s; job {await self.status()}"
            await self.client.clock.sleep(0.05)

    async def settled(self, seconds: float = 5.0) -> None:
        await self.client.clock.sleep(seconds)

    # ---- the agents

    async def agents(self) -> None:
        """Report what NodeImages ask for, with the counts a real agent writes: each 0.1 s, less often while nothing
        changes."""
        seen, wait = -1, 0.1
        while True:
            wait = 0.1 if len(self.writes) != seen else min(2 * wait, 4.0)
            seen = len(self.writes)
            node_images = (await self.client.list(NODE_IMAGES)).items
            pulling = 0
            for one in node_images:
                status = self._report(one)
                pulling += status["pulling"] > 0
                if status != one.get("status", {}) and (status["desired"] or one.get("status")):
                    name = one["metadata"]["name"]
                    await self.client.patch(NODE_IMAGES, name, {"status": status}, subresource="status")
            self.most_at_once = max(self.most_at_once, pulling)
            await self.client.clock.sleep(wait)

    def _report(self, node_image: Json) -> Json:
        node, now = node_image["metadata"]["name"], rfc3339(self.client.clock.now())
        former = node_image.get("status", {}).get("imageStatuses", {})
        statuses: Json = dict.fromkeys(former)
        phases = []
        for image, entry in node_image["spec"].get("images", {}).items():
            known = {one["tag"]: one for one in former.get(image, {}).get("tags", [])}
            tags = []
            for tag in entry["tags"]:
                status = known.get(tag["tag"], {})
                version = tag.get("version", 0)
                if status.get("version", 0) != version or not status:
                    status = {"tag": tag["tag"], "phase": "Pulling", "startTime": now, "version": version}
                elif status["phase"] == "Pulling" and (end := self.pull(node, f"{image}:{tag['tag']}")):
                    status = {**status, "phase": end, "completionTime": now}
                tags.append(status)
                phases.append(status["phase"])
            statuses[image] = {"tags": tags}
        counts = {key: phases.count(phase) for key, phase in (("succeeded", "Succeeded"), ("failed", "Failed"))}
        return {"desired": len(phases), "pulling": phases.count("Pulling"), **counts, "imageStatuses": statuses}


@asynccontextmanager
async def world(
    *,
    agents: bool = True,
    more: tuple[Feature, ...] = (),
    before: Callable[[Client], Awaitable[None]] | None = None,
    provided: Mapping[type[Any], Any] | None = None,
    flags: tuple[str, ...] = (),
) -> AsyncIterator[World]:
    """``more``: features whose controllers run too; ``before``: what happens before ours start; ``provided``: what
    other features do for them."""
    slices = (FEATURE, *more)
    clock, rng = VirtualClock(), Random(1)
    api = ApiServer(clock=clock, rng=rng)
    admin = Client(api.transport(), clock)
    kinds = [kind for one in slices for kind in one.kinds]
    for kind in kinds:
        await admin.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
    for kind in kinds:
        while True:
            try:
                await admin.list(kind.resource())
                break
            except NotFound:
                await clock.sleep(0.1)
    await admin.create(NAMESPACES, {"metadata": {"name": AGENTS}})
    found = World(api, admin)
    found.guarded = Guarded(api.transport("manager"), found.forbidden)
    ours = Client(found.guarded, clock)

    def note(verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        metadata = (after or before or {}).get("metadata", {})
        found.writes.append((verb, resource.kind, metadata.get("name", "")))

    if before is not None:
        await before(admin)
    api.on_write(note)
    async with AsyncExitStack() as stack:
        for part in (part for one in slices for part in one.controllers):
            stores = stores_of(part)
            for one in part.watched:
                store: Any = stores(one)
                reflector: Reflector[Any] = Reflector(
                    ours,
                    one.resource,
                    store,
                    decode=one.decode,
                    rng=rng,
                    keep=one.keep,
                    namespace=AGENTS if one.scope is Scope.AGENTS else "",
                    field_selector=one.field_selector,
                )
                await stack.enter_async_context(running(reflector.run()))
            events = EventRecorder(ours, part.name)
            gates = "ImagePullJobGate=true"
            made = part.make(
                context(part, ours, stores, flags=flags, gates=gates, events=events, rng=rng, provided=provided)
            )
            controller = Controller(part.name, clock, made.watches, made.reconcile, workers=part.workers)
            await stack.enter_async_context(running(events.run()))
            await stack.enter_async_context(running(controller.run()))
        if agents:
            await stack.enter_async_context(running(found.agents()))
        yield found
    api.close()
