"""What the controller remembers of a StatefulSet between reconciles; all of it may be lost at any time."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from app.kube.objects import Pod
from app.kube.store import Change
from app.pods.predicates import is_ready
from app.workloads.engine.pods import PodFacts, pod_facts
from app.workloads.engine.state import WorkloadState
from app.workloads.statefulset.plan.resolved import ResolvedSpec


@dataclass(slots=True)
class StatefulSetState(WorkloadState[ResolvedSpec]):
    """One StatefulSet."""

    #: Facts of the Pods that end or have ended, by uid.
    leaving: dict[str, PodFacts] = field(default_factory=dict)
    #: Claims that creations wait for, as it was reported last.
    waits_for: tuple[str, ...] = ()
    #: Claims that the status does not count yet.
    uncounted: frozenset[str] = frozenset()

    def waits_for_change(self, change: Change[Any]) -> bool:
        """OrderedReady goes on when a Pod has become ready, or is gone."""
        if self.resolved is None or not self.resolved.settings.ordered or not isinstance(change.object, Pod):
            return False
        return change.new is None or (is_ready(change.new) and not (change.old is not None and is_ready(change.old)))

    def facts_of(self, pods: Iterable[Pod], resolved: ResolvedSpec) -> list[PodFacts]:
        """The facts of Pods that end or have ended."""
        known, self.leaving = self.leaving, {}
        for pod in pods:
            found = known.get(pod.metadata.uid)
            fresh = found is None or found.pod is not pod
            self.leaving[pod.metadata.uid] = pod_facts(pod, resolved.settings) if fresh or found is None else found
        return list(self.leaving.values())
