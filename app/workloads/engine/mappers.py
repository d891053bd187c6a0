"""Which workloads a change concerns, what it tells of our own writes, and how long a reconcile for it is put off."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final, Generic

from app.kube.clock import Clock
from app.kube.objects import ControllerRevision, PersistentVolumeClaim, Pod
from app.kube.resources import ObjectKey
from app.kube.store import Change
from app.workloads.engine.expectations import Expectations, claim_expectation
from app.workloads.engine.history import History
from app.workloads.engine.kind import WorkloadKind
from app.workloads.engine.snapshot import S, W
from app.workloads.engine.state import TIMER_TOLERANCE, States

#: Seconds between two reconciles that only Pods ask for: what comes meanwhile is seen together.
COALESCE_SECONDS: Final = 0.05


class EventMappers(Generic[W, S]):
    """The mappers of one controller's watches."""

    def __init__(
        self,
        clock: Clock,
        kind: WorkloadKind,
        expectations: Expectations,
        history: History,
        states: States[S],
        *,
        adopts: bool = False,
    ) -> None:
        self._clock = clock
        self._kind = kind
        self._expectations = expectations
        self._history = history
        self._states = states
        self._adopts = adopts

    def keys_for_workload(self, change: Change[W]) -> Iterable[ObjectKey]:
        """CS-44: itself, but for a status that we wrote, if that is all that is new."""
        found = change.object
        key = ObjectKey(found.metadata.namespace, found.name)
        state = self._states.get(key)
        if state is not None and state.written is not None and _is_own_status_write(change, state.written.version):
            return ()
        return (key,)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """CS-45 … CS-48: the workloads that manage the Pod, or did until now; of nobody's, those that may adopt it."""
        pod, expected = change.object, self._expectations
        managing = self._kind.managing_reference
        references = [managing(one.metadata) for one in (change.old, change.new) if one is not None]
        keys: dict[ObjectKey, None] = {}
        for uid, name in {found.uid: found.name for found in references if found is not None}.items():
            key = ObjectKey(pod.metadata.namespace, name)
            keys[key] = None
            if not self._is_known(key, uid):
                continue
            if change.old is None:
                expected.creation_observed(uid, pod.metadata.name)
            if change.new is None or pod.metadata.deletion_timestamp is not None:
                expected.creation_observed(uid, pod.metadata.name)
                asked = expected.deletion_observed(uid, pod.metadata.name)
                if not asked and (change.old is None or change.old.metadata.deletion_timestamp is None):
                    self._deleted_by_others(key)
        if change.new is None:
            expected.versions.forget(pod.metadata.uid)
        elif self._adopts and pod.metadata.controller is None:
            keys |= dict.fromkeys(self._keys_of_adopters(pod))
        return keys

    def _keys_of_adopters(self, pod: Pod) -> Iterable[ObjectKey]:
        """PM-109: those whose selector matches; one that was not worked on yet finds the Pod when it is."""
        for state in self._states.in_namespace(pod.metadata.namespace):
            if state.resolved is not None and state.resolved.selector.matches(pod.metadata.labels):
                yield state.key

    def _is_known(self, key: ObjectKey, uid: str) -> bool:
        """Whether the workload under that key has this uid. Expectations are kept by uid, and exist only for workloads
        that were worked on: a forged reference from elsewhere fulfills none."""
        state = self._states.get(key)
        return state is not None and state.uid == uid

    def _deleted_by_others(self, key: ObjectKey) -> None:
        state = self._states.get(key)
        if state is not None:
            state.pods_deleted_by_others = True

    def keys_for_claim(self, change: Change[PersistentVolumeClaim]) -> Iterable[ObjectKey]:
        """CS-49: the workload of a claim that comes, goes or is given away; other changes concern nobody."""
        claim, managing = change.object, self._kind.managing_reference
        old = managing(change.old.metadata) if change.old is not None else None
        new = managing(change.new.metadata) if change.new is not None else None
        going = change.new is None or claim.metadata.deletion_timestamp is not None
        if change.old is not None and old == new and not going:
            return ()
        keys = []
        for reference in {found.uid: found for found in (old, new) if found is not None}.values():
            name, key = claim_expectation(claim.metadata.name), ObjectKey(claim.metadata.namespace, reference.name)
            keys.append(key)
            if not self._is_known(key, reference.uid):
                continue
            self._expectations.creation_observed(reference.uid, name)
            if going:
                self._expectations.deletion_observed(reference.uid, name)
        return keys

    def keys_for_revision(self, change: Change[ControllerRevision]) -> Iterable[ObjectKey]:
        """CS-49: nobody; the history learns what the cache shows."""
        self._history.observe(change)
        return ()

    def coalesce_delay(self, change: Change[Any], key: ObjectKey) -> float:
        """How long a reconcile that a Pod asks for is put off: a burst of events costs few reconciles."""
        state = self._states.get(key)
        if state is None or state.waits_for_change(change):
            return 0.0
        if state.next_reconcile is None:
            state.next_reconcile = state.last_reconcile + COALESCE_SECONDS
        return state.next_reconcile - self._clock.monotonic()

    def begun(self, state: S) -> None:
        """A reconcile of that workload begins: what was put off until now is done by it."""
        state.last_reconcile = self._clock.monotonic()
        if state.next_reconcile is not None and state.next_reconcile <= state.last_reconcile + TIMER_TOLERANCE:
            state.next_reconcile = None


def _is_own_status_write(change: Change[W], version: str) -> bool:
    """Whether the change is the status written as ``version``, alone: a cache that was behind may show it together with
    what users wrote before it."""
    old, new = change.old, change.new
    if old is None or new is None or new.metadata.resource_version != version:
        return False
    return new.is_but_for_status(old)
