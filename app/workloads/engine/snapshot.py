"""Everything one reconcile goes by, in one frozen object: what the caches show and what was worked out from it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Generic, TypeVar

from app.api.model import KubeObject
from app.kube.objects import ControllerRevision, PersistentVolumeClaim, Pod
from app.kube.store import Store
from app.pods.revisions import Revision, short_hash
from app.workloads.engine.kind import Owner
from app.workloads.engine.pods import ObservedPods, PodFacts
from app.workloads.engine.revisions import Revisions
from app.workloads.engine.settings import ResolvedSpec
from app.workloads.engine.state import WorkloadState

W = TypeVar("W", bound=KubeObject)
R = TypeVar("R", bound=ResolvedSpec[Any])
S = TypeVar("S", bound=WorkloadState[Any])


@dataclass(frozen=True)
class Caches(Generic[W]):
    """What a controller reads. All but the workloads have index OWNER; a kind without claims has no store of them."""

    workloads: Store[W]
    pods: Store[Pod]
    claims: Store[PersistentVolumeClaim] | None
    revisions: Store[ControllerRevision]


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot(Generic[W, S, R]):
    """One workload as it is. ``state`` alone may be changed: it is what the controller remembers of it.

    ``status``: the newest that is known; ``claims``: those it controls and that are not going; ``now``: wall time.
    """

    workload: W
    state: S
    resolved: R
    status: dict[str, Any]
    observed: ObservedPods
    claims: Sequence[PersistentVolumeClaim]
    revisions: Revisions
    now: datetime

    @property
    def owner(self) -> Owner:
        """The workload, as what it creates refers to it."""
        return self.resolved.owner

    @property
    def pods(self) -> Sequence[PodFacts]:
        """The active Pods that match its selector."""
        return self.observed.active

    @property
    def current_hash(self) -> str:
        """The short hash of the current revision."""
        return short_hash(self.revisions.current.name)

    @property
    def update_hash(self) -> str:
        """The short hash of the update revision."""
        return short_hash(self.revisions.update.name)

    def revision_of(self, digest: str) -> Revision:
        """The update revision if that is its short hash, else the current one."""
        return self.revisions.update if digest == self.update_hash else self.revisions.current


#: A snapshot of whatever workload.
AnySnapshot = Snapshot[Any, Any, Any]
