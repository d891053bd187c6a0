"""The controller on the sandbox's API server, on virtual time; reflectors fill its caches, as in the manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from app.api.crd import manifest
from app.features.cloneset.kind import CLONE_SET
from app.features.statefulset.kind import STATEFUL_SET
from app.features.workloadspread.feature import FEATURE
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.features.workloadspread.plan.places import SubsetRecord
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.reflector import Reflector
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, EVENTS, NAMESPACES, NODES, PODS, Resource
from app.sandbox.apiserver.server import ApiServer
from tests.features.resourcedistribution.world import Refusing
from tests.features.workloadspread.spreads import Json
from tests.kit.features import controller_of, stores_of
from tests.kit.virtualtime import VirtualClock, run
from tests.kube.fakes import running

SPREADS = WORKLOAD_SPREAD.resource()
CLONE_SETS = CLONE_SET.resource()


class World:
    """What a test does with it. The workload's controller is the test itself."""

    def __init__(self, client: Client, manager: Refusing) -> None:
        self.client = client
        self.manager = manager
        self.writes: list[tuple[str, str]] = []
        self.owner: Json = {}

    async def workload(self, replicas: int, name: str = "shop") -> None:
        body = {
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "CloneSet",
            "metadata": {"name": name, "namespace": "ns"},
            "spec": {
                "replicas": replicas,
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container()]}},
            },
        }
        made = await self.client.create(CLONE_SETS, body, "ns")
        self.owner = {
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "CloneSet",
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }

    async def spread(self, *subsets: Json, **spec: Any) -> None:
        target = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "shop"}
        body = {
            "apiVersion": "apps.kruise.io/v1beta1",
            "kind": "WorkloadSpread",
            "metadata": {"name": "ws", "namespace": "ns"},
            "spec": {"targetRef": target, "subsets": list(subsets), **spec},
        }
        await self.client.create(SPREADS, body, "ns")

    async def pod(
        self, name: str, subset: str = "", *, node: str = "node-1", owned: bool = True, uid: str = ""
    ) -> None:
        record = SubsetRecord("ws", subset, uid).annotation() if subset else {}
        body: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "labels": {"app": "shop"}, "annotations": record},
            "spec": {"containers": [container()], "nodeName": node},
        }
        if owned:
            body["metadata"]["ownerReferences"] = [self.owner]
        await self.client.create(PODS, body, "ns")
        await self.client.patch(PODS, name, {"status": {"phase": "Running"}}, "ns", subresource="status")

    async def annotation(self, name: str, key: str) -> str:
        found: Json = await self.client.get(PODS, name, "ns")
        return str(found["metadata"].get("annotations", {}).get(key, ""))

    async def status(self) -> dict[str, tuple[int, int]]:
        found = (await self.client.get(SPREADS, "ws", "ns")).get("status", {})
        return {one["name"]: (one["replicas"], one["missingReplicas"]) for one in found.get("subsetStatuses", [])}

    async def set_status(self, **subset: Any) -> None:
        """What a webhook wrote about subset a."""
        status = {"versionedSubsetStatuses": {"versionIgnored": [{"name": "a", **subset}]}}
        await self.client.patch(SPREADS, "ws", {"status": status}, "ns", subresource="status")

    async def reasons(self) -> set[str]:
        return {one["reason"] for one in (await self.client.list(EVENTS)).items}

    async def until(self, look: Callable[[], Any], wanted: Any, seconds: float = 30.0) -> None:
        end = self.client.clock.monotonic() + seconds
        while (found := await look()) != wanted:
            assert self.client.clock.monotonic() < end, f"not within {seconds} s: {wanted}; last {found}"
            await self.client.clock.sleep(0.05)


def container() -> Json:
    return {"name": "main", "image": "nginx"}


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    clock, rng = VirtualClock(), Random(1)
    api = ApiServer(clock=clock, rng=rng)
    admin = Client(api.transport(), clock)
    for kind in (WORKLOAD_SPREAD, CLONE_SET, STATEFUL_SET):
        await admin.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
        while True:
            try:
                await admin.list(kind.resource())
                break
            except NotFound:
                await clock.sleep(0.1)
    await admin.create(NAMESPACES, {"metadata": {"name": "ns"}})
    await admin.create(NODES, {"metadata": {"name": "node-1", "labels": {"zone": "a"}}})
    found = World(admin, Refusing(api.transport("manager", managed_fields=True)))
    ours = Client(found.manager, clock)
    (part,) = FEATURE.controllers
    stores = stores_of(part)
    events = EventRecorder(ours, part.name)
    controller = controller_of(FEATURE, ours, stores.by_name, events=events)

    def note(verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        if resource in (PODS, SPREADS):
            found.writes.append((verb, resource.kind))

    async with AsyncExitStack() as stack:
        for one in part.watched:
            store: Any = stores(one)
            reflector: Reflector[Any] = Reflector(
                ours, one.resource, store, decode=one.decode, rng=rng, field_selector=one.field_selector
            )
            await stack.enter_async_context(running(reflector.run()))
        await stack.enter_async_context(running(events.run()))
        await stack.enter_async_context(running(controller.run()))
        api.on_write(note)
        yield found
    api.close()


def in_world(scenario: Callable[[World], Any]) -> None:
    async def main() -> None:
        async with world() as there:
            await scenario(there)

    run(main())
