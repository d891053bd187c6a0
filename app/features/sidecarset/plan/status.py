"""Status of a SidecarSet: its Pod counts, and the sets that share Pods with it. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, TypeVar

from app.features.sidecarset.plan.pod_state import PodFacts, Wait
from app.features.sidecarset.plan.settings import Strategy, injected_sets
from app.kube.objects import Pod
from app.kube.quantities import IntOrPercentError, scaled
from app.kube.resources import ObjectKey
from app.pods.sorting import default_update_key

T = TypeVar("T")

# Pod counts of a SidecarSet, updated one Pod at a time, and the status computed from them. [SS-89, SS-106]


@dataclass(frozen=True)
class Judged:
    """A Pod and its state relative to the set."""

    pod: Pod
    facts: PodFacts

    @cached_property
    def rank(self) -> tuple[Any, ...]:
        """Sort key for Pods whose order no strategy determines. [SS-94]"""
        return default_update_key(self.pod)


@dataclass(frozen=True, slots=True)
class Counts:
    """The Pod counts in the status. [SS-106]"""

    matched: int = 0
    updated: int = 0
    ready: int = 0
    updated_ready: int = 0


#: Kinds of pending work, each with the predicate that selects its Pods.
_KINDS: Final[Mapping[str, Callable[[PodFacts], bool]]] = {
    "waiting": lambda facts: facts.outdated and facts.wait is Wait.NO,
    "migrated": lambda facts: facts.migrated,
    "condition_due": lambda facts: facts.upgradable is not None,
}


@dataclass(slots=True)
class PodCounts:
    """Facts about every Pod that a set may count, and the number of Pods for each combination of facts."""

    _judged: dict[ObjectKey, Judged] = field(default_factory=dict)
    #: The keys omit revisions, because users may write any revision into their Pods.
    _sums: Counter[PodFacts] = field(default_factory=Counter)
    _revisions: Counter[str] = field(default_factory=Counter)
    _due: dict[str, dict[ObjectKey, Judged]] = field(default_factory=lambda: {kind: {} for kind in _KINDS})

    def observe(self, key: ObjectKey, facts: PodFacts, pod: Pod) -> None:
        known = self._judged.get(key)
        if known is None or known.facts != facts:
            if known is not None:
                self._count(known.facts, -1)
            self._count(facts, 1)
        judged = self._judged[key] = Judged(pod, facts)
        for kind, is_due in _KINDS.items():
            if is_due(facts):
                self._due[kind][key] = judged
            else:
                self._due[kind].pop(key, None)

    def forget(self, key: ObjectKey) -> None:
        known = self._judged.pop(key, None)
        if known is not None:
            self._count(known.facts, -1)
            for due in self._due.values():
                due.pop(key, None)

    def _count(self, facts: PodFacts, step: int) -> None:
        _add(self._sums, facts._replace(revision=""), step)
        _add(self._revisions, facts.revision, step)

    @property
    def pods(self) -> Collection[ObjectKey]:
        return self._judged.keys()

    def clear(self) -> None:
        self._judged.clear()
        self._sums.clear()
        self._revisions.clear()
        for due in self._due.values():
            due.clear()

    # ---- Pods

    @property
    def waiting(self) -> Iterable[Judged]:
        """The candidates for an update. [SS-92]"""
        return self._due["waiting"].values()

    @property
    def migrated(self) -> Iterable[Judged]:
        """The Pods whose former twin may become idle. [SS-81]"""
        return self._due["migrated"].values()

    @property
    def condition_due(self) -> Iterable[Judged]:
        """The Pods whose condition SidecarSetUpgradable must change. [SS-105]"""
        return self._due["condition_due"].values()

    def all(self) -> list[Judged]:
        return list(self._judged.values())

    def facts_of(self, pod: Pod) -> PodFacts | None:
        """Return the facts about one Pod, or None if it is unknown."""
        judged = self._judged.get(ObjectKey(pod.metadata.namespace, pod.metadata.name))
        return judged.facts if judged is not None else None

    def has(self, key: ObjectKey) -> bool:
        judged = self._judged.get(key)
        return judged is not None and judged.facts.matched

    def matched(self) -> list[Pod]:
        return [judged.pod for judged in self._judged.values() if judged.facts.matched]

    # ---- counts; their cost depends on the number of distinct facts, which is small, not on the number of Pods

    def number(self, wanted: Callable[[PodFacts], bool]) -> int:
        """Return the number of matched Pods that satisfy the predicate."""
        return sum(number for facts, number in self._sums.items() if facts.matched and wanted(facts))

    @property
    def counts(self) -> Counts:
        """Return the Pod counts for the status. [SS-106]"""
        return Counts(
            matched=self.number(lambda _: True),
            updated=self.number(lambda facts: facts.updated),
            ready=self.number(lambda facts: facts.ready),
            updated_ready=self.number(lambda facts: facts.updated and facts.ready),
        )

    @property
    def unavailable(self) -> int:
        """Number of Pods unavailable because of this set's updates, including updated Pods not ready yet. [SS-95]"""
        return self.number(lambda facts: facts.disturbed or (facts.updated and not facts.ready))

    @property
    def updating(self) -> int:
        """Number of Pods that this set's updates have taken out of service."""
        return self.number(lambda facts: facts.disturbed)

    @property
    def disturbed(self) -> int:
        """Number of Pods unavailable because of updates by this set or another."""
        return self.number(lambda facts: facts.disturbed or facts.by_others or (facts.updated and not facts.ready))

    @property
    def down(self) -> int:
        """Number of Pods not ready because of updates, except those only waiting for a former twin to become idle."""
        return self.number(lambda facts: facts.down)

    @property
    def blocked(self) -> int:
        """Number of Pods that cannot be updated in place. [SS-93]"""
        return self.number(lambda facts: facts.wait is Wait.BLOCKED)

    @property
    def revisions(self) -> frozenset[str]:
        """The ControllerRevisions that at least one Pod names. [SS-76]"""
        return frozenset(filter(None, self._revisions))


