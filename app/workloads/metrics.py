"""Metrics of workload controllers. All kinds share them, distinguished by a label. [CS-171]"""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.kube.text import BoundedLabels
from app.workloads.state import Metrics


class WorkloadCounters:
    """Metrics registered once per process; :meth:`of` returns the counters of one kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._leaks: dict[str, Counter] = {}
        #: Label values chosen by tenants.
        self.namespaces, self.objects = BoundedLabels(), BoundedLabels()
        self.started = Counter(
            "kruise_inplace_update",
            "Total number of in-place updates started.",
            ["namespace", "kind"],
            registry=registry,
        )
        self.failed = Counter(
            "kruise_inplace_update_failed",
            "Total number of in-place updates that failed to start.",
            ["namespace", "kind"],
            registry=registry,
        )
        self.seconds = Histogram(
            "kruise_inplace_update_duration_seconds",
            "Seconds from the start of an in-place update, including its grace period, to its completion.",
            ["namespace", "kind"],
            buckets=(1, 2, 5, 10, 30, 60, 120, 300, 600),
            registry=registry,
        )

    def of(self, kind: str) -> KindCounters:
        # OpenKruise puts the kind in the name of this metric.
        name = f"{kind.lower()}_scale_expectation_leakage"
        if name not in self._leaks:
            self._leaks[name] = Counter(
                name,
                "Total number of creations and deletions that the cache did not reflect in time.",
                ["namespace", "name"],
                registry=self._registry,
            )
        return KindCounters(self, kind, self._leaks[name])


class KindCounters(Metrics):
    """Counters of one kind."""

    def __init__(self, counters: WorkloadCounters, kind: str, leaks: Counter) -> None:
        self._counters = counters
        self._kind = kind
        self._leaks = leaks

    def _labels(self, namespace: str) -> tuple[str, str]:
        (shown,) = self._counters.namespaces.of(namespace)
        return shown, self._kind

    def expectation_leaked(self, namespace: str, name: str) -> None:
        """Count an expectation that was not fulfilled in time. [CS-52]"""
        self._leaks.labels(*self._counters.objects.of(namespace, name)).inc()

    def in_place_started(self, namespace: str) -> None:
        self._counters.started.labels(*self._labels(namespace)).inc()

    def in_place_failed(self, namespace: str) -> None:
        self._counters.failed.labels(*self._labels(namespace)).inc()

    def in_place_finished(self, namespace: str, seconds: float) -> None:
        self._counters.seconds.labels(*self._labels(namespace)).observe(seconds)
