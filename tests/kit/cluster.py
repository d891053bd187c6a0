"""Runs controllers on the sandbox's API server and virtual time; reflectors fill their caches, as in the manager."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from random import Random
from typing import Any, ClassVar, TypeVar

from app.api.crd import manifest
from app.api.kind import KindDefinition
from app.framework.feature import Feature
from app.framework.watched import Stores
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.controller import Controller, ControllerMetrics
from app.kube.errors import NotFound
from app.kube.events import EventRecorder
from app.kube.reflector import ReflectorMetrics
from app.kube.resources import CONTROLLERREVISIONS, CUSTOMRESOURCEDEFINITIONS, EVENTS, NAMESPACES, PODS, Resource
from app.manager.process import Caches
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.kubelet.program import Pace
from app.sandbox.kubelets import Kubelets
from app.sandbox.nodes import Nodes, simulated_nodes
from tests.kit.features import context
from tests.kit.transports import Connection, Counting
from tests.kit.virtualtime import VirtualClock, run
from tests.kube.fakes import running, until

Json = dict[str, Any]
Test = Callable[..., Coroutine[Any, Any, Any]]


async def result_of(look: Callable[[], Any]) -> Any:
    """Call a plain or an async function."""
    found = look()
    return await found if inspect.isawaitable(found) else found


class Waiting:
    """Waits for conditions on the virtual clock."""

    clock: Clock
    #: Shown after a timeout.
    writes: Sequence[object] = ()

    def __init__(self, clock: Clock) -> None:
        self.clock = clock

    async def until(self, look: Callable[[], Any], seconds: float = 60.0) -> Any:
        """Return the first true result of ``look``, which may be a coroutine."""
        end = self.clock.monotonic() + seconds
        while not (found := await result_of(look)):
            assert self.clock.monotonic() < end, f"not within {seconds} s; writes {self.writes[-5:]}"
            await self.clock.sleep(0.05)
        return found

    async def becomes(self, look: Callable[[], Any], wanted: Any, seconds: float = 60.0) -> None:
        """Wait until ``look`` returns the expected value."""
        end = self.clock.monotonic() + seconds
        while (found := await result_of(look)) != wanted:
            assert self.clock.monotonic() < end, f"not within {seconds} s: {wanted}; last {found}"
            await self.clock.sleep(0.05)


class World(Waiting):
    """A cluster in which only controllers act; the test acts as user, kubelet and workload."""

    #: The namespace of namespaced objects.
    namespace: ClassVar[str] = "default"

    def __init__(self, api: ApiServer, client: Client, manager: Any) -> None:
        self.api = api
        self.client = client
        self.clock = client.clock
        #: The manager's connection.
        self.manager = manager
        #: All writes except Events: verb, kind, name.
        self.writes: list[tuple[str, str, str]] = []

    def note(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        if resource != EVENTS:
            self.writes.append((verb, resource.kind, (after or before or {}).get("metadata", {}).get("name", "")))

    def _namespace(self, resource: Resource) -> str:
        return self.namespace if resource.namespaced else ""

    async def create(self, resource: Resource, name: str, spec: Json, **metadata: Any) -> Json:
        body = {
            "apiVersion": resource.api_version,
            "kind": resource.kind,
            "metadata": {"name": name, **metadata},
            "spec": spec,
        }
        return await self.client.create(resource, body, self._namespace(resource))

    async def get(self, resource: Resource, name: str, namespace: str | None = None) -> Json | None:
        try:
            found: Json = await self.client.get(
                resource, name, self._namespace(resource) if namespace is None else namespace
            )
        except NotFound:
            return None
        return found

    async def change(self, resource: Resource, name: str, patch: Json, subresource: str = "") -> Json:
        return await self.client.patch(resource, name, patch, self._namespace(resource), subresource=subresource)

    async def status_of(self, resource: Resource, name: str) -> Json:
        return (await self.get(resource, name) or {}).get("status") or {}

    async def pod_status(self, name: str, phase: str = "Running", **status: Any) -> Json:
        return await self.change(PODS, name, {"status": {"phase": phase, **status}}, "status")

    async def events(self, reason: str = "") -> list[Json]:
        return [one for one in (await self.client.list(EVENTS)).items if reason in ("", one["reason"])]

    async def settled(self, seconds: float = 5.0) -> None:
        await self.clock.sleep(seconds)

    async def writes_nothing(self, seconds: float = 1000.0) -> None:
        """Check that nothing is written in this time."""
        before = len(self.writes)
        await self.clock.sleep(seconds)
        assert self.writes[before:] == []


class Panics(ControllerMetrics):
    """Counts errors that are bugs in controllers. A controller only logs them, and a mapper loses the change."""

    def __init__(self) -> None:
        self.controllers: list[str] = []

    def panicked(self, controller: str) -> None:
        self.controllers.append(controller)


class ManagedCluster:
    """A cluster with nodes, from the view of a user of one kind, and the requests that the manager has sent."""

    resource: ClassVar[Resource]
    namespace: ClassVar[str] = "default"
    #: The object that methods are about by default.
    owner: ClassVar[str] = "web"
    kubelets: Kubelets

    def __init__(self, api: ApiServer, clock: VirtualClock) -> None:
        self.api = api
        self.clock = clock
        self.user = Client(api.transport(), clock)
        self.sent = Counting(api.transport())

    def _namespace(self) -> str:
        return self.namespace if self.resource.namespaced else ""

    async def create(self, name: str, spec: Json, **metadata: Any) -> Json:
        head = {"apiVersion": self.resource.api_version, "kind": self.resource.kind}
        body = {**head, "metadata": {"name": name, **metadata}, "spec": spec}
        return await self.user.create(self.resource, body, self._namespace())

    async def patch(self, body: Any, name: str = "") -> None:
        await self.user.patch(self.resource, name or self.owner, body, self._namespace())

    async def status(self, name: str = "") -> Json:
        return (await self.user.get(self.resource, name or self.owner, self._namespace())).get("status") or {}

    async def pods(self) -> list[Json]:
        found = (await self.user.list(PODS, self.namespace)).items
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    async def uids(self) -> dict[str, str]:
        """Return the UIDs of the Pods by name."""
        return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in await self.pods()}

    async def revisions(self) -> list[Json]:
        return (await self.user.list(CONTROLLERREVISIONS, self.namespace)).items

    async def condition(self, type_: str, name: str = "") -> Json:
        """Return the condition of this type, or an empty object."""
        conditions = (await self.status(name or self.owner)).get("conditions") or []
        return next((one for one in conditions if one["type"] == type_), {})

    async def events(self, reason: str) -> list[str]:
        """Return the messages of the events with this reason; a repeated event has one message."""
        return [one["message"] for one in (await self.user.list(EVENTS)).items if one["reason"] == reason]

    async def event(self, reason: str) -> str:
        """Wait for an event with this reason, and return its message."""

        async def sent() -> list[str]:
            return await self.events(reason)

        first: str = (await self.until(sent, f"event {reason}"))[0]
        return first

    async def until(self, condition: Callable[[], Any], what: str, seconds: float = 120.0) -> Any:
        """Return the first true result of ``condition``, which may be a coroutine."""
        deadline = self.clock.monotonic() + seconds
        while self.clock.monotonic() < deadline:
            if found := await result_of(condition):
                return found
            await self.clock.sleep(0.02)
        raise AssertionError(f"not within {seconds} s: {what}; {(await self.user.list(self.resource)).items}")

    async def until_pods(self, condition: Callable[[list[Json]], Any], what: str) -> None:
        """Wait until the Pods meet the condition."""

        async def met() -> bool:
            return bool(condition(await self.pods()))

        await self.until(met, what)

    async def becomes(self, look: Callable[[], Awaitable[Any]], wanted: Any, seconds: float = 120.0) -> None:
        """Wait until ``look`` returns the expected value."""

        async def reached() -> bool:
            return bool(await look() == wanted)

        await self.until(reached, f"{wanted}", seconds)

    async def settled(self, name: str = "", seconds: float = 300.0, **wanted: int) -> Json:
        """Return the status once it is current and has the wanted numbers."""

        async def look() -> Json | None:
            found = await self.user.get(self.resource, name or self.owner, self._namespace())
            status: Json = found.get("status") or {}
            current = status.get("observedGeneration") == found["metadata"]["generation"]
            return status if current and all(status.get(key, 0) == value for key, value in wanted.items()) else None

        found: Json = await self.until(look, f"{name}: {wanted}", seconds)
        return found


AnyCluster = TypeVar("AnyCluster", bound=ManagedCluster)


@asynccontextmanager
async def managed(
    make: Callable[[ApiServer, VirtualClock], AnyCluster],
    feature: Feature,
    name: str,
    controllers: Callable[[Client, Stores, EventRecorder, Random], Iterable[Controller]],
    *,
    nodes: int = 3,
    pace: Pace | None = None,
    seed: int = 7,
    before: Callable[[AnyCluster], Awaitable[None]] | None = None,
) -> AsyncIterator[AnyCluster]:
    """Run the controllers of one feature, with simulated nodes. ``name`` is the source of events; ``before`` runs
    before the controllers start."""
    clock, rng = VirtualClock(), Random(seed)
    api = ApiServer(clock=clock, rng=rng)
    there = make(api, clock)
    for kind in feature.kinds:
        await there.user.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
    if before is not None:
        await before(there)
    simulation = Nodes(Client(api.transport(), clock), simulated_nodes(nodes), rng=rng, bind=True, pace=pace)
    there.kubelets = simulation.kubelets
    client = Client(there.sent, clock)
    caches = Caches("kruise-system", declared=[feature])
    events = EventRecorder(client, name)
    made = controllers(client, caches.stores, events, rng)
    reflectors = [reflector.run() for reflector in caches.controller_reflectors(client, rng, ReflectorMetrics())]
    stores = [caches.stores(one) for part in feature.controllers for one in part.watched]
    try:
        async with running(simulation.run(), events.run(), *reflectors, *(one.run() for one in made)):
            await until(lambda: all(store.ready for store in stores))
            yield there
    finally:
        api.close()


AnyWorld = TypeVar("AnyWorld", bound=World)


async def served(client: Client, resource: Resource) -> None:
    """Wait until the API server serves the resource."""
    for _ in range(100):
        try:
            await client.list(resource)
            return
        except NotFound:
            await client.clock.sleep(0.1)
    raise AssertionError(f"{resource.plural} are not served")


@asynccontextmanager
async def cluster(
    make: Callable[[ApiServer, Client, Any], AnyWorld],
    *features: Feature,
    kinds: Iterable[KindDefinition] | None = None,
    namespaces: Iterable[str] = (),
    connection: Callable[[Any], Any] = Connection,
    before: Callable[[AnyWorld], Awaitable[None]] | None = None,
    controllers: Iterable[str] = (),
    gates: str = "",
    flags: tuple[str, ...] = (),
    provided: Mapping[type[Any], Any] | None = None,
) -> AsyncIterator[AnyWorld]:
    """Run the features' controllers.

    ``kinds``: the kinds to serve, by default those of the features; ``before``: runs before the controllers start;
    ``controllers``: names of the controllers to run, by default all; ``provided``: what other features provide.
    """
    clock, rng = VirtualClock(), Random(1)
    api = ApiServer(clock=clock, rng=rng)
    admin = Client(api.transport(), clock)
    chosen = list(kinds) if kinds is not None else [kind for one in features for kind in one.kinds]
    for kind in chosen:
        await admin.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
    for kind in chosen:
        await served(admin, kind.resource())
    for namespace in namespaces:
        await admin.create(NAMESPACES, {"metadata": {"name": namespace}})
    there = make(api, admin, connection(api.transport("manager", managed_fields=True)))
    if before is not None:
        await before(there)
    api.on_write(there.note)
    ours = Client(there.manager, clock)
    caches = Caches("kruise-system", declared=features)
    metrics, panics = ReflectorMetrics(), Panics()
    reflectors = [*caches.admission_reflectors(ours, rng, metrics), *caches.controller_reflectors(ours, rng, metrics)]
    async with AsyncExitStack() as stack:
        await stack.enter_async_context(running(*(one.run() for one in reflectors)))
        for part in (part for one in features for part in one.controllers):
            if controllers and part.name not in controllers:
                continue
            events = EventRecorder(ours, part.event_source or part.name)
            options: Any = {"gates": gates, "flags": flags, "events": events, "rng": rng, "provided": provided}
            made = part.make(context(part, ours, caches.stores, **options))
            controller = Controller(
                part.name, clock, made.watches, made.reconcile, workers=part.workers, metrics=panics
            )
            await stack.enter_async_context(running(events.run(), controller.run()))
        yield there
    api.close()
    assert not panics.controllers, "the log shows why"


@asynccontextmanager
async def api_server() -> AsyncIterator[tuple[Client, ApiServer]]:
    clock = VirtualClock()
    api = ApiServer(clock=clock, rng=Random(7))
    try:
        yield Client(api.transport(managed_fields=True), clock), api
    finally:
        api.close()


def scenarios(world: Callable[..., AbstractAsyncContextManager[Any]], arguments: int = 1) -> Any:
    """Return the decorator ``in_world``. It runs an async test in virtual time, with a new world as its first
    ``arguments``. ``@in_world(agents=False)`` passes options to the world."""

    def in_world(*given: Any, **options: Any) -> Any:
        if given and inspect.iscoroutinefunction(given[0]):
            return _run_in(world, given[0], arguments)
        return lambda test: _run_in(functools.partial(world, *given, **options), test, arguments)

    return in_world


in_api_server = scenarios(api_server, arguments=2)


def _run_in(world: Callable[..., AbstractAsyncContextManager[Any]], test: Test, arguments: int) -> Callable[..., Any]:
    @functools.wraps(test)
    def in_time(**given: Any) -> Any:
        async def main() -> Any:
            async with world() as there:
                return await test(*(there if arguments > 1 else (there,)), **given)

        return run(main())

    signature = inspect.signature(test)
    in_time.__signature__ = signature.replace(parameters=list(signature.parameters.values())[arguments:])  # type: ignore[attr-defined]
    return in_time