def _add(sums: Counter[T], what: T, step: int) -> None:
    sums[what] += step
    if not sums[what]:
        del sums[what]


def status_patch(
    present: Mapping[str, Any],
    counts: Counts,
    generation: int,
    latest_revision: str,
    collision_count: int,
) -> dict[str, Any]:
    """Return a merge patch with the status fields that differ from ``present``; {} if none does. [SS-89]"""
    wanted: dict[str, Any] = {
        "observedGeneration": max(generation, present.get("observedGeneration") or 0),
        # These three fields are always written, even if zero. [SS-106]
        "matchedPods": counts.matched,
        "updatedPods": counts.updated,
        "readyPods": counts.ready,
        # Fields that Go omits when empty: null removes them.
        "updatedReadyPods": counts.updated_ready or None,
        "latestRevision": latest_revision or None,
        "collisionCount": collision_count,
    }
    return {field: value for field, value in wanted.items() if present.get(field) != value}


# Other sets with the same Pods. Concurrent rollouts respect each other's limits. [SS-131]


def max_unavailable_of(value: int | str | None, matched: int) -> int:
    """Return how many Pods may be unavailable; an invalid value allows none. [SS-95]"""
    try:
        return max(0, scaled(value, matched, True))
    except IntOrPercentError:
        return 0


@dataclass(frozen=True, slots=True)
class Neighbor:
    """Another set: its limit, and the state of its Pods."""

    strategy: Strategy
    pod_counts: PodCounts
    #: Whether all its Pods have been evaluated.
    known: bool = True


@dataclass(slots=True)
class Neighbors:
    """The other sets injected into this set's Pods. ``written_now`` maps each Pod being patched to the set that patches
    it."""

    own_name: str
    #: Returns a set by name, or None if it is unknown.
    find: Callable[[str], Neighbor | None]
    written_now: Mapping[ObjectKey, str]
    #: Whether a Pod had to wait for another set.
    waited: bool = False
    _taken: dict[str, int] = field(default_factory=dict)

    def writing(self, pod_counts: PodCounts) -> int:
        """Return how many of these Pods are being patched for other sets."""
        return sum(name != self.own_name and pod_counts.has(key) for key, name in self.written_now.items())

    def take(self, pod: Pod, *, idle: bool = False) -> bool:
        """Return whether this ready Pod may be taken out of service; if so, count it. ``idle``: the Pod is out of
        service only briefly, while its former twin becomes idle."""
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
            return True  # that set is not updating any Pod
        limit = max_unavailable_of(other.strategy.max_unavailable, other.pod_counts.counts.matched)
        if idle:
            # ``disturbed`` includes Pods that wait for their own former twin to become idle. If such Pods blocked
            # others here, two sets would deadlock.
            return other.pod_counts.down + begun + self._taken.get(name, 0) < max(1, limit)
        return other.pod_counts.disturbed + begun + self._taken.get(name, 0) < limit


UNKNOWN: Final = Neighbor(Strategy(rolling=True), PodCounts(), known=False)
ALONE: Final = Neighbors("", lambda _: None, {})
