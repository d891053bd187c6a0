"""The manager's metrics: one registry, and the hooks through which the toolkit counts into it (MGR-25)."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

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
from app.manager.features import features

Metric = TypeVar("Metric", Counter, Gauge, Histogram)
T = TypeVar("T")

# When a counter was created is of no use to anybody here, and doubles what is scraped.
disable_created_metrics()  # type: ignore[no-untyped-call]


class ManagerMetrics:
    """Everything a manager process counts."""

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
                "Answers of the API server by code, method and host.",
                ["code", "method", "host"],
                registry=self.registry,
            )
        )
        self.certificate_expiry = Gauge(
            "kruise_serving_certificate_expiry_timestamp_seconds",
            "When the serving certificate ends.",
            registry=self.registry,
        )
        self.certificate_reads = Counter(
            "certwatcher_read_certificate", "Serving certificates taken into use.", registry=self.registry
        )
        self.certificate_errors = Counter(
            "certwatcher_read_certificate_errors",
            "Serving certificates that could not be used.",
            registry=self.registry,
        )
        self.registration_repairs = Counter(
            "kruise_registration_repairs",
            "Webhook configurations and CRD conversions that were not as they must be, and were repaired.",
            ["object"],
            registry=self.registry,
        )
        self.missing_rights = Gauge(
            "kruise_manager_missing_rights",
            "Rights that the manager declares and was not granted; its log names them.",
            registry=self.registry,
        )
        self.missing_definitions = Gauge(
            "kruise_manager_missing_definitions",
            "1 for a CustomResourceDefinition that is not installed, so that its kind is off.",
            ["definition"],
            registry=self.registry,
        )
        self.registration_failures = Counter(
            "kruise_registration_failures", "Attempts to register webhooks that failed.", registry=self.registry
        )

        # Each is there from the start, whoever shares it.
        makers = dict.fromkeys(one for declared in features() for one in declared.counters)
        self._of_slices = {one: one(self.registry) for one in makers}

    def of(self, counters: Counters[T]) -> T:
        """What counts for a feature. Raises KeyError for counters that no feature declares."""
        found: T = self._of_slices[counters]
        return found

    def responded(self, code: str, method: str, host: str) -> None:
        """One answer of the API server (the transport's hook)."""
        self._responses(code, method, host).inc()


def _series(metric: Metric) -> Callable[..., Metric]:
    """A metric's series by its label values. Finding one takes prometheus-client a lock and 1.5 µs, each time; the
    label values here are few and come from our own code, not from users."""
    return lru_cache(maxsize=4096)(metric.labels)


class LeaderCounters:
    """What leader election reports."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._leading = Gauge("kruise_manager_is_leader", "1 while this process holds the Lease.", registry=registry)
        self._slow = Counter(
            "leader_election_slowpath",
            "Renewals of a Lease that needed more than one request.",
            ["name"],
            registry=registry,
        )

    def leader(self, name: str, leading: bool) -> None:  # noqa: ARG002 - there is one Lease
        """This process leads from now on, or no longer does."""
        self._leading.set(1 if leading else 0)

    def slow_path(self, name: str) -> None:
        """Somebody else had written the Lease (MGR-127)."""
        self._slow.labels(name).inc()


class ReflectorCounters:
    """What reflectors report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._lists = Counter("kruise_reflector_lists", "Full lists of a kind.", ["kind"], registry=registry)
        self._events = _series(
            Counter("kruise_reflector_events", "Watch events of a kind.", ["kind"], registry=registry)
        )
        self._errors = Counter(
            "kruise_reflector_errors", "Lists, watches and objects that failed.", ["kind", "what"], registry=registry
        )
        self._aside = Gauge(
            "kruise_reflector_objects_set_aside",
            "Objects that cannot be read as they are now; the log names them.",
            ["kind"],
            registry=registry,
        )

    def listed(self, kind: str, objects: int) -> None:  # noqa: ARG002 - the store's size tells
        """A kind was listed."""
        self._lists.labels(kind).inc()

    def events(self, kind: str, count: int) -> None:
        """Events of a kind came."""
        self._events(kind).inc(count)

    def set_aside(self, kind: str, objects: int) -> None:
        """So many objects of a kind cannot be read now."""
        self._aside.labels(kind).set(objects)

    def error(self, kind: str, what: str) -> None:
        """Something failed."""
        self._errors.labels(kind, str(what)).inc()


class ControllerCounters:
    """What controllers report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._total = _series(
            Counter(
                "controller_runtime_reconcile", "Reconciles by result.", ["controller", "result"], registry=registry
            )
        )
        self._errors = Counter(
            "controller_runtime_reconcile_errors", "Reconciles that failed.", ["controller"], registry=registry
        )
        # There from the start for dashboards: nothing here fails for good, every key is tried again.
        self._terminal = Counter(
            "controller_runtime_terminal_reconcile_errors",
            "Reconciles that failed and are not tried again; always 0.",
            ["controller"],
            registry=registry,
        )
        self._panics = Counter(
            "controller_runtime_reconcile_panics",
            "Reconciles that failed unexpectedly.",
            ["controller"],
            registry=registry,
        )
        self._seconds = _series(
            Histogram(
                "controller_runtime_reconcile_time_seconds", "Time per reconcile.", ["controller"], registry=registry
            )
        )
        self._active = _series(
            Gauge("controller_runtime_active_workers", "Workers that reconcile now.", ["controller"], registry=registry)
        )
        self._workers = Gauge(
            "controller_runtime_max_concurrent_reconciles", "Workers there are.", ["controller"], registry=registry
        )

    def registered(self, controller: str, workers: int) -> None:
        """A controller will run: all its series exist from the start."""
        for result in ("error", "requeue", "requeue_after", "success"):
            self._total(controller, result)
        self._errors.labels(controller)
        self._terminal.labels(controller)
        self._panics.labels(controller)
        self._active(controller)
        self._workers.labels(controller).set(workers)

    def reconciled(self, controller: str, result: str, seconds: float) -> None:
        """One reconcile ended."""
        self._total(controller, result).inc()
        if result == "error":
            self._errors.labels(controller).inc()
        self._seconds(controller).observe(seconds)

    def active_workers(self, controller: str, workers: int) -> None:
        """So many workers are at it."""
        self._active(controller).set(workers)

    def panicked(self, controller: str) -> None:
        """A mistake of ours."""
        self._panics.labels(controller).inc()


class QueueCounters:
    """What work queues report."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._depth = _series(Gauge("workqueue_depth", "Keys waiting.", ["name"], registry=registry))
        self._adds = _series(Counter("workqueue_adds", "Keys added.", ["name"], registry=registry))
        self._retries = Counter("workqueue_retries", "Keys added again after a failure.", ["name"], registry=registry)
        self._waited = _series(
            Histogram("workqueue_queue_duration_seconds", "How long a key waits.", ["name"], registry=registry)
        )
        self._worked = _series(
            Histogram("workqueue_work_duration_seconds", "How long a key is worked on.", ["name"], registry=registry)
        )

    def depth(self, name: str, keys: int) -> None:
        """So many keys wait."""
        self._depth(name).set(keys)

    def added(self, name: str) -> None:
        """A key was added."""
        self._adds(name).inc()

    def retried(self, name: str) -> None:
        """A key was added again."""
        self._retries.labels(name).inc()

    def waited(self, name: str, seconds: float) -> None:
        """A key was taken."""
        self._waited(name).observe(seconds)

    def worked(self, name: str, seconds: float) -> None:
        """A key is done."""
        self._worked(name).observe(seconds)
