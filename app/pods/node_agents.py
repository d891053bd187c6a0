"""What controllers need to know about node agents: which nodes have one, and how long a report on a Pod may take.
[PM-140]

Workloads depend only on this protocol; the manager provides the implementation.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Protocol

from app.api import names
from app.kube.objects import Node, Pod

#: Seconds that the node agent has to report on a Pod after its containers start. Even an agent that is being updated is
#: running again by then.
REPORT_SECONDS: Final = 60.0


class NodeAgents(Protocol):
    """The nodes that have an agent."""

    def runs_on(self, node: str) -> bool:
        """Return whether an agent is known to run on the node."""
        ...


class NoNodeAgents:
    """A cluster without node agents."""

    def runs_on(self, node: str) -> bool:  # noqa: ARG002
        return False


def is_virtual(node: Node) -> bool:
    """Return whether the node is virtual and runs no agent. [IMG-107]"""
    return node.metadata.labels.get("type") == names.VIRTUAL_KUBELET


def may_run_agent(node: Node | None) -> bool:
    """Return whether the node exists and may run an agent."""
    return node is not None and node.metadata.deletion_timestamp is None and not is_virtual(node)


def is_ready(node: Node) -> bool:
    """Return whether the node is ready."""
    return any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)


def seconds_for_report(pod: Pod, now: datetime) -> float:
    """Return the seconds that the report on a Pod may still take; 0 if it is overdue or no container runs."""
    states = [status.state for status in pod.status.container_statuses]
    starts = [found.started_at for state in states if (found := state.running or state.terminated) is not None]
    known = [start for start in starts if start is not None]
    if not known:
        return 0.0
    passed = (now - max(known)).total_seconds()
    return min(REPORT_SECONDS, max(0.0, REPORT_SECONDS - passed))
