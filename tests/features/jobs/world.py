"""Controllers of jobs on the sandbox's API server."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from app.api.kind import KindDefinition
from app.framework.feature import Feature
from app.kube.resources import PODS, Resource
from tests.kit import cluster
from tests.kit.cluster import Json, scenarios

NAMESPACE = "work"


class World(cluster.World):
    namespace: ClassVar[str] = NAMESPACE

    async def names(self, resource: Resource) -> list[str]:
        return sorted(one["metadata"]["name"] for one in (await self.client.list(resource, NAMESPACE)).items)

    async def pods(self) -> list[Json]:
        return (await self.client.list(PODS, NAMESPACE)).items

    async def events(self, reason: str = "") -> list[Json]:
        await self.settled(1.0)
        return await super().events(reason)

    async def messages(self, reason: str) -> list[str]:
        return [one["message"] for one in await self.events(reason)]

    async def reasons(self) -> list[str]:
        return [one["reason"] for one in await self.events()]


def worlds(feature: Feature, *kinds: KindDefinition) -> Any:
    """Return a decorator that runs a test with the feature's controller on a cluster that serves ``kinds``."""

    def world() -> AbstractAsyncContextManager[World]:
        return cluster.cluster(World, feature, kinds=kinds, namespaces=[NAMESPACE])

    return scenarios(world)
