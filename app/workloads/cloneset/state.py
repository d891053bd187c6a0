"""What the CloneSet controller remembers of each CloneSet between reconciles; all of it can be worked out anew."""

from __future__ import annotations

from dataclasses import dataclass, field

from app.workloads.cloneset.plan.resolved import ResolvedSpec
from app.workloads.engine.state import WorkloadState


@dataclass(slots=True)
class CloneSetState(WorkloadState[ResolvedSpec]):
    """One CloneSet."""

    #: Instance ids of Pods whose creation failed, to be used first: a request whose answer was lost cannot make two.
    failed_ids: set[str] = field(default_factory=set)
    #: Instance ids of Pods we deleted, as long as claims of theirs are there.
    deleted_ids: set[str] = field(default_factory=set)
    #: The limit that was reported last, and when (B-14).
    limited_to: int | None = None
    limited_at: float = 0.0
