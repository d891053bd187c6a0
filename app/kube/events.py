"""Record Kubernetes events without blocking, and aggregate repeated ones.

The correlator follows client-go and depends only on the events and the time:

* a repeated event (same object, type, reason, message) increments the count of the first;
* the tenth and later distinct messages for one object, type and reason within ten minutes share one event, whose
  message starts with ``(combined from similar events): ``;
* an object may have a burst of 25 events, then one every five minutes; more are dropped.

Recording never fails: events are queued, and a task sends them. Events that cannot be sent are logged and dropped,
since nothing may depend on an event.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, TypeVar
from zlib import crc32

from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.errors import (
    KubeError,
    NotFound,
    ServerError,
    TooManyRequests,
    TransportError,
    describe,
    is_namespace_ending,
)
from app.kube.objects import Object, ObjectReference
from app.kube.resources import EVENTS, Resource
from app.kube.text import printable, truncated

V = TypeVar("V")

COMBINED_PREFIX = "(combined from similar events): "
SIMILAR_LIMIT = 10
SIMILAR_WINDOW_SECONDS = 600.0
SPAM_BURST = 25
SPAM_QPS = 1 / 300
#: Maximum number of objects, and of events, to remember; the least recently used are dropped.
MEMORY = 4096
#: The maximum length of an object name.
MAX_NAME = 253


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something that happened to an object."""

    regarding: ObjectReference
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Correlated:
    """The event to write: a new one with this name (``count`` 1), or an update of the existing one."""

    occurrence: Occurrence
    name: str
    count: int
    first: datetime
    last: datetime


