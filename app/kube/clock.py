"""Clock: the only door to time.

Everything in the toolkit that waits, stamps or measures does it through a :class:`Clock` it was given, so the same code
runs on the wall clock in production and on virtual time (``virtualtime.py``) in tests and simulations.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from typing import Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """What time it is, and how to wait for it to pass."""

    def now(self) -> datetime:
        """The date and time, aware, in UTC: what is written into objects."""
        ...

    def monotonic(self) -> float:
        """Seconds on a scale that never goes back: what durations are measured with."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Return after this many seconds (at once, but not before others had a turn, for zero and less)."""
        ...

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """The awaitable's result; after ``seconds`` it is cancelled and ``TimeoutError`` raised."""
        ...


class SystemClock:
    """The machine's clocks and the event loop's timers."""

    def now(self) -> datetime:
        """The wall clock."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """The monotonic clock."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """A timer of the event loop."""
        await asyncio.sleep(max(0.0, seconds))

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """A timer of the event loop around the awaitable."""
        async with asyncio.timeout(seconds):
            return await awaitable


def rfc3339(moment: datetime) -> str:
    """``metav1.Time`` as Kubernetes writes it: whole seconds, ``2026-01-02T03:04:05Z``."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="seconds")[:19] + "Z"


def rfc3339_micro(moment: datetime) -> str:
    """``metav1.MicroTime`` as Kubernetes writes it: six digits of a second (Lease, Event.eventTime)."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parsed_rfc3339(text: object) -> datetime | None:
    """The moment that a ``metav1.Time`` says, in UTC; None for anything else."""
    if not isinstance(text, str) or not 20 <= len(text) <= 40 or text[10] not in "Tt":
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None
