"""Observer protocol for reconciles that write Pods: what a reconcile knows at its start, which Pods it creates, its
end.

The product uses no observer. A simulation does, to check each write against what the reconcile could know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.kube.objects import PersistentVolumeClaim, Pod


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """Start of a reconcile of one workload or SidecarSet: the content of its caches, and the time (monotonic)."""

    at: float
    uid: str
    generation: int
    pods: Sequence[Pod]
    claims: Sequence[PersistentVolumeClaim]
    #: The reconciler, recreated for each leadership term.
    term: object


class PassObserver(Protocol):
    """An observer of reconciles. All calls come from the task of the reconcile itself."""

    def begins(self, begun: Begun) -> None:
        """A reconcile begins; ``ends`` follows in any case."""
        ...

    def creates(self, names: Iterable[str]) -> None:
        """The reconcile is about to create Pods of these names."""
        ...

    def ends(self) -> None:
        """The reconcile is over."""
        ...
