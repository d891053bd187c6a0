"""SidecarSets, injected Pods and the controller on the sandbox's API server and simulated nodes, on virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, ClassVar

import orjson
from prometheus_client import CollectorRegistry

from app.api import names
from app.api.crd import manifest
from app.features.sidecarset.defaults import with_defaults
from app.features.sidecarset.feature import FEATURE, NAME
from app.features.sidecarset.hashes import sidecarset_hashes
from app.features.sidecarset.kind import SIDECAR_SET
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.reflector import ReflectorMetrics
from app.kube.resources import CONTROLLERREVISIONS, CUSTOMRESOURCEDEFINITIONS, NAMESPACES, PODS, Resource
from app.kube.store import Store
from app.kube.wire import Request, Response, Transport
from app.manager.process import Caches
from app.pods.disruption_budget import DisruptionBudget
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.kubelet.program import Pace
from app.sandbox.nodes import Nodes, simulated_nodes
from tests.features.admitting import World as Admitting
from tests.kit.cluster import ManagedCluster, scenarios
from tests.kit.features import controller_of, part_of, stores_of
from tests.kit.transports import Counting
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, until

SETS = SIDECAR_SET.resource()
NAMESPACE = "shop"
Json = dict[str, Any]


class Sent(Counting):
    def __init__(self, inner: Transport) -> None:
        super().__init__(inner)
        self.writes: list[Request] = []  # type: ignore[assignment]

    async def request(self, request: Request) -> Response:
        if request.method != "GET" and "/events" not in request.path:
            self.writes.append(request)
        return await super().request(request)

    def to_pods(self, name: str = "") -> list[Json]:
        """Return the bodies of writes to Pods, or to one Pod, except for their status."""
        tail = f"/pods/{name}"
        return [
            orjson.loads(one.body)
            for one in self.writes
            if (one.path.endswith(tail) if name else "/pods/" in one.path) and not one.path.endswith("/status")
        ]


class World(ManagedCluster):
    """A cluster with SidecarSets."""

    resource: ClassVar[Resource] = SETS
    namespace: ClassVar[str] = NAMESPACE
    sent: Sent  # type: ignore[assignment]

    def __init__(self, api: ApiServer, clock: VirtualClock) -> None:
        super().__init__(api, clock)
        self.sent = Sent(api.transport())
        #: The controller's caches and metrics.
        self.caches: dict[str, Store[Any]] = {}
        self.registry = CollectorRegistry()

    async def apply(self, name: str = "s", **spec: Any) -> Json:
        """Create a SidecarSet or replace its spec, with the defaults and hashes that admission sets."""
        try:
            live = await self.user.get(SETS, name)
        except NotFound:
            live = {"apiVersion": SETS.api_version, "kind": SETS.kind, "metadata": {"name": name}}
        base: Json = {"selector": {"matchLabels": {"app": "web"}}, "containers": [sidecar()]}
        spec = with_defaults({"spec": base | spec})["spec"]
        hashes = sidecarset_hashes(spec["containers"], spec.get("initContainers"))
        annotations = {names.SIDECARSET_HASH: hashes.hash, names.SIDECARSET_HASH_WITHOUT_IMAGE: hashes.without_image}
        given = live["metadata"].get("annotations") or {}
        body = {**live, "metadata": {**live["metadata"], "annotations": {**given, **annotations}}, "spec": spec}
        if "uid" in live["metadata"]:
            return await self.user.replace(SETS, name, body)
        return await self.user.create(SETS, body)

    async def pods_of(self, *pods: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
        there = (await self.user.get(NAMESPACES, NAMESPACE))["metadata"]
        admitting = Admitting(namespaces={NAMESPACE: there.get("labels") or {}})
        for one in (await self.user.list(SETS)).items:
            admitting.apply(one)
        for name in pods:
            body = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": "web", **(labels or {})}},
                "spec": {"containers": [{"name": "main", "image": "nginx:1"}], **spec},
            }
            await self.user.create(PODS, admitting.create(body, namespace=NAMESPACE).pod, NAMESPACE)

    async def begin(self, *pods: str, **spec: Any) -> None:
        """Create the SidecarSet and Pods with its containers."""
        await self.apply(**spec)
        await self.settles(0, 0, 0, 0)
        await self.pods_of(*pods)
        await self.settles(*(len(pods),) * 4)

    async def pod(self, name: str) -> Json:
        found: Json = await self.user.get(PODS, name, NAMESPACE)
        return found

    async def pods(self) -> list[Json]:
        return (await self.user.list(PODS, NAMESPACE)).items

    async def images(self, container: str = "shipper") -> dict[str, str]:
        return {pod["metadata"]["name"]: image_of(pod, container) for pod in await self.pods()}

    async def runs(self, name: str, *, ready: bool = True) -> None:
        """Act as the kubelet of the Pod."""
        containers = (await self.pod(name))["spec"]["containers"]
        statuses = [{"name": one["name"], "image": one["image"], "imageID": one["image"]} for one in containers]
        conditions = [{"type": "Ready", "status": str(ready)}]
        status = {"phase": "Running", "conditions": conditions, "containerStatuses": statuses}
        await self.user.patch(PODS, name, {"status": status}, NAMESPACE, subresource="status")

    async def history(self) -> list[tuple[str, int]]:
        """Names and numbers of all revisions, oldest first."""
        found = (await self.user.list(CONTROLLERREVISIONS, "kruise-system")).items
        return sorted(((one["metadata"]["name"], one["revision"]) for one in found), key=lambda one: one[1])

    async def counts(self, name: str = "s") -> tuple[int, ...]:
        """Return the counts (matched, updated, ready, updated and ready); -1 while the status is outdated."""
        found = await self.user.get(SETS, name)
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return (-1,) * 4
        fields = ("matchedPods", "updatedPods", "readyPods", "updatedReadyPods")
        return tuple(status.get(field, 0) for field in fields)

    async def settles(self, *wanted: int, name: str = "s", seconds: float = 120.0) -> None:
        await self.becomes(lambda: self.counts(name), wanted, seconds)

    def restarts(self, pod: Json) -> dict[str, int]:
        return {status["name"]: status["restartCount"] for status in pod["status"]["containerStatuses"]}


def sidecar(image: str = "a:1", name: str = "shipper", **fields: Any) -> Json:
    return {"name": name, "image": image, **fields}


def hot(image: str = "m:1", empty: str = "e:1", name: str = "mesh", **fields: Any) -> Json:
    return sidecar(image, name, upgradeStrategy={"upgradeType": "HotUpgrade", "hotUpgradeEmptyImage": empty}, **fields)


def image_of(pod: Json, container: str) -> str:
    return next(one["image"] for one in pod["spec"]["containers"] if one["name"] == container)


def annotation(pod: Json, key: str) -> Any:
    return json.loads(pod["metadata"]["annotations"][key])


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


@asynccontextmanager
async def rolling_world(
    *,
    pace: Pace | None = None,
    budget: DisruptionBudget | None = None,
    nodes: int = 3,
    before: Callable[[World], Awaitable[None]] | None = None,
) -> AsyncIterator[World]:
    """Run the cluster with a namespace for the Pods and the manager's own.

    Without nodes no Pod runs. ``before`` runs before the controller starts.
    """
    clock, rng = VirtualClock(), Random(7)
    api = ApiServer(clock=clock, rng=rng)
    world = World(api, clock)
    await world.user.create(CUSTOMRESOURCEDEFINITIONS, manifest(SIDECAR_SET))
    for name in (NAMESPACE, "kruise-system"):
        await world.user.create(NAMESPACES, {"metadata": {"name": name}})
    if before is not None:
        await before(world)
    client = Client(api.transport(), clock)
    simulation = [Nodes(client, simulated_nodes(nodes), rng=rng, bind=True, pace=pace).run()] if nodes else []
    try:
        async with running(*simulation), _managing(world, rng, budget):
            yield world
    finally:
        api.close()


@asynccontextmanager
async def _managing(world: World, rng: Random, budget: DisruptionBudget | None) -> AsyncIterator[None]:
    client = Client(world.sent, world.clock)
    caches = Caches("kruise-system", declared=[FEATURE])
    events = EventRecorder(client, NAME)
    part = part_of(FEATURE)
    given = world.caches = {name: caches.by_name[name] for name in stores_of(part).by_name}
    provided = {DisruptionBudget: budget} if budget is not None else {}
    controller = controller_of(FEATURE, client, given, events=events, provided=provided, registry=world.registry)
    made = (caches.admission_reflectors, caches.controller_reflectors)
    reflectors = [one.run() for make in made for one in make(client, rng, ReflectorMetrics())]
    async with running(events.run(), *reflectors, controller.run()):
        # Caches can be filled only once the API server serves the definitions, a moment after their creation.
        await until(lambda: all(store.ready for store in given.values()), 600)
        yield


in_world = scenarios(rolling_world)
