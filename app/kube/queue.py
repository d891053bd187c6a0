"""Work queue: deduplicates keys, delays them, and backs off per key.

A key added while it waits is not added twice; a key added while it is processed is queued again afterwards. A burst of
events about one object therefore causes a single reconcile, and a key is never processed twice at once.

Keys of different namespaces take turns, and failures in one namespace do not delay others: a tenant with ten thousand
objects, or with failing ones, delays only itself.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, TypeVar

from app.kube.clock import Clock, TokenBucket
from app.kube.resources import ObjectKey

K = TypeVar("K", bound=Hashable)


class QueueShutDown(Exception):
    """The queue is shut down and empty: workers exit."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """Back-off of a failing key: the longer of its own doubling delay and the wait for a token from its namespace's
    bucket. The manager's ``--rate-limiter`` flags have these defaults."""

    base_delay: float = 0.005
    max_delay: float = 1000.0
    qps: float = 10.0
    burst: int = 100


class QueueMetrics:
    """Hooks for the ``workqueue_*`` metrics. This base class does nothing."""

    def depth(self, name: str, keys: int) -> None: ...
    def added(self, name: str) -> None: ...
    def retried(self, name: str) -> None: ...
    def waited(self, name: str, seconds: float) -> None: ...
    def worked(self, name: str, seconds: float) -> None: ...


#: Timers of the event loop may fire a little early: keys that are due within these seconds are ready.
_EARLY: Final = 0.001
#: The heap is rebuilt when its outdated entries outnumber the current ones by more than this.
_OUTDATED: Final = 64
#: Maximum number of namespaces whose rate limits are kept after their keys stop failing.
_MAX_BUCKETS: Final = 256


def _namespace(key: Hashable) -> str:
    return key.namespace if isinstance(key, ObjectKey) else ""


