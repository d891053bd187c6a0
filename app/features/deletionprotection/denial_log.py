"""Records denied deletions: a metric and a line in the protection log. [DP-40, DP-41, DP-55]"""

from __future__ import annotations

from typing import Final

from prometheus_client import CollectorRegistry

from app.framework.denial_log import ProtectionLog, RefusalMetrics

_EXTRA: Final = {
    "Namespace": ("namespace_deletion_protection", "Number of denied deletions of Namespaces."),
    "CustomResourceDefinition": ("crd_deletion_protection", "Number of denied deletions of CustomResourceDefinitions."),
}
_WORKLOAD: Final = ("workload_deletion_protection", "Number of denied deletions of workloads, Services and Ingresses.")


class RefusalCounters(RefusalMetrics):
    """Counts denials as metrics."""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry, dict((*_EXTRA.values(), _WORKLOAD)))

    def count(self, kind: str, namespace: str, name: str, username: str) -> None:
        family, _ = _EXTRA.get(kind, _WORKLOAD)
        label, value = ("name", name) if kind in _EXTRA else ("kind_namespace_name", f"{kind}_{namespace}_{name}")
        self.add(family, label, value, username)


class RefusalRecord:
    """Counts and logs denials reported by the handlers."""

    def __init__(self, counters: RefusalCounters, log: ProtectionLog) -> None:
        self._counters = counters
        self._log = log

    def __call__(self, kind: str, namespace: str, name: str, username: str) -> None:
        """Record a denied deletion. ``namespace`` is empty for cluster-scoped objects."""
        self._counters.count(kind, namespace, name, username)
        self._log.write("DeletionProtection", kind, namespace, name, username)
