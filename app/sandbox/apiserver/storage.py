"""Storage: objects by kind and key, with versions, history and limits."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, Literal, Protocol, TypeAlias

import orjson

from app.kube.clock import Clock, rfc3339
from app.sandbox.apiserver import status
from app.sandbox.apiserver.kinds import Registry, ResourceType
from app.sandbox.apiserver.managing import Managed, with_managed
from app.sandbox.apiserver.requests import Call

# Storage: what etcd is to a real server. Objects by key, one counter of versions, and a history of changes to watch.
#
# Everything here is synchronous: a commit is one step, after which every watcher has its event. Stored objects are
# never changed; a write puts a new :class:`Entry` in place of the old one.

Json: TypeAlias = dict[str, Any]
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
Verb: TypeAlias = Literal["create", "update", "delete"]

#: Changes of one resource that are remembered, by number and by size, for watches that resume.
HISTORY_EVENTS: Final = 10_000
HISTORY_BYTES: Final = 32 * 2**20


class Entry:
    """One version of one object: parsed, and as bytes made when first asked for."""

    __slots__ = ("_full", "_obj", "_raw", "api_version", "converted", "key", "labels", "managed", "revision")

    def __init__(self, key: str, obj: Json, revision: int, managed: Managed | None = None) -> None:
        self.key = key
        self.revision = revision
        #: The version it is stored in, which need not be the one that is asked for.
        self.api_version: str = obj["apiVersion"]
        #: The same in other versions, by apiVersion.
        self.converted: dict[str, Entry] | None = None
        self.labels: dict[str, str] = obj["metadata"].get("labels") or {}
        #: Who manages what: shown to those who see managed fields.
        self.managed = managed
        self._obj: Json | None = obj
        self._raw: bytes | None = None
        self._full: bytes | None = None

    @property
    def obj(self) -> Json:
        """The object. It must not be changed."""
        if self._obj is None:
            return orjson.loads(self.raw)  # type: ignore[no-any-return]
        return self._obj

    @property
    def raw(self) -> bytes:
        """The object as JSON."""
        if self._raw is None:
            self._raw = orjson.dumps(self._obj)
        return self._raw

    @property
    def full(self) -> Json:
        """The object with its managed fields. It must not be changed."""
        return with_managed(self.obj, self.managed)

    @property
    def full_raw(self) -> bytes:
        """The object with its managed fields, as JSON."""
        if self.managed is None:
            return self.raw
        if self._full is None:
            self._full = orjson.dumps(self.full)
        return self._full

    def shrink(self) -> None:
        """Keep the bytes alone: the version is history."""
        if self._obj is not None:
            _ = self.raw
            self._obj = self._full = None


class Event:
    """A committed change. The lines that watchers get are encoded once and kept."""

    __slots__ = ("after", "before", "lines", "revision", "type")

    def __init__(self, type_: EventType, revision: int, before: Entry | None, after: Entry) -> None:
        self.type = type_
        self.revision = revision
        self.before = before
        #: For a deletion: the last state, with the deletion's own version.
        self.after = after
        self.lines: dict[Any, bytes] = {}


class EventSink(Protocol):
    """Somebody who watches a collection."""

    def offer(self, event: Event) -> None:
        """Told of each event at the moment it is committed."""
        ...


class Stale(Exception):
    """The entry a write was based on is not the current one."""


@dataclass
class Collection:
    """The objects of one resource. Keys are ``namespace/name``, or the name for cluster-scoped kinds."""

    name: str
    objects: dict[str, Entry] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    history: deque[Event] = field(default_factory=deque)
    history_bytes: int = 0
    #: Changes up to this version are forgotten.
    compacted: int = 0
    sinks: dict[EventSink, None] = field(default_factory=dict)

    def select(self, namespace: str, start: str = "") -> Iterator[Entry]:
        """The entries of a namespace, or all, in order of their keys, from ``start`` on."""
        prefix = f"{namespace}/" if namespace else ""
        for position in range(bisect_left(self.keys, max(prefix, start)), len(self.keys)):
            key = self.keys[position]
            if not key.startswith(prefix):
                return
            yield self.objects[key]

    def as_of(self, revision: int) -> Collection:
        """The collection as it was at a version that is not compacted."""
        past = Collection(self.name, dict(self.objects))
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            if event.before is None:
                past.objects.pop(event.after.key, None)
            else:
                past.objects[event.after.key] = event.before
        past.keys = sorted(past.objects)
        return past

    def since(self, revision: int) -> Iterator[Event]:
        """The changes after a version, oldest first."""
        found: list[Event] = []
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            found.append(event)
        return reversed(found)

    def compact(self, revision: int) -> None:
        """Forget the changes up to a version."""
        while self.history and self.history[0].revision <= revision:
            self._forget_oldest()
        self.compacted = max(self.compacted, revision)

    def record(self, event: Event) -> None:
        """Append to the history, and forget what is too much."""
        self.history.append(event)
        self.history_bytes += len(event.after.raw)
        while len(self.history) > HISTORY_EVENTS or (self.history_bytes > HISTORY_BYTES and len(self.history) > 1):
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = self.history.popleft()
        self.history_bytes -= len(oldest.after.raw)
        self.compacted = max(self.compacted, oldest.revision)


#: Called after each commit with the verb, the collection, the entry before and the entry after.
Listener: TypeAlias = Callable[[Verb, Collection, Entry | None, Entry | None], None]


class Storage:
    """All collections, and the version that counts their writes."""

    def __init__(self) -> None:
        self.revision = 1
        #: Changes up to this version are forgotten, of whatever resource.
        self.compacted = 0
        self.collections: dict[str, Collection] = {}
        self.listeners: list[Listener] = []
        #: Owner's uid → the objects that name it: (collection, key).
        self.dependents: dict[str, dict[tuple[str, str], None]] = {}

    def collection(self, name: str) -> Collection:
        """The collection of that name, made when first asked for."""
        found = self.collections.get(name)
        if found is None:
            found = self.collections[name] = Collection(name, compacted=self.compacted)
        return found

    def reread(self, collection: Collection, change: Callable[[Json], Json]) -> None:
        """Have objects look otherwise from now on; nobody has written them, so versions stay and nobody is told."""
        for key, entry in collection.objects.items():
            if (obj := change(entry.obj)) != entry.obj:
                collection.objects[key] = Entry(key, obj, entry.revision, entry.managed)

    def begin(self, name: str) -> None:
        """Have a collection whose history begins now, unless it is there already."""
        if name not in self.collections:
            self.collections[name] = Collection(name, compacted=self.revision)

    def create(self, collection: Collection, key: str, obj: Json, managed: Managed | None = None) -> Entry:
        """Store a new object. Raises :class:`Stale` where there is one under that key."""
        if key in collection.objects:
            raise Stale(key)
        entry = self._entry(key, obj, managed)
        insort(collection.keys, key)
        collection.objects[key] = entry
        self._committed("create", collection, "ADDED", None, entry)
        return entry

    def update(self, collection: Collection, current: Entry, obj: Json) -> Entry:
        """Put a new version in place of ``current``. Raises :class:`Stale` if that is not the current one.

        Who manages what stays as it is: the server's own writes belong to nobody.
        """
        return self.replace(collection, current, obj, current.managed)

    def replace(self, collection: Collection, current: Entry, obj: Json, managed: Managed | None) -> Entry:
        """The same, with who manages what in the new version."""
        if collection.objects.get(current.key) is not current:
            raise Stale(current.key)
        entry = self._entry(current.key, obj, managed)
        collection.objects[current.key] = entry
        self._committed("update", collection, "MODIFIED", current, entry)
        return entry

    def delete(self, collection: Collection, current: Entry, obj: Json | None = None) -> Entry:
        """Remove ``current``; watchers see ``obj``, else its last state. Raises :class:`Stale` as update does."""
        if collection.objects.get(current.key) is not current:
            raise Stale(current.key)
        last = self._entry(current.key, dict(obj if obj is not None else current.obj), current.managed)
        del collection.objects[current.key]
        del collection.keys[bisect_left(collection.keys, current.key)]
        self._committed("delete", collection, "DELETED", current, last)
        return last

    def _entry(self, key: str, obj: Json, managed: Managed | None) -> Entry:
        self.revision += 1
        obj["metadata"] = {**obj["metadata"], "resourceVersion": str(self.revision)}
        return Entry(key, obj, self.revision, managed)

    def _committed(
        self, verb: Verb, collection: Collection, type_: EventType, before: Entry | None, after: Entry
    ) -> None:
        event = Event(type_, self.revision, before, after)
        self._index_owners(collection, before, after if verb != "delete" else None)
        collection.record(event)
        for sink in tuple(collection.sinks):
            sink.offer(event)
        for listener in self.listeners:
            listener(verb, collection, before, after)
        if before is not None:
            before.shrink()
        if verb == "delete":
            after.shrink()

    def _index_owners(self, collection: Collection, before: Entry | None, after: Entry | None) -> None:
        old = owner_uids(before.obj) if before is not None else ()
        new = owner_uids(after.obj) if after is not None else ()
        if old == new:
            return
        entry = after if after is not None else before
        assert entry is not None  # noqa: S101  # a commit has at least one of the two
        place = (collection.name, entry.key)
        for uid in old:
            bucket = self.dependents.get(uid)
            if bucket is not None:
                bucket.pop(place, None)
                if not bucket:
                    del self.dependents[uid]
        for uid in new:
            self.dependents.setdefault(uid, {})[place] = None

    def compact(self, revision: int | None = None) -> None:
        """Forget all changes up to a version (the current one): older watches and continue tokens are refused."""
        self.compacted = max(self.compacted, self.revision if revision is None else revision)
        for collection in self.collections.values():
            collection.compact(self.compacted)


def owner_uids(obj: Json) -> tuple[str, ...]:
    """The uids of an object's owners."""
    owners = obj["metadata"].get("ownerReferences")
    return tuple(owner.get("uid", "") for owner in owners) if owners else ()


