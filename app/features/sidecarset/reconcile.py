"""The SidecarSet controller: records revisions, maintains the status, and rolls changes out to running Pods.

A reconcile of one set records its content as a ControllerRevision, evaluates the Pods that changed since the last one,
writes the status if it changed, deletes surplus revisions, and updates Pods. The decisions are made in
:mod:`app.features.sidecarset.plan`. [SS-73 … SS-76, SS-86 … SS-90]
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from prometheus_client import CollectorRegistry, Gauge

from app.api import names
from app.api.model import is_status_change
from app.features.sidecarset.history import RevisionRecorder, by_recorded_set
from app.features.sidecarset.injection.prepared import unusable
from app.features.sidecarset.injection.prepared_containers import MalformedSidecarSetError
from app.features.sidecarset.kind import SIDECAR_SET, MalformedSidecarSet
from app.features.sidecarset.plan.missed_pods import MISSED_BY, missed_pods, missing_from, set_conditions
from app.features.sidecarset.plan.pod_state import pod_facts
from app.features.sidecarset.plan.settings import SetView, injected_sets, set_view
from app.features.sidecarset.plan.status import UNKNOWN, Counts, Neighbor, PodCounts, status_patch
from app.features.sidecarset.types import SidecarSet
from app.features.sidecarset.writes import Progress, Roller, SetReconcile
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.errors import KubeError
from app.kube.events import EventRecorder, reference
from app.kube.expectations import is_at_least
from app.kube.objects import ControllerRevision, Namespace, Pod
from app.kube.resources import ObjectKey
from app.kube.selector_query import SelectorError
from app.kube.selectors import EVERYTHING
from app.kube.statuses import KnownStatus, newest_status, write_status
from app.kube.store import Change, Store, key_of

logger = logging.getLogger(__name__)

INJECTED_BY = "sidecarset"
"""The index of Pods by the sets that injected them."""
COALESCE_SECONDS = 0.1
"""Minimum seconds between two reconciles triggered only by Pods; changes in between are coalesced."""
TIMER_TOLERANCE = 0.005
"""Seconds by which a timer may fire early."""
RECOUNT = 600.0
"""Seconds after which all Pods of a set are evaluated again, in case an event was missed. [SS-88]"""
BATCH = 200
"""Pods evaluated before yielding to other tasks."""

_SIDECARSETS = SIDECAR_SET.resource()


OBSOLETE: Final = 300.0
"""Seconds after which the cache is trusted again even if our write never appears in it. [SS-90]"""


MALFORMED: Final = "Malformed"


def set_aside_gauge(registry: CollectorRegistry) -> Gauge:
    """Return the gauge of ignored sets."""
    return Gauge(
        "kruise_sidecarsets_set_aside",
        "SidecarSets that cannot be parsed and are not injected; an event on each states the reason.",
        registry=registry,
    )


def malformation(owner: SidecarSet) -> str:
    """Return an error that names the field of the wrong type, or "". [SS-130]"""
    if isinstance(owner, MalformedSidecarSet):
        return owner.problem
    problem = unusable(owner.to_dict())
    return (
        str(problem).removeprefix(f"SidecarSet {owner.name}: ") if isinstance(problem, MalformedSidecarSetError) else ""
    )


def by_injecting_set(pod: Pod) -> Iterable[str]:
    """The index function of :data:`INJECTED_BY`."""
    return injected_sets(pod.metadata.annotations)


@dataclass(frozen=True, slots=True)
class Caches:
    """The caches the controller reads. The Pods have indexes :data:`INJECTED_BY` and
    :data:`app.features.sidecarset.plan.missed_pods.MISSED_BY`; the revisions are those of the manager's namespace, with
    index :data:`app.features.sidecarset.history.RECORDED_SET`."""

    sets: Store[SidecarSet]
    pods: Store[Pod]
    namespaces: Store[Namespace]
    revisions: Store[ControllerRevision]


@dataclass(slots=True)
class _State:
    """State kept for one set between reconciles; all of it can be recomputed."""

    uid: str
    pod_counts: PodCounts = field(default_factory=PodCounts)
    view: SetView | None = None
    view_key: tuple[int, str | None] = (0, None)
    #: Pods to evaluate again.
    dirty: set[ObjectKey] = field(default_factory=set)
    last_reconcile: float = 0.0
    #: Time until which reconciles triggered by Pods are delayed; reset by the first reconcile after that.
    next_reconcile: float | None = None
    recount_at: float = 0.0
    #: The last status we wrote, which may not be in the cache yet.
    written: KnownStatus | None = None
    #: The last checked generation of the set with its parse error, and whether that generation is malformed.
    checked: str = ""
    malformed: bool = False
    #: Whether all Pods are being evaluated now.
    counting: bool = False
    progress: Progress = field(default_factory=Progress)


class _Written(NamedTuple):
    """A Pod after our last write, and the time of that write (monotonic)."""

    pod: Pod
    at: float


class SidecarSetReconciler:
    """Maintains revisions and status of all sets, and updates their Pods.

    ``namespace`` is the manager's own, which holds the revisions.
    """

    def __init__(
        self,
        client: Client,
        caches: Caches,
        namespace: str,
        events: EventRecorder,
        set_aside: Gauge,
        roller: Roller,
    ) -> None:
        self._client = client
        self._roller = roller
        #: Pods we wrote, until the write is in the cache. [SS-90]
        self._written: dict[ObjectKey, _Written] = {}
        #: Pods that are being written, with the set that writes them.
        self._writing: dict[ObjectKey, str] = {}
        self._events = events
        self._clock = client.clock
        self._caches = caches
        self._recorder = RevisionRecorder(client, caches.revisions, namespace)
        self._states: dict[str, _State] = {}
        set_aside.set_function(lambda: sum(one.malformed for one in self._states.values()))

    # ---- mapping of changes to sets

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the sets that injected sidecars into the Pod, according to its old or new state, and mark the Pod for
        evaluation. [SS-86, SS-88]

        Users may list any set in the annotations of their Pods, so only sets that select or count the Pod are returned.
        """
        key = key_of(change.object)
        if self._written:
            self._as_known(key)
        pods = [pod for pod in (change.old, change.new) if pod is not None]
        namespace = self._caches.namespaces.get(key.namespace)
        labels = namespace.metadata.labels if namespace is not None else None
        concerned = dict.fromkeys(name for pod in pods for name in missing_from(pod))
        for name in dict.fromkeys(name for pod in pods for name in injected_sets(pod.metadata.annotations)):
            state = self._states.get(name)
            if state is None or _may_count(state, key, pods, labels):
                concerned[name] = None
            elif key in state.pod_counts.pods:
                state.dirty.add(key)
        for name in concerned:
            state = self._states.get(name)
            if state is not None:
                state.dirty.add(key)
        return [ObjectKey("", name) for name in concerned if self._caches.sets.get(name) is not None]

    def keys_for_namespace(self, change: Change[Namespace]) -> Iterable[ObjectKey]:
        """Return the sets with a namespaceSelector and Pods in a namespace whose labels may have changed. [SS-88]"""
        old, new = change.old, change.new
        if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
            return []
        namespace = change.object.metadata.name
        concerned = []
        for name, state in self._states.items():
            if state.view is not None and state.view.namespaces is not None:
                listed = self._caches.pods.by_index(INJECTED_BY, name)
                within = {key_of(pod) for pod in listed if pod.metadata.namespace == namespace}
                if within:
                    state.dirty |= within
                    concerned.append(ObjectKey("", name))
        return concerned

    def keys_for_revision(self, change: Change[ControllerRevision]) -> Iterable[ObjectKey]:
        """Return the set a revision records, so that a deleted or modified revision is restored."""
        self._recorder.observe(change)
        return [ObjectKey("", name) for name in by_recorded_set(change.object)]

    def coalesce_delay(self, change: Change[Any], key: ObjectKey) -> float:
        """Return the delay of a reconcile triggered by a Pod or a status, so that a burst of events, including our own
        writes, causes few reconciles."""
        if isinstance(change.new, SidecarSet) and not is_status_change(change):
            return 0.0
        state = self._states.get(key.name)
        if state is None:
            return 0.0
        if state.next_reconcile is None:
            state.next_reconcile = state.last_reconcile + COALESCE_SECONDS
        return state.next_reconcile - self._clock.monotonic()

    # ---- reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        owner = self._caches.sets.by_key(key)
        if owner is None or owner.deleting:
            # Pods keep their sidecars; the revisions are garbage-collected with their owner. [SS-104]
            gone = self._states.pop(key.name, None)
            if gone is not None:
                self._recorder.forget(gone.uid)
            return None
        state = self._states.get(key.name)
        if state is None or state.uid != owner.metadata.uid:
            if state is not None:
                self._recorder.forget(state.uid)
            state = self._states[key.name] = _State(owner.metadata.uid)
        state.last_reconcile = self._clock.monotonic()
        if state.next_reconcile is not None and state.next_reconcile <= state.last_reconcile + TIMER_TOLERANCE:
            state.next_reconcile = None
        if self._is_malformed(owner, state):
            return None
        present = newest_status(owner, state.written).status
        latest, collisions = present.get("latestRevision") or "", present.get("collisionCount") or 0
        failure: KubeError | None = None
        try:
            latest, collisions = await self._recorder.record(owner, collisions)
        except KubeError as error:
            # Count the Pods even if revisions cannot be written.
            failure = error
        await self._write_status(owner, state, await self._count(owner, state), latest, collisions)
        if failure is not None:
            raise failure
        await self._recorder.truncate(owner, latest, state.pod_counts.revisions)
        again = await self._roll_out(owner, state, latest)
        recount = max(0.001, state.recount_at - self._clock.monotonic())
        return Result(requeue_after=min(again, recount) if again else recount)

    async def _roll_out(self, owner: SidecarSet, state: _State, latest: str) -> float:
        """Roll the set out to its Pods; return the seconds until the next reconcile, or 0 to wait for a change. [SS-92
        … SS-107]"""
        view = state.view
        assert view is not None  # noqa: S101  # the Pods have been counted

        def neighbor(name: str) -> Neighbor | None:
            other = self._states.get(name)
            if other is None:
                # The other set has not been reconciled yet, for example after a change of leader.
                return UNKNOWN if self._caches.sets.get(name) is not None else None
            if other.view is None:
                return None  # the other set is malformed
            return Neighbor(other.view.strategy, other.pod_counts, not other.counting)

        one = SetReconcile(
            owner, view, state.pod_counts, state.progress, latest, self._observe, neighbor, self._writing
        )
        return await self._roller.carry_out(one)

    def _observe(self, pod: Pod) -> None:
        """Evaluate a just-written Pod for each of its sets without waiting for the cache. [SS-90]"""
        key = key_of(pod)
        self._written[key] = _Written(pod, self._clock.monotonic())
        for name in injected_sets(pod.metadata.annotations):
            state = self._states.get(name)
            if state is not None and state.view is not None:
                self._judge(state.view, state.pod_counts, key)

    def _is_malformed(self, owner: SidecarSet, state: _State) -> bool:
        """Return whether the set is ignored; an event reports this once for each generation. [SS-130]"""
        unread = owner.problem if isinstance(owner, MalformedSidecarSet) else ""
        content = f"{owner.metadata.generation or owner.metadata.resource_version} {unread}"
        if state.checked == content:
            return state.malformed
        known, state.checked = state.malformed, content
        problem = malformation(owner)
        state.malformed = bool(problem)
        if problem and not known:
            logger.error("SidecarSet %s is ignored: %s", owner.name, problem)
        if problem:
            text = f"ignored, so no Pod gets its containers: {problem}; correct the field"
            self._events.event(reference(_SIDECARSETS, owner), "Warning", MALFORMED, text)
        return state.malformed

    async def _count(self, owner: SidecarSet, state: _State) -> Counts:
        """Evaluate the Pods that changed, or all of them if the set changed or a full evaluation is overdue."""
        metadata = owner.metadata
        view_key = (metadata.generation, metadata.annotations.get(names.SIDECARSET_HASH))
        now = self._clock.monotonic()
        if state.view is None or state.view_key != view_key or now >= state.recount_at:
            state.view, state.view_key, state.recount_at = _view(owner), view_key, now + RECOUNT
            state.pod_counts.clear()
            state.counting = True
            state.dirty = {key_of(pod) for pod in self._caches.pods.by_index(INJECTED_BY, owner.name)}
        judged = 0
        while state.dirty:
            self._judge(state.view, state.pod_counts, state.dirty.pop())
            judged += 1
            if judged % BATCH == 0:
                await self._clock.sleep(0)
        state.counting = False
        return state.pod_counts.counts

    def _judge(self, view: SetView, pod_counts: PodCounts, key: ObjectKey) -> None:
        pod = self._as_known(key)
        if pod is None or view.name not in injected_sets(pod.metadata.annotations):
            pod_counts.forget(key)
            return
        namespace = self._caches.namespaces.get(key.namespace)
        pod_counts.observe(key, pod_facts(view, pod, namespace.metadata.labels if namespace is not None else None), pod)

    def _as_known(self, key: ObjectKey) -> Pod | None:
        """Return the Pod from the cache, or as we wrote it if the cache is behind. [SS-90]"""
        cached, written = self._caches.pods.by_key(key), self._written.get(key)
        if written is None:
            return cached
        if (
            cached is None
            or is_at_least(cached.metadata.resource_version, written.pod.metadata.resource_version)
            or self._clock.monotonic() - written.at > OBSOLETE
        ):
            del self._written[key]
            return cached
        return written.pod

    async def _write_status(
        self, owner: SidecarSet, state: _State, counts: Counts, latest: str, collisions: int
    ) -> None:
        """Write one merge patch with the differences; after a conflict, retry on the current status. [SS-89]"""

        missed = missed_pods(self._caches.pods.by_index(MISSED_BY, owner.name), owner.name)

        def difference(present: Mapping[str, Any]) -> Mapping[str, Any]:
            patch = status_patch(present, counts, owner.metadata.generation, latest, collisions)
            conditions = set_conditions(present.get("conditions"), missed, self._clock.now())
            return patch if conditions is None else {**patch, "conditions": conditions or None}

        present = newest_status(owner, state.written)
        written = await write_status(self._client, _SIDECARSETS, owner.metadata, present, difference)
        if written is not None:
            state.written = written


def _may_count(state: _State, key: ObjectKey, pods: Iterable[Pod], labels: Mapping[str, str] | None) -> bool:
    """Return whether a set counts a Pod, or may count it after a change. ``labels`` are the namespace's."""
    if state.view is None or state.counting or state.pod_counts.has(key):
        return True
    return any(state.view.selects(pod, labels) for pod in pods)


def _view(owner: SidecarSet) -> SetView:
    try:
        return set_view(owner)
    except SelectorError as error:
        # The set was written without admission. It matches no Pods here, as in injection.
        logger.warning("SidecarSet %s matches no Pods because its selector is invalid: %s", owner.name, error)
        return SetView(owner.name, "", EVERYTHING, None, frozenset())
