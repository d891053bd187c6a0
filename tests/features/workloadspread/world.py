"""WorkloadSpread's controller on the sandbox's API server. The test creates the workload's Pods."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from app.features.cloneset.kind import CLONE_SET
from app.features.statefulset.kind import STATEFUL_SET
from app.features.workloadspread.feature import FEATURE
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.features.workloadspread.plan.placement import SubsetRecord
from app.kube.resources import NODES, PODS, Resource
from tests.features.workloadspread.spreads import Json
from tests.kit import cluster
from tests.kit.cluster import scenarios
from tests.kit.objects import owner_of, workload_spec

SPREADS = WORKLOAD_SPREAD.resource()
CLONE_SETS = CLONE_SET.resource()


class World(cluster.World):
    """A cluster with one node that records writes of Pods and WorkloadSpreads."""

    namespace: ClassVar[str] = "ns"
    owner: Json

    def note(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        if resource in (PODS, SPREADS):
            super().note(verb, resource, before, after)

    async def workload(self, replicas: int, name: str = "shop") -> None:
        self.owner = owner_of(await self.create(CLONE_SETS, name, workload_spec(replicas, app=name)))

    async def spread(self, *subsets: Json, **spec: Any) -> None:
        target = {"apiVersion": "apps.kruise.io/v1beta1", "kind": "CloneSet", "name": "shop"}
        await self.create(SPREADS, "ws", {"targetRef": target, "subsets": list(subsets), **spec})

    async def pod(
        self, name: str, subset: str = "", *, node: str = "node-1", owned: bool = True, uid: str = ""
    ) -> None:
        record = SubsetRecord("ws", subset, uid).annotation() if subset else {}
        metadata: Json = {"labels": {"app": "shop"}, "annotations": record}
        if owned:
            metadata["ownerReferences"] = [self.owner]
        await self.create(PODS, name, {"containers": [container()], "nodeName": node}, **metadata)
        await self.pod_status(name)

    async def annotation(self, name: str, key: str) -> str:
        found: Json = await self.client.get(PODS, name, "ns")
        return str(found["metadata"].get("annotations", {}).get(key, ""))

    async def status(self) -> dict[str, tuple[int, int]]:
        found = await self.status_of(SPREADS, "ws")
        return {one["name"]: (one["replicas"], one["missingReplicas"]) for one in found.get("subsetStatuses", [])}

    async def places(self, subset: str = "a") -> tuple[int, int, int]:
        """Return the numbers of Pods being created, Pods being deleted and free places of a subset."""
        versions = (await self.status_of(SPREADS, "ws"))["versionedSubsetStatuses"]
        (one,) = [each for each in versions["versionIgnored"] if each["name"] == subset]
        return len(one.get("creatingPods", {})), len(one.get("deletingPods", {})), one["missingReplicas"]

    async def set_status(self, **subset: Any) -> None:
        """Write the status of subset a as a webhook would."""
        status = {"versionedSubsetStatuses": {"versionIgnored": [{"name": "a", **subset}]}}
        await self.change(SPREADS, "ws", {"status": status}, "status")

    async def reasons(self) -> set[str]:
        return {one["reason"] for one in await self.events()}


def container() -> Json:
    return {"name": "main", "image": "nginx"}


async def _node(there: World) -> None:
    await there.client.create(NODES, {"metadata": {"name": "node-1", "labels": {"zone": "a"}}})


def world() -> AbstractAsyncContextManager[World]:
    kinds = (WORKLOAD_SPREAD, CLONE_SET, STATEFUL_SET)
    return cluster.cluster(World, FEATURE, kinds=kinds, namespaces=["ns"], before=_node)


in_world = scenarios(world)
