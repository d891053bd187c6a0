"""Sums over the Pods of a SidecarSet, and the sets that share Pods with it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from app.features.sidecarset.plan.facts import PodFacts, Wait
from app.features.sidecarset.plan.view import Strategy, injected_sets
from app.kube.objects import Pod
from app.kube.quantities import IntOrPercentError, scaled
from app.kube.resources import ObjectKey
from app.pods.order import default_update_key

# The sums over all Pods of a SidecarSet, kept current one Pod at a time, and its status. Pure. SS-89, SS-106.


@dataclass(frozen=True)
class Judged:
    """A Pod and what it says about the set."""

    pod: Pod
    facts: PodFacts

    @cached_property
    def rank(self) -> tuple[Any, ...]:
        """By what Pods are ordered that no strategy orders otherwise (SS-94)."""
        return default_update_key(self.pod)


@dataclass(frozen=True, slots=True)
class Counts:
    """SS-106: the four numbers of the status."""

    matched: int = 0
    updated: int = 0
    ready: int = 0
    updated_ready: int = 0


#: The Pods that something is due on, by what it is.
_KINDS: Final[Mapping[str, Callable[[PodFacts], bool]]] = {
    "waiting": lambda facts: facts.outdated and facts.wait is Wait.NO,
    "migrated": lambda facts: facts.migrated,
    "untold": lambda facts: facts.upgradable is not None,
}


@dataclass(slots=True)
class PodCounts:
    """The facts of every Pod a set may count, and their sums."""

    _judged: dict[ObjectKey, Judged] = field(default_factory=dict)
    _sums: Counter[PodFacts] = field(default_factory=Counter)
    _due: dict[str, dict[ObjectKey, Judged]] = field(default_factory=lambda: {kind: {} for kind in _KINDS})

    def observe(self, key: ObjectKey, facts: PodFacts, pod: Pod) -> None:
        """Take a Pod's facts in place of what was known of it."""
        known = self._judged.get(key)
        if known is None or known.facts != facts:
            if known is not None:
                self._subtract(known.facts)
            self._sums[facts] += 1
        judged = self._judged[key] = Judged(pod, facts)
        for kind, is_due in _KINDS.items():
            if is_due(facts):
                self._due[kind][key] = judged
            else:
                self._due[kind].pop(key, None)

    def forget(self, key: ObjectKey) -> None:
        """Drop a Pod; one that is not known is no error."""
        known = self._judged.pop(key, None)
        if known is not None:
            self._subtract(known.facts)
            for due in self._due.values():
                due.pop(key, None)

    def _subtract(self, facts: PodFacts) -> None:
        self._sums[facts] -= 1
        if not self._sums[facts]:
            del self._sums[facts]

    @property
    def pods(self) -> Iterable[ObjectKey]:
        """The Pods known."""
        return self._judged.keys()

    def clear(self) -> None:
        """Forget every Pod, as when the set itself has changed."""
        self._judged.clear()
        self._sums.clear()
        for due in self._due.values():
            due.clear()

    # ---- Pods

    @property
    def waiting(self) -> Iterable[Judged]:
        """SS-92: the candidates."""
        return self._due["waiting"].values()

    @property
    def migrated(self) -> Iterable[Judged]:
        """SS-81: the Pods whose former twin may idle."""
        return self._due["migrated"].values()

    @property
    def untold(self) -> Iterable[Judged]:
        """SS-105: the Pods whose condition is to change."""
        return self._due["untold"].values()

    def all(self) -> list[Judged]:
        """Every Pod known, matched or not."""
        return list(self._judged.values())

    def facts_of(self, pod: Pod) -> PodFacts | None:
        """What is known of one Pod."""
        judged = self._judged.get(ObjectKey(pod.metadata.namespace, pod.metadata.name))
        return judged.facts if judged is not None else None

    def has(self, key: ObjectKey) -> bool:
        """Whether this Pod counts."""
        judged = self._judged.get(key)
        return judged is not None and judged.facts.matched

    def matched(self) -> list[Pod]:
        """All Pods that count."""
        return [judged.pod for judged in self._judged.values() if judged.facts.matched]

    # ---- sums; there are only a few different facts, so they do not grow with the Pods

    def number(self, wanted: Callable[[PodFacts], bool]) -> int:
        """How many of the matched Pods are so."""
        return sum(number for facts, number in self._sums.items() if facts.matched and wanted(facts))

    @property
    def counts(self) -> Counts:
        """SS-106."""
        return Counts(
            matched=self.number(lambda _: True),
            updated=self.number(lambda facts: facts.updated),
            ready=self.number(lambda facts: facts.ready),
            updated_ready=self.number(lambda facts: facts.updated and facts.ready),
        )

    @property
    def unavailable(self) -> int:
        """SS-95: Pods that are unavailable because of updates: updated and not ready, or left so by the last one."""
        return self.number(lambda facts: facts.disturbed or (facts.updated and not facts.ready))

    @property
    def updating(self) -> int:
        """Pods that this set's updates have taken out of service."""
        return self.number(lambda facts: facts.disturbed)

    @property
    def disturbed(self) -> int:
        """Pods that are unavailable because of updates, by this set or another."""
        return self.number(lambda facts: facts.disturbed or facts.by_others or (facts.updated and not facts.ready))

    @property
    def down(self) -> int:
        """Pods that are not ready because of updates: a Pod whose former twin is still to idle may be."""
        return self.number(lambda facts: facts.down)

    @property
    def blocked(self) -> int:
        """SS-93: Pods that cannot be updated in place."""
        return self.number(lambda facts: facts.wait is Wait.BLOCKED)

    @property
    def revisions(self) -> frozenset[str]:
        """The ControllerRevisions named by some Pod (SS-76)."""
        return frozenset(facts.revision for facts in self._sums if facts.revision)


def status_patch(
    present: Mapping[str, Any],
    counts: Counts,
    generation: int,
    latest_revision: str,
    collision_count: int,
) -> dict[str, Any]:
    """SS-89: the status fields to write as a merge patch: only those that differ from ``present``; {} if none does."""
    wanted: dict[str, Any] = {
        "observedGeneration": max(generation, present.get("observedGeneration") or 0),
        # SS-106: these three are there from the start, as zeroes.
        "matchedPods": counts.matched,
        "updatedPods": counts.updated,
        "readyPods": counts.ready,
        # Those that Go leaves out when empty: null takes them away.
        "updatedReadyPods": counts.updated_ready or None,
        "latestRevision": latest_revision or None,
        "collisionCount": collision_count,
    }
    return {field: value for field, value in wanted.items() if present.get(field) != value}


# Other sets of the same Pods: while they roll out too, nobody breaks the limit of another. Pure. SS-131.


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
