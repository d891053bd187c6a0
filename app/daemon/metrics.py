"""What the agent counts: its process, its requests and its work queues (KD-4)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any, Final

from prometheus_client import (
    GC_COLLECTOR,
    PLATFORM_COLLECTOR,
    REGISTRY,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from app.kube.clock import Clock
from app.kube.queue import WorkQueue

#: Those of every work queue written in Go: from 10 ns to 10 s.
_BUCKETS: Final = tuple(10.0**power for power in range(-8, 2))


class Metrics:
    """One per process. The hooks of queues, controllers and transport count here."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """``registry``: the one that has what is told of the process."""
        if registry is REGISTRY:
            for collector in (GC_COLLECTOR, PLATFORM_COLLECTOR):
                registry.unregister(collector)
        self._registry = registry
        of_queue: dict[str, Any] = {"labelnames": ["name"], "registry": registry}
        timed = {**of_queue, "buckets": _BUCKETS}
        self._depth = Gauge("workqueue_depth", "Keys that are ready.", **of_queue)
        self._adds = Counter("workqueue_adds_total", "Keys that were added.", **of_queue)
        self._retries = Counter("workqueue_retries_total", "Keys that failed and come back.", **of_queue)
        self._waits = Histogram("workqueue_queue_duration_seconds", "Seconds that a key was ready.", **timed)
        self._works = Histogram("workqueue_work_duration_seconds", "Seconds that a key was worked on.", **timed)
        self._unfinished = Gauge(
            "workqueue_unfinished_work_seconds", "Seconds that keys have been worked on by now.", **of_queue
        )
        self._longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Seconds that the key has been worked on that takes longest by now.",
            **of_queue,
        )
        self._reconciles = Counter(
            "controller_runtime_reconcile_total",
            "Reconciles by what came of them.",
            ["controller", "result"],
            registry=registry,
        )
        self._panics = Counter(
            "controller_runtime_reconcile_panics_total", "Mistakes of the agent.", ["controller"], registry=registry
        )
        self._requests = Counter(
            "rest_client_requests_total", "Requests to the API server.", ["code", "method", "host"], registry=registry
        )

    def exposition(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(self._registry)

    def on_response(self, code: str, method: str, host: str) -> None:
        """An answer of the API server."""
        self._requests.labels(code, method, host).inc()

    # ---- queues

    def observe(self, queues: Iterable[WorkQueue[Any]], clock: Clock) -> None:
        """Tell of these from the start, and of what they are at."""

        def since(queue: WorkQueue[Any]) -> list[float]:
            now = clock.monotonic()
            return [now - began for began in queue.processing.values()]

        def unfinished(queue: WorkQueue[Any]) -> float:
            return sum(since(queue))

        def longest(queue: WorkQueue[Any]) -> float:
            return max(since(queue), default=0.0)

        for queue in queues:
            for one in (self._depth, self._adds, self._retries, self._waits, self._works):
                one.labels(queue.name)
            self._unfinished.labels(queue.name).set_function(partial(unfinished, queue))
            self._longest.labels(queue.name).set_function(partial(longest, queue))

    def depth(self, name: str, keys: int) -> None:
        """So many keys are ready."""
        self._depth.labels(name).set(keys)

    def added(self, name: str) -> None:
        """A key was added."""
        self._adds.labels(name).inc()

    def retried(self, name: str) -> None:
        """A key failed."""
        self._retries.labels(name).inc()

    def waited(self, name: str, seconds: float) -> None:
        """A key was ready for so long."""
        self._waits.labels(name).observe(seconds)

    def worked(self, name: str, seconds: float) -> None:
        """A key was worked on for so long."""
        self._works.labels(name).observe(seconds)

    # ---- controllers

    def reconciled(self, controller: str, result: str, seconds: float) -> None:  # noqa: ARG002 - of the protocol
        """A reconcile has ended."""
        self._reconciles.labels(controller, result).inc()

    def active_workers(self, controller: str, workers: int) -> None:
        """Not told: a queue's depth says more."""

    def panicked(self, controller: str) -> None:
        """A mistake of ours."""
        self._panics.labels(controller).inc()
