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

# Storage replaces etcd: objects by key, one revision counter, and a history of changes for watches.
#
# Everything here is synchronous: a commit is atomic and reaches every watcher at once. Stored objects never change; a
# write replaces the :class:`Entry`.

Json: TypeAlias = dict[str, Any]
EventType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED"]
Verb: TypeAlias = Literal["create", "update", "delete"]

#: Limits of the history kept per resource, from which watches resume.
HISTORY_EVENTS: Final = 10_000
HISTORY_BYTES: Final = 32 * 2**20


class Entry:
    """One version of one object. JSON is encoded on first use."""

    __slots__ = ("_full", "_obj", "_raw", "api_version", "converted", "key", "labels", "managed", "revision")

    def __init__(self, key: str, obj: Json, revision: int, managed: Managed | None = None) -> None:
        self.key = key
        self.revision = revision
        #: The stored API version, which may differ from the requested one.
        self.api_version: str = obj["apiVersion"]
        #: Conversions to other versions, by apiVersion.
        self.converted: dict[str, Entry] | None = None
        self.labels: dict[str, str] = obj["metadata"].get("labels") or {}
        #: The managers of the fields, for clients that see managed fields.
        self.managed = managed
        self._obj: Json | None = obj
        self._raw: bytes | None = None
        self._full: bytes | None = None

    @property
    def obj(self) -> Json:
        """Return the object. It must not be changed."""
        if self._obj is None:
            return orjson.loads(self.raw)  # type: ignore[no-any-return]
        return self._obj

    @property
    def raw(self) -> bytes:
        """Return the object as JSON."""
        if self._raw is None:
            self._raw = orjson.dumps(self._obj)
        return self._raw

    @property
    def full(self) -> Json:
        """Return the object with managed fields. It must not be changed."""
        return with_managed(self.obj, self.managed)

    @property
    def full_raw(self) -> bytes:
        """Return the object with managed fields, as JSON."""
        if self.managed is None:
            return self.raw
        if self._full is None:
            self._full = orjson.dumps(self.full)
        return self._full

    def shrink(self) -> None:
        """Keep only the JSON, because this version is no longer current."""
        if self._obj is not None:
            _ = self.raw
            self._obj = self._full = None


class Event:
    """A committed change. Lines for watchers are encoded once per form."""

    __slots__ = ("after", "before", "lines", "revision", "type")

    def __init__(self, type_: EventType, revision: int, before: Entry | None, after: Entry) -> None:
        self.type = type_
        self.revision = revision
        self.before = before
        #: The object after the change. For a deletion, its last state with the version of the deletion.
        self.after = after
        self.lines: dict[Any, bytes] = {}


class EventSink(Protocol):
    """An observer of a collection."""

    def offer(self, event: Event) -> None:
        """Receive an event at the moment it is committed."""
        ...


class Stale(Exception):
    """A write is based on an entry that is no longer current."""


@dataclass
class Collection:
    """The objects of one resource. Keys are ``namespace/name``, or ``name`` for cluster-scoped kinds."""

    name: str
    objects: dict[str, Entry] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    history: deque[Event] = field(default_factory=deque)
    history_bytes: int = 0
    #: Changes up to this version are no longer available.
    compacted: int = 0
    sinks: dict[EventSink, None] = field(default_factory=dict)

    def select(self, namespace: str, start: str = "") -> Iterator[Entry]:
        """Yield the entries in a namespace (or in all) in key order, starting at ``start``."""
        prefix = f"{namespace}/" if namespace else ""
        for position in range(bisect_left(self.keys, max(prefix, start)), len(self.keys)):
            key = self.keys[position]
            if not key.startswith(prefix):
                return
            yield self.objects[key]

    def as_of(self, revision: int) -> Collection:
        """Return the collection as of a version, which must not be compacted."""
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
        """Return the changes after a version, oldest first."""
        found: list[Event] = []
        for event in reversed(self.history):
            if event.revision <= revision:
                break
            found.append(event)
        return reversed(found)

    def compact(self, revision: int) -> None:
        """Drop the changes up to a version."""
        while self.history and self.history[0].revision <= revision:
            self._forget_oldest()
        self.compacted = max(self.compacted, revision)

    def record(self, event: Event) -> None:
        """Append an event to the history, and drop the oldest events beyond the limits."""
        self.history.append(event)
        self.history_bytes += len(event.after.raw)
        while len(self.history) > HISTORY_EVENTS or (self.history_bytes > HISTORY_BYTES and len(self.history) > 1):
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = self.history.popleft()
        self.history_bytes -= len(oldest.after.raw)
        self.compacted = max(self.compacted, oldest.revision)


#: Called after each commit with the verb, the collection, and the entry before and after it.
Listener: TypeAlias = Callable[[Verb, Collection, Entry | None, Entry | None], None]


