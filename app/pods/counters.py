"""What the controllers of workloads count (CS-171). Kinds share the series; a label tells them apart."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from app.kube.cardinality import BoundedLabels


class WorkloadCounters:
    """The series, registered once per process; :meth:`of` counts for one kind."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._leaks: dict[str, Counter] = {}
        #: Whoever may create namespaces and objects chooses these.
        self.namespaces, self.objects = BoundedLabels(), BoundedLabels()
        self.started = Counter(
            "kruise_inplace_update",
            "In-place updates of Pods that were begun.",
            ["namespace", "kind"],
            registry=registry,
        )
        self.failed = Counter(
            "kruise_inplace_update_failed",
            "In-place updates of Pods that could not be begun.",
            ["namespace", "kind"],
            registry=registry,
        )
        self.seconds = Histogram(
            "kruise_inplace_update_duration_seconds",
            "From the beginning of an in-place update, its grace period included, until it is complete.",
            ["namespace", "kind"],
            buckets=(1, 2, 5, 10, 30, 60, 120, 300, 600),
            registry=registry,
        )

    def of(self, kind: str) -> KindCounters:
        """The counters of one kind."""
        # OpenKruise has the kind in the name of this one.
        name = f"{kind.lower()}_scale_expectation_leakage"
        if name not in self._leaks:
            self._leaks[name] = Counter(
                name,
                "Creations and deletions that the cache did not show in time.",
                ["namespace", "name"],
                registry=self._registry,
            )
        return KindCounters(self, kind, self._leaks[name])


class KindCounters:
    """What the controller of one kind counts."""

    def __init__(self, counters: WorkloadCounters, kind: str, leaks: Counter) -> None:
        self._counters = counters
        self._kind = kind
        self._leaks = leaks

    def _labels(self, namespace: str) -> tuple[str, str]:
        (shown,) = self._counters.namespaces.of(namespace)
        return shown, self._kind

    def expectation_leaked(self, namespace: str, name: str) -> None:
        """CS-52."""
        self._leaks.labels(*self._counters.objects.of(namespace, name)).inc()

    def in_place_started(self, namespace: str) -> None:
        """An update was begun."""
        self._counters.started.labels(*self._labels(namespace)).inc()

    def in_place_failed(self, namespace: str) -> None:
        """An update could not be begun."""
        self._counters.failed.labels(*self._labels(namespace)).inc()

    def in_place_finished(self, namespace: str, seconds: float) -> None:
        """A Pod is updated."""
        self._counters.seconds.labels(*self._labels(namespace)).observe(seconds)
