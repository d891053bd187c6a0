"""Feature declaration of deletion protection."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from prometheus_client import CollectorRegistry

from app.features.deletionprotection.lookups import DeletionLookups
from app.features.deletionprotection.plan import CRD_GATE, PODS_GATE, Gates
from app.features.deletionprotection.protected_kinds import load_table
from app.features.deletionprotection.webhooks import GATE, handlers, webhooks
from app.framework.denial_log import ProtectionLog, RefusalMetrics
from app.framework.feature import AdmissionContext, AdmissionPart, Decisions, Feature
from app.framework.options import Gate
from app.kube.admission import Webhook

_EXTRA: Final = {
    "Namespace": ("namespace_deletion_protection", "Number of denied deletions of Namespaces."),
    "CustomResourceDefinition": ("crd_deletion_protection", "Number of denied deletions of CustomResourceDefinitions."),
}
_WORKLOAD: Final = ("workload_deletion_protection", "Number of denied deletions of workloads, Services and Ingresses.")


class RefusalCounters(RefusalMetrics):
    """Counts denials as metrics. [DP-40]"""

    def __init__(self, registry: CollectorRegistry) -> None:
        super().__init__(registry, dict((*_EXTRA.values(), _WORKLOAD)))

    def count(self, kind: str, namespace: str, name: str, username: str) -> None:
        family, _ = _EXTRA.get(kind, _WORKLOAD)
        label, value = ("name", name) if kind in _EXTRA else ("kind_namespace_name", f"{kind}_{namespace}_{name}")
        self.add(family, label, value, username)


class RefusalRecord:
    """Counts and logs denials reported by the handlers. [DP-40, DP-41, DP-55]"""

    def __init__(self, counters: RefusalCounters, log: ProtectionLog) -> None:
        self._counters = counters
        self._log = log

    def __call__(self, kind: str, namespace: str, name: str, username: str) -> None:
        """Record a denied deletion. ``namespace`` is empty for cluster-scoped objects."""
        self._counters.count(kind, namespace, name, username)
        self._log.write("DeletionProtection", kind, namespace, name, username)


def declared(policies: Path | None) -> tuple[Webhook, ...]:
    """Return the webhooks derived from the table of protected kinds. Raises PolicyError."""
    return webhooks(load_table(policies))


def decisions(context: AdmissionContext) -> Decisions:
    """Return the handlers of all protected kinds. Raises PolicyError."""
    # Without a cluster there is nothing to reveal to unknown callers.
    known_callers = context.client is None or bool(context.flags.text("client-ca-file"))
    enabled = context.enabled
    gates = Gates(enabled(GATE), enabled(CRD_GATE), enabled(PODS_GATE), known_callers)
    table = load_table(context.policies)
    if context.client is None:
        return Decisions(handlers(table, None, gates, lambda *_: None))
    log = ProtectionLog(Path(context.flags.text("protection-log-path")))
    log.check()
    record = RefusalRecord(context.counters(RefusalCounters), log)
    return Decisions(handlers(table, DeletionLookups(context.client), gates, record))


FEATURE: Final = Feature(
    name="deletionprotection",
    admission=(AdmissionPart(decisions, webhooks=declared, counters=(RefusalCounters,)),),
    gates=(
        GATE,
        CRD_GATE,
        # OpenKruise allows deleting a workload scaled to 0 while its Pods still exist.
        Gate(PODS_GATE, "Cascading protects a workload while it has Pods"),
    ),
    flags=("protection-log-path",),
)
