"""Index of prepared SidecarSets: finds the sets that apply to a Pod, in order, by checking only the few whose selectors
can match.

Each set is indexed under the namespaces it names [SS-36] and, within them, under one label its selector requires: the
most selective one. Finding the one matching set among a thousand therefore costs about as much as testing a single set.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from app.features.sidecarset.injection.prepared import PreparedSet, prepare
from app.features.sidecarset.injection.prepared_containers import UnusableSidecarSetError
from app.features.sidecarset.kind import MalformedSidecarSet
from app.features.sidecarset.types import SidecarSet
from app.kube.admission import STRANGER
from app.kube.clock import Clock
from app.kube.jsonvalues import as_object
from app.kube.selectors import Operator, Selector
from app.kube.store import Change, Store

SETTLING: Final = 2.0
"""Seconds within which an admitted set is stored and reaches the watch, if it is stored at all."""

MAX_EXPECTED: Final = 100
MAX_CLAIMED: Final = 1_000
MAX_UID: Final = 128
"""MAX_EXPECTED limits the expected states of all known callers together, and those of each address of unknown callers;
no client creates more at once. MAX_CLAIMED limits those of all unknown callers together, and MAX_UID the length of a
UID."""

#: A label with its value, or only a key for "exists".
_Term: TypeAlias = "tuple[str, str] | str"


def _terms(selector: Selector) -> list[tuple[_Term, ...]]:
    """Return the terms of each indexable requirement. A Pod meets a requirement only if it has one of its terms."""
    choices: list[tuple[_Term, ...]] = []
    for requirement in selector.requirements:
        if requirement.operator is Operator.IN:
            choices.append(tuple((requirement.key, value) for value in requirement.values))
        elif requirement.operator is Operator.EXISTS:
            choices.append((requirement.key,))
    return choices


class _Group:
    """The sets of one namespace, or those for all namespaces, by label."""

    __slots__ = ("_by_term", "_load", "_others", "_terms")

    def __init__(self) -> None:
        self._by_term: dict[_Term, dict[str, PreparedSet]] = {}
        #: Sets whose selector only excludes labels.
        self._others: dict[str, PreparedSet] = {}
        self._terms: dict[str, tuple[_Term, ...]] = {}
        #: Number of sets that require each term; sets are indexed under the rarest.
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
        self._load += Counter()  # drops zero counts
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
        """Return the sets whose selector matches, ordered by name. [SS-37]"""
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
    """The state of a set that the index is expected to contain soon."""

    uid: str
    generation: int
    until: float


class SidecarSetIndex:
    """Index of all SidecarSets, prepared for injection. A watch updates it one set at a time.

    Validation records expected states. Large sets are validated in a separate thread, so each operation on these states
    must be atomic. [MGR-149]
    """

    def __init__(self) -> None:
        self._sets: dict[str, PreparedSet] = {}
        self._seen: dict[str, tuple[object, ...]] = {}
        self._by_namespace: dict[str, _Group] = {}
        self._everywhere = _Group()
        self._unusable: dict[str, str] = {}
        self._expected: dict[str, _Expected] = {}
        #: States claimed by unknown callers, by the caller's address and the set's name; kept until they expire.
        self._claimed: dict[tuple[str, str], _Expected] = {}

    def __len__(self) -> int:
        return len(self._sets)

    @property
    def unusable(self) -> Mapping[str, str]:
        """Sets whose Pods cannot be determined (name → reason). They match no Pod."""
        return self._unusable

    def get(self, name: str) -> PreparedSet | None:
        return self._sets.get(name)

    def expect(self, name: str, uid: str, generation: int, until: float, *, stranger: str = "") -> None:
        """Expect this state of a set to be stored; the index may be behind until ``until`` (monotonic). [SS-39]

        At most MAX_EXPECTED states are kept for known callers, the same number for each address of unknown callers, and
        MAX_CLAIMED for all unknown callers. A uid longer than any API server generates is ignored.
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
        """Return the sets that were admitted in a newer state than the index has.

        A state reported by an unknown caller is used only in reviews of unknown callers. Such a caller may be an API
        server at an unknown address, but it must not delay the Pods of a known API server. [SS-39]
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
        """Return whether the index contains this state of a set, or a later one."""
        seen = self._seen.get(name)
        return seen is not None and _shows(seen[0], seen[1], uid, generation)

    def update(self, obj: Mapping[str, Any]) -> PreparedSet | None:
        """Add or replace a set (defaulted v1beta1 JSON). Returns None and adds an entry to ``unusable`` if it cannot be
        prepared.

        A set that becomes unusable stops matching, because its last usable state no longer reflects its spec.
        """
        given = as_object(obj.get("metadata")).get("name")
        name = given if isinstance(given, str) else ""
        fingerprint = _fingerprint(obj)
        expected = self._expected.get(name)
        if expected and fingerprint and _shows(fingerprint[0], fingerprint[1], expected.uid, expected.generation):
            self._expected.pop(name, None)
        known = self._sets.get(name)
        if known is not None and fingerprint is not None and self._seen.get(name) == fingerprint:
            return known  # only its status changed
        self.remove(name)
        if fingerprint is not None:
            self._seen[name] = fingerprint
        try:
            prepared = self._sets[name] = prepare(obj)
        except UnusableSidecarSetError as error:
            self._unusable[name] = str(error)
            return None
        if not prepared.dormant and prepared.selector is not None:
            for group in self._groups(prepared):
                group.add(prepared, prepared.selector)
        return prepared

    def set_aside(self, name: str, why: str) -> None:
        """Ignore a set that cannot be parsed; it matches nothing until it changes."""
        self.remove(name)
        self._unusable[name] = why

    def remove(self, name: str) -> None:
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

    def candidates(self, namespace: str, labels: Mapping[str, str]) -> list[PreparedSet]:
        """Return the sets whose selector matches ``labels``: those indexed under the namespace, then the others.
        [SS-36, SS-37]

        Paused sets and sets being deleted are left out. The namespace's labels are not checked yet.
        """
        group = self._by_namespace.get(namespace)
        everywhere = self._everywhere.matching(labels)
        return group.matching(labels) + everywhere if group is not None else everywhere

    def _groups(self, prepared: PreparedSet) -> list[_Group]:
        if not prepared.namespaces:
            return [self._everywhere]
        return [self._by_namespace.setdefault(namespace, _Group()) for namespace in set(prepared.namespaces)]


class RecentSets:
    """SidecarSets that validation has just admitted. Injection must not miss them, even if the index does not have them
    yet. [SS-39]"""

    def __init__(self, index: SidecarSetIndex, clock: Clock) -> None:
        self._index = index
        self._clock = clock

    def admitted(self, name: str, uid: str, generation: int) -> None:
        """Remember that this generation of a set was admitted and is about to be stored."""
        until = self._clock.monotonic() + SETTLING
        self._index.expect(name, uid, generation, until, stranger=STRANGER.get())

    def unseen(self) -> list[str]:
        """Return the sets that were admitted in a newer state than the index has."""
        return self._index.behind(self._clock.monotonic(), stranger=bool(STRANGER.get()))


def need_namespace_labels(candidates: Iterable[PreparedSet]) -> bool:
    """Return whether any of the candidates depends on the namespace's labels."""
    return any(prepared.needs_namespace_labels for prepared in candidates)


