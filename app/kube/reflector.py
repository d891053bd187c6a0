"""A reflector lists and watches one kind of object and keeps a store in step with the API server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import AsyncExitStack
from enum import StrEnum
from random import Random
from typing import Final, Generic, Protocol, TypeVar

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
from app.kube.objects import Object
from app.kube.resources import ObjectKey, Resource
from app.kube.store import Store, key_of
from app.kube.wire import Stream


class ReflectorError(StrEnum):
    """What a reflector reports to its metrics."""

    LIST_FAILED = "list_failed"
    WATCH_FAILED = "watch_failed"
    EXPIRED = "expired"
    UNREADABLE = "unreadable_object"
    #: A line of a watch that is about no object.
    UNKNOWN_EVENT = "unknown_event"
    UNEXPECTED = "unexpected"


class ReflectorMetrics(Protocol):
    """Hooks for counting; ``kind`` is the resource's kind."""

    def listed(self, kind: str, objects: int) -> None: ...
    def events(self, kind: str, count: int) -> None: ...
    def error(self, kind: str, what: ReflectorError) -> None: ...
    def set_aside(self, kind: str, objects: int) -> None: ...


class NoMetrics:
    """Counts nothing."""

    def listed(self, kind: str, objects: int) -> None: ...
    def events(self, kind: str, count: int) -> None: ...
    def error(self, kind: str, what: ReflectorError) -> None: ...
    def set_aside(self, kind: str, objects: int) -> None: ...


logger = logging.getLogger(__name__)

#: How much is kept of why an object could not be read.
_WHY_LENGTH: Final = 256


class UnreadableObjects:
    """Those of one kind."""

    def __init__(self, kind: str, metrics: ReflectorMetrics) -> None:
        """None so far."""
        self._kind = kind
        self._metrics = metrics
        self._why: dict[ObjectKey, str] = {}

    def set_aside(self, key: ObjectKey, error: Exception) -> None:
        """An object cannot be read; what was known of it is left as it was."""
        self._metrics.error(self._kind, ReflectorError.UNREADABLE)
        why = str(error) if isinstance(error, ValueError | msgspec.MsgspecError) else f"{type(error).__name__}: {error}"
        why = ascii(why[:_WHY_LENGTH])[1:-1]  # it may quote what somebody wrote
        if self._why.get(key) != why:
            name = describe(self._kind, key.namespace, key.name or "(no name)")
            logger.error("%s cannot be read and is left as it was known: %s", name, why)
        self._why[key] = why
        self._metrics.set_aside(self._kind, len(self._why))

    def take_back(self, key: ObjectKey) -> None:
        """An object can be read, or is gone."""
        if self._why and self._why.pop(key, None) is not None:
            self._metrics.set_aside(self._kind, len(self._why))

    def keep_only(self, keys: Collection[ObjectKey]) -> None:
        """All others can be read, or are gone."""
        for key in self._why.keys() - keys:
            self.take_back(key)


# Reflector: keeps a store equal to what the API server has, by list and watch, for as long as it runs.
#
# It starts with a streaming list where the server has that (one request: the objects, a bookmark that says "that was
# all", then the changes), else with a paged list. After a disconnect the watch resumes where it stopped; only when the
# server no longer knows that version (410) everything is listed anew, and what vanished meanwhile is removed from the
# store. An object that cannot be read, or that an index refuses, is set aside: counted, logged once with its name,
# left as it was known, and read again when it changes or is listed again. It does not stop the others.

T = TypeVar("T", bound=Object)

#: The server ends a watch after a time between this and twice this, so that watches spread over its replicas.
WATCH_SECONDS = 300
#: Servers send a bookmark about every minute: a connection that is silent for longer than this is dead.
IDLE_SECONDS = 180.0
#: The first wait after a failure. A definition that was changed a moment before is served again within a blink, and who
#: starts should not sit out a second for it.
FIRST_RETRY_SECONDS = 0.2
#: What the wait grows to (and up to as much again): it adds to every outage.
LONGEST_RETRY_SECONDS = 10.0
#: How often a resource that is not installed is checked for; this makes no request.
ABSENT_SECONDS = 1.0
#: A watch that ended sooner than this without an error is asked for again only after the back-off.
SHORT_WATCH_SECONDS = 1.0
#: How long the first object of a streaming list may take before an ordinary list is tried.
INITIAL_IDLE_SECONDS = 30.0


