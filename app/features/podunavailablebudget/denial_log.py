"""Records denials: a metric, a line in the protection log and an event on the Pod. [PUB-69]"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from prometheus_client import CollectorRegistry

from app.framework.denial_log import ProtectionLog, RefusalMetrics
from app.kube.events import EventRecorder, reference
from app.kube.objects import Pod
from app.kube.resources import PODS

#: Component that reports the events.
SOURCE: Final = "pub-controller"
REASON: Final = "PubPreventPodDeletion"
MESSAGE: Final = "openkruise pub prevents pod deletion"
FAMILY: Final = "pod_unavailable_budget"


def refusal_counters(registry: CollectorRegistry) -> RefusalMetrics:
    """Return the metric of refusals."""
    return RefusalMetrics(registry, {FAMILY: "Pod deletions, evictions and updates refused by a PodUnavailableBudget."})


#: Called with each Pod for which a request was refused, and the name of the user.
Refused: TypeAlias = Callable[[Pod, str], None]


class RefusalRecord:
    """Counts refusals, logs them and records events. The recorder aggregates repeated events of a Pod."""

    def __init__(self, counters: RefusalMetrics, log: ProtectionLog, events: EventRecorder | None) -> None:
        self._counters = counters
        self._log = log
        self._events = events

    def __call__(self, pod: Pod, username: str) -> None:
        """Record a refusal. [PUB-69]"""
        metadata = pod.metadata
        owner = metadata.controller
        kind, name = (owner.kind, owner.name) if owner is not None else ("unknown", metadata.name)
        self._counters.add(FAMILY, "kind_namespace_name", f"{kind}_{metadata.namespace}_{name}", username)
        self._log.write("PodUnavailableBudget", "Pod", metadata.namespace, metadata.name, username)
        if self._events is not None:
            self._events.event(reference(PODS, pod), "Warning", REASON, MESSAGE)
