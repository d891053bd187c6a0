"""The controller on the sandbox's API server, on virtual time; nobody makes Pods there but the test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from app.api.crd import manifest
from app.features.cloneset.kind import CLONE_SET
from app.features.statefulset.kind import STATEFUL_SET
from app.features.uniteddeployment.feature import FEATURE
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.reflector import Reflector
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, EVENTS, NAMESPACES, PODS, Resource
from app.kube.wire import Request, Response, Stream, Transport
from app.sandbox.apiserver.server import ApiServer
from tests.kit.features import controller_of, stores_of
from tests.kit.virtualtime import VirtualClock, run
from tests.kube.fakes import json_response, running, status_body

Json = dict[str, Any]
UNITED = UNITED_DEPLOYMENT.resource()
CLONE_SETS = CLONE_SET.resource()
NAMESPACE = "shop"
SUBSET = "apps.kruise.io/subset-name"
REVISION = "apps.kruise.io/controller-revision-hash"


class Meddling:
    """The manager's connection: what ``refuse`` says of a request is answered with 500; what ``lose`` says is carried
    out, and the answer is lost. ``writes``: what was asked for."""

    def __init__(self, transport: Transport, clock: VirtualClock) -> None:
        self._transport = transport
        self._clock = clock
        #: By how many seconds what a watch tells is late.
        self.lag: Callable[[], float] = lambda: 0.0
        self.writes: list[str] = []
        self.refuse: Callable[[Request], bool] = lambda _: False
        self.lose: Callable[[Request], bool] = lambda _: False

    async def request(self, request: Request) -> Response:
        if request.method != "GET":
            self.writes.append(f"{request.method} {request.path}")
        if self.refuse(request):
            return json_response(500, status_body(500, "InternalError", "the disk is full"))
        answer = await self._transport.request(request)
        return json_response(504, status_body(504, "Timeout", "too late")) if self.lose(request) else answer

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[Stream]:
        async with self._transport.stream(request) as found:
            yield Stream(found.status, found.headers, self._late(found.chunks))

    async def _late(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            if seconds := self.lag():
                await self._clock.sleep(seconds)
            yield chunk

    async def close(self) -> None:
        await self._transport.close()


class World:
    """What a test does with it."""

    def __init__(self, client: Client, manager: Meddling) -> None:
        self.client = client
        self.manager = manager
        #: Writes of anybody: verb, kind, name.
        self.writes: list[tuple[str, str, str]] = []

    async def unite(self, *subsets: Json, name: str = "web", kind: str = "cloneSetTemplate", **spec: Any) -> Json:
        pod = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "main", "image": "nginx:1"}]}}
        selector = {"matchLabels": {"app": "web"}}
        body = {"metadata": {"labels": {"app": "web"}}, "spec": {"selector": selector, "template": pod}}
        obj = {
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "UnitedDeployment",
            "metadata": {"name": name},
            "spec": {
                "replicas": 4,
                "selector": selector,
                "template": {kind: body},
                "topology": {"subsets": list(subsets)},
                **spec,
            },
        }
        return await self.client.create(UNITED, obj, NAMESPACE)

    async def change(self, spec: Json, name: str = "web") -> None:
        await self.client.patch(UNITED, name, {"spec": spec}, NAMESPACE)

    async def workloads(self, kind: Resource = CLONE_SETS) -> dict[str, Json]:
        found = (await self.client.list(kind, NAMESPACE)).items
        return {one["metadata"]["labels"].get(SUBSET, ""): one for one in found}

    async def counts(self) -> dict[str, int]:
        return {name: one["spec"]["replicas"] for name, one in (await self.workloads()).items()}

    async def has(self, **wanted: int) -> None:
        async def look() -> bool:
            return await self.counts() == wanted

        await self.until(look)

    async def status(self, name: str = "web") -> Json:
        found: Json = (await self.client.get(UNITED, name, NAMESPACE)).get("status", {})
        return found

    async def condition(self, type_: str) -> Json:
        found = (await self.status()).get("conditions", [])
        return next((one for one in found if one["type"] == type_), {})

    async def events(self) -> list[Json]:
        return (await self.client.list(EVENTS)).items

    async def pods(self, subset: str, count: int, *, ready: bool = True, owned: bool = True) -> list[str]:
        """Make Pods as the subset's workload would."""
        owner = (await self.workloads())[subset]
        reference = {
            "apiVersion": owner["apiVersion"],
            "kind": owner["kind"],
            "name": owner["metadata"]["name"],
            "uid": owner["metadata"]["uid"],
            "controller": True,
        }
        made = []
        for _ in range(count):
            labels = owner["spec"]["template"]["metadata"]["labels"]
            body: Json = {
                "metadata": {"generateName": f"{subset}-", "labels": labels},
                "spec": {"containers": [{"name": "main", "image": "x"}]},
            }
            if owned:
                body["metadata"]["ownerReferences"] = [reference]
            found = await self.client.create(PODS, body, NAMESPACE)
            made.append(found["metadata"]["name"])
            await self.report(made[-1], ready=ready)
        return made

    async def report(self, pod: str, *, ready: bool) -> None:
        """What a kubelet, or a scheduler that finds no node, says of a Pod."""
        now = rfc3339(self.client.clock.now())
        what = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        lost = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": now}
        status = {"phase": "Running" if ready else "Pending", "conditions": [what if ready else lost]}
        await self.client.patch(PODS, pod, {"status": status}, NAMESPACE, subresource="status")

    async def labels(self, subset: str) -> list[str]:
        """What the Pods of a subset say of being reserved."""
        found = (await self.client.list(PODS, NAMESPACE, label_selector=f"{SUBSET}={subset}")).items
        key = "apps.kruise.io/united-deployment-reserved-pod"
        return sorted(one["metadata"]["labels"].get(key, "") for one in found)

    async def until(self, look: Callable[[], Any], seconds: float = 30.0) -> Any:
        end = self.client.clock.monotonic() + seconds
        while True:
            if found := await look():
                return found
            assert self.client.clock.monotonic() < end, f"not within {seconds} s; {await self.counts()}"
            await self.client.clock.sleep(0.05)

    async def settled(self, seconds: float = 5.0) -> None:
        await self.client.clock.sleep(seconds)


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    clock, rng = VirtualClock(), Random(1)
    api = ApiServer(clock=clock, rng=rng)
    admin = Client(api.transport(), clock)
    await admin.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
    for kind in (UNITED_DEPLOYMENT, CLONE_SET, STATEFUL_SET):
        await admin.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
        while True:
            try:
                await admin.list(kind.resource())
                break
            except NotFound:
                await clock.sleep(0.1)
    found = World(admin, Meddling(api.transport("manager"), clock))
    ours = Client(found.manager, clock)
    (part,) = FEATURE.controllers
    stores = stores_of(part)
    events = EventRecorder(ours, part.name)
    controller = controller_of(FEATURE, ours, stores.by_name, events=events)

    def note(verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        if resource not in (EVENTS,):
            found.writes.append((verb, resource.kind, (after or before or {}).get("metadata", {}).get("name", "")))

    async with AsyncExitStack() as stack:
        for one in part.watched:
            store: Any = stores(one)
            reflector: Reflector[Any] = Reflector(
                ours, one.resource, store, decode=one.decode, rng=rng, keep=one.keep, label_selector=one.label_selector
            )
            await stack.enter_async_context(running(reflector.run()))
        await stack.enter_async_context(running(events.run()))
        await stack.enter_async_context(running(controller.run()))
        api.on_write(note)
        yield found
    api.close()


def in_world(scenario: Any) -> None:
    async def main() -> None:
        async with world() as there:
            await scenario(there)

    run(main())
