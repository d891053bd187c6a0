"""One controller with an in-memory API server and caches that are filled by hand."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import logging
import re
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import timedelta
from itertools import product
from random import Random
from types import MethodType
from typing import Any, Final, TypeAlias

import orjson
from msgspec import Struct
from prometheus_client import CollectorRegistry
from pydantic import BaseModel

from app.api.crd import manifest
from app.api.names import IN_PLACE_UPDATE_READY, KRUISE_POD_READY, LIFECYCLE_STATE
from app.daemon.cri.types import CriError
from app.framework.watched import Scope, Watched
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.controller import Controller, Result
from app.kube.errors import KubeError, RequestInfo, TransportError
from app.kube.events import EventRecorder
from app.kube.objects import ObjectReference
from app.kube.queue import WorkQueue
from app.kube.resources import CUSTOMRESOURCEDEFINITIONS, NAMESPACES, NODES, PODS, ObjectKey, Resource
from app.kube.selectors import parse_query
from app.kube.store import Store, key_of
from app.kube.wire import Request, Response
from app.manager.features import kinds
from app.sandbox.apiserver.server import ApiServer
from app.sandbox.apiserver.storage import Collection, Entry
from tests.kit.virtualtime import VirtualClock
from tests.kube.fakes import json_response, status_body

Json = dict[str, Any]
#: The time of a change, and the object before and after it.
Event: TypeAlias = tuple[float, Json | None, Json | None]
NAMESPACE: Final = "default"
#: A namespace that may hold copies of all objects.
TWIN_NAMESPACE: Final = "twins"
#: Name prefix of unusable copies; it sorts them first.
SIBLING: Final = "0-"
#: Prefix of the uids of copies that are being deleted; only the copies themselves may be written.
GOING: Final = "deadbeef"
#: Reasons why a copy is unusable.
SIBLINGS: Final = ("deleted", "foreign", "stripped", "invalid")
NODE_NAMES: Final = ("node-a", "node-b")
#: A reconcile that failed must run again within this time (virtual seconds).
REQUEUED_WITHIN: Final = 60.0
#: The world is idle after this time without changes.
REST_SECONDS: Final = 65.0
#: A held cache is updated after this time.
HELD_SECONDS: Final = 20.0
#: An object that takes a name is deleted after this time.
TAKEN_SECONDS: Final = 5.0
#: How long another writer changes the object of a contested write.
CONTESTED_SECONDS: Final = 2.0
#: How long a resource that is down, or an object that is stuck, refuses writes.
DOWN_SECONDS: Final = 10.0
MAX_ROUNDS: Final = 400
_PASS: ContextVar[Pass | None] = ContextVar("pass", default=None)
_UUID: Final = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_RANDOM: Final = re.compile("(?=.*[a-z])[a-z0-9]{5}")
_VERSION: Final = re.compile(r'"resourceVersion":"\d+"')
_HEX: Final = re.compile(r"(?<=://)[0-9a-f]{64}")
_TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")


@dataclass(frozen=True, slots=True)
class Target:
    group: str
    version: str
    namespace: str
    plural: str
    name: str
    subresource: str

    @classmethod
    def of(cls, path: str) -> Target:
        parts = path.strip("/").split("/")
        group, version, rest = ("", parts[1], parts[2:]) if parts[0] == "api" else (parts[1], parts[2], parts[3:])
        namespace = ""
        if rest[0] == "namespaces" and len(rest) > 2:
            namespace, rest = rest[1], rest[2:]
        name, subresource = [*rest, "", ""][1:3]
        return cls(group, version, namespace, rest[0], name, subresource)

    @classmethod
    def named(cls, resource: Resource, namespace: str, name: str) -> Target:
        return cls(resource.group, resource.version, namespace, resource.plural, name, "")

    @classmethod
    def to(cls, resource: Resource, obj: Json) -> Target:
        return cls.named(resource, obj["metadata"].get("namespace", ""), obj["metadata"]["name"])

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def place(self) -> str:
        return f"{self.plural} {self.key}"


@dataclass(slots=True)
class Write:
    signature: str
    target: Target
    preconditions: str
    number: int
    of: Pass | None
    #: Number of writes made, and of events recorded, before it.
    position: int = 0
    events: int = 0
    status: int = 0
    body: Json | list[Any] | None = None
    #: Whether the write changed the object's uid or version.
    changes: bool = False

    @property
    def done(self) -> bool:
        return 200 <= self.status < 300

    def fault(self, kind: str) -> Fault:
        return Fault(kind, self.signature, self.number)

    @property
    def object(self) -> Target:
        """Return the object that the request writes or creates."""
        name = ((self.body or {}).get("metadata") or {}).get("name", "") if isinstance(self.body, dict) else ""
        return replace(self.target, name=self.target.name or name)

    @property
    def sets(self) -> str:
        """Return the parts of the object that the write sets, because each kind of write has its own preconditions."""
        if isinstance(self.body, list):
            paths = [[one["op"], *one["path"].split("/")[1:3]] for one in self.body if one["op"] != "test"]
        else:
            body = self.body if self.signature.startswith(("PATCH", "PUT")) else None
            paths = [
                [part, name] if part in ("metadata", "spec") else [part]
                for part, fields in (body or {}).items()
                for name in (fields if isinstance(fields, dict) else [""])
            ]
        names = {".".join(path) for path in paths if path[-1] not in ("uid", "resourceVersion")}
        return ", ".join(sorted(names))

    @property
    def says(self) -> str:
        """Return the signature with the conditions that the write sets to True."""
        status = self.body.get("status") if isinstance(self.body, dict) else None
        conditions = (status.get("conditions") if isinstance(status, dict) else None) or ()
        true = sorted(one["type"] for one in conditions if one.get("status") == "True")
        return f"{self.signature}: {', '.join(true)}" if true else self.signature

    @property
    def content(self) -> str:
        """Return the signature and the body without preconditions, or an empty string if nothing else is sent."""
        if isinstance(self.body, list):
            sent: Any = [
                one for one in self.body if one.get("path") not in ("/metadata/uid", "/metadata/resourceVersion")
            ]
        else:
            left_out = ("apiVersion", "kind", "metadata", "preconditions")
            sent = {name: one for name, one in (self.body or {}).items() if name not in left_out}
            metadata = (self.body or {}).get("metadata") or {}
            if metadata := {name: one for name, one in metadata.items() if name not in ("uid", "resourceVersion")}:
                sent["metadata"] = metadata
        text = unvarying(orjson.dumps(sent, option=orjson.OPT_SORT_KEYS).decode())
        return f"{self.signature} {text}".replace('"', "").replace("\\", "") if sent else ""

    @property
    def shape(self) -> tuple[str, ...]:
        """Return the fields that the write sets. A shell may send several kinds of writes with one signature."""
        body = self.body if isinstance(self.body, dict) else {}
        parts = {part: body.get(part) for part in ("metadata", "spec", "status")}
        return tuple(f"{part}.{name}" for part, fields in parts.items() for name in sorted(fields or ()))


@dataclass(slots=True)
class Pass:
    controller: str
    key: ObjectKey
    result: Result | None = None
    error: BaseException | None = None

    @property
    def requeued(self) -> bool:
        """Return whether it will run again soon, because it was requeued or failed."""
        if self.error is not None:
            return True
        result = self.result
        return result is not None and (result.requeue or 0 < result.requeue_after <= REQUEUED_WITHIN)


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault of the request or runtime call with this signature and number.

    refused: fails with a 500, without effect. down: such requests are refused for a while. lost: takes effect, but the
    response is lost. replaced: its object was deleted and recreated under the same name. changed: its object has a new
    version and generation, another annotation, and another owner if it had one. gone: its object was deleted. outrun:
    its object is changed, then replaced when it is read again. taken: for a while, another object has the name. going:
    for a while, an object of that name is being deleted. wiped: another writer has removed its status. contested: for
    a while, its object changes before each such request. ignored: the runtime reports success but does nothing. stuck:
    like down, but only for this object. crashed: takes effect, and the process ends at once.
    """

    kind: str
    signature: str
    number: int
    #: Whether the next request of the reconcile is refused too.
    then_refused: bool = False

    def __str__(self) -> str:
        then = ", then refused" if self.then_refused else ""
        return f"{self.kind}{then}: {self.signature} #{self.number}"


