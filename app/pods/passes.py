"""How a reconcile that writes Pods can be watched: what it knows as it begins, which Pods it sets out to make, its end.

Nothing in the product watches. A simulation does, to hold each write against what the reconcile could know.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.kube.objects import PersistentVolumeClaim, Pod


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """A reconcile of one workload or SidecarSet that begins: what its caches show, and when (monotonic)."""

    at: float
    uid: str
    generation: int
    pods: Sequence[Pod]
    claims: Sequence[PersistentVolumeClaim]
    #: The reconciler, made anew for each term of leadership.
    term: object


class PassObserver(Protocol):
    """Whoever watches. All calls come from the task of the reconcile itself."""

    def begins(self, begun: Begun) -> None:
        """A reconcile begins; ``ends`` follows, whatever comes of it."""
        ...

    def creates(self, names: Iterable[str]) -> None:
        """It sets out to make Pods of these names."""
        ...

    def ends(self) -> None:
        """It is over."""
        ...
