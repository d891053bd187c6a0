"""Other sets of the same Pods: while they roll out too, nobody breaks the limit of another. Pure. SS-131."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from app.kube.intorpercent import IntOrPercentError, scaled
from app.kube.objects import Pod
from app.kube.resources import ObjectKey
from app.sidecars.sidecarset.plan.podcounts import PodCounts
from app.sidecars.sidecarset.plan.records import injected_sets
from app.sidecars.sidecarset.plan.view import Strategy


def max_unavailable_of(value: int | str | None, matched: int) -> int:
    """SS-95: how many Pods may be unavailable; what cannot be read allows none."""
    try:
        return max(0, scaled(value, matched, True))
    except IntOrPercentError:
        return 0


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another set: what it allows, and how its Pods are."""

    strategy: Strategy
    pod_counts: PodCounts
    #: Whether its Pods have been judged, all of them.
    known: bool = True


@dataclass(slots=True)
class Neighbours:
    """The sets beside one, and the Pods (with the set) that are being written just now."""

    own_name: str
    #: The set of that name; None where nobody knows it.
    find: Callable[[str], Neighbour | None]
    written_now: Mapping[ObjectKey, str]
    #: Whether a Pod had to wait for another set.
    waited: bool = False
    _taken: dict[str, int] = field(default_factory=dict)

    def writing(self, pod_counts: PodCounts) -> int:
        """How many Pods that are counted here are being written by other sets."""
        return sum(name != self.own_name and pod_counts.has(key) for key, name in self.written_now.items())

    def take(self, pod: Pod, *, idle: bool = False) -> bool:
        """Whether this Pod, which is ready, may be taken out of service; then that is counted. ``idle``: for a moment,
        as its former twin is to idle."""
        others = [name for name in injected_sets(pod.metadata.annotations) if name != self.own_name]
        if not all(self._has_room(name, idle=idle) for name in others):
            self.waited = True
            return False
        for name in others:
            self._taken[name] = self._taken.get(name, 0) + 1
        return True

    def _has_room(self, name: str, *, idle: bool) -> bool:
        other = self.find(name)
        if other is None or not other.strategy.rolling:
            return True
        if not other.known:
            return False
        begun = sum(by == name for by in self.written_now.values())
        if not other.pod_counts.updating + begun:
            return True  # it updates nobody now
        limit = max_unavailable_of(other.strategy.max_unavailable, other.pod_counts.counts.matched)
        if idle:
            # Pods that wait to idle themselves count as unavailable there. Were they to keep others from idling, two
            # sets would wait for each other for ever.
            return other.pod_counts.down + begun + self._taken.get(name, 0) < max(1, limit)
        return other.pod_counts.disturbed + begun + self._taken.get(name, 0) < limit


UNKNOWN: Final = Neighbour(Strategy(rolling=True), PodCounts(), known=False)
ALONE: Final = Neighbours("", lambda _: None, {})