class _Recent(Generic[V]):
    """A dict that drops its least recently used entries."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._values: OrderedDict[Hashable, V] = OrderedDict()

    def get(self, key: Hashable) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def put(self, key: Hashable, value: V) -> None:
        self._values[key] = value
        self._values.move_to_end(key)
        if len(self._values) > self._size:
            self._values.popitem(last=False)


@dataclass(slots=True)
class _Similar:
    messages: OrderedDict[str, None]
    last: datetime


@dataclass(slots=True)
class _Seen:
    name: str
    count: int
    first: datetime


@dataclass(slots=True)
class _Allowance:
    tokens: float
    at: datetime


class EventCorrelator:
    """Remembers recent events and correlates new ones with them. ``recorder`` is the reporting component."""

    def __init__(self, recorder: str = "") -> None:
        self._similar: _Recent[_Similar] = _Recent(MEMORY)
        self._seen: _Recent[_Seen] = _Recent(MEMORY)
        self._allowances: _Recent[_Allowance] = _Recent(MEMORY)
        self._last_suffix = 0
        self._offset = crc32(recorder.encode()) % 1000

    def correlate(self, occurrence: Occurrence, now: datetime) -> Correlated | None:
        """Return the event to write for the occurrence, or None to drop it."""
        combined, key = self._combine(occurrence, now)
        seen = self._seen.get(key)
        if seen is None:
            seen = _Seen(self._name(combined.regarding.name, now), 0, now)
            self._seen.put(key, seen)
        seen.count += 1
        if not self._allow(occurrence.regarding, now):
            return None
        return Correlated(combined, seen.name, seen.count, seen.first, now)

    def _combine(self, occurrence: Occurrence, now: datetime) -> tuple[Occurrence, Hashable]:
        """Return the occurrence, with the combined message if there are many similar ones, and the key of its event."""
        group = (_identity(occurrence.regarding), occurrence.type, occurrence.reason)
        similar = self._similar.get(group)
        if similar is None or (now - similar.last).total_seconds() > SIMILAR_WINDOW_SECONDS:
            similar = _Similar(OrderedDict(), now)
            self._similar.put(group, similar)
        similar.messages[occurrence.message] = None
        similar.last = now
        if len(similar.messages) < SIMILAR_LIMIT:
            return occurrence, (*group, occurrence.regarding.field_path, occurrence.message)
        similar.messages.popitem(last=False)  # keeps the set one below the limit
        message = COMBINED_PREFIX + occurrence.message
        return Occurrence(occurrence.regarding, occurrence.type, occurrence.reason, message), group

    def _allow(self, regarding: ObjectReference, now: datetime) -> bool:
        key = _identity(regarding)
        allowance = self._allowances.get(key)
        if allowance is None:
            allowance = _Allowance(float(SPAM_BURST), now)
            self._allowances.put(key, allowance)
        refill = (now - allowance.at).total_seconds() * SPAM_QPS
        # The clock may have been set back.
        allowance.tokens = min(float(SPAM_BURST), allowance.tokens + max(0.0, refill))
        allowance.at = now
        if allowance.tokens < 1:
            return False
        allowance.tokens -= 1
        return True

    def _name(self, regarding: str, now: datetime) -> str:
        """Return ``<object>.<hexadecimal time>``, unique even within one tick of the clock."""
        # The last three digits identify the recorder, so that two recorders do not collide in the same tick.
        self._last_suffix = max(self._last_suffix + 1000, int(now.timestamp() * 1_000_000) * 1000 + self._offset)
        suffix = f".{self._last_suffix:x}"
        return regarding[: MAX_NAME - len(suffix)].rstrip("-.") + suffix


def _identity(reference: ObjectReference) -> Hashable:
    return (reference.api_version, reference.kind, reference.namespace, reference.name, reference.uid)


logger = logging.getLogger(__name__)

#: Maximum number of queued events; above it, events of the namespace with the most are dropped.
QUEUE_SIZE = 1000
#: Maximum attempts to send an event, and the seconds between them.
ATTEMPTS = 12
RETRY_SECONDS = 10.0
#: The maximum message length that the API server accepts.
MAX_MESSAGE = 1024

#: Reason of the Warning event for an object whose spec is invalid. The message starts with the field.
INVALID_SPEC: Final = "InvalidSpec"


def reference(resource: Resource, obj: Object, field_path: str = "") -> ObjectReference:
    """Return a reference to the object for an event. ``field_path`` may refer to a part of the object
    (``spec.containers{main}``)."""
    metadata = obj.metadata
    return ObjectReference(
        api_version=resource.api_version,
        kind=resource.kind,
        namespace=metadata.namespace or "",
        name=metadata.name,
        uid=metadata.uid or "",
        resource_version=metadata.resource_version or "",
        field_path=field_path,
    )


class _Queue(asyncio.Queue[Correlated]):
    """Serves namespaces in turn, so that one with many events neither delays nor displaces the events of others."""

    def _init(self, maxsize: int) -> None:  # noqa: ARG002 - called by asyncio.Queue, like _put and _get
        self._by_namespace: OrderedDict[str, deque[Correlated]] = OrderedDict()
        self._size = 0

    def qsize(self) -> int:
        return self._size

    def empty(self) -> bool:
        return not self._size

    def _put(self, item: Correlated) -> None:
        self._by_namespace.setdefault(item.occurrence.regarding.namespace, deque()).append(item)
        self._size += 1

    def _get(self) -> Correlated:
        namespace, events = self._by_namespace.popitem(last=False)
        if len(events) > 1:
            self._by_namespace[namespace] = events
        self._size -= 1
        return events.popleft()

    def shed(self) -> Correlated:
        """Remove the newest event of the namespace with the most events."""
        namespace, events = max(self._by_namespace.items(), key=lambda item: len(item[1]))
        if len(events) == 1:
            del self._by_namespace[namespace]
        self._size -= 1
        self.task_done()
        return events.pop()


class EventRecorder:
    """Records the events of one component. ``run``, started as a task, sends them."""

    def __init__(self, client: Client, component: str, *, instance: str = "") -> None:
        self._client = client
        self._clock = client.clock
        self._component = component
        self._instance = instance
        self._correlator = EventCorrelator(f"{component} {instance}")
        self._queue = _Queue(QUEUE_SIZE)

    def event(self, regarding: ObjectReference, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Record an event for the object. ``reason`` is one CamelCase word, ``message`` a sentence."""
        if max(map(len, (regarding.namespace, regarding.name, regarding.uid, regarding.resource_version))) > MAX_NAME:
            # No object has a name this long, but a webhook caller can invent one, and names are kept in memory.
            return
        # Messages quote text from users, such as probe output, and are shown on terminals.
        message = truncated(printable(message[: MAX_MESSAGE + 1]), MAX_MESSAGE)
        correlated = self._correlator.correlate(Occurrence(regarding, type_, reason, message), self._clock.now())
        if correlated is None:
            return
        if self._queue.full():
            self._drop(self._queue.shed(), f"more than {QUEUE_SIZE} events are queued")
        self._queue.put_nowait(correlated)

    async def run(self) -> None:
        """Send events until canceled."""
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except Exception as error:  # noqa: BLE001 - one event must not block the others
                self._drop(event, f"{type(error).__name__}: {error}")
            finally:
                self._queue.task_done()

    async def flush(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for all recorded events to be sent. Return False on timeout."""
        try:
            await self._clock.wait_for(self._queue.join(), seconds)
        except TimeoutError:
            return False
        return True

    async def _send(self, event: Correlated) -> None:
        error: KubeError | None = None
        for attempt in range(ATTEMPTS):
            if attempt:
                await self._clock.sleep(RETRY_SECONDS)
            try:
                await self._write(event)
            except (TransportError, ServerError, TooManyRequests) as failure:
                error = failure
            except KubeError as refusal:
                self._drop(event, str(refusal), logging.DEBUG if is_namespace_ending(refusal) else logging.WARNING)
                return
            else:
                return
        self._drop(event, str(error))

    async def _write(self, event: Correlated) -> None:
        namespace = event.occurrence.regarding.namespace or "default"
        if event.count > 1:
            try:
                await self._client.patch(EVENTS, event.name, self._repetition(event), namespace)
            except NotFound:
                pass  # the server keeps events for only an hour
            else:
                return
        await self._client.create(EVENTS, self._body(event, namespace), namespace)

    @staticmethod
    def _repetition(event: Correlated) -> dict[str, Any]:
        # Omit an empty message: a successful probe may print nothing.
        message = {"message": event.occurrence.message} if event.occurrence.message else {}
        return {"count": event.count, "lastTimestamp": rfc3339(event.last), **message}

    def _body(self, event: Correlated, namespace: str) -> dict[str, Any]:
        occurrence = event.occurrence
        regarding = occurrence.regarding
        involved = {
            "apiVersion": regarding.api_version,
            "kind": regarding.kind,
            "namespace": regarding.namespace,
            "name": regarding.name,
            "uid": regarding.uid,
            "resourceVersion": regarding.resource_version,
            "fieldPath": regarding.field_path,
        }
        source = {"component": self._component, "host": self._instance}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": event.name, "namespace": namespace},
            "involvedObject": {key: value for key, value in involved.items() if value},
            "type": occurrence.type,
            "reason": occurrence.reason,
            "firstTimestamp": rfc3339(event.first),
            "source": {key: value for key, value in source.items() if value},
            "reportingComponent": self._component,
            "reportingInstance": self._instance,
            **self._repetition(event),
        }

    def _drop(self, event: Correlated, why: str, level: int = logging.WARNING) -> None:
        occurrence = event.occurrence
        regarding = occurrence.regarding
        name = describe(regarding.kind, regarding.namespace, regarding.name)
        message = occurrence.message.encode("utf-8", "backslashreplace").decode()  # logging must not fail
        logger.log(level, "dropped event %s for %s: %s: %s", occurrence.reason, name, why, message)
