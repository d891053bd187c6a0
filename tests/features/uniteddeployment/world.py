"""UnitedDeployment's controller on the sandbox's API server. The test creates the Pods."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager
from typing import Any, ClassVar

from app.features.cloneset.kind import CLONE_SET
from app.features.statefulset.kind import STATEFUL_SET
from app.features.uniteddeployment.feature import FEATURE
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.kube.clock import rfc3339
from app.kube.resources import PODS, Resource
from tests.kit import cluster
from tests.kit.cluster import Json, scenarios
from tests.kit.objects import owner_of, workload_spec

UNITED = UNITED_DEPLOYMENT.resource()
CLONE_SETS = CLONE_SET.resource()
NAMESPACE = "shop"
SUBSET = "apps.kruise.io/subset-name"
REVISION = "apps.kruise.io/controller-revision-hash"


def united_spec(replicas: int, kind: str) -> Json:
    """The spec of a UnitedDeployment without subsets."""
    spec = workload_spec(replicas)
    body = {"metadata": {"labels": {"app": "web"}}, "spec": {key: spec[key] for key in ("selector", "template")}}
    return {"replicas": replicas, "selector": spec["selector"], "template": {kind: body}}


class World(cluster.World):
    namespace: ClassVar[str] = NAMESPACE

    async def unite(self, *subsets: Json, name: str = "web", kind: str = "cloneSetTemplate", **spec: Any) -> Json:
        whole = {"topology": {"subsets": list(subsets)}, **united_spec(4, kind)}
        return await self.create(UNITED, name, {**whole, **spec})

    async def respecify(self, spec: Json, name: str = "web") -> None:
        await self.change(UNITED, name, {"spec": spec})

    async def workloads(self, kind: Resource = CLONE_SETS) -> dict[str, Json]:
        found = (await self.client.list(kind, NAMESPACE)).items
        return {one["metadata"]["labels"].get(SUBSET, ""): one for one in found}

    async def counts(self) -> dict[str, int]:
        return {name: one["spec"]["replicas"] for name, one in (await self.workloads()).items()}

    async def has(self, **wanted: int) -> None:
        await self.becomes(self.counts, wanted)

    async def status(self, name: str = "web") -> Json:
        return await self.status_of(UNITED, name)

    async def condition(self, type_: str) -> Json:
        found = (await self.status()).get("conditions", [])
        return next((one for one in found if one["type"] == type_), {})

    async def says(self, type_: str, status: str) -> None:
        """Wait until a condition has this status."""

        async def now() -> str | None:
            return (await self.condition(type_)).get("status")

        await self.becomes(now, status)

    async def pods(self, subset: str, count: int, *, ready: bool = True, owned: bool = True) -> list[str]:
        owner = (await self.workloads())[subset]
        made = []
        for _ in range(count):
            labels = owner["spec"]["template"]["metadata"]["labels"]
            body: Json = {
                "metadata": {"generateName": f"{subset}-", "labels": labels},
                "spec": {"containers": [{"name": "main", "image": "x"}]},
            }
            if owned:
                body["metadata"]["ownerReferences"] = [owner_of(owner)]
            found = await self.client.create(PODS, body, NAMESPACE)
            made.append(found["metadata"]["name"])
            await self.report(made[-1], ready=ready)
        return made

    async def report(self, pod: str, *, ready: bool) -> None:
        """Report the Pod as ready, or as unschedulable."""
        now = rfc3339(self.client.clock.now())
        what = {"type": "Ready", "status": "True", "lastTransitionTime": now}
        lost = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": now}
        await self.pod_status(pod, "Running" if ready else "Pending", conditions=[what if ready else lost])

    async def labels(self, subset: str) -> list[str]:
        """Return the labels that mark reserved Pods of a subset."""
        found = (await self.client.list(PODS, NAMESPACE, label_selector=f"{SUBSET}={subset}")).items
        key = "apps.kruise.io/united-deployment-reserved-pod"
        return sorted(one["metadata"]["labels"].get(key, "") for one in found)


def world() -> AbstractAsyncContextManager[World]:
    kinds = (UNITED_DEPLOYMENT, CLONE_SET, STATEFUL_SET)
    return cluster.cluster(World, FEATURE, kinds=kinds, namespaces=[NAMESPACE])


in_world = scenarios(world)
