"""PersistentPodState's controller on the sandbox's API server. The workloads' controller is the test itself."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from app.api import names
from app.features.persistentpodstate.feature import FEATURE
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.statefulset.kind import STATEFUL_SET
from app.kube.client import Client
from app.kube.resources import CONFIGMAPS, CUSTOMRESOURCEDEFINITIONS, EVENTS, NODES, PODS, STATEFULSETS, Resource
from app.sandbox.apiserver.server import ApiServer
from tests.features.persistentpodstate.states import HOST, OWN, ZONE, Json, annotated, state
from tests.kit import cluster
from tests.kit.cluster import scenarios, served
from tests.kit.objects import defined, owner_of

STATES = PERSISTENT_POD_STATE.resource()
ADVANCED = STATEFUL_SET.resource()
GAMES = Resource("game.kruise.io", "v1alpha1", "gameserversets", "GameServerSet")


class World(cluster.World):
    """A cluster with two nodes. Writes are those of PersistentPodStates."""

    namespace: ClassVar[str] = "ns"

    def __init__(self, api: ApiServer, client: Client, manager: Any) -> None:
        super().__init__(api, client, manager)
        self.owners: dict[str, Json] = {}

    def note(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        if resource == STATES:
            super().note(verb, resource, before, after)

    async def node(self, name: str, zone: str) -> None:
        await self.client.create(NODES, {"metadata": {"name": name, "labels": {ZONE: zone, HOST: name}}})

    async def workload(
        self, resource: Resource = ADVANCED, replicas: int = 3, name: str = "web", **annotations: str
    ) -> None:
        """``annotations``: switch, required, preferred."""
        labels = {"app": name}
        template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "main", "image": "nginx"}]}}
        selector = {"matchLabels": labels}
        spec = {"replicas": replicas, "serviceName": name, "selector": selector, "template": template}
        self.owners[name] = owner_of(await self.create(resource, name, spec, annotations=annotated(annotations)))

    async def annotate(self, resource: Resource = ADVANCED, name: str = "web", **annotations: str | None) -> None:
        await self.client.patch(resource, name, {"metadata": {"annotations": annotated(annotations)}}, "ns")

    async def scale(self, replicas: int, resource: Resource = ADVANCED) -> None:
        await self.client.patch(resource, "web", {"spec": {"replicas": replicas}}, "ns")

    async def remember(self, **spec: Any) -> None:
        body = state("web", **spec)
        for field in ("uid", "generation", "resourceVersion"):
            del body["metadata"][field]
        await self.client.create(STATES, body, "ns")

    async def pod(self, name: str, node: str, owner: str = "web", *, ready: bool = True) -> None:
        spec = {"containers": [{"name": "main", "image": "nginx"}], "nodeName": node}
        await self.create(PODS, name, spec, ownerReferences=[self.owners[owner]])
        if ready:
            await self.ready(name)

    async def ready(self, name: str) -> None:
        await self.pod_status(name, conditions=[{"type": "Ready", "status": "True"}])

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
        await self.client.create(CUSTOMRESOURCEDEFINITIONS, defined(GAMES))
        await served(self.client, GAMES)

    async def state(self, name: str = "web") -> Json | None:
        return await self.get(STATES, name)

    async def stored(self, name: str = "web") -> Json:
        """Return the object, which must exist."""
        found: Json = await self.client.get(STATES, name, "ns")
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


async def _nodes(there: World) -> None:
    await there.node("node-a", "z1")
    await there.node("node-b", "z2")


def world(gates: str = "") -> AbstractAsyncContextManager[World]:
    kinds = (PERSISTENT_POD_STATE, STATEFUL_SET)
    return cluster.cluster(World, FEATURE, kinds=kinds, namespaces=("ns", OWN), before=_nodes, gates=gates)


in_world = scenarios(world)

__all__ = ["ADVANCED", "GAMES", "STATEFULSETS", "STATES", "World", "in_world"]
