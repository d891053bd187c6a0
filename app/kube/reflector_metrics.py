"""What a reflector tells whoever counts."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol


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
