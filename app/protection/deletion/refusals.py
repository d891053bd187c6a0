"""What is kept of each refused deletion: a count and a line in the protection log (DP-40, DP-41, DP-55)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.kube.cardinality import BoundedLabels
from app.protection.log import ProtectionLog

_EXTRA: Final = {
    "Namespace": ("namespace_deletion_protection", "Refused deletions of Namespaces."),
    "CustomResourceDefinition": ("crd_deletion_protection", "Refused deletions of CustomResourceDefinitions."),
}
_WORKLOAD: Final = ("workload_deletion_protection", "Refused deletions of workloads, Services and Ingresses.")


class RefusalCounters(Collector):
    """Refusals as metrics. The names are OpenKruise's, which have no ``_total`` as prometheus-client's own counters."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}
        #: Anybody who reaches the port can make up objects and users.
        self._labels = BoundedLabels()

    def count(self, kind: str, namespace: str, name: str, username: str) -> None:
        """One more refusal."""
        family, _ = _EXTRA.get(kind, _WORKLOAD)
        label, value = ("name", name) if kind in _EXTRA else ("kind_namespace_name", f"{kind}_{namespace}_{name}")
        key = (family, label, *self._labels.of(value, username))
        self._counts[key] = self._counts.get(key, 0) + 1

    def collect(self) -> Iterable[Metric]:
        """The families that have a refusal; one without does not appear (DP-40)."""
        for family, documentation in (*_EXTRA.values(), _WORKLOAD):
            metric = Metric(family, documentation, "counter")
            for (counted, label, value, username), number in list(self._counts.items()):  # a thread may be counting
                if counted == family:
                    metric.add_sample(family, {label: value, "username": username}, number)
            if metric.samples:
                yield metric


def refusal_counters(registry: CollectorRegistry) -> RefusalCounters:
    """The counters, registered."""
    counters = RefusalCounters()
    registry.register(counters)
    return counters


class RefusalRecord:
    """Counts and logs; what the handlers tell of refusals."""

    def __init__(self, counters: RefusalCounters, log: ProtectionLog) -> None:
        self._counters = counters
        self._log = log

    def __call__(self, kind: str, namespace: str, name: str, username: str) -> None:
        """One deletion was refused; ``namespace`` is empty for cluster-scoped objects."""
        self._counters.count(kind, namespace, name, username)
        self._log.write("DeletionProtection", kind, namespace, name, username)
