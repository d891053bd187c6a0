"""Metrics of the manager: one registry, and the hooks through which ``app.kube`` reports to it. [MGR-25]"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

from app.admission.metrics import AdmissionMetrics
from app.framework.feature import Counters
from app.kube.controller import ControllerMetrics
from app.kube.leases import LeaderMetrics
from app.kube.queue import QueueMetrics, WorkQueue
from app.kube.reflector import ReflectorMetrics
from app.manager.features import features

Metric = TypeVar("Metric", Counter, Gauge, Histogram)
T = TypeVar("T")

# Creation timestamps of counters are unused and would double the size of a scrape.
disable_created_metrics()  # type: ignore[no-untyped-call]


class ManagerMetrics:
    """All metrics of a manager process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.admission = AdmissionMetrics()
        self.registry.register(self.admission)
        self.reflectors = ReflectorCounters(self.registry)
        self.controllers = ControllerCounters(self.registry)
        self.queues = QueueCounters(self.registry)
        self.leadership = LeaderCounters(self.registry)
        self._responses = _series(
            Counter(
                "rest_client_requests",
                "Number of API server responses by code, method and host.",
                ["code", "method", "host"],
                registry=self.registry,
            )
        )
        self.certificate_expiry = Gauge(
            "kruise_serving_certificate_expiry_timestamp_seconds",
            "Expiry of the serving certificate, in seconds since the epoch.",
            registry=self.registry,
        )
        self.certificate_reads = Counter(
            "certwatcher_read_certificate",
            "Number of serving certificates that were loaded.",
            registry=self.registry,
        )
        self.certificate_errors = Counter(
            "certwatcher_read_certificate_errors",
            "Number of serving certificates that could not be used.",
            registry=self.registry,
        )
        self.registration_repairs = Counter(
            "kruise_registration_repairs",
            "Number of webhook configurations and CRD conversions that had drifted and were restored.",
            ["object"],
            registry=self.registry,
        )
        self.missing_rights = Gauge(
            "kruise_manager_missing_rights",
            "Number of permissions that the manager needs but was not granted; its log names them.",
            registry=self.registry,
        )
        self.missing_definitions = Gauge(
            "kruise_manager_missing_definitions",
            "1 for each CustomResourceDefinition that is not installed; its kind is disabled.",
            ["definition"],
            registry=self.registry,
        )
        self.registration_failures = Counter(
            "kruise_registration_failures", "Number of failed attempts to register webhooks.", registry=self.registry
        )

        # Create all counters at startup, and those that several features share only once.
        makers = dict.fromkeys(one for declared in features() for one in declared.counters)
        self._of_features = {one: one(self.registry) for one in makers}

    def of(self, counters: Counters[T]) -> T:
        """Return the counters of a feature. Raises KeyError for counters that no feature declares."""
        found: T = self._of_features[counters]
        return found

    def responded(self, code: str, method: str, host: str) -> None:
        self._responses(code, method, host).inc()


def _series(metric: Metric) -> Callable[..., Metric]:
    """Return a cached lookup of a metric's series by label values, which must be few and come from our own code.

    Each lookup in prometheus-client takes a lock and costs 1.5 µs.
    """
    return lru_cache(maxsize=4096)(metric.labels)


class LeaderCounters(LeaderMetrics):
    """Metrics of leader election."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._leading = Gauge("kruise_manager_is_leader", "1 while this process holds the Lease.", registry=registry)
        self._slow = Counter(
            "leader_election_slowpath",
            "Number of Lease renewals that needed more than one request.",
            ["name"],
            registry=registry,
        )

    def leader(self, name: str, leading: bool) -> None:  # noqa: ARG002 - there is one Lease
        self._leading.set(1 if leading else 0)

    def slow_path(self, name: str) -> None:
        """Count a renewal that found the Lease changed by another client. [MGR-127]"""
        self._slow.labels(name).inc()


class ReflectorCounters(ReflectorMetrics):
    """Metrics of reflectors."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lists = Counter("kruise_reflector_lists", "Number of full lists of a kind.", ["kind"], registry=registry)
        self._events = _series(
            Counter("kruise_reflector_events", "Number of watch events of a kind.", ["kind"], registry=registry)
        )
        self._errors = Counter(
            "kruise_reflector_errors",
            "Number of failed lists, failed watches and undecodable objects.",
            ["kind", "what"],
            registry=registry,
        )
        self._aside = Gauge(
            "kruise_reflector_objects_set_aside",
            "Number of objects that currently cannot be decoded; the log names them.",
            ["kind"],
            registry=registry,
        )

    def listed(self, kind: str, objects: int) -> None:  # noqa: ARG002 - measured from the store
        self._lists.labels(kind).inc()

    def events(self, kind: str, count: int) -> None:
        self._events(kind).inc(count)

    def set_aside(self, kind: str, objects: int) -> None:
        self._aside.labels(kind).set(objects)

    def error(self, kind: str, what: str) -> None:
        self._errors.labels(kind, str(what)).inc()


