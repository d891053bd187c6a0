"""Time: the clock that everything takes as a parameter, RFC 3339 texts, back-off and rate limits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from datetime import UTC, datetime
from random import Random
from typing import Final, Protocol, TypeVar

# Clock: the only door to time.
#
# Everything in the toolkit that waits, stamps or measures does it through a :class:`Clock` it was given, so the same
# code runs on the wall clock in production and on virtual time (``virtualtime.py``) in tests and simulations.

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


#: Tries of a write that meets a newer object each time; after the last the conflict is the caller's.
CONFLICT_ATTEMPTS: Final = 4


def conflict_wait(attempt: int) -> float:
    """Seconds to wait after such a try (0, 1, 2 …) that met a newer object, each time five times as long."""
    return 0.01 * 5.0**attempt


class Backoff:
    """Delays ``base``, ``base·2``, … up to ``cap``, each lengthened by up to ``jitter`` times itself."""

    def __init__(self, rng: Random, *, base: float = 0.8, cap: float = 30.0, jitter: float = 1.0) -> None:
        self._rng = rng
        self._base = base
        self._cap = cap
        self._jitter = jitter
        self._next = base

    def next(self) -> float:
        """Seconds to wait now; the following answer will be longer."""
        delay = self._next
        self._next = min(self._cap, delay * 2)
        return delay * (1 + self._rng.random() * self._jitter)

    def reset(self) -> None:
        """It worked: start over with ``base``."""
        self._next = self._base


class TokenBucket:
    """The bucket starts full. A token may be taken before it is there; then the taker is told how long to wait."""

    def __init__(self, clock: Clock, *, qps: float, burst: int) -> None:
        if qps <= 0 or burst <= 0:
            raise ValueError(f"a token bucket needs qps and burst above zero, not {qps} and {burst}")
        self._clock = clock
        self._qps = qps
        self._burst = float(burst)
        self._tokens = self._burst
        self._filled_at = clock.monotonic()

    def limit(self, *, qps: float, burst: int) -> None:
        """Another rate from now on."""
        self._fill()
        self._qps, self._burst = qps, float(burst)
        self._tokens = min(self._tokens, self._burst)

    def _fill(self) -> None:
        now = self._clock.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._filled_at) * self._qps)
        self._filled_at = now

    @property
    def full(self) -> bool:
        """Whether nothing is remembered of who took tokens."""
        self._fill()
        return self._tokens >= self._burst

    def reserve(self) -> float:
        """Take a token for sure; the seconds until it may be used."""
        self._fill()
        self._tokens -= 1
        return max(0.0, -self._tokens / self._qps)

    def try_take(self) -> bool:
        """Take a token only if one is there."""
        self._fill()
        # The sum of many small refills may fall short of a whole token by a rounding error.
        if self._tokens < 1 - 1e-9:
            return False
        self._tokens -= 1
        return True

    async def take(self) -> None:
        """Take a token and wait until it may be used."""
        if delay := self.reserve():
            await self._clock.sleep(delay)


class RejectingBucket(TokenBucket):
    """A bucket for unknown callers: whoever would wait for long is rejected and takes no token, so that a
    flood does not run into a debt that others pay."""

    def __init__(self, clock: Clock, *, qps: float, burst: int, longest: float) -> None:
        super().__init__(clock, qps=qps, burst=burst)
        self._longest = longest

    async def take(self) -> None:
        """Take a token and wait until it may be used. Raises TimeoutError where that would take too long."""
        self._fill()
        if -self._tokens / self._qps > self._longest:
            raise TimeoutError("too many requests to the API server: try again")
        await super().take()
