"""What the agent counts: its process, its requests and its work queues (KD-4)."""

from __future__ import annotations

from prometheus_client import GC_COLLECTOR, PLATFORM_COLLECTOR, REGISTRY, Counter, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST


class Metrics:
    """One per process. The hooks of queues, controllers and transport count here."""

    content_type = CONTENT_TYPE_LATEST

    def __init__(self) -> None:
        for collector in (GC_COLLECTOR, PLATFORM_COLLECTOR):
            REGISTRY.unregister(collector)
        self._depth = Gauge("workqueue_depth", "Keys that are ready.", ["name"])
        self._adds = Counter("workqueue_adds_total", "Keys that were added.", ["name"])
        self._retries = Counter("workqueue_retries_total", "Keys that failed and come back.", ["name"])
        self._waits = Counter("workqueue_queue_duration_seconds_total", "Seconds that keys were ready.", ["name"])
        self._works = Counter("workqueue_work_duration_seconds_total", "Seconds that keys were worked on.", ["name"])
        self._reconciles = Counter(
            "controller_runtime_reconcile_total", "Reconciles by what came of them.", ["controller", "result"]
        )
        self._panics = Counter("controller_runtime_reconcile_panics_total", "Mistakes of the agent.", ["controller"])
        self._requests = Counter(
            "rest_client_requests_total", "Requests to the API server.", ["code", "method", "host"]
        )

    def exposition(self) -> bytes:
        """All of it, as Prometheus reads it."""
        return generate_latest(REGISTRY)

    def on_response(self, code: str, method: str, host: str) -> None:
        """An answer of the API server."""
        self._requests.labels(code, method, host).inc()

    # ---- queues

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
        self._waits.labels(name).inc(seconds)

    def worked(self, name: str, seconds: float) -> None:
        """A key was worked on for so long."""
        self._works.labels(name).inc(seconds)

    # ---- controllers

    def reconciled(self, controller: str, result: str, seconds: float) -> None:  # noqa: ARG002 - of the protocol
        """A reconcile has ended."""
        self._reconciles.labels(controller, result).inc()

    def active_workers(self, controller: str, workers: int) -> None:
        """Not told: a queue's depth says more."""

    def panicked(self, controller: str) -> None:
        """A mistake of ours."""
        self._panics.labels(controller).inc()
