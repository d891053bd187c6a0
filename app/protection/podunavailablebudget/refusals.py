"""What is kept of each refusal: a count, a line in the protection log, an event on the Pod (PUB-69)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from app.kube.cardinality import BoundedLabels
from app.kube.events import EventRecorder, reference
from app.kube.objects import Pod
from app.kube.resources import PODS
from app.protection.log import ProtectionLog

#: The component that refusals are told as.
SOURCE: Final = "pub-controller"
REASON: Final = "PubPreventPodDeletion"
MESSAGE: Final = "openkruise pub prevents pod deletion"
FAMILY: Final = "pod_unavailable_budget"


class RefusalCounters(Collector):
    """Refusals as a metric. The name is OpenKruise's, which has no ``_total``."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, ...], int] = {}
        #: Anybody who reaches the port can make up Pods and users.
        self._labels = BoundedLabels()

    def count(self, workload: str, username: str) -> None:
        """One more refusal."""
        key = self._labels.of(workload, username)
        self._counts[key] = self._counts.get(key, 0) + 1

    def collect(self) -> Iterable[Metric]:
        """The family, once there is a refusal."""
        metric = Metric(FAMILY, "Deletions, evictions and updates of Pods that a budget refused.", "counter")
        for (workload, username), number in self._counts.items():
            metric.add_sample(FAMILY, {"kind_namespace_name": workload, "username": username}, number)
        if metric.samples:
            yield metric


def refusal_counters(registry: CollectorRegistry) -> RefusalCounters:
    """The counters, registered."""
    counters = RefusalCounters()
    registry.register(counters)
    return counters


class Refused(Protocol):
    """Told of each refusal."""

    def __call__(self, pod: Pod, username: str, /) -> None:
        """This user may not touch this Pod now."""
        ...


class RefusalRecord:
    """Counts, logs and tells. Repeated events of one Pod are combined by the recorder."""

    def __init__(self, counters: RefusalCounters, log: ProtectionLog, events: EventRecorder | None) -> None:
        self._counters = counters
        self._log = log
        self._events = events

    def __call__(self, pod: Pod, username: str) -> None:
        """PUB-69."""
        metadata = pod.metadata
        owner = metadata.controller
        kind, name = (owner.kind, owner.name) if owner is not None else ("unknown", metadata.name)
        self._counters.count(f"{kind}_{metadata.namespace}_{name}", username)
        self._log.write("PodUnavailableBudget", "Pod", metadata.namespace, metadata.name, username)
        if self._events is not None:
            self._events.event(reference(PODS, pod), "Warning", REASON, MESSAGE)
