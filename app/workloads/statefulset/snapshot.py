"""Everything one reconcile of a StatefulSet goes by."""

from __future__ import annotations

from typing import TypeAlias

from app.api.statefulset import StatefulSet
from app.workloads.engine.snapshot import Snapshot
from app.workloads.statefulset.plan.resolved import ResolvedSpec
from app.workloads.statefulset.state import StatefulSetState

Observed: TypeAlias = Snapshot[StatefulSet, StatefulSetState, ResolvedSpec]
