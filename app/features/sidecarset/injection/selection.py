"""Which SidecarSets apply to a Pod: an index of prepared sets that looks at the few whose labels can match.

Each set is filed under the namespaces it names (SS-36) and, within them, under one label its selector requires: of
several the one that tells the sets apart best. A thousand sets of which one matches so cost about as much as one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from app.features.sidecarset.injection.containers import UnusableSidecarSetError
from app.features.sidecarset.injection.prepared import PreparedSet, prepare
from app.features.sidecarset.kind import MalformedSidecarSet
from app.features.sidecarset.types import SidecarSet
from app.kube.callers import STRANGER
from app.kube.clock import Clock
from app.kube.selectors import Operator, Selector
from app.kube.store import Change, Store

SETTLING: Final = 2.0
"""Seconds in which a set that was admitted is stored and shown by a watch, if it is stored at all."""

MAX_EXPECTED: Final = 100
MAX_CLAIMED: Final = 1_000
MAX_UID: Final = 128
"""How many sets may be waited for so, of one caller and of all strangers: nobody creates more at once."""

#: A label with its value, or a key alone for "exists".
_Term: TypeAlias = "tuple[str, str] | str"


def _terms(selector: Selector) -> list[tuple[_Term, ...]]:
    """For each requirement that can be looked up: the terms of which a matching Pod has at least one."""
    choices: list[tuple[_Term, ...]] = []
    for requirement in selector.requirements:
        if requirement.operator is Operator.IN:
            choices.append(tuple((requirement.key, value) for value in requirement.values))
        elif requirement.operator is Operator.EXISTS:
            choices.append((requirement.key,))
    return choices


class _Group:
    """The sets of one namespace, or of all: found by label."""

    __slots__ = ("_by_term", "_load", "_others", "_terms")

    def __init__(self) -> None:
        self._by_term: dict[_Term, dict[str, PreparedSet]] = {}
        #: Sets whose selector says only what a Pod must not have.
        self._others: dict[str, PreparedSet] = {}
        self._terms: dict[str, tuple[_Term, ...]] = {}
        #: How many sets require each term: the rarest is the one to file under.
        self._load: Counter[_Term] = Counter()

    def add(self, prepared: PreparedSet, selector: Selector) -> None:
        choices = _terms(selector)
        for choice in choices:
            self._load.update(choice)
        terms = min(choices, key=lambda choice: sum(self._load[term] for term in choice), default=())
        self._terms[prepared.name] = terms
        if not terms:
            self._others[prepared.name] = prepared
        for term in terms:
            self._by_term.setdefault(term, {})[prepared.name] = prepared

    def remove(self, name: str, selector: Selector) -> None:
        for choice in _terms(selector):
            self._load.subtract(choice)
        self._load += Counter()  # drops the zeroes
        self._others.pop(name, None)
        for term in self._terms.pop(name):
            sets = self._by_term[term]
            del sets[name]
            if not sets:
                del self._by_term[term]

    @property
    def empty(self) -> bool:
        return not self._terms

    def matching(self, labels: Mapping[str, str]) -> list[PreparedSet]:
        """The sets whose selector matches, ordered by name (SS-37)."""
        found = list(self._others.values()) if self._others else []
        by_term = self._by_term
        for pair in labels.items():
            sets = by_term.get(pair)
            if sets is not None:
                found += sets.values()
            sets = by_term.get(pair[0])
            if sets is not None:
                found += sets.values()
        if not found:
            return found
        matching = [prepared for prepared in found if prepared.selector.matches(labels)]  # type: ignore[union-attr]
        if len(matching) > 1:
            matching.sort(key=lambda prepared: prepared.name)
        return matching


class _Expected(NamedTuple):
    """The state of a set that the index is to show soon."""

    uid: str
    generation: int
    until: float


class SidecarSetIndex:
    """All SidecarSets, prepared; changed one at a time by whoever watches them.

    What is expected is noted by whoever judges sets, for large ones in a thread beside (MGR-149): each step over it is
    one that another thread cannot come between.
    """

    def __init__(self) -> None:
        self._sets: dict[str, PreparedSet] = {}
        self._seen: dict[str, tuple[object, ...]] = {}
        self._by_namespace: dict[str, _Group] = {}
        self._everywhere = _Group()
        self._unusable: dict[str, str] = {}
        self._expected: dict[str, _Expected] = {}
        #: The same for reviews of strangers, by address and name. They stay until their time is up.
        self._claimed: dict[tuple[str, str], _Expected] = {}

    def __len__(self) -> int:
        return len(self._sets)

    @property
    def unusable(self) -> Mapping[str, str]:
        """Sets of which it cannot be told which Pods they match (name → why). They match none."""
        return self._unusable

    def get(self, name: str) -> PreparedSet | None:
        """The prepared set of this name."""
        return self._sets.get(name)

    def expect(self, name: str, uid: str, generation: int, until: float, *, stranger: str = "") -> None:
        """SS-39: this state of a set is about to be stored; ``until`` then (monotonic) the index may be behind.

        No more than MAX_EXPECTED are remembered for known callers, as many for the stranger of an address, and
        MAX_CLAIMED for all strangers. A uid that no API server gives is not remembered.
        """
        if len(uid) > MAX_UID or self.shows(name, uid, generation):
            return
        state = _Expected(uid, generation, until)
        if not stranger:
            if len(self._expected) < MAX_EXPECTED or name in self._expected:
                self._expected[name] = state
        elif (stranger, name) in self._claimed or (
            len(self._claimed) < MAX_CLAIMED
            and sum(claimant == stranger for claimant, _ in list(self._claimed)) < MAX_EXPECTED
        ):
            self._claimed[stranger, name] = state

    def behind(self, now: float, *, stranger: bool = False) -> list[str]:
        """The sets of which a newer state was admitted than the index shows.

        Claims of strangers count for strangers alone: among them may be an API server that calls from an address that
        nobody knows, but they must not delay the Pods of one that is known. [SS-39]
        """
        if not self._expected and not self._claimed:
            return []
        for name, state in list(self._expected.items()):
            if state.until <= now:
                self._expected.pop(name, None)
        if not stranger:
            return list(self._expected)
        for claim, state in list(self._claimed.items()):
            if state.until <= now:
                self._claimed.pop(claim, None)
        return list({**self._expected, **dict.fromkeys(name for _, name in list(self._claimed))})

    def shows(self, name: str, uid: str, generation: int) -> bool:
        """Whether the index shows this state of a set, or a later one."""
        seen = self._seen.get(name)
        return seen is not None and _shows(seen[0], seen[1], uid, generation)

    def update(self, obj: Mapping[str, Any]) -> PreparedSet | None:
        """Take over a new or changed set (defaulted v1beta1 JSON). None, and an entry in ``unusable``, if it cannot be.

        A set that was usable before and is not any more stops matching: what it matched last is not what it says now.
        """
        name = _name_of(obj)
        fingerprint = _fingerprint(obj)
        expected = self._expected.get(name)
        if expected and fingerprint and _shows(fingerprint[0], fingerprint[1], expected.uid, expected.generation):
            self._expected.pop(name, None)
        known = self._sets.get(name)
        if known is not None and fingerprint is not None and self._seen.get(name) == fingerprint:
            return known  # only its status counts moved
        self.remove(name)
        try:
            prepared = prepare(obj)
        except UnusableSidecarSetError as error:
            self.set_aside(name, str(error))
            if fingerprint is not None:
                self._seen[name] = fingerprint
            return None
        self._sets[name] = prepared
        if fingerprint is not None:
            self._seen[name] = fingerprint
        if not prepared.dormant and prepared.selector is not None:
            for group in self._groups(prepared):
                group.add(prepared, prepared.selector)
        return prepared

    def set_aside(self, name: str, why: str) -> None:
        """A set that cannot be read: it matches nothing until it changes."""
        self.remove(name)
        self._unusable[name] = why

    def remove(self, name: str) -> None:
        """Forget a set; unknown names are fine."""
        self._seen.pop(name, None)
        self._unusable.pop(name, None)
        prepared = self._sets.pop(name, None)
        if prepared is None or prepared.dormant or prepared.selector is None:
            return
        for group in self._groups(prepared):
            group.remove(name, prepared.selector)
        for namespace in prepared.namespaces:
            if self._by_namespace[namespace].empty:
                del self._by_namespace[namespace]

    def replace(self, objects: Iterable[Mapping[str, Any]]) -> None:
        """Take over exactly these sets, as after a list."""
        given = {_name_of(obj): obj for obj in objects}
        for name in [*self._sets, *self._unusable]:
            if name not in given:
                self.remove(name)
        for obj in given.values():
            self.update(obj)

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> list[PreparedSet]:
        """The sets whose selector matches ``labels``: those filed under the namespace, then the others (SS-36, SS-37).

        Paused sets and sets being deleted are not among them. Whether the namespace's labels match is still to be seen.
        """
        group = self._by_namespace.get(namespace)
        everywhere = self._everywhere.matching(labels)
        return group.matching(labels) + everywhere if group is not None else everywhere

    def _groups(self, prepared: PreparedSet) -> list[_Group]:
        if not prepared.namespaces:
            return [self._everywhere]
        return [self._by_namespace.setdefault(namespace, _Group()) for namespace in set(prepared.namespaces)]


class RecentSets:
    """SS-39: the sets that validation let through a moment ago, for whoever must not miss them."""

    def __init__(self, index: SidecarSetIndex, clock: Clock) -> None:
        self._index = index
        self._clock = clock

    def admitted(self, name: str, uid: str, generation: int) -> None:
        """This state of a set is about to be stored."""
        until = self._clock.monotonic() + SETTLING
        self._index.expect(name, uid, generation, until, stranger=STRANGER.get())

    def unseen(self) -> list[str]:
        """The sets that the index does not show as they were let through."""
        return self._index.behind(self._clock.monotonic(), stranger=bool(STRANGER.get()))


def need_namespace_labels(candidates: Iterable[PreparedSet]) -> bool:
    """Whether the namespace's labels decide about any of the candidates."""
    return any(prepared.needs_namespace_labels for prepared in candidates)


