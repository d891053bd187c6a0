"""A reflector lists and watches one kind of object and keeps a store in sync with the API server.

It starts with a streaming list if the server supports that (one request returns the objects, a bookmark that marks
their end, and then the changes), otherwise with a paged list. After a disconnect, the watch resumes where it stopped.
The reflector relists, and removes deleted objects from the store, only if the server no longer has the version at which
the watch stopped (410) or if a watch was silent for too long.

An object that cannot be decoded, or that an index function rejects, does not block others: it is counted, logged once
by name, kept in its last known state, and read again when it changes or is relisted.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack
from enum import StrEnum
from random import Random
from typing import Final, Generic, TypeVar

import msgspec

from app.kube import jsonvalues, wire
from app.kube.client import MAX_RETRY_AFTER, PAGE_SIZE, Client, Decode, selectors
from app.kube.clock import Backoff
from app.kube.errors import (
    ApiError,
    BadRequest,
    DecodeError,
    Gone,
    Invalid,
    KubeError,
    NotFound,
    RequestInfo,
    ServerError,
    TransportError,
    describe,
    read_status,
    status_error,
)
from app.kube.expectations import is_at_least
from app.kube.objects import Object
from app.kube.resources import ObjectKey, Resource
from app.kube.store import Change, Store, key_of
from app.kube.wire import Stream


class ReflectorError(StrEnum):
    """Kinds of errors that a reflector reports to its metrics."""

    LIST_FAILED = "list_failed"
    WATCH_FAILED = "watch_failed"
    EXPIRED = "expired"
    UNREADABLE = "unreadable_object"
    #: A watch event of an unknown type.
    UNKNOWN_EVENT = "unknown_event"
    UNEXPECTED = "unexpected"


class ReflectorMetrics:
    """Hooks for metrics. This base class does nothing."""

    def listed(self, kind: str, objects: int) -> None: ...
    def events(self, kind: str, count: int) -> None: ...
    def error(self, kind: str, what: ReflectorError) -> None: ...
    def set_aside(self, kind: str, objects: int) -> None: ...


logger = logging.getLogger(__name__)

#: Maximum length of the stored reason why an object could not be read.
_WHY_LENGTH: Final = 256


class UnreadableObjects:
    """Tracks the unreadable objects of one kind."""

    def __init__(self, kind: str, metrics: ReflectorMetrics) -> None:
        self._kind = kind
        self._metrics = metrics
        self._why: dict[ObjectKey, str] = {}

    def set_aside(self, key: ObjectKey, error: Exception) -> None:
        """Record that an object cannot be read. Its last known state is kept."""
        self._metrics.error(self._kind, ReflectorError.UNREADABLE)
        why = str(error) if isinstance(error, ValueError | msgspec.MsgspecError) else f"{type(error).__name__}: {error}"
        why = ascii(why[:_WHY_LENGTH])[1:-1]  # the error may quote user input
        if self._why.get(key) != why:
            name = describe(self._kind, key.namespace, key.name or "(no name)")
            logger.error("%s cannot be read; keeping its last known state: %s", name, why)
        self._why[key] = why
        self._metrics.set_aside(self._kind, len(self._why))

    def take_back(self, key: ObjectKey) -> None:
        """Record that an object can be read again, or is gone."""
        if self._why and self._why.pop(key, None) is not None:
            self._metrics.set_aside(self._kind, len(self._why))

    def keep_only(self, keys: Collection[ObjectKey]) -> None:
        """Record that all objects except these can be read, or are gone."""
        for key in self._why.keys() - keys:
            self.take_back(key)


T = TypeVar("T", bound=Object)

#: Minimum watch timeout in seconds. Each timeout is random, up to twice the minimum, which spreads watches over API
#: server replicas.
WATCH_SECONDS = 300
#: Servers send a bookmark about every minute; a connection that is silent for longer than this is considered dead.
IDLE_SECONDS = 180.0
#: The first wait after a failure. A resource whose CRD has just changed is soon served again, and startup should not
#: wait a second for it.
FIRST_RETRY_SECONDS = 0.2
#: The maximum wait, before jitter that may double it. A longer one would prolong every outage.
LONGEST_RETRY_SECONDS = 10.0
#: Seconds between checks whether a missing resource has been installed; a check sends no request.
ABSENT_SECONDS = 1.0
#: A watch that ended sooner than this without an error is retried only after the back-off.
SHORT_WATCH_SECONDS = 1.0
#: Seconds to wait for the first object of a streaming list before falling back to an ordinary list.
INITIAL_IDLE_SECONDS = 30.0


_CHANGES = frozenset({wire.ADDED, wire.MODIFIED, wire.DELETED})
_KNOWN = _CHANGES | {wire.BOOKMARK}


class StorageRestored(KubeError):
    """The API server's storage was restored from a backup, so resourceVersions are lower than before."""


