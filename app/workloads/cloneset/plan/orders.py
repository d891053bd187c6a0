"""In which order Pods of a CloneSet are deleted and updated (CS-112 … CS-114, CS-125 … CS-128). Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from app.api.cloneset import RollingUpdate
from app.kube.objects import Pod
from app.kube.selectors import SelectorError
from app.pods.ranking import NodeLabels, in_default_update_order, in_deletion_order, ranks_of
from app.pods.update_order import in_update_order
from app.workloads.engine.pods import PodFacts


def deletion_order(
    template: Mapping[str, Any], node_labels: NodeLabels, now: float
) -> Callable[[Sequence[PodFacts]], list[PodFacts]]:
    """CS-112: of Pods of one group; ranks count within it."""

    def ordered(group: Sequence[PodFacts]) -> list[PodFacts]:
        facts = {one.pod.metadata.uid: one for one in group}
        pods = [one.pod for one in group]
        ranks = ranks_of(pods, template, node_labels)

        def available(pod: Pod) -> bool:
            return facts[pod.metadata.uid].available(now)

        return [facts[pod.metadata.uid] for pod in in_deletion_order(pods, available=available, ranks=ranks)]

    return ordered


def update_order(
    all_pods: Sequence[PodFacts], strategy: RollingUpdate | None
) -> Callable[[Sequence[PodFacts]], list[PodFacts]]:
    """CS-125 … CS-128. A selector that cannot be read, which admission refuses, orders nothing."""

    def ordered(candidates: Sequence[PodFacts]) -> list[PodFacts]:
        facts = {one.pod.metadata.uid: one for one in candidates}
        whole = [one.pod for one in all_pods] if strategy is not None and strategy.scatter_strategy else ()
        return [facts[pod.metadata.uid] for pod in in_order([one.pod for one in candidates], whole, strategy)]

    return ordered


def in_order(pods: Sequence[Pod], whole: Sequence[Pod], strategy: RollingUpdate | None) -> list[Pod]:
    """The same of bare Pods. ``whole``: all of the CloneSet's, where they are to be scattered."""
    found = in_default_update_order(pods)
    priority = strategy.priority_strategy if strategy is not None else None
    scatter = strategy.scatter_strategy if strategy is not None else None
    try:
        return in_update_order(found, whole, priority, scatter)
    except SelectorError:
        return in_update_order(found, whole, None, scatter)


def topology_keys(template: Mapping[str, Any]) -> bool:
    """Whether the order of deletion asks for nodes (CS-114)."""
    return bool((template.get("spec") or {}).get("topologySpreadConstraints"))