_CHANGES = frozenset({wire.ADDED, wire.MODIFIED, wire.DELETED})
_KNOWN = _CHANGES | {wire.BOOKMARK}


class _NoStreamingList(Exception):
    """The server does not do streaming lists."""


class Reflector(Generic[T]):
    """Fills ``store`` from one resource; ``run`` it as a task and cancel that to stop."""

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
    ) -> None:
        """``keep``: the objects that the store holds; all by default. ``absent`` returns whether the resource is known
        not to be installed: the store is empty then, and ready."""
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
        self._metrics = metrics if metrics is not None else NoMetrics()
        self._absent = absent
        self._info = RequestInfo("WATCH", resource.path(namespace))
        self._backoff = Backoff(rng, base=FIRST_RETRY_SECONDS, cap=LONGEST_RETRY_SECONDS)
        #: Between an expired version and the next list. Refusals before it say nothing about that.
        self._expired_backoff = Backoff(rng, base=FIRST_RETRY_SECONDS)
        #: Where the watch goes on; empty: list first.
        self._version = ""
        #: When the watch that runs, or ran last, was granted.
        self._opened: float | None = None
        self._unreadable = UnreadableObjects(resource.kind, self._metrics)
        #: Where a watch brought something that is no event.
        self._unread_after: str | None = None

    async def run(self) -> None:
        """List and watch until cancelled."""
        while True:
            self._opened = None
            backoff = self._backoff
            asked = 0.0
            try:
                await self._list_and_watch()
            except _NoStreamingList as reason:
                logger.info("%s: no streaming list (%s), listing in pages", self.resource.kind, reason)
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
                # A mistake of ours over what came. The process would fail over the same thing again.
                self._metrics.error(self.resource.kind, ReflectorError.UNEXPECTED)
                logger.exception("%s: list or watch failed unexpectedly, listing anew", self.resource.kind)
                self._version = ""
            else:
                # The server ends every watch after some minutes; one that ends at once means an error.
                if self._forget_failures():
                    continue
            await self._clock.sleep(max(asked, backoff.next()))

    async def _wait_until_installed(self) -> None:
        self._version = ""
        self.store.replace([])
        while self._absent():
            await self._clock.sleep(ABSENT_SECONDS)

    def _forget_failures(self) -> bool:
        """Start over with the shortest wait where the last watch lasted, even if nothing happened in it."""
        lasted = self._opened is not None and self._clock.monotonic() - self._opened >= SHORT_WATCH_SECONDS
        if lasted:
            self._reset_backoff()
        return lasted

    def _reset_backoff(self) -> None:
        self._backoff.reset()
        self._expired_backoff.reset()

    def _failed(self, error: Exception) -> None:
        """Note why a list or watch ended."""
        listing = not self._version
        if is_expired(error):
            self._metrics.error(self.resource.kind, ReflectorError.EXPIRED)
            logger.info("%s: version %s is too old to watch, listing anew", self.resource.kind, self._version)
            self._version = ""
            return
        self._metrics.error(self.resource.kind, ReflectorError.LIST_FAILED if listing else ReflectorError.WATCH_FAILED)
        text = str(error) or f"{self._info}: silent for too long"
        logger.warning("%s: %s failed: %s", self.resource.kind, "list" if listing else "watch", text)
        if isinstance(error, DecodeError):
            # Once it may be the connection. The second time only a new list leads past it, and where it is in the list
            # one that is no stream.
            if self._unread_after == self._version:
                self._streaming_list = self._streaming_list and not listing
                self._version = ""
                self._unread_after = None
            else:
                self._unread_after = self._version

    async def _list_and_watch(self) -> None:
        """One round: list if needed, then watch until the stream ends."""
        if not self._version and not self._streaming_list:
            await self._list()
        await self._watch(initial=not self._version)

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
        self._unreadable.keep_only(unreadable)
        good = [obj for obj in objects if self._put(obj, unreadable)]
        self.store.replace(good, keep=unreadable)
        self._version = version
        self._backoff.reset()
        self._metrics.listed(self.resource.kind, len(good))

    async def _watch(self, *, initial: bool) -> None:
        """Follow one watch to its end. ``initial``: it begins with all objects, as a streaming list."""
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
        """Collect the objects of a streaming list and put them into the store. Returns the lines that came after."""
        objects: dict[ObjectKey, T] = {}
        unreadable: set[ObjectKey] = set()
        while True:
            try:
                chunk = await self._next(chunks, min(INITIAL_IDLE_SECONDS, self._idle_seconds))
            except TimeoutError as error:
                # An old server ignores what it does not know and never says that this was all.
                raise _NoStreamingList("the end of the initial events did not come") from error
            if chunk is None:
                raise TransportError(self._info, "the stream ended within the initial events")
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
                        unreadable.discard(key_of(obj))

    async def _next(self, chunks: AsyncIterator[bytes], seconds: float) -> bytes | None:
        """The next piece, None at the end. Raises ``TimeoutError`` when the connection stays silent."""
        return await self._clock.wait_for(anext(chunks, None), seconds)

    def _lines(self, splitter: wire.LineSplitter, chunk: bytes) -> list[bytes]:
        try:
            return splitter.feed(chunk)
        except ValueError as error:
            raise DecodeError(self._info, str(error)) from error

    def _change(self, line: bytes) -> wire.TypedEvent[T] | None:
        """A line about an object that can be read, the usual case; None where it has to be looked at in parts."""
        if self._decode_event is None:
            return None
        try:
            event = self._decode_event(line)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None
        return event if event.type in _CHANGES and event.object.metadata.name else None

    def _event(self, line: bytes) -> wire.WatchEvent:
        """A line as an event. Raises ``DecodeError`` for what is none, and the ``ApiError`` of an ERROR event."""
        try:
            event = wire.read_watch_event(line)
        except (msgspec.MsgspecError, ValueError) as error:
            raise DecodeError(self._info, f"{error}: {line[:100]!r}") from error
        if event.type == wire.ERROR:
            raise status_error(self._info, read_status(event.object))
        return event

    def _apply(self, lines: list[bytes]) -> None:
        """Bring the store up to these events."""
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
            self._version = obj.metadata.resource_version or self._version
        if lines:
            self._reset_backoff()
        if changes:
            self._metrics.events(self.resource.kind, changes)

    def _apply_in_parts(self, line: bytes) -> bool:
        """The same for any event; whether it was about an object."""
        event = self._event(line)
        if event.type == wire.BOOKMARK:
            self._version = wire.metadata_of(event.object).resource_version or self._version
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
        """One object; one that its decoder refuses is set aside, and noted."""
        try:
            obj = self._named(raw, lossy=lossy)
        except Exception as error:  # noqa: BLE001 - whatever a decoder makes of one object, the others are read
            key = _raw_key(raw)
            unreadable.add(key)
            self._unreadable.set_aside(key, error)
            return None
        return obj

    def _named(self, raw: bytes, *, lossy: bool) -> T:
        """One object with a name; raises what says why it is none."""
        if lossy:
            raise jsonvalues.UnreadableError(jsonvalues.TOO_DEEP)
        obj = jsonvalues.read(self._decode, raw)
        if not obj.metadata.name:
            raise jsonvalues.UnreadableError("metadata.name: is missing")
        return obj

    def _put(self, obj: T, unreadable: set[ObjectKey] | None = None) -> bool:
        """Show an object; one over which an index fails is set aside, and noted. Whether it is in the store."""
        key = key_of(obj)
        try:
            if self._keep is not None and not self._keep(obj):
                self._unreadable.take_back(key)
                self.store.remove(key)
                return False
            self.store.put(obj)
        except Exception as error:  # noqa: BLE001 - a mistake over one object must not keep the others away
            if unreadable is not None:
                unreadable.add(key)
            self._unreadable.set_aside(key, error)
            return False
        self._unreadable.take_back(key)
        return True

    def _unknown(self, type_: str) -> None:
        """An event of a type that this version does not know; its object is seen when it is listed again."""
        self._metrics.error(self.resource.kind, ReflectorError.UNKNOWN_EVENT)
        logger.error("%s: an event of the unknown type %.100a is passed over", self.resource.kind, type_)


def is_expired(error: Exception) -> bool:
    """Whether only a new list helps: the version is too old, or newer than anything the server (restored?) has."""
    if isinstance(error, Gone):
        return True
    return isinstance(error, ServerError) and any(c.reason == "ResourceVersionTooLarge" for c in error.causes)


def _raw_key(raw: bytes | msgspec.Raw) -> ObjectKey:
    metadata = wire.metadata_of(raw)
    return ObjectKey(metadata.namespace, metadata.name)
