"""The controller on the sandbox's API server, on virtual time; reflectors fill its caches, as in the manager."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any

from app.api import names
from app.api.crd import manifest
from app.features.persistentpodstate.feature import FEATURE
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.statefulset.kind import STATEFUL_SET
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.reflector import Reflector
from app.kube.resources import (
    CONFIGMAPS,
    CUSTOMRESOURCEDEFINITIONS,
    EVENTS,
    NAMESPACES,
    NODES,
    PODS,
    STATEFULSETS,
    Resource,
)
from app.sandbox.apiserver.server import ApiServer
from tests.features.persistentpodstate.states import HOST, OWN, ZONE, Json, state
from tests.features.resourcedistribution.world import Refusing
from tests.kit.features import controller_of, stores_of
from tests.kit.virtualtime import VirtualClock, run
from tests.kube.fakes import running

STATES = PERSISTENT_POD_STATE.resource()
ADVANCED = STATEFUL_SET.resource()
GAMES = Resource("game.kruise.io", "v1alpha1", "gameserversets", "GameServerSet")


class World:
    """What a test does with it. The workloads' controller is the test itself."""

    def __init__(self, client: Client, manager: Refusing) -> None:
        self.client = client
        self.manager = manager
        self.writes: list[str] = []
        self.owners: dict[str, Json] = {}

    async def node(self, name: str, zone: str) -> None:
        await self.client.create(NODES, {"metadata": {"name": name, "labels": {ZONE: zone, HOST: name}}})

    async def workload(
        self, resource: Resource = ADVANCED, replicas: int = 3, name: str = "web", **annotations: str
    ) -> None:
        """``annotations``: switch, required, preferred."""
        made = await self.client.create(
            resource,
            {
                "apiVersion": resource.api_version,
                "kind": resource.kind,
                "metadata": {"name": name, "namespace": "ns", "annotations": annotated(annotations)},
                "spec": {
                    "replicas": replicas,
                    "serviceName": name,
                    "selector": {"matchLabels": {"app": name}},
                    "template": {
                        "metadata": {"labels": {"app": name}},
                        "spec": {"containers": [{"name": "main", "image": "nginx"}]},
                    },
                },
            },
            "ns",
        )
        self.owners[name] = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "name": name,
            "uid": made["metadata"]["uid"],
            "controller": True,
        }

    async def annotate(self, resource: Resource = ADVANCED, name: str = "web", **annotations: str | None) -> None:
        await self.client.patch(resource, name, {"metadata": {"annotations": annotated(annotations)}}, "ns")

    async def scale(self, replicas: int, resource: Resource = ADVANCED) -> None:
        await self.client.patch(resource, "web", {"spec": {"replicas": replicas}}, "ns")

    async def remember(self, name: str = "web", **spec: Any) -> None:
        body = state(name, **spec)
        for field in ("uid", "generation", "resourceVersion"):
            del body["metadata"][field]
        await self.client.create(STATES, body, "ns")

    async def pod(self, name: str, node: str, owner: str = "web", *, ready: bool = True) -> None:
        body: Json = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "ns", "ownerReferences": [self.owners[owner]]},
            "spec": {"containers": [{"name": "main", "image": "nginx"}], "nodeName": node},
        }
        await self.client.create(PODS, body, "ns")
        if ready:
            await self.ready(name)

    async def ready(self, name: str) -> None:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
        await self.client.patch(PODS, name, {"status": status}, "ns", subresource="status")

    async def kill(self, name: str) -> None:
        await self.client.delete(PODS, name, "ns", grace_period_seconds=0)

    async def configure(self, text: str) -> None:
        body = {
            "metadata": {"name": names.CONFIGURATION_CONFIG_MAP},
            "data": {names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY: text},
        }
        await self.client.create(CONFIGMAPS, body, OWN)

    async def games(self) -> None:
        """A kind that an operator may list."""
        schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
        version = {"name": GAMES.version, "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
        body = {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{GAMES.plural}.{GAMES.group}"},
            "spec": {
                "group": GAMES.group,
                "scope": "Namespaced",
                "names": {"plural": GAMES.plural, "kind": GAMES.kind, "singular": "gameserverset"},
                "versions": [version],
            },
        }
        await self.client.create(CUSTOMRESOURCEDEFINITIONS, body)
        await served(self.client, GAMES)

    async def state(self, name: str = "web") -> Json | None:
        try:
            found: Json = await self.client.get(STATES, name, "ns")
        except NotFound:
            return None
        return found

    async def places(self, name: str = "web") -> dict[str, str]:
        """Pod → the node that is remembered."""
        found = ((await self.state(name)) or {}).get("status", {}).get("podStates", {})
        return {pod: one["nodeName"] for pod, one in found.items()}

    async def generated(self) -> tuple[list[str], list[str]]:
        """Required and preferred keys of the generated object; nothing without one."""
        spec = ((await self.state()) or {}).get("spec", {})
        required = spec.get("requiredPersistentTopology", {}).get("keys", [])
        return required, [
            key for one in spec.get("preferredPersistentTopology", []) for key in one["preference"]["keys"]
        ]

    async def told(self) -> list[tuple[str, str]]:
        found = (await self.client.list(EVENTS)).items
        return sorted((one["reason"], one["involvedObject"]["kind"]) for one in found)

    async def until(self, look: Callable[[], Any], wanted: Any, seconds: float = 30.0) -> None:
        end = self.client.clock.monotonic() + seconds
        while (found := await look()) != wanted:
            assert self.client.clock.monotonic() < end, f"not within {seconds} s: {wanted}; last {found}"
            await self.client.clock.sleep(0.05)

    async def settled(self, seconds: float = 15.0) -> None:
        await self.client.clock.sleep(seconds)


def annotated(short: dict[str, Any]) -> dict[str, Any]:
    keys = {
        "switch": names.AUTO_GENERATE_PERSISTENT_POD_STATE,
        "required": names.REQUIRED_PERSISTENT_TOPOLOGY,
        "preferred": names.PREFERRED_PERSISTENT_TOPOLOGY,
        "remembered": names.PERSISTENT_POD_ANNOTATIONS,
    }
    return {keys[key]: value for key, value in short.items()}


async def served(client: Client, resource: Resource) -> None:
    for _ in range(100):
        try:
            await client.list(resource)
            return
        except NotFound:
            await client.clock.sleep(0.1)
    raise AssertionError(f"{resource.plural} are not served")


@asynccontextmanager
async def world(gates: str = "") -> AsyncIterator[World]:
    clock, rng = VirtualClock(), Random(1)
    api = ApiServer(clock=clock, rng=rng)
    admin = Client(api.transport(), clock)
    for kind in (PERSISTENT_POD_STATE, STATEFUL_SET):
        await admin.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
        await served(admin, kind.resource())
    for namespace in ("ns", OWN):
        await admin.create(NAMESPACES, {"metadata": {"name": namespace}})
    found = World(admin, Refusing(api.transport("manager", managed_fields=True)))
    await found.node("node-a", "z1")
    await found.node("node-b", "z2")
    ours = Client(found.manager, clock)
    (part,) = FEATURE.controllers
    stores = stores_of(part)
    events = EventRecorder(ours, part.name)
    controller = controller_of(FEATURE, ours, stores.by_name, events=events, gates=gates)

    def note(verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        if resource == STATES:
            found.writes.append(verb)

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


def in_world(scenario: Callable[[World], Any], gates: str = "") -> None:
    async def main() -> None:
        async with world(gates) as there:
            await scenario(there)

    run(main())


__all__ = ["ADVANCED", "GAMES", "STATEFULSETS", "STATES", "World", "in_world"]