def preconditions(request: Request) -> str:
    """Return the preconditions of a write: ``uid``, ``resourceVersion``, ``test``, joined by ``+``."""
    body = orjson.loads(request.body) if request.body else {}
    if isinstance(body, list):
        tested = {one["path"].rpartition("/")[2] for one in body if one.get("op") == "test"}
        found = [name for name in ("uid", "resourceVersion") if name in tested]
        return "+".join([*found, *(["test"] if tested - {"uid", "resourceVersion"} else [])])
    if request.method == "DELETE":
        given: Mapping[str, Any] = body.get("preconditions") or {}
    elif request.method == "POST":
        given = (body.get("deleteOptions") or {}).get("preconditions") or {}
    else:
        given = body.get("metadata") or {}
    return "+".join(name for name in ("uid", "resourceVersion") if given.get(name))


class Server:
    """One API server for all worlds. Saving and restoring its storage is cheaper than recreating objects."""

    def __init__(self) -> None:
        self.clock = VirtualClock()
        self.api = ApiServer(clock=self.clock, rng=Random(1))
        self.client = Client(self.api.transport(), self.clock)
        self.world: World | None = None
        #: By container id: the color label of its Pod when it started.
        self.environments: dict[str, str] = {}
        #: Revisions of Pods for which nodes have nothing to do.
        self.idle_pods: set[int] = set()
        self.api.on_write(self._written)

    async def fill(self) -> None:
        """Create the objects that every case needs."""
        for kind in kinds():
            await self.client.create(CUSTOMRESOURCEDEFINITIONS, manifest(kind))
        for name in ("kruise-system", "kruise-daemon-config"):
            await self.client.create(NAMESPACES, {"metadata": {"name": name}})
        for name in NODE_NAMES:
            labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": name[-1]}
            node = {"metadata": {"name": name, "labels": labels}}
            await self.client.create(NODES, node)
            ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}
            status = {"conditions": [ready], "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "110"}}
            await self.client.patch(NODES, name, {"status": status}, subresource="status")

    def _written(self, verb: str, resource: Resource, before: Json | None, after: Json | None) -> None:
        if self.world is not None:
            self.world.log.append((resource, before, after))

    def save(self) -> Saved:
        storage = self.api.core.storage
        objects = {name: (dict(one.objects), list(one.keys)) for name, one in storage.collections.items()}
        dependents = {uid: dict(places) for uid, places in storage.dependents.items()}
        return Saved(objects, dependents, dict(self.api.collector._places), self.clock.now())

    async def add_twins(self) -> None:
        """Copy all objects of the namespace, with their references to each other, to another namespace."""
        await self.client.create(NAMESPACES, {"metadata": {"name": TWIN_NAMESPACE}})
        storage = self.api.core.storage
        copied = [
            (collection, entry.obj)
            for collection in storage.collections.values()
            for key, entry in collection.objects.items()
            if key.startswith(f"{NAMESPACE}/")
        ]
        uids = {obj["metadata"]["uid"]: self.api.core.new_uid() for _, obj in copied}
        for collection, obj in copied:
            text = re.sub(
                rf'(?<="namespace":"){NAMESPACE}(?=")|\b{NAMESPACE}(?=/)', TWIN_NAMESPACE, orjson.dumps(obj).decode()
            )
            text = _UUID.sub(lambda found: uids.get(found[0], found[0]), text)
            storage.create(collection, f"{TWIN_NAMESPACE}/{obj['metadata']['name']}", orjson.loads(text))

    def add_siblings(self, way: str, resources: Iterable[Resource | Target], saved: Saved) -> int:
        """Add an unusable copy of one object of each resource, present or saved, before the others. Return the number
        of copies."""
        count = 0
        for resource in resources:
            collection = self.collection(resource)
            objects, keys = saved.objects.get(collection.name, ({}, []))
            for key in (collection.keys or keys)[:1]:
                namespace, _, name = key.rpartition("/")
                obj = _unusable(copy.deepcopy((collection.objects or objects)[key].obj), way, self.other_owner())
                if obj is not None:
                    uid = self.api.core.new_uid()
                    if way == "deleted":
                        uid = GOING + uid[len(GOING) :]
                    obj["metadata"] |= {"name": f"{SIBLING}{name}", "uid": uid}
                    self.api.core.storage.create(collection, f"{namespace}/{SIBLING}{name}".removeprefix("/"), obj)
                    count += 1
        return count

    def other_owner(self) -> Json:
        """Return an owner reference that no shell knows."""
        name = NODE_NAMES[0]
        node = self.collection(NODES).objects[name].obj
        return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}

    def seed(self, text: str) -> None:
        """Seed the uids of new objects: runs with the same seed have the same uids."""
        self.api.core.rng.seed(text)

    def restore(self, saved: Saved) -> None:
        self.world = None
        storage, collector = self.api.core.storage, self.api.collector
        for name, collection in storage.collections.items():
            objects, keys = saved.objects.get(name, ({}, []))
            collection.objects, collection.keys = dict(objects), list(keys)
            collection.history.clear()
            collection.history_bytes = 0
        storage.dependents = {uid: dict(places) for uid, places in saved.dependents.items()}
        collector.close()
        collector._queue.clear()
        collector._queued.clear()
        collector._retries.clear()
        collector._timers.clear()
        collector._task = None
        collector._places = dict(saved.places)
        self.clock._start = saved.at - timedelta(seconds=self.clock.monotonic())

    def collection(self, resource: Resource | Target) -> Collection:
        row = self.api.core.registry.find(resource.group, resource.version, resource.plural)
        assert row is not None, resource.plural
        return self.api.core.collection(row)