class WorkQueue(Generic[K]):
    """Keys in the order they were added, with namespaces taking turns. Each ``get`` is followed by one ``done`` for the
    same key."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        limits: RateLimits | None = None,
        metrics: QueueMetrics | None = None,
        share: int = sys.maxsize,
    ) -> None:
        """Create a queue. ``share`` limits how many keys of one namespace are processed at once. It does not limit
        cluster-scoped keys."""
        self.name = name
        self._share = share
        self._clock = clock
        self._limits = limits if limits is not None else RateLimits()
        self._metrics = metrics if metrics is not None else QueueMetrics()
        #: Rate limits of failing keys, by namespace.
        self._buckets: dict[str, TokenBucket] = {}
        #: Keys that need work, with the time they were added: those in _ready, and those being processed that must be
        #: requeued afterwards.
        self._dirty: dict[K, float] = {}
        #: Ready keys by namespace, the next namespace first, and their total count.
        self._ready: dict[str, deque[K]] = {}
        self._depth = 0
        #: Keys being processed, with their start times.
        self._processing: dict[K, float] = {}
        #: Number of keys being processed, by namespace.
        self._working: dict[str, int] = {}
        #: Delayed keys with their earliest times, and a heap that may also contain outdated entries.
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()
        self._timer: asyncio.Task[None] | None = None
        self._timer_at = 0.0
        #: Keys whose last attempt failed, with the number of consecutive failures and the time of the first failure.
        self._failures: dict[K, tuple[int, float]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False

    # ---- adding

    def add(self, key: K) -> None:
        if self._shut_down or key in self._dirty:
            return
        self._dirty[key] = self._clock.monotonic()
        self._metrics.added(self.name)
        if key not in self._processing:
            self._push(key)

    def add_after(self, key: K, seconds: float) -> float:
        """Add the key after ``seconds``, unless it is scheduled earlier. Returns the seconds until then."""
        if self._shut_down:
            return seconds
        if seconds <= 0:
            self.add(key)
            return 0.0
        # A delay that is only a rounding error would expire at once, and the key would be requeued again and again.
        seconds = max(seconds, _EARLY)
        now = self._clock.monotonic()
        due = now + seconds
        again = 0.0 if key in self._dirty else min(seconds, max(0.0, self._due.get(key, due) - now))
        if key in self._due and self._due[key] <= due:
            return again
        self._due[key] = due
        heapq.heappush(self._heap, (due, next(self._order), key))
        if len(self._heap) > 2 * len(self._due) + _OUTDATED:
            self._heap = [(due, next(self._order), key) for key, due in self._due.items()]
            heapq.heapify(self._heap)
        self._set_timer()
        return again

    def add_rate_limited(self, key: K, retry_in: float = 0.0) -> float:
        """Add a failed key after ``retry_in`` seconds if given, otherwise after its back-off. Returns the seconds until
        then."""
        limits, now = self._limits, self._clock.monotonic()
        failures, since = self._failures.get(key, (0, now))
        self._failures[key] = (failures + 1, since)
        self._metrics.retried(self.name)
        # 2**60 times any base exceeds every sensible maximum; larger exponents would only create big integers.
        own: float = min(limits.base_delay * 2 ** min(failures, 60), limits.max_delay)
        # Each change causes an early retry of a failing key, and each failed retry counts. The delay never exceeds the
        # time for which the key has been failing; otherwise, a burst of changes would delay the key by a quarter of an
        # hour.
        own = min(own, limits.base_delay + (now - since))
        return self.add_after(key, retry_in or max(own, self._bucket(key).reserve()))

    def forget(self, key: K) -> None:
        """Reset the back-off of a key that succeeded."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """Return the number of consecutive failures of the key."""
        return self._failures[key][0] if key in self._failures else 0

    # ---- working

    async def get(self) -> K:
        """Wait for a key and take it. Raises ``QueueShutDown`` when the queue is shut down and empty."""
        while (namespace := self._next()) is None:
            if self._shut_down:
                raise QueueShutDown(self.name)
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # another worker gets the key that this one was woken for
                raise
        key = self._pop(namespace)
        now = self._clock.monotonic()
        self._processing[key] = now
        self._working[namespace] = self._working.get(namespace, 0) + 1
        self._metrics.waited(self.name, now - self._dirty.pop(key))
        self._metrics.depth(self.name, self._depth)
        return key

    def done(self, key: K) -> None:
        """Mark the key as done, whether it succeeded or not."""
        self._metrics.worked(self.name, self._clock.monotonic() - self._processing.pop(key))
        namespace = _namespace(key)
        self._working[namespace] -= 1
        if not self._working[namespace]:
            del self._working[namespace]
        if key in self._dirty:
            self._push(key)
        elif namespace in self._ready:
            self._wake()  # More keys of its namespace may have waited for this one.

    def shut_down(self) -> None:
        """Accept no more keys and drop the delayed ones; ready keys may still be taken."""
        self._shut_down = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiters:
            self._wake()

    def __len__(self) -> int:
        return self._depth

    @property
    def processing(self) -> dict[K, float]:
        """Return the keys being processed and their start times (on the monotonic clock)."""
        return dict(self._processing)

    def seconds_in_progress(self) -> list[float]:
        """Return how long each key being processed has taken so far."""
        now = self._clock.monotonic()
        return [now - began for began in self.processing.values()]

    @property
    def failing(self) -> dict[K, tuple[int, float]]:
        """Return the keys whose last attempt failed, with the number of consecutive failures and the time of the next
        attempt (monotonic; 0 means now)."""
        return {key: (failures, self._due.get(key, 0.0)) for key, (failures, _) in self._failures.items()}

    # ---- internals

    def _push(self, key: K) -> None:
        self._ready.setdefault(_namespace(key), deque()).append(key)
        self._depth += 1
        self._metrics.depth(self.name, self._depth)
        self._wake()

    def _next(self) -> str | None:
        """Return the namespace whose turn it is."""
        return next((name for name in self._ready if not name or self._working.get(name, 0) < self._share), None)

    def _pop(self, namespace: str) -> K:
        """Take the next key of the namespace, and move the namespace to the end of the queue."""
        keys = self._ready.pop(namespace)
        key = keys.popleft()
        if keys:
            self._ready[namespace] = keys
        self._depth -= 1
        return key

    def _bucket(self, key: K) -> TokenBucket:
        namespace = _namespace(key)
        found = self._buckets.get(namespace)
        if found is None:
            if len(self._buckets) >= _MAX_BUCKETS:
                self._buckets = {name: one for name, one in self._buckets.items() if not one.full}
            found = self._buckets[namespace] = TokenBucket(self._clock, qps=self._limits.qps, burst=self._limits.burst)
        return found

    def _wake(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _set_timer(self) -> None:
        """Ensure that a timer runs for the earliest delayed key."""
        if not self._heap:
            return
        due = self._heap[0][0]
        if self._timer is not None and not self._timer.done():
            if self._timer_at <= due:
                return
            self._timer.cancel()
        self._timer_at = due
        self._timer = asyncio.get_running_loop().create_task(self._add_due(due), name=f"queue {self.name}: timer")

    async def _add_due(self, at: float) -> None:
        await self._clock.sleep(at - self._clock.monotonic())
        self._timer = None
        now = self._clock.monotonic()
        while self._heap and self._heap[0][0] <= now + _EARLY:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._set_timer()