class Storage:
    """All collections, and the revision counter they share."""

    def __init__(self) -> None:
        self.revision = 1
        #: Changes up to this version are no longer available for any resource.
        self.compacted = 0
        self.collections: dict[str, Collection] = {}
        self.listeners: list[Listener] = []
        #: Owner UID → its dependents as (collection, key).
        self.dependents: dict[str, dict[tuple[str, str], None]] = {}

    def collection(self, name: str) -> Collection:
        """Return the collection with this name. It is created on first use."""
        found = self.collections.get(name)
        if found is None:
            found = self.collections[name] = Collection(name, compacted=self.compacted)
        return found

    def reread(self, collection: Collection, change: Callable[[Json], Json]) -> None:
        """Change stored objects in place, without new versions or events."""
        for key, entry in collection.objects.items():
            if (obj := change(entry.obj)) != entry.obj:
                collection.objects[key] = Entry(key, obj, entry.revision, entry.managed)

    def begin(self, name: str) -> None:
        """Create the collection if it does not exist. Its history starts now."""
        if name not in self.collections:
            self.collections[name] = Collection(name, compacted=self.revision)

    def create(self, collection: Collection, key: str, obj: Json, managed: Managed | None = None) -> Entry:
        """Store a new object. Raises :class:`Stale` if the key exists."""
        if key in collection.objects:
            raise Stale(key)
        entry = self._entry(key, obj, managed)
        insort(collection.keys, key)
        collection.objects[key] = entry
        self._committed("create", collection, "ADDED", None, entry)
        return entry

    def update(self, collection: Collection, current: Entry, obj: Json) -> Entry:
        """Replace ``current`` with a new version and keep the managers. Raises :class:`Stale` if it is no longer the
        stored entry.

        The server uses this for its own writes, which have no field manager.
        """
        return self.replace(collection, current, obj, current.managed)

    def replace(self, collection: Collection, current: Entry, obj: Json, managed: Managed | None) -> Entry:
        """Replace ``current`` with a new version and its managers. Raises :class:`Stale` if it is no longer the stored
        entry."""
        if collection.objects.get(current.key) is not current:
            raise Stale(current.key)
        entry = self._entry(current.key, obj, managed)
        collection.objects[current.key] = entry
        self._committed("update", collection, "MODIFIED", current, entry)
        return entry

    def delete(self, collection: Collection, current: Entry, obj: Json | None = None) -> Entry:
        """Remove ``current``. Watchers see ``obj`` or, if None, the last state. Raises :class:`Stale` if ``current`` is
        no longer the stored entry."""
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
        """Drop all changes up to a version (default: the current one). Older watches and continue tokens are then
        rejected."""
        self.compacted = max(self.compacted, self.revision if revision is None else revision)
        for collection in self.collections.values():
            collection.compact(self.compacted)


def owner_uids(obj: Json) -> tuple[str, ...]:
    """Return the UIDs of an object's owners."""
    owners = obj["metadata"].get("ownerReferences")
    return tuple(owner.get("uid", "") for owner in owners) if owners else ()


#: Characters of generated names: no vowels, no ambiguous characters.
NAME_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_MAX_GENERATED_BASE: Final = 58


@dataclass
class Core:
    """State shared by all parts of a server."""

    clock: Clock
    rng: Random
    storage: Storage = field(default_factory=Storage)
    registry: Registry = field(default_factory=Registry.built_in)
    #: Cache: the last formatted second and its text.
    _second: int = -1
    _text: str = ""

    def collection(self, resource: ResourceType) -> Collection:
        """Return the collection of a resource. All its versions share it."""
        return self.storage.collection(resource.key)

    def named(self, qualified: str) -> Collection:
        """Return the collection with this name, such as ``pods`` or ``replicasets.apps``."""
        return self.storage.collection(qualified)

    def entry(self, call: Call) -> Entry:
        """Return the object that a call names. Rejects the call (404) if there is none."""
        found = self.collection(call.resource).objects.get(call.key)
        if found is None:
            raise status.not_found(call.resource, call.name)
        return found

    def now(self) -> str:
        """Return the time in the format of object metadata."""
        moment = self.clock.now()
        second = int(moment.timestamp())
        if second != self._second:
            self._second, self._text = second, rfc3339(moment)
        return self._text

    def new_uid(self) -> str:
        """Return a random (version 4) UUID, drawn from this server's random generator."""
        bits = self.rng.getrandbits(128)
        bits = bits & ~(0xF << 76) & ~(0x3 << 62) | (0x4 << 76) | (0x2 << 62)
        text = f"{bits:032x}"
        return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"

    def generated_name(self, base: str) -> str:
        """Return ``base`` with five random letters appended."""
        return base[:_MAX_GENERATED_BASE] + "".join(self.rng.choices(NAME_LETTERS, k=5))
