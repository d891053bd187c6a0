"""Time: the clock interface, RFC 3339 timestamps, back-off and rate limits.

The toolkit waits and measures time only through a :class:`Clock` that is passed in, so the same code runs on the system
clock in production and on virtual time in tests and simulations.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from random import Random
from typing import Final, Protocol, TypeVar

T = TypeVar("T")


class Clock(Protocol):
    """Current time and timers."""

    def now(self) -> datetime:
        """Return the current UTC time (timezone-aware), for timestamps in objects."""
        ...

    def monotonic(self) -> float:
        """Return seconds on a clock that never goes backwards, for measuring durations."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Sleep for the given seconds. Zero or less yields to other tasks once."""
        ...

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        """Return the awaitable's result. After ``seconds``, cancel it and raise ``TimeoutError``."""
        ...


class SystemClock:
    """The system clock and the timers of the event loop."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def wait_for(self, awaitable: Awaitable[T], seconds: float) -> T:
        async with asyncio.timeout(seconds):
            return await awaitable


def rfc3339(moment: datetime) -> str:
    """Return a ``metav1.Time`` as Kubernetes writes it: whole seconds, ``2026-01-02T03:04:05Z``."""
    if moment.tzinfo is not UTC:
        moment = moment.astimezone(UTC)
    return moment.isoformat(timespec="seconds")[:19] + "Z"


def rfc3339_micro(moment: datetime) -> str:
    """Return a ``metav1.MicroTime`` as Kubernetes writes it, with microseconds (Lease, Event.eventTime)."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def parsed_rfc3339(text: object) -> datetime | None:
    """Parse a ``metav1.Time`` into UTC. Returns None if it is not valid."""
    if not isinstance(text, str) or not 20 <= len(text) <= 40 or text[10] not in "Tt":
        return None
    try:
        found = datetime.fromisoformat(text)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


#: Maximum attempts for a write that conflicts with a newer object. The last conflict is raised.
CONFLICT_ATTEMPTS: Final = 4


def conflict_wait(attempt: int) -> float:
    """Return the seconds to wait after attempt number ``attempt`` (0, 1, 2 …) ended in a conflict. Each wait is five
    times the previous one."""
    return 0.01 * 5.0**attempt


class Backoff:
    """Delays ``base``, ``base·2``, … up to ``cap``, each increased by a random amount of up to its own length."""

    def __init__(self, rng: Random, *, base: float, cap: float = 30.0) -> None:
        self._rng = rng
        self._base = base
        self._cap = cap
        self._next = base

    def next(self) -> float:
        """Return the next delay in seconds."""
        delay = self._next
        self._next = min(self._cap, delay * 2)
        return delay * (1 + self._rng.random())

    def reset(self) -> None:
        """Start over with ``base`` after a success."""
        self._next = self._base


class TokenBucket:
    """A token bucket that starts full. A token may be reserved before it is available; the caller then waits for it."""

    def __init__(self, clock: Clock, *, qps: float, burst: float) -> None:
        if qps <= 0 or burst <= 0:
            raise ValueError(f"qps and burst of a token bucket must be greater than 0, not {qps} and {burst}")
        self._clock = clock
        self._qps = qps
        self._burst = burst
        self._tokens = self._burst
        self._filled_at = clock.monotonic()

    def limit(self, *, qps: float, burst: float) -> None:
        self._fill()
        self._qps, self._burst = qps, burst

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now

    @property
    def full(self) -> bool:
        """Return whether the bucket is full, in which case its state need not be kept."""
        self._fill()
        return self._tokens >= self._burst

    def reserve(self) -> float:
        """Reserve a token and return the seconds until it may be used."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._qps)

    def try_take(self) -> bool:
        self._fill()
        # The sum of many small refills may be just short of a whole token due to rounding.
        if self._tokens < 1 - 1e-9:
            return False
        self._tokens -= 1
        return True

    async def take(self) -> None:
        """Reserve a token and wait until it is available."""
        if delay := self.reserve():
            await self._clock.sleep(delay)


class RejectingBucket(TokenBucket):
    """A token bucket that rejects a caller instead of making it wait too long. A rejected caller takes no token, so
    that a flood of requests does not delay others."""

    def __init__(self, clock: Clock, *, qps: float, burst: float, longest: float) -> None:
        super().__init__(clock, qps=qps, burst=burst)
        self._longest = longest

    def reserve(self) -> float:
        """Reserve a token and return the seconds until it may be used. Raises TimeoutError if that is too long."""
        self._fill()
        if (1 - self._tokens) / self._qps > self._longest:
            raise TimeoutError("too many requests to the API server: try again later")
        return super().reserve()
