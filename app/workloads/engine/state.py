"""What a controller remembers of each workload between reconciles; all of it can be worked out anew."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

from app.api.model import KubeObject
from app.kube.resources import ObjectKey
from app.kube.statuses import KnownStatus, newest_status
from app.kube.store import Change
from app.pods.revisions import Revision, revision_name, short_hash
from app.workloads.engine.in_place import InPlaceUpdates
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.settings import ResolvedSpec

#: Seconds that a timer may fire early.
TIMER_TOLERANCE: Final = 0.005
#: Seconds after a refused creation before the next try, doubled each time, and the longest such wait.
CREATION_BACKOFF: Final = 0.1
MAX_CREATION_BACKOFF: Final = 30.0

R = TypeVar("R", bound=ResolvedSpec[Any])
S = TypeVar("S", bound="WorkloadState[Any]")


@dataclass(slots=True)
class CreationBackoff:
    """After a refused creation none is tried for a while: what was refused a moment ago is not asked again by every
    change of a Pod. Times are on the monotonic scale."""

    refused: int = 0
    until: float = 0.0

    def remaining(self, now: float) -> float:
        """Seconds for which nothing is created; 0: it may be tried."""
        return self.until - now if now < self.until - TIMER_TOLERANCE else 0.0

    def refuse(self, now: float) -> None:
        """A creation was refused."""
        self.until = now + min(CREATION_BACKOFF * 2 ** min(self.refused, 20), MAX_CREATION_BACKOFF)
        self.refused += 1

    def reset(self) -> None:
        """Creations work, or other Pods are wanted."""
        self.refused, self.until = 0, 0.0


@dataclass(slots=True)
class WorkloadState(Generic[R]):
    """One workload. A kind adds its own fields in a subclass."""

    uid: str
    key: ObjectKey
    resolved: R | None = None
    resolved_key: object = None
    facts: dict[str, PodFacts] = field(default_factory=dict)
    in_place: InPlaceUpdates = field(default_factory=InPlaceUpdates)
    last_reconcile: float = 0.0
    #: The time that reconciles asked for by Pods are put off to, until one begins at or after it.
    next_reconcile: float | None = None
    #: Whether somebody else took Pods since a reconcile: the workload may be gone (see the reconciler).
    pods_deleted_by_others: bool = False
    creation_backoff: CreationBackoff = field(default_factory=CreationBackoff)
    #: Why Pods were not updated in place though they should be, as it was reported last (B-22).
    not_in_place_for: str = ""
    #: Names of revisions that Pods or the status speak of, and that are recorded nowhere.
    unrecorded: set[str] = field(default_factory=set)
    #: The update revision, and what was done for it about images to be pulled ahead (CS-140).
    pulls: tuple[str, str] = ("", "")
    #: Image pulls or clean-up failed in this reconcile, which no watch announces the end of.
    side_task_failed: bool = False
    #: The status as we wrote it last, which the cache may not show yet.
    written: KnownStatus | None = None

    def waits_for_change(self, change: Change[Any]) -> bool:  # noqa: ARG002
        """Whether all else waits for this very change, so that no other may come meanwhile."""
        return False

    def resolve_anew(self, resolved: R, key: object) -> None:
        """The spec has changed: what was worked out from the old one goes."""
        self.resolved, self.resolved_key = resolved, key
        self.facts, self.in_place = {}, InPlaceUpdates()
        self.unrecorded.clear()
        self.creation_backoff.reset()

    def present_status(self, workload: KubeObject) -> KnownStatus:
        """The newest status known: that of the cache, or what we wrote if the cache is not there yet."""
        return newest_status(workload, self.written)

    def missing_revisions(self, pods: Iterable[PodFacts], current: str, ordered: Iterable[Revision]) -> list[str]:
        """Revisions that the Pods are at, or the status names, and ``ordered`` lacks; none that is recorded nowhere."""
        known = {short_hash(revision.name) for revision in ordered}
        hashes = {pod.revision for pod in pods}
        if current:
            hashes.add(short_hash(current))
        wanted = (revision_name(self.key.name, one) for one in hashes.difference(known) if one)
        return sorted(set(wanted).difference(self.unrecorded))


class States(Generic[S]):
    """The states of all workloads of a controller. ``make`` makes that of a workload by uid and key."""

    def __init__(self, make: Callable[[str, ObjectKey], S]) -> None:
        self._make = make
        self._states: dict[ObjectKey, S] = {}
        self._namespaces: dict[str, dict[ObjectKey, S]] = {}

    def get(self, key: ObjectKey) -> S | None:
        """The state of that workload, if it has been worked on."""
        return self._states.get(key)

    def of(self, key: ObjectKey, uid: str, forget: Callable[[str], None]) -> S:
        """The state of that workload. Another one of its name is forgotten, by its uid."""
        state = self._states.get(key)
        if state is None or state.uid != uid:
            if state is not None:
                forget(state.uid)
            state = self._states[key] = self._make(uid, key)
            self._namespaces.setdefault(key.namespace, {})[key] = state
        return state

    def pop(self, key: ObjectKey) -> S | None:
        """The state of a workload that is gone."""
        there = self._namespaces.get(key.namespace, {})
        there.pop(key, None)
        if not there:
            self._namespaces.pop(key.namespace, None)
        return self._states.pop(key, None)

    def everywhere(self) -> Iterable[S]:
        """The states of all workloads."""
        return list(self._states.values())

    def in_namespace(self, namespace: str) -> Iterable[S]:
        """The states of a namespace's workloads."""
        return list(self._namespaces.get(namespace, {}).values())