@dataclass(frozen=True, slots=True)
class Saved:
    """A snapshot of all objects."""

    objects: Mapping[str, tuple[dict[str, Entry], list[str]]]
    dependents: Mapping[str, Mapping[tuple[str, str], None]]
    places: Mapping[str, tuple[str, str]]
    at: Any


@dataclass(slots=True)
class Running:
    """A started shell: its controllers, background tasks and caches."""

    controllers: list[Controller]
    mains: list[Callable[[], Awaitable[Any]]]
    stores: list[tuple[Watched[Any], Store[Any]]]
    recorders: list[EventRecorder]
    registry: CollectorRegistry = field(default_factory=CollectorRegistry)


class World:
    """One process with a shell. ``start`` creates it from a client; ``beside`` simulates the rest of the cluster."""

    def __init__(
        self,
        server: Server,
        start: Callable[[World, Client], Running],
        beside: Callable[[World], None] = lambda _: None,
        seed: str = "1",
        workers: int = 1,
    ) -> None:
        self.server = server
        #: With one worker, writes are in the order of the keys.
        self.workers = workers
        self.clock = server.clock
        self.rng = Random(seed)
        self.log: list[tuple[Resource, Json | None, Json | None]] = []
        self.writes: list[Write] = []
        self.reads: list[Write] = []
        self.passes: list[Pass] = []
        #: The events that were recorded, by type and reason, and in which reconcile.
        self.events: list[tuple[Pass | None, str]] = []
        #: The events with their objects and messages.
        self.said: list[str] = []
        #: The random parts of names.
        self._random: set[str] = set()
        self.problems: list[str] = []
        self.fault: Fault | None = None
        self.met: Write | None = None
        #: Whether the process has ended and can no longer send requests.
        self.crashed = False
        #: Whether lists have three pages, the second with all objects, and how many lists were not read to the end.
        self.paged = False
        self.unread = 0
        self.held: str = ""
        #: Caches that relist once they are no longer held, so that they miss the events in between.
        self.relisted: set[str] = set()
        #: The cache that shows each event only after a number of seconds.
        self.lagging: str = ""
        self.lag: float = 0.0
        #: Whether everything is reconciled again after each write, while a cache lags, or after each event.
        self.nudged = False
        self.one_by_one = False
        #: Effects on containers and images, with counts.
        self.effects: Counter[str] = Counter()
        self.decided_live: Sequence[str] = ()
        self.careless: Mapping[str, str] = {}
        #: Calls to the runtime of a node.
        self.calls: list[Write] = []
        #: The uid of an object that was replaced just before the shell read it.
        self._former: str = ""
        #: The version after the shell's last write, by resource and key.
        self._own: dict[str, str] = {}
        #: Resource and key of the objects that the shell deleted.
        self._deleted: set[str] = set()
        self._foreign: tuple[Target, float] | None = None
        self._contested: tuple[str, float] | None = None
        #: Requests, all or of one object, that are refused, and until when.
        self._down: tuple[str, Target | None, float] = ("", None, 0.0)
        #: Objects that another writer has changed, by uid, and the uids of those to which it has added an owner.
        self._changed: dict[str, Target] = {}
        self._shared: set[str] = set()
        self._writes_nudged = 0
        #: Caches that have changed.
        self.shown: set[str] = set()
        #: The uids and keys of objects that were deleted.
        self._gone: set[str] = set()
        #: Kind, namespace, name and uid of objects that exist or existed.
        self._regarded: set[tuple[str, str, str, str]] = set()
        #: Objects with state: the controllers, their reconcile functions and background tasks.
        self._remembering: list[Any] = []
        self._numbers: Counter[str] = Counter()
        self._waiting: dict[str, list[Event]] = {}
        self._replaced: set[str] = set()
        self._beside = beside
        self._tasks: list[asyncio.Task[Any]] = []
        self._inner = server.api.transport("system:serviceaccount:kruise-system:kruise-manager")
        self.running = start(self, Client(self, self.clock))
        for controller in self.running.controllers:
            self._instrument(controller)
        for recorder in self.running.recorders:
            self._listen(recorder)
        for watched, store in self.running.stores:
            collection = server.collection(watched.resource)
            objects = [collection.objects[key].obj for key in collection.keys]
            store.replace([self._decoded(watched, one) for one in objects if matches(watched, one)])
            first = [key_of(one) for one in store.list() if is_sibling(one.metadata.name)]
            for controller, key in product(self.running.controllers, first):
                controller.queue.add(key)
        server.world = self
        for main in self.running.mains:
            self._remembering.append(getattr(main, "__self__", None))
            self._tasks.append(asyncio.ensure_future(main()))

    async def stop(self) -> None:
        self.server.world = None
        for task in self._tasks:
            task.cancel()
        for result in await asyncio.gather(*self._tasks, return_exceptions=True):
            if isinstance(result, Exception):
                self.problems.append(f"a task ended: {result!r}")

    def reset(self) -> None:
        self.writes.clear()
        self.reads.clear()
        self.calls.clear()
        self.passes.clear()
        self.events.clear()
        self.said.clear()
        self._numbers.clear()

    # ---- reconciles

    def _instrument(self, controller: Controller) -> None:
        inner = controller._reconcile
        self._remembering += [controller, inner]

        async def reconcile(key: ObjectKey) -> Result | None:
            one = Pass(controller.name, key)
            self.passes.append(one)
            token = _PASS.set(one)
            try:
                one.result = await inner(key)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                one.error = error
                if not isinstance(error, (KubeError, TimeoutError)):
                    logging.getLogger(__name__).exception("%s", key)
                    self.problems.append(f"{controller.name} raised {error!r}")
                raise
            finally:
                _PASS.reset(token)
            return one.result

        controller._reconcile = reconcile
        # This is also called for errors in mappers, which the controller only logs.
        controller._metrics.panicked = lambda name: self.problems.append(f"{name} panicked")

    def _listen(self, recorder: EventRecorder) -> None:
        inner = recorder.event

        def event(regarding: ObjectReference, type_: Any, reason: str, message: str) -> None:
            self.events.append((_PASS.get(), f"event {type_} {reason}"))
            place = " ".join(filter(None, (regarding.kind, regarding.name, regarding.field_path)))
            self.said.append(f"event {type_} {reason} of {place}: {unvarying(message)}")
            if not self._exists(regarding):
                self.problems.append(f"an event is about {place} in {regarding.namespace!r} with another uid")
            inner(regarding, type_, reason, message)

        recorder.event = event

    def _exists(self, regarding: ObjectReference) -> bool:
        """Return whether an object with this name and uid exists or has existed."""
        wanted = (regarding.kind, regarding.namespace, regarding.name, regarding.uid)
        if regarding.uid in self._gone or wanted in self._regarded:
            return True
        found = [one.obj for each in self.server.api.core.storage.collections.values() for one in each.objects.values()]
        found += [before for _, before, _ in self.log if before is not None]
        self._regarded |= {
            (one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"], one["metadata"]["uid"])
            for one in found
        }
        return wanted in self._regarded

    # ---- requests (a Transport)

    async def request(self, request: Request) -> Response:
        """Send a request, subject to the fault."""
        if self.workers > 1:
            await asyncio.sleep(0)  # lets other workers run
        if not request.path.startswith("/api/v1/") and not re.match("/apis/[^/]+/[^/]+/", request.path):
            return await self._inner.request(request)
        target = Target.of(request.path)
        if target.plural in ("events", "leases") or "dryRun" in request.query:
            return await self._inner.request(request)
        sub = f"/{target.subresource}" if target.subresource else ""
        named = request.method != "GET" or target.name
        signature = f"{request.method} {target.plural}{sub}" if named else f"LIST {target.plural}"
        if self.crashed:
            raise TransportError(RequestInfo(request.method, request.target), "the process has ended")
        body = orjson.loads(request.body) if request.body else None
        write = self._sent(signature, target, preconditions(request), body=body)
        (self.reads if request.method == "GET" else self.writes).append(write)
        before = self._version(target)
        response = await self._through(request, write)
        write.status = response.status
        if request.method != "GET":
            self._check(write, before)
        changes = write.done and request.method != "GET" and (request.method != "POST" or target.subresource)
        if changes and target.place in self._replaced and signature not in self.decided_live:
            self.problems.append(f"{signature} changed an object that replaced the one in the cache")
        return response

    def _sent(self, signature: str, target: Target, preconditions: str = "", **more: Any) -> Write:
        self._numbers[signature] += 1
        counts = (len(self.writes), len(self.events))
        return Write(signature, target, preconditions, self._numbers[signature], _PASS.get(), *counts, **more)

    def _version(self, target: Target) -> str:
        _, entry = self.entry(target)
        return str(entry.obj["metadata"]["resourceVersion"]) if entry is not None else ""

    def _check(self, write: Write, before: str) -> None:
        """Check that a write changes something, and that it does not work on an object that has been replaced or is
        being deleted."""
        target, met = write.target, self.met
        # The revision of a workload that is being deleted is still recorded, because its Pods are compared with it.
        kept = target.plural == "controllerrevisions"
        if write.done and GOING in str(write.body) and not kept and not is_sibling(target.name):
            self.problems.append(f"{write.signature} {target.key} for an object that is being deleted")
        place, after = target.place, self._version(target)
        write.changes = write.done and (not target.name or before != after)
        if write.signature in self.careless or (
            f"again: {write.signature}" in self.careless and (self.nudged or any(self.relisted))
        ):
            pass
        elif met is None and not self._replaced:
            if write.status == 409 and before and self._own.get(place) == before:
                self.problems.append(f"{write.signature} conflicts with its own last write")
            if write.status == 404 and place in self._deleted and not self.nudged:
                self.problems.append(f"{write.signature} follows its own deletion")
            if write.done and write.signature.startswith("PATCH") and before == after:
                self.problems.append(f"{write.signature} changes nothing: {str(write.body)[:300]}")
        elif self._former and met is not None and met.of is write.of and write.done and self._former in str(write.body):
            self.problems.append(f"{write.signature} continues with an object that was replaced when it was read")
        if write.done and target.name:
            self._own[place] = after
            if write.signature.startswith("DELETE"):
                self._deleted.add(place)

    async def call(self, name: str) -> bool:
        """Call the runtime of a node. Return whether the call takes effect."""
        call = self._sent(f"CALL {name}", Target("", "", "", "", "", ""), status=200)
        self.calls.append(call)
        fault = self.fault
        if fault is None or (fault.signature, fault.number) != (call.signature, call.number):
            return True
        self.fault, self.met = None, call
        if fault.kind == "refused":
            raise CriError("refused by the test")
        return False

    async def _page(self, request: Request) -> Response:
        """Return one of three pages; the second one has all objects."""
        page = request.query.get("continue", "first")
        self.unread += {"first": 1, "second": 0, "third": -1}[page]
        if page == "second":
            request = replace(request, query={name: one for name, one in request.query.items() if name != "continue"})
            answer = await self._inner.request(request)
            if answer.status != 200:
                return answer
            found = orjson.loads(answer.body)
        else:
            found = {"metadata": {"resourceVersion": "1"}, "items": []}
        found["metadata"]["continue"] = {"first": "second", "second": "third", "third": ""}[page]
        return json_response(200, found)

    async def _through(self, request: Request, write: Write) -> Response:
        fault = self.fault
        if self.paged and write.signature.startswith("LIST"):
            return await self._page(request)
        if self._contested is not None and self._contested[0] == write.signature:
            if self.clock.monotonic() < self._contested[1]:
                self.interfere("changed", write.target)
            return await self._inner.request(request)
        signature, stuck, until = self._down
        if signature == write.signature and stuck in (None, write.object) and self.clock.monotonic() < until:
            return _refused(write)
        if fault is None or not self._is_met(fault, write):
            return await self._inner.request(request)
        self.fault = None
        if fault.number:
            self.met = write
        if fault.then_refused:
            self.fault = Fault("refused", "", 0)
        if fault.kind in ("down", "stuck"):
            stuck = write.object if fault.kind == "stuck" else None
            self._down = (write.signature, stuck, self.clock.monotonic() + DOWN_SECONDS)
        if fault.kind in ("refused", "down", "stuck"):
            return _refused(write)
        if fault.kind in ("lost", "crashed"):
            self.crashed = fault.kind == "crashed"
            response = await self._inner.request(request)
            write.status = response.status
            raise TransportError(RequestInfo(request.method, request.target), "the response was lost")
        if fault.kind == "outrun":
            read = f"GET {write.target.plural}"
            self.fault = Fault("replaced", read, self._numbers[read] + 1)
        if fault.kind == "contested":
            self._contested = (write.signature, self.clock.monotonic() + CONTESTED_SECONDS)
        if fault.kind in ("taken", "going"):
            self._take_name(write, going=fault.kind == "going")
        else:
            self.interfere("changed" if fault.kind in ("outrun", "contested") else fault.kind, write.target)
        return await self._inner.request(request)

    def _is_met(self, fault: Fault, write: Write) -> bool:
        if self.met is not None and not fault.number:
            return write.of is self.met.of
        return (fault.signature, fault.number) == (write.signature, write.number)

    def stream(self, request: Request) -> Any:
        """Reject watches: the caches are filled by hand."""
        raise NotImplementedError(request.path)

    async def close(self) -> None:
        """Do nothing: no connection is open."""

    # ---- other writers

    def entry(self, target: Target) -> tuple[Collection, Entry | None]:
        """Return the collection of an object, and its entry if there is one."""
        collection = self.server.collection(target)
        return collection, collection.objects.get(target.key)

    def undone(self) -> Iterator[tuple[str, str]]:
        """Yield the resource and the kind of each metadata that another writer set and that is now missing."""
        for uid, target in self._changed.items():
            _, entry = self.entry(target)
            if entry is None or entry.obj["metadata"]["uid"] != uid:
                continue
            metadata = entry.obj["metadata"]
            if "shells.test/changed" not in (metadata.get("annotations") or {}):
                yield target.plural, "annotation"
            if uid in self._shared and not any(one["kind"] == "Node" for one in metadata.get("ownerReferences") or ()):
                yield target.plural, "owner"

    def interfere(self, kind: str, target: Target) -> None:
        """Replace, change or delete an object."""
        collection, entry = self.entry(target)
        if entry is None:
            return
        storage = self.server.api.core.storage
        if kind == "changed":
            metadata = dict(entry.obj["metadata"])
            metadata["generation"] = metadata.get("generation", 1) + 1
            metadata["annotations"] = {**metadata.get("annotations", {}), "shells.test/changed": "true"}
            references = metadata.get("ownerReferences")
            if references and target.plural != "persistentvolumeclaims":  # another owner would keep a claim
                metadata["ownerReferences"] = [self.server.other_owner(), *references]
                self._shared.add(metadata["uid"])
            self._changed[metadata["uid"]] = target
            storage.update(collection, entry, {**entry.obj, "metadata": metadata})
            return
        if kind == "wiped":
            storage.update(collection, entry, {name: one for name, one in entry.obj.items() if name != "status"})
            return
        storage.delete(collection, entry)
        if kind == "replaced":
            if self.met is not None and self.met.signature.startswith("GET"):
                self._former = entry.obj["metadata"]["uid"]
            new = copy.deepcopy(entry.obj)
            new["metadata"]["uid"] = self.server.api.core.new_uid()
            for name in ("deletionTimestamp", "deletionGracePeriodSeconds"):
                new["metadata"].pop(name, None)
            storage.create(collection, entry.key, new)
            self._replaced.add(target.place)

    def interfere_with_all(self, kind: str, resource: Resource) -> None:
        """Replace or delete all objects of a resource except twins."""
        for key in list(self.server.collection(resource).keys):
            namespace, _, name = key.rpartition("/")
            if namespace != TWIN_NAMESPACE:
                self.interfere(kind, Target.named(resource, namespace, name))

    def _take_name(self, write: Write, *, going: bool) -> None:
        """Create another object with the requested name; with ``going``, one that is being deleted."""
        assert isinstance(write.body, dict)
        given, target = write.body["metadata"], write.target
        metadata = {
            "name": given["name"],
            "uid": self.server.api.core.new_uid(),
            "creationTimestamp": rfc3339(self.clock.now()),
        }
        if target.namespace:
            metadata["namespace"] = target.namespace
        if going:
            metadata |= {"deletionTimestamp": metadata["creationTimestamp"], "finalizers": ["shells.test/going"]}
        target = replace(target, name=given["name"])
        collection, entry = self.entry(target)
        if entry is None:
            body = {**copy.deepcopy(write.body), "metadata": metadata}
            self.server.api.core.storage.create(collection, target.key, body)
            self._foreign = (target, self.clock.monotonic() + TAKEN_SECONDS)

    def objects(self, resource: Resource) -> list[Json]:
        """Return all objects of a resource, without twins and unusable copies."""
        return [
            one
            for one in self.server.api.objects(resource)
            if one["metadata"].get("namespace") != TWIN_NAMESPACE and not is_sibling(one["metadata"]["name"])
        ]

    def store(self, resource: Resource, obj: Json) -> None:
        """Write an object as another component would."""
        collection, entry = self.entry(Target.to(resource, obj))
        assert entry is not None
        self.server.api.core.storage.update(collection, entry, obj)

    def set_status(self, resource: Resource, obj: Json, **fields: Any) -> None:
        """Change fields of an object's status as another component would."""
        self.store(resource, {**obj, "status": {**(obj.get("status") or {}), **fields}})

    def set_condition(self, pod: Json, condition: Json) -> None:
        self.set_status(PODS, pod, conditions=[*pod["status"]["conditions"], condition])

    def remove(self, resource: Resource, obj: Json) -> None:
        """Remove an object at once."""
        self.interfere("gone", Target.to(resource, obj))

    # ---- caches

    @staticmethod
    def _decoded(watched: Watched[Any], obj: Json) -> Any:
        return watched.decode(orjson.dumps(obj))

    def deliver(self) -> bool:
        """Update the caches with all writes. Return whether a cache changed."""
        for resource, before, after in self.log:
            self._note_random((after or before or {})["metadata"])
            if after is None and before is not None:
                self._gone |= {before["metadata"]["uid"], Target.to(resource, before).key}
            for watched, _ in self.running.stores:
                if (watched.resource.group, watched.resource.plural) == (resource.group, resource.plural):
                    waiting = self._waiting.setdefault(watched.name, [])
                    waiting.append((self.clock.monotonic(), before, after))
        self.log.clear()
        brought = False
        for watched, store in self.running.stores:
            if watched.name == self.held:
                continue
            queue = self._waiting.get(watched.name, [])
            if watched.name in self.relisted and queue:
                queue[:] = _newest(queue)
                self.relisted.discard(watched.name)
            until = self.clock.monotonic() - (self.lag if watched.name == self.lagging else 0.0)
            while queue and queue[0][0] <= until:
                _, before, after = queue.pop(0)
                if not self._show(watched, store, before, after):
                    continue
                brought = True
                self.shown.add(watched.name)
                if self.one_by_one:
                    return True
        return brought

    def _note_random(self, metadata: Json) -> None:
        part = metadata["name"].removeprefix(metadata.get("generateName", metadata["name"]))
        if _RANDOM.fullmatch(part):
            self._random.add(part)

    def sent(self) -> list[str]:
        """Return the different writes and events, without what differs between equal histories."""
        found = {*self.said, *(one.content for one in self.writes if one.done)} - {""}
        random = re.compile(rf"\b({'|'.join(self._random) or '(?!)'})\b")
        return sorted({random.sub("*", one) for one in found})

    def metrics(self) -> Counter[str]:
        """Return the counters of the shell, and the counts of its histograms."""
        found: Counter[str] = Counter()
        for sample in (sample for family in self.running.registry.collect() for sample in family.samples):
            if sample.name.endswith(("_total", "_count")):
                labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
                found[f"metric {sample.name}{{{labels}}}"] = int(sample.value)
        return found

    def _show(self, watched: Watched[Any], store: Store[Any], before: Json | None, after: Json | None) -> bool:
        if after is not None:
            self._replaced.discard(Target.to(watched.resource, after).place)
        if after is not None and matches(watched, after):
            store.put(self._decoded(watched, after))
            return True
        if before is not None and matches(watched, before):
            metadata = before["metadata"]
            store.remove(ObjectKey(metadata.get("namespace", ""), metadata["name"]), self._decoded(watched, before))
            return True
        return False

    # ---- time

    def play(self) -> bool:
        """Let all other actors run, then update the caches. Return whether a cache changed."""
        if self._foreign is not None and self.clock.monotonic() > self._foreign[1]:
            self.interfere("gone", self._foreign[0])
            self._foreign = None
        brought = self.deliver()
        made = sum(one.changes for one in self.writes)
        if self.nudged and ((self.lagging and made != self._writes_nudged) or (self.one_by_one and brought)):
            self._writes_nudged = made
            controllers = {one.name: one for one in self.running.controllers}
            for name, key in dict.fromkeys((one.controller, one.key) for one in self.passes):
                controllers[name].queue.add(key)
        self.others_work()
        return brought

    def others_work(self) -> None:
        """Run the nodes and the other actors in the cluster."""
        kubelet(self)
        self._beside(self)

    async def settle(self, rest: float = REST_SECONDS) -> None:
        """Run all actors until nothing changes."""
        idle, step, began = 0.0, 0.1, self.clock.monotonic()
        for _ in range(MAX_ROUNDS):
            before = self.server.api.core.storage.revision, len(self.writes)
            brought = self.play()
            await self.clock.sleep(step)
            if self.held and self.clock.monotonic() - began > HELD_SECONDS:
                self.held = ""
            if brought or before != (self.server.api.core.storage.revision, len(self.writes)):
                idle, step = 0.0, 0.1
                continue
            idle += step
            step = min(step * 2, 16.0)
            if self.held and idle > 3.0:
                self.held, idle, step = "", 0.0, 0.1
            if idle >= rest or self.crashed:
                return
        self.problems.append(f"does not become idle: {[one.signature for one in self.writes[-6:]]}")

    # ---- memory

    def clear(self) -> frozenset[str]:
        """Remove all objects. Return their uids and keys, and those of objects deleted before."""
        storage, gone = self.server.api.core.storage, set(self._gone)
        for name, collection in storage.collections.items():
            if name.startswith(("customresourcedefinitions", "namespaces", "events", "leases")):
                continue
            for key, entry in list(collection.objects.items()):
                gone |= {entry.obj["metadata"]["uid"], key}
                storage.delete(collection, entry)
        return frozenset(gone)

    def remembered(self, gone: frozenset[str]) -> list[str]:
        """Return the places where the shell still holds the uid or key of a deleted object."""
        found: dict[str, None] = {}
        seen: set[int] = set()

        def names(key: object) -> bool:
            parts = key if isinstance(key, tuple) else (key,)
            return str(key) in gone or any(isinstance(one, str) and one in gone for one in parts)

        def walk(one: Any, path: str) -> None:
            if one is None or id(one) in seen or isinstance(one, str | bytes | Store | Client | EventRecorder):
                return
            seen.add(id(one))
            if isinstance(one, Mapping | set | frozenset | list | tuple | deque):
                if any(map(names, one)) and not isinstance(one, tuple):
                    found[path] = None
                for value in one.values() if isinstance(one, Mapping) else one:
                    walk(value, path)
            elif isinstance(one, MethodType):
                walk(one.__self__, path)
            elif type(one).__module__.startswith("app.") and not isinstance(one, type | BaseModel | Struct):
                slots = [name for kind in type(one).__mro__ for name in getattr(kind, "__slots__", ())]
                for name in (*slots, *getattr(one, "__dict__", ())):
                    if isinstance(one, WorkQueue) and name in ("_due", "_heap"):
                        continue  # timers expire
                    walk(getattr(one, name, None), f"{type(one).__name__}.{name}")

        for one in self._remembering:
            walk(one, "")
        return list(found)

    def picture(self, ignored: re.Pattern[str]) -> Counter[str]:
        """Return all objects except twins, without ignored parts and what differs between equal histories."""
        found: Counter[str] = Counter()
        for name, collection in self.server.api.core.storage.collections.items():
            if name.startswith(("events", "leases", "customresourcedefinitions", "namespaces")):
                continue
            for key, entry in collection.objects.items():
                if key.startswith(f"{TWIN_NAMESPACE}/") or is_sibling(entry.obj["metadata"]["name"]):
                    continue
                if text := ignored.sub("", f"{name}: {comparable(entry.obj)}"):
                    found[text] += 1
        return found


def _refused(write: Write) -> Response:
    write.status = 500
    return json_response(500, status_body(500, "InternalError", "refused by the test"))


def is_sibling(name: str) -> bool:
    """Return whether an object is an unusable copy, or was created for one."""
    return name.startswith(SIBLING)


def _unusable(obj: Json, way: str, other_owner: Json) -> Json | None:
    """Make an object unusable in this way. Return None if it would remain usable."""
    metadata, spec = obj["metadata"], obj.get("spec") or {}
    owned = bool(metadata.get("ownerReferences"))
    metadata.pop("generateName", None)
    if way == "deleted" and not owned and obj["kind"] != "Pod":
        metadata |= {"deletionTimestamp": metadata["creationTimestamp"], "finalizers": ["shells.test/going"]}
    elif way == "foreign" and owned:
        metadata["ownerReferences"] = [{**other_owner, "controller": True}]
    elif way == "stripped" and (owned or obj["kind"] == "Pod"):
        metadata |= {"ownerReferences": [], "labels": {}, "annotations": {}}
    elif way == "invalid" and not owned and "selector" in spec:
        obj["spec"] = {**spec, "selector": {"matchExpressions": [{"key": "a", "operator": "Odd"}]}}
    else:
        return None
    return obj


def _newest(queue: Sequence[Event]) -> list[Event]:
    """Return the events that a relist shows instead of these: the last state of each remaining or deleted object."""
    states: dict[tuple[str, str], Event] = {}
    for at, before, after in queue:
        metadata = (after or before or {})["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        states[key] = (at, states[key][1] if key in states else before, after)
    return [one for one in states.values() if one[1:] != (None, None)]


def comparable(obj: Json) -> str:
    """Return an object as text, without uids, versions, times and random names."""
    metadata = dict(obj["metadata"])
    generation = metadata.pop("generation", None)
    for name in ("uid", "resourceVersion", "creationTimestamp", "managedFields"):
        metadata.pop(name, None)
    obj = {**obj, "metadata": metadata}
    status = obj.get("status")
    if isinstance(status, dict) and "observedGeneration" in status:
        current = status["observedGeneration"] == generation
        obj["status"] = {**status, "observedGeneration": "current" if current else "stale"}
    text = orjson.dumps(obj, option=orjson.OPT_SORT_KEYS).decode()
    base = metadata.get("generateName")
    if base and _RANDOM.fullmatch(metadata["name"].removeprefix(base)):
        text = text.replace(metadata["name"], f"{base}*").replace(metadata["name"].removeprefix(base), "*")
    if instance := (metadata.get("labels") or {}).get("apps.kruise.io/cloneset-instance-id"):
        text = text.replace(instance, "*")
    # The API server adds this to the changes of other writers.
    text = text.replace('"lastState":{},', "")
    return unvarying(text)


def unvarying(text: str) -> str:
    """Return JSON without uids, versions, times and identifiers of containers."""
    text = _VERSION.sub('"resourceVersion":"V"', text)
    return _TIME.sub("T", _UUID.sub("U", _HEX.sub("H", text)))


def matches(watched: Watched[Any], obj: Json) -> bool:
    metadata = obj["metadata"]
    if watched.scope is Scope.OWN and metadata.get("namespace") != "kruise-system":
        return False
    if watched.scope is Scope.AGENTS and metadata.get("namespace") != "kruise-daemon-config":
        return False
    if watched.label_selector and not parse_query(watched.label_selector).matches(metadata.get("labels") or {}):
        return False
    if watched.field_selector:
        path, _, value = watched.field_selector.partition("=")
        found: Any = obj
        for part in path.split("."):
            found = (found or {}).get(part)
        if found != value:
            return False
    return True


def kubelet(world: World) -> None:
    """Schedule, start and end Pods, as nodes do."""
    idle = world.server.idle_pods
    for entry in list(world.server.collection(PODS).objects.values()):
        if entry.revision not in idle and not _advance(world, entry.obj):
            idle.add(entry.revision)


def _advance(world: World, pod: Json) -> bool:
    """Do the node's next step for a Pod. Return whether there was one; this depends on the object alone."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    if "shells.test/by-hand" in (metadata.get("annotations") or {}):
        return False
    if metadata.get("deletionTimestamp"):
        if metadata.get("finalizers"):
            return False
        world.remove(PODS, pod)
        return True
    if status.get("phase") in ("Succeeded", "Failed"):
        return False
    new = {**pod, "spec": {**spec, "nodeName": spec.get("nodeName") or _node_of(spec)}}
    labels = metadata.get("labels") or {}
    if labels.get(LIFECYCLE_STATE) == "PreparingNormal":  # as the readiness controller does
        new["metadata"] = {**metadata, "labels": {**labels, LIFECYCLE_STATE: "Normal"}}
    new["status"] = started(new, rfc3339(world.clock.now()))
    if new == pod:
        return False
    world.store(PODS, new)
    return True


def _node_of(spec: Json) -> str:
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    for term in required.get("nodeSelectorTerms") or ():
        for one in term.get("matchFields") or ():
            return str(one["values"][0])
    return NODE_NAMES[0]


def started(pod: Json, now: str) -> Json:
    """Return the status of a Pod with running containers."""
    metadata, spec, status = pod["metadata"], pod["spec"], pod.get("status") or {}
    conditions = {one["type"]: one for one in status.get("conditions") or ()}
    containers = [
        _container(
            metadata["uid"],
            one,
            next((s for s in status.get("containerStatuses") or () if s["name"] == one["name"]), {}),
            now,
        )
        for one in spec["containers"]
    ]
    gates = [one["conditionType"] for one in spec.get("readinessGates") or ()]
    for gate in gates if "shells.test/no-gate" not in (metadata.get("annotations") or {}) else ():
        if gate in (KRUISE_POD_READY, IN_PLACE_UPDATE_READY):
            conditions.setdefault(gate, {"type": gate, "status": "True", "lastTransitionTime": now})
    ready = all(conditions.get(gate, {}).get("status") == "True" for gate in gates)
    wanted = {"PodScheduled": "True", "Initialized": "True", "ContainersReady": "True", "Ready": str(ready)}
    for type_, value in wanted.items():
        if conditions.get(type_, {}).get("status") != value:
            conditions[type_] = {"type": type_, "status": value, "lastTransitionTime": now, "lastProbeTime": None}
    more = {"phase": "Running", "podIP": "10.0.0.1", "hostIP": "10.1.0.1"}
    if "startTime" not in status:
        more["startTime"] = now
    return {**status, **more, "conditions": list(conditions.values()), "containerStatuses": containers}


def _container(uid: str, container: Json, known: Json, now: str) -> Json:
    digest = "sha256:" + hashlib.sha256(container["image"].encode()).hexdigest()
    resources = {"resources": container["resources"]} if container.get("resources") else {}
    if known.get("imageID", "").endswith(digest) and known.get("state", {}).get("running"):
        return {**known, **resources}
    count = known.get("restartCount", -1) + 1
    identity = hashlib.sha256(f"{uid} {container['name']} {count}".encode()).hexdigest()
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": f"{container['image'].partition(':')[0]}@{digest}",
        "containerID": f"containerd://{identity}",
        "ready": True,
        "started": True,
        "restartCount": count,
        "state": {"running": {"startedAt": now}},
        **resources,
    }
