"""Work queue: keys to look at, each at most once at a time, later where asked, ever later where it fails.

A key added while it waits is not added twice; one added while it is worked on comes back when that work is done. So a
burst of events about one object costs one reconcile, and no two workers ever hold the same key.

Keys of different namespaces take turns, and failures of one namespace delay no other's: whoever has ten thousand
objects, or makes them fail, keeps nobody waiting but himself.
"""

from __future__ import annotations

import asyncio
import heapq
import sys
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from itertools import count
from typing import Final, Generic, Protocol, TypeVar

from app.kube.clock import Clock, TokenBucket
from app.kube.resources import ObjectKey

K = TypeVar("K", bound=Hashable)


class QueueShutDown(Exception):
    """The queue is shut down and empty: workers exit."""


@dataclass(frozen=True, slots=True)
class RateLimits:
    """How long a failing key waits: the longer of its own doubling delay and the wait for a token that all keys of its
    namespace share."""

    base_delay: float = 0.005
    max_delay: float = 1000.0
    qps: float = 10.0
    burst: int = 100


class QueueMetrics(Protocol):
    """Hooks for the ``workqueue_*`` metrics; ``name`` is the queue's."""

    def depth(self, name: str, keys: int) -> None: ...
    def added(self, name: str) -> None: ...
    def retried(self, name: str) -> None: ...
    def waited(self, name: str, seconds: float) -> None: ...
    def worked(self, name: str, seconds: float) -> None: ...


class NoMetrics:
    """Measures nothing."""

    def depth(self, name: str, keys: int) -> None: ...
    def added(self, name: str) -> None: ...
    def retried(self, name: str) -> None: ...
    def waited(self, name: str, seconds: float) -> None: ...
    def worked(self, name: str, seconds: float) -> None: ...


#: So many outdated entries of the heap, and as many as there are others, are no reason to make it anew.
_OUTDATED: Final = 64
#: Namespaces whose limits are remembered though none of their keys has failed for a while.
_MAX_BUCKETS: Final = 256


def _namespace(key: Hashable) -> str:
    return key.namespace if isinstance(key, ObjectKey) else ""


