"""What the DaemonSet controller remembers of each DaemonSet between reconciles; all of it can be worked out anew."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from app.kube.objects import Node, Pod
from app.pods.eligibility import Eligibility
from app.workloads.daemonset.plan.nodes import DaemonPod, daemon_pod
from app.workloads.daemonset.plan.resolved import ResolvedSpec
from app.workloads.engine.state import TIMER_TOLERANCE, WorkloadState

#: DS-29: seconds that a node's ended Pod is left alone after another one of it was deleted; doubled each time, up to.
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 900.0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node is to a DaemonSet: whether it is eligible, and whether the update's node selector takes it."""

    node: Node
    eligibility: Eligibility
    selected: bool

    @property
    def said(self) -> tuple[bool, bool, bool]:
        """What a change of the node may change (DS-71)."""
        return self.eligibility.should_run, self.eligibility.should_continue, self.selected


@dataclass(slots=True)
class DaemonSetState(WorkloadState[ResolvedSpec]):
    """One DaemonSet."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    daemon_pods: dict[str, DaemonPod] = field(default_factory=dict)
    #: Node → how long its ended Pods are left alone, and since when (DS-29).
    ended: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: What the warning of DS-78 said last.
    limit_told: tuple[int, int] | None = None

    def resolve_anew(self, resolved: ResolvedSpec, key: object) -> None:
        """The spec has changed: what was worked out from the old one goes."""
        WorkloadState.resolve_anew(self, resolved, key)
        self.nodes, self.daemon_pods, self.ended = {}, {}, {}

    def facts_of_node(self, resolved: ResolvedSpec, node: Node) -> NodeFacts:
        """What the node is, worked out once per version of it."""
        found = self.nodes.get(node.metadata.name)
        if found is None or found.node is not node:
            selector = resolved.settings.node_selector
            selected = selector is None or selector.matches(node.metadata.labels)
            found = NodeFacts(node, resolved.placement.eligibility(node), selected)
        return found

    def facts_of_pods(self, resolved: ResolvedSpec, pods: list[Pod]) -> list[DaemonPod]:
        """What the Pods are, worked out once per version of each."""
        known, found = self.daemon_pods, {}
        for pod in pods:
            uid = pod.metadata.uid
            one = known.get(uid)
            found[uid] = one if one is not None and one.pod is pod else daemon_pod(pod, resolved.settings)
        self.daemon_pods = found
        return list(found.values())

    def held(self, now: float) -> dict[str, float]:
        """DS-29: nodes whose ended Pods are left alone, and for how long. ``now``: the monotonic clock."""
        for node, (wait, since) in list(self.ended.items()):
            if now - since > 2 * max(wait, LONGEST_WAIT):
                del self.ended[node]
        left = {node: wait - (now - since) for node, (wait, since) in self.ended.items()}
        return {node: seconds for node, seconds in left.items() if seconds > TIMER_TOLERANCE}

    def note_ended(self, node: str, now: float) -> None:
        """DS-29: an ended Pod of the node was deleted."""
        wait = self.ended[node][0] * 2 if node in self.ended else FIRST_WAIT
        self.ended[node] = (min(wait, LONGEST_WAIT), now)
