"""Metrics and health endpoint of the node agent."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable
from contextlib import suppress
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

from app.kube.controller import ControllerMetrics
from app.kube.queue import QueueMetrics, WorkQueue

# Metrics of the process, its API requests and its work queues. [KD-4]

#: Buckets of client-go's work queues: 10 ns to 10 s.
_BUCKETS: Final = tuple(10.0**power for power in range(-8, 2))


class Metrics(ControllerMetrics, QueueMetrics):
    """Metrics of one process; implements the hooks of queues, controllers and the transport."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, registry: CollectorRegistry = REGISTRY) -> None:
        """Register the metrics in ``registry``, which also holds the process metrics."""
        if registry is REGISTRY:
            for collector in (GC_COLLECTOR, PLATFORM_COLLECTOR):
                registry.unregister(collector)
        self._registry = registry
        of_queue: dict[str, Any] = {"labelnames": ["name"], "registry": registry}
        timed = {**of_queue, "buckets": _BUCKETS}
        self._depth = Gauge("workqueue_depth", "Current depth of the work queue.", **of_queue)
        self._adds = Counter("workqueue_adds_total", "Total number of keys added to the work queue.", **of_queue)
        self._retries = Counter("workqueue_retries_total", "Total number of retries of failed keys.", **of_queue)
        self._waits = Histogram(
            "workqueue_queue_duration_seconds", "Seconds a key waits before it is processed.", **timed
        )
        self._works = Histogram("workqueue_work_duration_seconds", "Seconds it takes to process a key.", **timed)
        self._unfinished = Gauge(
            "workqueue_unfinished_work_seconds", "Total seconds of work in progress on keys.", **of_queue
        )
        self._longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Seconds the longest running worker has been processing its key.",
            **of_queue,
        )
        self._reconciles = Counter(
            "controller_runtime_reconcile_total",
            "Total number of reconciles by result.",
            ["controller", "result"],
            registry=registry,
        )
        self._panics = Counter(
            "controller_runtime_reconcile_panics_total", "Total number of panics.", ["controller"], registry=registry
        )
        self._requests = Counter(
            "rest_client_requests_total",
            "Total number of requests to the API server.",
            ["code", "method", "host"],
            registry=registry,
        )

        self._plugin_errors = Counter(
            "credential_provider_plugin_errors_total",
            "Total number of failed runs of credential provider plugins.",
            ["plugin_name"],
            registry=registry,
        )

    def exposition(self) -> bytes:
        return generate_latest(self._registry)

    def on_response(self, code: str, method: str, host: str) -> None:
        self._requests.labels(code, method, host).inc()

    def plugin_failed(self, name: str) -> None:
        self._plugin_errors.labels(name).inc()

    # ---- queues

    def observe(self, queues: Iterable[WorkQueue[Any]]) -> None:
        """Export metrics of these queues, including work in progress, even before their first key."""

        def unfinished(queue: WorkQueue[Any]) -> float:
            return sum(queue.seconds_in_progress())

        def longest(queue: WorkQueue[Any]) -> float:
            return max(queue.seconds_in_progress(), default=0.0)

        for queue in queues:
            for one in (self._depth, self._adds, self._retries, self._waits, self._works):
                one.labels(queue.name)
            self._unfinished.labels(queue.name).set_function(partial(unfinished, queue))
            self._longest.labels(queue.name).set_function(partial(longest, queue))

    def depth(self, name: str, keys: int) -> None:
        self._depth.labels(name).set(keys)

    def added(self, name: str) -> None:
        self._adds.labels(name).inc()

    def retried(self, name: str) -> None:
        self._retries.labels(name).inc()

    def waited(self, name: str, seconds: float) -> None:
        self._waits.labels(name).observe(seconds)

    def worked(self, name: str, seconds: float) -> None:
        self._works.labels(name).observe(seconds)

    # ---- controllers

    def reconciled(self, controller: str, result: str, seconds: float) -> None:  # noqa: ARG002 - of the protocol
        self._reconciles.labels(controller, result).inc()

    def active_workers(self, controller: str, workers: int) -> None:
        """Do nothing: the queue depth is more informative."""

    def panicked(self, controller: str) -> None:
        self._panics.labels(controller).inc()


# HTTP server for ``/healthz`` and ``/metrics``, small because it runs on every node. [KD-4]

_SECONDS: Final = 5.0
_MAX_HEAD: Final = 8192
#: Maximum number of open connections. The port is on the node's address, so any Pod can connect; the kubelet must be
#: served even if Pods keep connections open.
MAX_CONNECTIONS: Final = 64
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}
_TEXT: Final = "text/plain; charset=utf-8"

#: Status, content type and body of a response.
Answer = tuple[int, str, bytes]


class HealthServer:
    """Serves GET requests, one per connection."""

    def __init__(
        self,
        failing: Callable[[], str],
        metrics: Callable[[], bytes],
        metrics_type: str,
        *,
        seconds: float = _SECONDS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """``failing`` returns the first failing check or ''; ``seconds`` limits a request and its response. ``metrics``
        is called at most once a second, regardless of the number of requests."""
        self._seconds = seconds
        self._failing = failing
        self._metrics = metrics
        self._metrics_type = metrics_type
        self._now = now
        #: When the metrics were last rendered, and the result.
        self._rendered: tuple[float, bytes] = (-math.inf, b"")
        #: Open connections and their remote addresses, oldest first.
        self._open: dict[asyncio.StreamWriter, str] = {}

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen. Raises ``OSError``."""
        return await asyncio.start_server(self._serve, host or None, port, limit=_MAX_HEAD)

    def answer(self, method: str, path: str) -> Answer:
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"only GET\n"
        match path.partition("?")[0]:
            case "/healthz" | "/readyz":
                wrong = self._failing()
                return (500, _TEXT, f"{wrong}\n".encode()) if wrong else (200, _TEXT, b"ok")
            case "/metrics":
                if self._now() - self._rendered[0] >= 1:
                    self._rendered = (self._now(), self._metrics())
                return 200, self._metrics_type, self._rendered[1]
        return 404, _TEXT, b"not found; available paths: /healthz, /metrics\n"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._make_room()
        self._open[writer] = str((writer.get_extra_info("peername") or ("",))[0])
        try:
            with suppress(TimeoutError, ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                async with asyncio.timeout(self._seconds):
                    await self._exchange(reader, writer)
        finally:
            self._open.pop(writer, None)
            writer.close()

    def _make_room(self) -> None:
        """At the limit, close the oldest connection of the address with the most connections."""
        if len(self._open) < MAX_CONNECTIONS:
            return
        most = Tally(self._open.values()).most_common(1)[0][0]
        oldest = next(writer for writer, address in self._open.items() if address == most)
        del self._open[oldest]
        oldest.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = (await reader.readuntil(b"\r\n\r\n")).partition(b"\r\n")[0].decode("latin-1").split(" ")
        status, kind, body = self.answer(first[0], first[1]) if len(first) == 3 else (400, _TEXT, b"no HTTP\n")
        head = (
            f"HTTP/1.1 {status} {_REASONS[status]}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
            "Connection: close\r\n\r\n"
        )
        writer.write(head.encode() + (b"" if first[0] == "HEAD" else body))
        await writer.drain()