class WorkQueue(Generic[K]):
    """Keys of a namespace in the order they were added, those of several by turns. Each ``get`` is followed by one
    ``done`` for the same key."""

    def __init__(
        self,
        name: str,
        clock: Clock,
        limits: RateLimits | None = None,
        metrics: QueueMetrics | None = None,
        share: int = sys.maxsize,
    ) -> None:
        """``share``: how many keys of one namespace are worked on at once at most, for work that may take long."""
        self.name = name
        self._share = share
        self._clock = clock
        self._limits = limits if limits is not None else RateLimits()
        self._metrics = metrics if metrics is not None else NoMetrics()
        #: By namespace.
        self._buckets: dict[str, TokenBucket] = {}
        #: Keys that need work, with the time they were added: those in _ready, and those to come back when done.
        self._dirty: dict[K, float] = {}
        #: By namespace, that whose turn is next first; and all of them counted.
        self._ready: dict[str, deque[K]] = {}
        self._depth = 0
        #: Keys that are worked on, since when.
        self._processing: dict[K, float] = {}
        #: How many of them, by namespace.
        self._working: dict[str, int] = {}
        #: Keys to add later: the earliest time of each, and a heap that may hold outdated entries beside it.
        self._due: dict[K, float] = {}
        self._heap: list[tuple[float, int, K]] = []
        self._order = count()
        self._timer: asyncio.Task[None] | None = None
        self._timer_at = 0.0
        #: Keys whose last work failed: how often in a row, and since when.
        self._failures: dict[K, tuple[int, float]] = {}
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._shut_down = False

    # ---- adding

    def add(self, key: K) -> None:
        """The key needs work now."""
        if self._shut_down or key in self._dirty:
            return
        self._dirty[key] = self._clock.monotonic()
        self._metrics.added(self.name)
        if key not in self._processing:
            self._push(key)

    def add_after(self, key: K, seconds: float) -> float:
        """Add the key after ``seconds``, unless it is due earlier. Returns the seconds until it is worked on again."""
        if self._shut_down:
            return seconds
        if seconds <= 0:
            self.add(key)
            return 0.0
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
        """Add a key that failed: after ``retry_in`` seconds if given, otherwise after its growing back-off. Returns the
        seconds until it is worked on again."""
        limits, now = self._limits, self._clock.monotonic()
        failures, since = self._failures.get(key, (0, now))
        self._failures[key] = (failures + 1, since)
        self._metrics.retried(self.name)
        # 2**60 times any base is past every sensible maximum; larger exponents only cost big integers.
        own: float = min(limits.base_delay * 2 ** min(failures, 60), limits.max_delay)
        # Changes bring a failing key back before its time. None waits longer than it has been failing, or a burst of
        # them in one bad second would make it wait for a quarter of an hour.
        own = min(own, limits.base_delay + (now - since))
        return self.add_after(key, retry_in or max(own, self._bucket(key).reserve()))

    def forget(self, key: K) -> None:
        """The key succeeded: its next failure starts with the shortest delay again."""
        self._failures.pop(key, None)

    def failures(self, key: K) -> int:
        """How often the key failed in a row."""
        return self._failures[key][0] if key in self._failures else 0

    # ---- working

    async def get(self) -> K:
        """Wait for a key and take it. Raises ``QueueShutDown`` when there will be no more."""
        while (namespace := self._next()) is None:
            if self._shut_down:
                raise QueueShutDown(self.name)
            waiter = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except asyncio.CancelledError:
                if waiter.done() and not waiter.cancelled():
                    self._wake()  # the key this one was woken for goes to another
                raise
            finally:
                if waiter in self._waiters:
                    self._waiters.remove(waiter)
        key = self._pop(namespace)
        now = self._clock.monotonic()
        self._processing[key] = now
        self._working[namespace] = self._working.get(namespace, 0) + 1
        self._metrics.waited(self.name, now - self._dirty.pop(key))
        self._metrics.depth(self.name, self._depth)
        return key

    def done(self, key: K) -> None:
        """The work on the key has ended, whatever came of it."""
        self._metrics.worked(self.name, self._clock.monotonic() - self._processing.pop(key))
        namespace = _namespace(key)
        self._working[namespace] -= 1
        if not self._working[namespace]:
            del self._working[namespace]
        if key in self._dirty:
            self._push(key)
        elif namespace in self._ready:
            self._wake()  # others of it may have waited for this one

    def shut_down(self) -> None:
        """Take no more keys and forget those for later; what is ready may still be taken."""
        self._shut_down = True
        self._due.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiters:
            self._wake()

    def __len__(self) -> int:
        return self._depth

    @property
    def processing(self) -> dict[K, float]:
        """Keys that are worked on now and since when (on the clock's monotonic scale)."""
        return dict(self._processing)

    @property
    def failing(self) -> dict[K, tuple[int, float]]:
        """Keys whose last work failed: how often in a row, and when they are due again (monotonic; 0: now)."""
        return {key: (failures, self._due.get(key, 0.0)) for key, (failures, _) in self._failures.items()}

    # ---- how

    def _push(self, key: K) -> None:
        self._ready.setdefault(_namespace(key), deque()).append(key)
        self._depth += 1
        self._metrics.depth(self.name, self._depth)
        self._wake()

    def _next(self) -> str | None:
        """The namespace whose turn it is."""
        return next((name for name in self._ready if self._working.get(name, 0) < self._share), None)

    def _pop(self, namespace: str) -> K:
        """The next key of the namespace, which then stands last in line."""
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
        """One sleeping task until the earliest time; started anew only for an earlier one."""
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
        # Timers of the loop may fire a little early: what is due within a millisecond is due.
        while self._heap and self._heap[0][0] <= now + 0.001:
            due, _, key = heapq.heappop(self._heap)
            if self._due.get(key) == due:
                del self._due[key]
                self.add(key)
        self._set_timer()
