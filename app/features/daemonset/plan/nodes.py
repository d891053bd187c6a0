"""The nodes that a DaemonSet runs on: taints its Pods tolerate, eligible nodes, nodes selected for updates. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.kube.objects import Node
from app.kube.selector_query import SelectorError
from app.kube.selectors import EVERYTHING, Selector, compile_selector
from app.pods.node_fit import NO_EXECUTE, NO_SCHEDULE, Eligibility, Placement, with_tolerations

#: Taints that every DaemonSet Pod tolerates. [DS-17]
_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", NO_EXECUTE),
    ("node.kubernetes.io/unreachable", NO_EXECUTE),
    ("node.kubernetes.io/disk-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/memory-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/pid-pressure", NO_SCHEDULE),
    ("node.kubernetes.io/unschedulable", NO_SCHEDULE),
)
#: Tolerated by Pods on the host network.
_NETWORK: Final = ("node.kubernetes.io/network-unavailable", NO_SCHEDULE)


def daemon_tolerations(pod: Mapping[str, Any]) -> list[Any]:
    """Return the tolerations in the template's spec and those that every DaemonSet Pod gets. [DS-17]"""
    added = (*_TOLERATED, *((_NETWORK,) if pod.get("hostNetwork") is True else ()))
    return with_tolerations(pod, [{"key": key, "operator": "Exists", "effect": effect} for key, effect in added])


def update_selector(selector: dict[str, Any] | None) -> tuple[Selector | None, bool]:
    """Return the selector of the nodes that may be updated (None for all), and whether it is invalid. [DS-84]"""
    if selector is None:
        return None, False
    try:
        compiled = compile_selector(selector)
    except SelectorError:
        return None, True
    return (EVERYTHING if compiled.empty else compiled), False


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about a node for one DaemonSet: its eligibility, and whether it matches the update's node selector."""

    node: Node
    eligibility: Eligibility
    selected: bool

    @property
    def relevant(self) -> tuple[bool, bool, bool]:
        """The facts whose change requires a reconcile. [DS-71]"""
        return self.eligibility.should_run, self.eligibility.should_continue, self.selected


def node_facts(node: Node, placement: Placement, selector: Selector | None) -> NodeFacts:
    """Return the facts about a node, for the requirements of the Pods and the update's node selector."""
    selected = selector is None or selector.matches(node.metadata.labels)
    return NodeFacts(node, placement.eligibility(node), selected)