def indexed(sets: Store[SidecarSet]) -> SidecarSetIndex:
    """An index of the sets in a store, which follows its changes."""
    index = SidecarSetIndex()

    def follow(change: Change[SidecarSet]) -> None:
        if isinstance(change.new, MalformedSidecarSet):
            index.set_aside(change.new.name, f"SidecarSet {change.new.name}: {change.new.problem}")
        elif change.new is not None:
            index.update(change.new.to_dict())
        else:
            index.remove(change.object.metadata.name)

    sets.subscribe(follow)
    return index


def in_scope(candidates: Iterable[PreparedSet], namespace_labels: Mapping[str, str] | None) -> list[PreparedSet]:
    """The candidates whose namespaceSelector matches these labels; None: the namespace is not known (SS-35)."""
    return [
        prepared
        for prepared in candidates
        if not prepared.needs_namespace_labels
        or (namespace_labels is not None and prepared.namespace_selector.matches(namespace_labels))  # type: ignore[union-attr]
    ]


def replaced_bases(sets: Iterable[PreparedSet]) -> frozenset[str]:
    """SS-77: names of the sets that a canary among these stands in for."""
    return frozenset(prepared.canary_of for prepared in sets if prepared.canary_of)


def _name_of(obj: Mapping[str, Any]) -> str:
    metadata = obj.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    return name if isinstance(name, str) else ""


def _shows(shown_uid: object, shown_generation: object, uid: str, generation: int) -> bool:
    """Whether a state of a set is the other one, or a later one."""
    return shown_uid == uid and isinstance(shown_generation, int) and shown_generation >= generation


def _fingerprint(obj: Mapping[str, Any]) -> tuple[object, ...] | None:
    """What injection depends on. None where there is no generation to tell one spec from the next (sets from files)."""
    metadata, status = obj.get("metadata"), obj.get("status") or {}
    annotations = (metadata.get("annotations") or {}) if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(annotations, Mapping) or not isinstance(status, Mapping):
        return None
    generation = metadata.get("generation")
    if not generation:
        return None
    latest = status.get("latestRevision")
    return metadata.get("uid"), generation, dict(annotations), metadata.get("deletionTimestamp"), latest