class ControllerCounters(ControllerMetrics):
    """Metrics of controllers."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = _series(
            Counter(
                "controller_runtime_reconcile",
                "Number of reconciles by result.",
                ["controller", "result"],
                registry=registry,
            )
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors", "Number of failed reconciles.", ["controller"], registry=registry
        )
        # Always 0, because every failed key is retried; controller-runtime dashboards expect this metric.
        self._terminal = Counter(
            "controller_runtime_terminal_reconcile_errors",
            "Number of failed reconciles that are not retried; always 0.",
            ["controller"],
            registry=registry,
        )
        self._panics = Counter(
            "controller_runtime_reconcile_panics",
            "Number of reconciles that failed unexpectedly.",
            ["controller"],
            registry=registry,
        )
        self._seconds = _series(
            Histogram(
                "controller_runtime_reconcile_time_seconds",
                "Duration of a reconcile.",
                ["controller"],
                registry=registry,
            )
        )
        self._active = _series(
            Gauge("controller_runtime_active_workers", "Number of busy workers.", ["controller"], registry=registry)
        )
        self._workers = Gauge(
            "controller_runtime_max_concurrent_reconciles",
            "Maximum number of workers.",
            ["controller"],
            registry=registry,
        )

    def registered(self, controller: str, workers: int) -> None:
        for result in ("error", "requeue", "requeue_after", "success"):
            self._total(controller, result)
        self._errors.labels(controller)
        self._terminal.labels(controller)
        self._panics.labels(controller)
        self._active(controller)
        self._workers.labels(controller).set(workers)

    def reconciled(self, controller: str, result: str, seconds: float) -> None:
        self._total(controller, result).inc()
        if result == "error":
            self._errors.labels(controller).inc()
        self._seconds(controller).observe(seconds)

    def active_workers(self, controller: str, workers: int) -> None:
        self._active(controller).set(workers)

    def panicked(self, controller: str) -> None:
        self._panics.labels(controller).inc()


class QueueCounters(QueueMetrics):
    """Metrics of work queues."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._depth = _series(Gauge("workqueue_depth", "Number of waiting keys.", ["name"], registry=registry))
        self._adds = _series(Counter("workqueue_adds", "Number of added keys.", ["name"], registry=registry))
        self._retries = Counter(
            "workqueue_retries", "Number of keys requeued after a failure.", ["name"], registry=registry
        )
        self._waited = _series(
            Histogram("workqueue_queue_duration_seconds", "Time a key waits in the queue.", ["name"], registry=registry)
        )
        self._worked = _series(
            Histogram("workqueue_work_duration_seconds", "Time a key is being processed.", ["name"], registry=registry)
        )
        self._unfinished = Gauge(
            "workqueue_unfinished_work_seconds", "Total time of work in progress.", ["name"], registry=registry
        )
        self._longest = Gauge(
            "workqueue_longest_running_processor_seconds",
            "Time the longest running worker has been processing its key.",
            ["name"],
            registry=registry,
        )

    def observe(self, queue: WorkQueue[Any]) -> None:
        self._unfinished.labels(queue.name).set_function(lambda: sum(queue.seconds_in_progress()))
        self._longest.labels(queue.name).set_function(lambda: max(queue.seconds_in_progress(), default=0.0))

    def depth(self, name: str, keys: int) -> None:
        self._depth(name).set(keys)

    def added(self, name: str) -> None:
        self._adds(name).inc()

    def retried(self, name: str) -> None:
        self._retries.labels(name).inc()

    def waited(self, name: str, seconds: float) -> None:
        self._waited(name).observe(seconds)

    def worked(self, name: str, seconds: float) -> None:
        self._worked(name).observe(seconds)
