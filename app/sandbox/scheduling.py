"""Which simulated node a Pod goes to where no scheduler runs. Pure, and far simpler than kube-scheduler.

Node selector, required node affinity, taints and cordons are honoured; of the nodes that are left the one with the
fewest Pods is taken. Resources, Pod affinity and spreading are not looked at: with those, run a real scheduler.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from app.kube.objects import Node, Taint
from app.kube.selectors import Operator, Requirement
from app.sandbox.objects import NodeSelectorRequirement, NodeSelectorTerm, Pod, PodSpec, Toleration


def choose_node(pod: Pod, nodes: Iterable[Node], pods_on: Mapping[str, int]) -> str:
    """The name of the node to bind the Pod to, '' if none suits. ``pods_on``: how many Pods each node has."""
    suitable = [node.metadata.name for node in nodes if _suits(pod.spec, node)]
    return min(suitable, key=lambda name: (pods_on.get(name, 0), name), default="")


def _suits(spec: PodSpec, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    taints = list(node.spec.taints)
    if node.spec.unschedulable:
        taints.append(Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"))
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not any(_tolerates(one, taint) for one in spec.tolerations):
            return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(_holds(term, node) for term in affinity.required.node_selector_terms)


def _holds(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # an empty term matches nothing
    fields = {"metadata.name": node.metadata.name}
    return all(_matches(one, node.metadata.labels) for one in term.match_expressions) and all(
        _matches(one, fields) for one in term.match_fields
    )


def _matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    return Requirement(requirement.key, Operator(requirement.operator), requirement.values).matches(labels)


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (bool(toleration.key) and toleration.value == taint.value)