#: Letters of generated names: no vowels and nothing that looks like something else.
NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED_BASE: Final = 58


@dataclass
class Core:
    """The shared state of one server."""

    clock: Clock
    rng: Random
    storage: Storage = field(default_factory=Storage)
    registry: Registry = field(default_factory=Registry.built_in)
    #: The last second that was written out, and how.
    _second: int = -1
    _text: str = ""

    def collection(self, resource: ResourceType) -> Collection:
        """Where the objects of a resource are, whatever the version."""
        return self.storage.collection(resource.key)

    def named(self, qualified: str) -> Collection:
        """A built-in collection by its name (``pods``, ``replicasets.apps``)."""
        return self.storage.collection(qualified)

    def entry(self, call: Call) -> Entry:
        """The object a call names. Refuses where there is none."""
        found = self.collection(call.resource).objects.get(call.key)
        if found is None:
            raise status.not_found(call.resource, call.name)
        return found

    def now(self) -> str:
        """The time as objects carry it."""
        moment = self.clock.now()
        second = int(moment.timestamp())
        if second != self._second:
            self._second, self._text = second, rfc3339(moment)
        return self._text

    def new_uid(self) -> str:
        """A random (version 4) UUID, the next of this server's history."""
        bits = self.rng.getrandbits(128)
        bits = bits & ~(0xF << 76) & ~(0x3 << 62) | (0x4 << 76) | (0x2 << 62)
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def generated_name(self, base: str) -> str:
        """``base`` and five random letters."""
        return base[:_MAX_GENERATED_BASE] + "".join(self.rng.choices(NAME_LETTERS, k=5))
