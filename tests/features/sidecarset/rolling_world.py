"""SidecarSets, injected Pods and the controller on the sandbox's API server and simulated nodes, on virtual time."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import orjson

from app.api import names
from app.api.crd import manifest
from app.features.sidecarset.feature import FEATURE, NAME
from app.features.sidecarset.kind import SIDECAR_SET, sidecarset_hashes, with_defaults
from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.reflector import ReflectorMetrics
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, EVENTS, NAMESPACES, PODS
from app.kube.wire import Request, Response, Transport
from app.manager.process import Caches
from app.pods.budget import DisruptionBudget
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.kubelet.program import Pace
from app.sandbox.nodes import Nodes, simulated_nodes
from tests.features.admitting import World as Admitting
from tests.kit.cluster import scenarios
from tests.kit.features import controller_of, part_of, stores_of
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import running, until

SETS = SIDECAR_SET.resource()
NAMESPACE = "shop"
Json = dict[str, Any]


class Sent:
    """The manager's connection, with what it wrote; ``intercept`` may answer instead of the server, or raise."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.stream = inner.stream
        self.writes: list[Request] = []
        self.intercept: Callable[[Request], Response | Exception | None] = lambda _: None

    async def request(self, request: Request) -> Response:
        if request.method != "GET" and "/events" not in request.path:
            self.writes.append(request)
        answer = self.intercept(request)
        if isinstance(answer, Exception):
            raise answer
        return answer if answer is not None else await self._inner.request(request)

    async def close(self) -> None:
        await self._inner.close()

    def to_pods(self, name: str = "") -> list[Json]:
        """The bodies of what was written to Pods, or to one of them; their statuses are not counted."""
        tail = f"/pods/{name}"
        return [
            orjson.loads(one.body)
            for one in self.writes
            if (one.path.endswith(tail) if name else "/pods/" in one.path) and not one.path.endswith("/status")
        ]


class World:
    """What a user does, and what is to be seen."""

    def __init__(self, api: ApiServer, clock: VirtualClock) -> None:
        self.api = api
        self.clock = clock
        self.user = Client(api.transport(), clock)
        self.sent = Sent(api.transport())
        #: The most Pods of each look that were not ready, by what a watcher saw.
        self.readiness: list[int] = []

    async def apply(self, name: str = "s", **spec: Any) -> Json:
        """Create a SidecarSet or replace its spec, as admission would let it pass."""
        try:
            live = await self.user.get(SETS, name)
        except NotFound:
            live = {"apiVersion": SETS.api_version, "kind": SETS.kind, "metadata": {"name": name}}
        base: Json = {"selector": {"matchLabels": {"app": "web"}}, "containers": [sidecar()]}
        spec = with_defaults({"spec": base | spec})["spec"]
        hashes = sidecarset_hashes(spec["containers"], spec.get("initContainers"))
        annotations = {
            names.SIDECARSET_HASH: hashes.hash,
            names.SIDECARSET_HASH_WITHOUT_IMAGE: hashes.without_image,
        }
        given = live["metadata"].get("annotations") or {}
        body = {**live, "metadata": {**live["metadata"], "annotations": {**given, **annotations}}, "spec": spec}
        if "uid" in live["metadata"]:
            return await self.user.replace(SETS, name, body)
        return await self.user.create(SETS, body)

    async def served(self) -> bool:
        """Whether the kind is."""
        try:
            await self.user.list(SETS)
        except NotFound:
            return False
        return True

    async def pods_of(self, *pods: str, labels: dict[str, str] | None = None, **spec: Any) -> None:
        """Create Pods, injected by all the sets there are."""
        admitting = Admitting(namespaces={NAMESPACE: {}})
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

    async def pod(self, name: str) -> Json:
        found: Json = await self.user.get(PODS, name, NAMESPACE)
        return found

    async def pods(self) -> list[Json]:
        return (await self.user.list(PODS, NAMESPACE)).items

    async def images(self, container: str = "shipper") -> dict[str, str]:
        """Pod → the image in its spec."""
        return {pod["metadata"]["name"]: image_of(pod, container) for pod in await self.pods()}

    async def counts(self, name: str = "s") -> tuple[int, ...]:
        """Matched, updated, ready, updated and ready; -1 before the status tells of the set as it is."""
        found = await self.user.get(SETS, name)
        status = found.get("status") or {}
        if status.get("observedGeneration") != found["metadata"]["generation"]:
            return (-1,) * 4
        fields = ("matchedPods", "updatedPods", "readyPods", "updatedReadyPods")
        return tuple(status.get(field, 0) for field in fields)

    async def events(self, reason: str) -> list[str]:
        """Messages, however often each was told."""
        found = (await self.user.list(EVENTS)).items
        return [event["message"] for event in found if event["reason"] == reason]

    async def until(self, look: Callable[[], Awaitable[Any]], what: str, seconds: float = 120.0) -> Any:
        """The first true thing that ``look`` returns."""
        deadline, found = self.clock.monotonic() + seconds, None
        while self.clock.monotonic() < deadline:
            found = await look()
            if found:
                return found
            await self.clock.sleep(0.05)
        raise AssertionError(f"not within {seconds} s: {what}; {found}; {await self.counts()}")

    async def settles(self, *wanted: int, name: str = "s", seconds: float = 120.0) -> None:
        """Wait for the counts."""

        async def look() -> bool:
            return await self.counts(name) == wanted

        await self.until(look, f"{name}: {wanted}", seconds)

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
async def rolling_world(*, pace: Pace | None = None, budget: DisruptionBudget | None = None) -> AsyncIterator[World]:
    """The cluster, running, with a namespace for the Pods and the manager's own."""
    clock, rng = VirtualClock(), Random(7)
    api = ApiServer(clock=clock, rng=rng)
    world = World(api, clock)
    await world.user.create(CUSTOMRESOURCEDEFINITIONS, manifest(SIDECAR_SET))
    for name in (NAMESPACE, "kruise-system"):
        await world.user.create(NAMESPACES, {"metadata": {"name": name}})
    nodes = Nodes(Client(api.transport(), clock), simulated_nodes(3), rng=rng, bind=True, pace=pace)
    try:
        async with running(nodes.run()), _managing(world, rng, budget):
            yield world
    finally:
        api.close()


@asynccontextmanager
async def _managing(world: World, rng: Random, budget: DisruptionBudget | None) -> AsyncIterator[None]:
    """A manager with caches of its own."""
    client = Client(world.sent, world.clock)
    caches = Caches("kruise-system", declared=[FEATURE])
    events = EventRecorder(client, NAME)
    part = part_of(FEATURE)
    given = {name: caches.by_name[name] for name in stores_of(part).by_name}
    provided = {DisruptionBudget: budget} if budget is not None else {}
    controller = controller_of(FEATURE, client, given, events=events, provided=provided)
    made = (caches.admission_reflectors, caches.controller_reflectors)
    reflectors = [one.run() for make in made for one in make(client, rng, ReflectorMetrics())]
    async with running(events.run(), *reflectors, controller.run()):
        # A definition is served a moment after it was created, and the caches are filled then.
        await until(lambda: all(store.ready for store in given.values()), 600)
        yield


in_world = scenarios(rolling_world)
