"""Event correlation: which events become new objects, which raise a count, and which are too many to be told at all.

The rules every Kubernetes component follows, as data in and data out:

* the same event again (object, type, reason, message) raises the count of the first;
* from the tenth different message of one object, type and reason within ten minutes on, they share one event, whose
  message starts with ``(combined from similar events): ``;
* an object may cause 25 events at once and then one in five minutes; more are dropped.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, TypeVar
from zlib import crc32

from app.kube.objects import ObjectReference

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
