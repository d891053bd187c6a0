"""Record Kubernetes events without waiting, and combine those that repeat."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Generic, Literal, Protocol, TypeVar
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
from app.kube.text import printable

# Event correlation: which events become new objects, which raise a count, and which are too many to be told at all.
#
# The rules every Kubernetes component follows, as data in and data out:
#
# * the same event again (object, type, reason, message) raises the count of the first;
# * from the tenth different message of one object, type and reason within ten minutes on, they share one event, whose
#   message starts with ``(combined from similar events): ``;
# * an object may cause 25 events at once and then one in five minutes; more are dropped.

V = TypeVar("V")

COMBINED_PREFIX = "(combined from similar events): "
SIMILAR_LIMIT = 10
SIMILAR_WINDOW_SECONDS = 600.0
SPAM_BURST = 25
SPAM_QPS = 1 / 300
#: Objects, and events, that are remembered; the least recently used are forgotten.
MEMORY = 4096
#: The longest name an object can have.
MAX_NAME = 253


@dataclass(frozen=True, slots=True)
class Occurrence:
    """Something happened to an object."""

    regarding: ObjectReference
    type: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Correlated:
    """What to write: a new event of this name (``count`` 1), or the count, message and time of that one."""

    occurrence: Occurrence
    name: str
    count: int
    first: datetime
    last: datetime


class _Recent(Generic[V]):
    """A dict that forgets what was not used for longest."""

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
    """Remembers recent events; ``now`` is handed in with each. ``recorder``: who tells of them."""

    def __init__(self, recorder: str = "") -> None:
        self._similar: _Recent[_Similar] = _Recent(MEMORY)
        self._seen: _Recent[_Seen] = _Recent(MEMORY)
        self._allowances: _Recent[_Allowance] = _Recent(MEMORY)
        self._last_suffix = 0
        self._offset = crc32(recorder.encode()) % 1000

    def correlate(self, occurrence: Occurrence, now: datetime) -> Correlated | None:
        """What to write for it, None to drop it."""
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
        """The event to write it into, and the key of that event."""
        group = (_identity(occurrence.regarding), occurrence.type, occurrence.reason)
        similar = self._similar.get(group)
        if similar is None or (now - similar.last).total_seconds() > SIMILAR_WINDOW_SECONDS:
            similar = _Similar(OrderedDict(), now)
            self._similar.put(group, similar)
        similar.messages[occurrence.message] = None
        similar.last = now
        if len(similar.messages) < SIMILAR_LIMIT:
            return occurrence, (*group, occurrence.regarding.field_path, occurrence.message)
        similar.messages.popitem(last=False)  # so that the set stays one short of the limit
        message = COMBINED_PREFIX + occurrence.message
        return Occurrence(occurrence.regarding, occurrence.type, occurrence.reason, message), group

    def _allow(self, regarding: ObjectReference, now: datetime) -> bool:
        key = _identity(regarding)
        allowance = self._allowances.get(key)
        if allowance is None:
            allowance = _Allowance(float(SPAM_BURST), now)
            self._allowances.put(key, allowance)
        refill = (now - allowance.at).total_seconds() * SPAM_QPS
        allowance.tokens = min(float(SPAM_BURST), allowance.tokens + refill)
        allowance.at = now
        if allowance.tokens < 1:
            return False
        allowance.tokens -= 1
        return True

    def _name(self, regarding: str, now: datetime) -> str:
        """``<object>.<hexadecimal time>``, never the same twice even within one tick of the clock."""
        # The last three digits are the recorder's own: two that tell of one object in one tick do not meet.
        self._last_suffix = max(self._last_suffix + 1000, int(now.timestamp() * 1_000_000) * 1000 + self._offset)
        suffix = f".{self._last_suffix:x}"
        return regarding[: MAX_NAME - len(suffix)].rstrip("-.") + suffix


def _identity(reference: ObjectReference) -> Hashable:
    return (reference.api_version, reference.kind, reference.namespace, reference.name, reference.uid)


# Events: tell people what was done to an object, where ``kubectl describe`` shows it.
#
# Recording never waits and never fails: events go to a queue, and a task sends them. What cannot be sent is dropped
# with a line in the log, for nothing may depend on an event.

logger = logging.getLogger(__name__)

#: Events that may wait to be sent; more are dropped.
QUEUE_SIZE = 1000
#: An event that the server rejects is sent this often, this far apart.
ATTEMPTS = 12
RETRY_SECONDS = 10.0
#: The longest message the API server takes.
MAX_MESSAGE = 1024

#: The reason of the Warning event on an object whose spec cannot be read; the message begins with the field.
INVALID_SPEC: Final = "InvalidSpec"


class EventMetrics(Protocol):
    """Hooks for counting."""

    def sent(self) -> None: ...
    def dropped(self) -> None: ...


class NoMetrics:
    """Counts nothing."""

    def sent(self) -> None: ...
    def dropped(self) -> None: ...


def reference(resource: Resource, obj: Object, field_path: str = "") -> ObjectReference:
    """How an event names the object; ``field_path`` may point into it (``spec.containers{main}``)."""
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


class EventRecorder:
    """Records events as one component; ``run`` it as a task beside whatever records."""

    def __init__(
        self, client: Client, component: str, *, instance: str = "", metrics: EventMetrics | None = None
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._component = component
        self._instance = instance
        self._metrics = metrics if metrics is not None else NoMetrics()
        self._correlator = EventCorrelator(f"{component} {instance}")
        self._queue: asyncio.Queue[Correlated] = asyncio.Queue(QUEUE_SIZE)

    def event(self, regarding: ObjectReference, type_: Literal["Normal", "Warning"], reason: str, message: str) -> None:
        """Something happened to the object. ``reason`` is one CamelCase word, ``message`` a sentence."""
        if max(map(len, (regarding.namespace, regarding.name, regarding.uid, regarding.resource_version))) > MAX_NAME:
            # There is no such object, but whoever reaches a webhook can make it up, and what is told is remembered.
            self._metrics.dropped()
            return
        # Messages quote what others wrote, as the output of a probe, which ends with a line break, and are shown on the
        # terminals of whoever looks at the object.
        message = printable(message[: MAX_MESSAGE + 1])
        if len(message) > MAX_MESSAGE:
            message = message[: MAX_MESSAGE - 1] + "…"
        correlated = self._correlator.correlate(Occurrence(regarding, type_, reason, message), self._clock.now())
        if correlated is None:
            self._metrics.dropped()
            return
        try:
            self._queue.put_nowait(correlated)
        except asyncio.QueueFull:
            self._drop(correlated, f"{QUEUE_SIZE} events are waiting already")

    async def run(self) -> None:
        """Send events until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._send(event)
            except Exception as error:  # noqa: BLE001 - a mistake over one event must not keep others from being told
                self._drop(event, f"{type(error).__name__}: {error}")
            finally:
                self._queue.task_done()

    async def flush(self, seconds: float) -> bool:
        """Wait until all recorded events are sent, but no longer than this; whether they are."""
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
                self._metrics.sent()
                return
        self._drop(event, str(error))

    async def _write(self, event: Correlated) -> None:
        namespace = event.occurrence.regarding.namespace or "default"
        if event.count > 1:
            try:
                await self._client.patch(EVENTS, event.name, self._repetition(event), namespace)
            except NotFound:
                pass  # the server keeps events for an hour only
            else:
                return
        await self._client.create(EVENTS, self._body(event, namespace), namespace)

    @staticmethod
    def _repetition(event: Correlated) -> dict[str, Any]:
        # Nothing to say is not said: a probe that prints nothing has succeeded too.
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
        self._metrics.dropped()
        occurrence = event.occurrence
        regarding = occurrence.regarding
        name = describe(regarding.kind, regarding.namespace, regarding.name)
        message = occurrence.message.encode("utf-8", "backslashreplace").decode()  # a log must take whatever it says
        logger.log(level, "event %s of %s is dropped: %s: %s", occurrence.reason, name, why, message)