class _NoStreamingList(Exception):
    """The server does not support streaming lists."""


class Reflector(Generic[T]):
    """Fills ``store`` from one resource. Start ``run`` as a task, and cancel the task to stop it."""

    def __init__(
        self,
        client: Client,
        resource: Resource,
        store: Store[T],
        *,
        decode: Decode[T],
        rng: Random,
        namespace: str = "",
        label_selector: str = "",
        field_selector: str = "",
        streaming_list: bool = True,
        page_size: int = PAGE_SIZE,
        idle_seconds: float = IDLE_SECONDS,
        keep: Callable[[T], bool] | None = None,
        metrics: ReflectorMetrics | None = None,
        absent: Callable[[], bool] = lambda: False,
        ends_when_restored: bool = False,
    ) -> None:
        """Create a reflector.

        ``keep`` selects the objects to store; None keeps all. ``absent`` returns whether the resource is known not to
        be installed: the store is then empty and ready. ``ends_when_restored`` is for processes that remember the
        versions of their writes: ``run`` raises ``StorageRestored`` when such a version may never appear again.
        """
        self.resource = resource
        self.store = store
        self._client = client
        self._clock = client.clock
        self._decode = decode
        self._decode_event = wire.typed_event_decoder(decode)
        self._rng = rng
        self._namespace = namespace
        self._label_selector = label_selector
        self._field_selector = field_selector
        self._streaming_list = streaming_list
        self._page_size = page_size
        self._idle_seconds = idle_seconds
        self._keep = keep
        self._metrics = metrics if metrics is not None else ReflectorMetrics()
        self._absent = absent
        self._ends_when_restored = ends_when_restored
        self._info = RequestInfo("WATCH", resource.path(namespace))
        self._backoff = Backoff(rng, base=FIRST_RETRY_SECONDS, cap=LONGEST_RETRY_SECONDS)
        #: Separate back-off between an expired version and the next list: other failures do not affect it.
        self._expired_backoff = Backoff(rng, base=FIRST_RETRY_SECONDS)
        #: The version at which the watch resumes; if empty, list first.
        self._version = ""
        #: The newest version seen before the last relist.
        self._reached = ""
        #: When the current or latest watch started.
        self._opened: float | None = None
        self._unreadable = UnreadableObjects(resource.kind, self._metrics)
        #: The version after which a watch sent an undecodable event.
        self._unread_after: str | None = None

    async def run(self) -> None:
        """List and watch until canceled."""
        while True:
            self._opened = None
            backoff = self._backoff
            asked = 0.0
            try:
                if not self._version and not self._streaming_list:
                    await self._list()
                await self._watch(initial=not self._version)
            except StorageRestored:
                raise
            except _NoStreamingList as reason:
                logger.info("%s: streaming list unavailable (%s), listing in pages", self.resource.kind, reason)
                self._streaming_list = False
                continue
            except (KubeError, TimeoutError) as error:
                if isinstance(error, NotFound) and self._absent():
                    await self._wait_until_installed()
                    continue
                self._failed(error)
                self._forget_failures()
                if is_expired(error):
                    backoff = self._expired_backoff
                if isinstance(error, ApiError):
                    asked = min(error.retry_after or 0.0, MAX_RETRY_AFTER)
            except Exception:
                # A bug in the handling of a response: a restart would not fix it.
                self._metrics.error(self.resource.kind, ReflectorError.UNEXPECTED)
                logger.exception("%s: list or watch failed unexpectedly, relisting", self.resource.kind)
                self._relist()
            else:
                # The server ends every watch after some minutes; one that ends at once indicates an error.
                if self._forget_failures():
                    continue
            await self._clock.sleep(max(asked, backoff.next()))

    async def _wait_until_installed(self) -> None:
        self._relist()
        self.store.replace([])
        while self._absent():
            await self._clock.sleep(ABSENT_SECONDS)

    def _relist(self) -> None:
        """Discard the version, so that the next watch starts with a list."""
        self._reached, self._version = self._version or self._reached, ""

    def _forget_failures(self) -> bool:
        """Reset the back-off if the last watch lasted long enough, even if it delivered no events."""
        lasted = self._opened is not None and self._clock.monotonic() - self._opened >= SHORT_WATCH_SECONDS
        if lasted:
            self._reset_backoff()
        return lasted

    def _reset_backoff(self) -> None:
        self._backoff.reset()
        self._expired_backoff.reset()

    def _failed(self, error: Exception) -> None:
        """Record why a list or watch ended."""
        listing = not self._version
        if is_expired(error):
            self._metrics.error(self.resource.kind, ReflectorError.EXPIRED)
            logger.info("%s: version %s is too old to watch, relisting", self.resource.kind, self._version)
            self._relist()
            return
        self._metrics.error(self.resource.kind, ReflectorError.LIST_FAILED if listing else ReflectorError.WATCH_FAILED)
        text = str(error) or f"{self._info}: no data for too long"
        logger.warning("%s: %s failed: %s", self.resource.kind, "list" if listing else "watch", text)
        if isinstance(error, TimeoutError) or isinstance(error.__cause__, TimeoutError):
            # The connection is dead, or the server was restored from a backup: it then sends nothing, neither a status
            # nor bookmarks, until it reaches the requested version.
            self._relist()
        if isinstance(error, DecodeError):
            # The first time, the connection may be at fault. The second time, only a new list helps: a paged one if the
            # list itself failed.
            if self._unread_after == self._version:
                self._streaming_list = self._streaming_list and not listing
                self._relist()
            else:
                self._unread_after = self._version

    async def _list(self) -> None:
        objects: list[T] = []
        unreadable: set[ObjectKey] = set()
        listing = await self._client.list(
            self.resource,
            self._namespace,
            label_selector=self._label_selector,
            field_selector=self._field_selector,
            page_size=self._page_size,
            decode=bytes,
        )
        for raw in listing.items:
            obj = self._read(raw, unreadable)
            if obj is not None:
                objects.append(obj)
        self._replace(objects, unreadable, listing.resource_version)

    def _replace(self, objects: list[T], unreadable: set[ObjectKey], version: str) -> None:
        if not version:
            raise DecodeError(self._info, "a list without resourceVersion: is this a Kubernetes API server?")
        if self._ends_when_restored and not is_at_least(version, self._reached):
            back = f"{self.resource.kind}: resourceVersion went back from {self._reached} to {version}"
            raise StorageRestored(f"{back}: the API server was restored from a backup")
        good = [obj for obj in objects if self._put(obj, unreadable)]
        self._unreadable.keep_only(unreadable)
        self.store.replace(good, keep=unreadable)
        self._version = version
        self._backoff.reset()
        self._metrics.listed(self.resource.kind, len(good))

    async def _watch(self, *, initial: bool) -> None:
        """Follow one watch to its end. If ``initial``, it starts with all objects, as a streaming list."""
        query = selectors(self._label_selector, self._field_selector)
        query["allowWatchBookmarks"] = "true"
        query["timeoutSeconds"] = str(WATCH_SECONDS + self._rng.randrange(WATCH_SECONDS))
        if initial:
            query["sendInitialEvents"] = "true"
            query["resourceVersionMatch"] = "NotOlderThan"
        else:
            query["resourceVersion"] = self._version
        async with AsyncExitStack() as stack:
            opening = stack.enter_async_context(self._client.watch(self.resource, self._namespace, query))
            try:
                stream: Stream = await self._clock.wait_for(opening, self._idle_seconds)
            except (BadRequest, Invalid) as error:
                if initial:
                    raise _NoStreamingList(error.message) from error
                raise
            self._opened = self._clock.monotonic()
            chunks = aiter(stream.chunks)
            splitter = wire.LineSplitter()
            if initial:
                self._apply(await self._receive_initial(chunks, splitter))
            while (chunk := await self._next(chunks, self._idle_seconds)) is not None:
                self._apply(self._lines(splitter, chunk))

    async def _receive_initial(self, chunks: AsyncIterator[bytes], splitter: wire.LineSplitter) -> list[bytes]:
        """Read the objects of a streaming list into the store. Returns the events that followed."""
        objects: dict[ObjectKey, T] = {}
        unreadable: set[ObjectKey] = set()
        while True:
            try:
                chunk = await self._next(chunks, min(INITIAL_IDLE_SECONDS, self._idle_seconds))
            except TimeoutError as error:
                # An old server ignores unknown parameters and never marks the end of the initial events.
                raise _NoStreamingList("the end of the initial events was not received") from error
            if chunk is None:
                raise TransportError(self._info, "the stream ended during the initial events")
            lines = self._lines(splitter, chunk)
            for position, line in enumerate(lines):
                event = self._event(line)
                if event.type not in _KNOWN:
                    self._unknown(event.type)
                elif event.type == wire.BOOKMARK:
                    metadata = wire.metadata_of(event.object)
                    if (metadata.annotations or {}).get(wire.INITIAL_EVENTS_END) == "true":
                        self._replace(list(objects.values()), unreadable, metadata.resource_version)
                        return lines[position + 1 :]
                elif event.type == wire.DELETED:
                    key = _raw_key(event.object)
                    objects.pop(key, None)
                    unreadable.discard(key)
                else:
                    obj = self._read(bytes(event.object), unreadable, lossy=event.lossy)
                    if obj is not None:
                        objects[key_of(obj)] = obj

    async def _next(self, chunks: AsyncIterator[bytes], seconds: float) -> bytes | None:
        """Return the next chunk, or None at the end. Raises ``TimeoutError`` if the connection stays silent."""
        return await self._clock.wait_for(anext(chunks, None), seconds)

    def _lines(self, splitter: wire.LineSplitter, chunk: bytes) -> list[bytes]:
        try:
            return splitter.feed(chunk)
        except ValueError as error:
            raise DecodeError(self._info, str(error)) from error

    def _change(self, line: bytes) -> wire.TypedEvent[T] | None:
        """Decode an event about a readable object, the common case. Returns None for anything else."""
        if self._decode_event is None:
            return None
        try:
            event = self._decode_event(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return event if event.type in _CHANGES and event.object.metadata.name else None

    def _event(self, line: bytes) -> wire.WatchEvent:
        """Decode an event. Raises ``DecodeError`` for an invalid one, and the ``ApiError`` of an ERROR event."""
        try:
            event = wire.read_watch_event(line)
        except (msgspec.MsgspecError, ValueError) as error:
            raise DecodeError(self._info, f"{error}: {line[:100]!r}") from error
        if event.type == wire.ERROR:
            raise status_error(self._info, read_status(event.object))
        return event

    def _apply(self, lines: list[bytes]) -> None:
        """Apply these events to the store."""
        changes = 0
        for line in lines:
            change = self._change(line)
            if change is None:
                changes += self._apply_in_parts(line)
                continue
            changes += 1
            obj = change.object
            if change.type == wire.DELETED:
                self.store.remove(key_of(obj), obj)
                self._unreadable.take_back(key_of(obj))
            else:
                self._put(obj)
            self._version = obj.metadata.resource_version or ""
        if lines:
            self._reset_backoff()
        if changes:
            self._metrics.events(self.resource.kind, changes)

    def _apply_in_parts(self, line: bytes) -> bool:
        """Apply any event, decoding it step by step. Returns whether it was about an object."""
        event = self._event(line)
        if event.type == wire.BOOKMARK:
            self._version = wire.metadata_of(event.object).resource_version
            return False
        if event.type not in _CHANGES:
            self._unknown(event.type)
            return False
        obj = self._read(bytes(event.object), set(), lossy=event.lossy)
        if event.type == wire.DELETED:
            key = _raw_key(event.object) if obj is None else key_of(obj)
            self.store.remove(key, obj)
            self._unreadable.take_back(key)
        elif obj is not None:
            self._put(obj)
        seen = obj.metadata if obj is not None else wire.metadata_of(event.object)
        self._version = seen.resource_version or self._version
        return True

    def _read(self, raw: bytes, unreadable: set[ObjectKey], *, lossy: bool = False) -> T | None:
        """Decode one object; if that fails, record it as unreadable."""
        try:
            if lossy:
                raise jsonvalues.UnreadableError(jsonvalues.TOO_DEEP)  # noqa: TRY301
            obj = jsonvalues.read(self._decode, raw)
            if not obj.metadata.name:
                raise jsonvalues.UnreadableError("metadata.name: is missing")  # noqa: TRY301
        except Exception as error:  # noqa: BLE001 - an unreadable object must not block the others
            key = _raw_key(raw)
            unreadable.add(key)
            self._unreadable.set_aside(key, error)
            return None
        return obj

    def _put(self, obj: T, unreadable: set[ObjectKey] | None = None) -> bool:
        """Store an object, or record it as unreadable if an index fails. Returns whether it was stored."""
        key = key_of(obj)
        try:
            if self._keep is not None and not self._keep(obj):
                self._unreadable.take_back(key)
                self.store.remove(key)
                return False
            self.store.put(obj)
        except Exception as error:  # noqa: BLE001 - one object must not block the others
            if unreadable is not None:
                unreadable.add(key)
            self._unreadable.set_aside(key, error)
            return False
        self._unreadable.take_back(key)
        return True

    def _unknown(self, type_: str) -> None:
        """Skip an event of an unknown type; the next list brings the object up to date."""
        self._metrics.error(self.resource.kind, ReflectorError.UNKNOWN_EVENT)
        logger.error("%s: skipping an event of the unknown type %.100a", self.resource.kind, type_)


def is_expired(error: Exception) -> bool:
    """Return whether a new list is needed: the version is too old, or too new for a server restored from a backup."""
    if isinstance(error, Gone):
        return True
    return isinstance(error, ServerError) and any(c.reason == "ResourceVersionTooLarge" for c in error.causes)


def _raw_key(raw: bytes | msgspec.Raw) -> ObjectKey:
    metadata = wire.metadata_of(raw)
    return ObjectKey(metadata.namespace, metadata.name)


def watch_of_one(
    client: Client,
    resource: Resource,
    key: tuple[str, str],
    changed: Callable[[Change[T]], None],
    rng: Random,
    metrics: ReflectorMetrics,
    decode: Decode[T],
) -> Reflector[T]:
    """Return a reflector that calls ``changed`` whenever one object, given by namespace and name, changes."""
    namespace, name = key
    store: Store[T] = Store()
    store.subscribe(changed)
    return Reflector(
        client,
        resource,
        store,
        decode=decode,
        rng=rng,
        namespace=namespace,
        field_selector=f"metadata.name={name}",  # so that RBAC can be limited to that name
        metrics=metrics,
    )
