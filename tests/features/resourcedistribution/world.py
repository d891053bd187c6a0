"""ResourceDistribution's controller on the sandbox's API server."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any

from app.features.resourcedistribution.feature import FEATURE
from app.features.resourcedistribution.kind import RESOURCE_DISTRIBUTION
from app.kube.resources import CONFIGMAPS, NAMESPACES, SECRETS, Resource
from tests.kit import cluster
from tests.kit.cluster import Json, scenarios

DISTRIBUTIONS = RESOURCE_DISTRIBUTION.resource()


class World(cluster.World):
    """Writes are those of the controller: verb, kind, namespace."""

    def note(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        metadata = (after or before or {}).get("metadata", {})
        if resource in (CONFIGMAPS, SECRETS, DISTRIBUTIONS):
            self.writes.append((verb, resource.kind, metadata.get("namespace", "")))

    async def namespace_of(self, name: str, **labels: str) -> None:
        await self.client.create(NAMESPACES, {"metadata": {"name": name, "labels": labels}})

    async def distribute(self, resource: Json, name: str = "rd", **targets: Any) -> Json:
        return await self.create(DISTRIBUTIONS, name, {"resource": resource, "targets": targets})

    async def respecify(self, spec: Json, name: str = "rd") -> None:
        await self.change(DISTRIBUTIONS, name, {"spec": spec})

    async def copy(self, namespace: str, name: str = "settings", kind: Resource = CONFIGMAPS) -> Json | None:
        return await self.get(kind, name, namespace)

    async def data(self, namespace: str, kind: Resource = CONFIGMAPS) -> Json | None:
        found = await self.copy(namespace, kind=kind)
        return found.get("data") if found is not None else None

    async def status(self, name: str = "rd") -> Json:
        return await self.status_of(DISTRIBUTIONS, name)

    async def condition(self, type_: str, name: str = "rd") -> Json:
        return next(one for one in (await self.status(name))["conditions"] if one["type"] == type_)


def world() -> AbstractAsyncContextManager[World]:
    return cluster.cluster(World, FEATURE)


in_world = scenarios(world)
