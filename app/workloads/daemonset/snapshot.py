"""What one reconcile of a DaemonSet goes by: what the engine saw, and its nodes with their Pods."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TypeAlias

from app.api.daemonset import DaemonSet
from app.workloads.daemonset.plan.nodes import Observed
from app.workloads.daemonset.plan.resolved import ResolvedSpec
from app.workloads.daemonset.state import DaemonSetState
from app.workloads.engine.snapshot import Snapshot

Seen: TypeAlias = Snapshot[DaemonSet, DaemonSetState, ResolvedSpec]


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonSetSnapshot(Snapshot[DaemonSet, DaemonSetState, ResolvedSpec]):
    """One DaemonSet as it is."""

    nodes: Observed

    @classmethod
    def of(cls, seen: Seen, nodes: Observed) -> DaemonSetSnapshot:
        """Add the nodes to what the engine saw."""
        return cls(**{one.name: getattr(seen, one.name) for one in fields(seen)}, nodes=nodes)
