"""Metrics of workload controllers. All kinds share them, distinguished by a label. [CS-171]"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.kube.text import BoundedLabels
from app.workloads.state import Metrics


class _Leaks(Collector):
    """Expectations that were not fulfilled in time. The metrics' names are OpenKruise's: they contain the kind, and
    lack the ``_total`` that prometheus-client adds to counters."""

    def __init__(self) -> None:
        self._counts: dict[str, dict[tuple[str, ...], int]] = {}
        self._labels = BoundedLabels()

    def add(self, kind: str, namespace: str, name: str) -> None:
        counts = self._counts.setdefault(f"{kind.lower()}_scale_expectation_leakage", {})
        labels = self._labels.of(namespace, name)
        counts[labels] = counts.get(labels, 0) + 1

    def collect(self) -> Iterable[Metric]:
        """Return one metric per kind. Another thread may be counting."""
        for family, counts in list(self._counts.items()):
            documentation = "Total number of creations and deletions that the cache did not reflect in time."
            metric = Metric(family, documentation, "counter")
            for (namespace, name), number in list(counts.items()):
                metric.add_sample(family, {"namespace": namespace, "name": name}, number)
            yield metric


class WorkloadCounters:
    """Metrics registered once per process; :meth:`of` returns the counters of one kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self.leaks = _Leaks()
        registry.register(self.leaks)
        #: Label values chosen by tenants.
        self.namespaces = BoundedLabels()
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
        return KindCounters(self, kind)


class KindCounters(Metrics):
    """Counters of one kind."""

    def __init__(self, counters: WorkloadCounters, kind: str) -> None:
        self._counters = counters
        self._kind = kind

    def _labels(self, namespace: str) -> tuple[str, str]:
        (shown,) = self._counters.namespaces.of(namespace)
        return shown, self._kind

    def expectation_leaked(self, namespace: str, name: str) -> None:
        """Count an expectation that was not fulfilled in time. [CS-52]"""
        self._counters.leaks.add(self._kind, namespace, name)

    def in_place_started(self, namespace: str) -> None:
        self._counters.started.labels(*self._labels(namespace)).inc()

    def in_place_failed(self, namespace: str) -> None:
        self._counters.failed.labels(*self._labels(namespace)).inc()

    def in_place_finished(self, namespace: str, seconds: float) -> None:
        self._counters.seconds.labels(*self._labels(namespace)).observe(seconds)
