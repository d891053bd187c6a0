"""Metrics of the node agent, and its health endpoint."""

from __future__ import annotations

import asyncio
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

from app.kube.clock import Clock
from app.kube.queue import WorkQueue

# What the agent counts: its process, its requests and its work queues (KD-4).

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


# ``/healthz`` and ``/metrics`` of the agent (KD-4): a server for two questions, small enough for every node.

_SECONDS: Final = 5.0
_MAX_HEAD: Final = 8192
#: The port is the node's, and any Pod may reach it: the kubelet must be answered whoever else holds connections.
MAX_CONNECTIONS: Final = 64
_REASONS: Final = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    500: "Internal Server Error",
}
_TEXT: Final = "text/plain; charset=utf-8"

#: Status, content type and body by path.
Answer = tuple[int, str, bytes]


class HealthServer:
    """Answers GET requests, one per connection."""

    def __init__(
        self,
        failing: Callable[[], str],
        metrics: Callable[[], bytes],
        metrics_type: str,
        *,
        seconds: float = _SECONDS,
    ) -> None:
        """``failing``: the first check that fails, '' if none does; ``seconds``: for a request and its answer."""
        self._seconds = seconds
        self._failing = failing
        self._metrics = metrics
        self._metrics_type = metrics_type
        #: Who is connected from where, the oldest first.
        self._open: dict[asyncio.StreamWriter, str] = {}

    async def start(self, host: str, port: int) -> asyncio.Server:
        """Listen. Raises ``OSError``."""
        return await asyncio.start_server(self._serve, host or None, port, limit=_MAX_HEAD)

    def answer(self, method: str, path: str) -> Answer:
        """What a request gets."""
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"only GET\n"
        match path.partition("?")[0]:
            case "/healthz" | "/readyz":
                wrong = self._failing()
                return (500, _TEXT, f"{wrong}\n".encode()) if wrong else (200, _TEXT, b"ok")
            case "/metrics":
                return 200, self._metrics_type, self._metrics()
        return 404, _TEXT, b"not found; there are /healthz and /metrics\n"

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
        """Where there are too many, the oldest connection of the address that has most is given up."""
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