def indexed(sets: Store[SidecarSet]) -> SidecarSetIndex:
    """Return an index that follows the changes to a store."""
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
    """Return the candidates whose namespaceSelector matches these labels; None means an unknown namespace. [SS-35]"""
    return [
        prepared
        for prepared in candidates
        if not prepared.needs_namespace_labels
        or (namespace_labels is not None and prepared.namespace_selector.matches(namespace_labels))  # type: ignore[union-attr]
    ]


def replaced_bases(sets: Iterable[PreparedSet]) -> frozenset[str]:
    """Return the names of the sets that a canary among these replaces. [SS-77]"""
    return frozenset(prepared.canary_of for prepared in sets if prepared.canary_of)


def _shows(shown_uid: object, shown_generation: object, uid: str, generation: int) -> bool:
    """Return whether the cached set has this uid and at least this generation."""
    return shown_uid == uid and isinstance(shown_generation, int) and shown_generation >= generation


def _fingerprint(obj: Mapping[str, Any]) -> tuple[object, ...] | None:
    """Return the parts of a set that injection depends on; None for sets from files, which have no generation to
    compare."""
    metadata, status = as_object(obj.get("metadata")), obj.get("status") or {}
    annotations, generation = metadata.get("annotations") or {}, metadata.get("generation")
    if not generation or not isinstance(annotations, dict) or not isinstance(status, dict):
        return None
    latest = status.get("latestRevision")
    return metadata.get("uid"), generation, dict(annotations), metadata.get("deletionTimestamp"), latest
