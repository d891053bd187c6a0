"""Skeleton of a workload's reconcile, and the mappers from changes to keys."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Any, ClassVar, Final, Generic

from app.api.gojson import GoType, GoTypeError, go_value
from app.api.model import is_status_change
from app.kube.client import Client
from app.kube.clock import Clock
from app.kube.concurrency import Remembered
from app.kube.controller import Result, Watch
from app.kube.errors import Conflict, Forbidden, KubeError, NotFound
from app.kube.events import INVALID_SPEC
from app.kube.objects import ControllerRevision, PersistentVolumeClaim, Pod, decode_metadata
from app.kube.resources import NODES, ObjectKey
from app.kube.selector_query import SelectorError
from app.kube.statuses import KnownStatus, write_status
from app.kube.store import Change
from app.pods.disruption_budget import DisruptionBudget
from app.pods.node_agents import NodeAgents
from app.pods.predicates import ownerless
from app.pods.revisions import Revision, short_hash
from app.workloads.history import History
from app.workloads.pods import PodFacts, observed_pods
from app.workloads.settings import OWNER, WorkloadKind
from app.workloads.state import (
    CONFLICT_DELAY,
    TIMER_TOLERANCE,
    Caches,
    ExpectationCheck,
    Expectations,
    Metrics,
    Outcome,
    R,
    S,
    Snapshot,
    States,
    W,
    claim_expectation,
    gather_results,
    most_urgent,
)
from app.workloads.status import Status, status_patch
from app.workloads.writer import Writer

#: Minimum seconds between reconciles triggered by Pods; events in between are batched.
COALESCE_SECONDS: Final = 0.05


@dataclass(frozen=True, slots=True)
class EventMappers(Generic[W, S]):
    """Event mappers of one controller's watches."""

    clock: Clock
    kind: WorkloadKind
    expectations: Expectations
    history: History
    states: States[S]
    adopts: bool = False

    def keys_for_workload(self, change: Change[W]) -> Iterable[ObjectKey]:
        """Return the workload's own key, except for our own status writes. [CS-44]"""
        found = change.object
        key = ObjectKey(found.metadata.namespace, found.name)
        state = self.states.get(key)
        if state is not None and state.written is not None and _is_own_status_write(change, state.written.version):
            return ()
        return (key,)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the workloads that manage the Pod or managed it before the change; for an orphan, those that may adopt
        it. [CS-45 … CS-48]"""
        pod, expected = change.object, self.expectations
        managing = self.kind.managing_reference
        references = [managing(one.metadata) for one in (change.old, change.new) if one is not None]
        keys: dict[ObjectKey, None] = {}
        for uid, name in {found.uid: found.name for found in references if found is not None}.items():
            key = ObjectKey(pod.metadata.namespace, name)
            keys[key] = None
            state = self._known(key, uid)
            if state is None:
                continue
            if change.old is None:
                expected.creation_observed(uid, pod.metadata.name)
            if change.new is None or pod.metadata.deletion_timestamp is not None:
                expected.creation_observed(uid, pod.metadata.name)
                asked = expected.deletion_observed(uid, pod.metadata.name)
                if not asked and (change.old is None or change.old.metadata.deletion_timestamp is None):
                    state.pods_deleted_by_others = True
        if change.new is None:
            expected.versions.forget(pod.metadata.uid)
        if self.adopts and pod.metadata.controller is None:
            keys |= dict.fromkeys(self._keys_of_adopters(pod))
        return keys

    def _keys_of_adopters(self, pod: Pod) -> Iterable[ObjectKey]:
        """Return known workloads whose selector matches; others find the Pod in their first reconcile. [PM-109]"""
        for state in self.states.in_namespace(pod.metadata.namespace):
            if state.resolved is not None and state.resolved.selector.matches(pod.metadata.labels):
                yield state.key

    def _known(self, key: ObjectKey, uid: str) -> S | None:
        """Return the state of the workload at that key if it has this UID. Expectations are kept by UID and only for
        known workloads, so a forged reference cannot fulfill any."""
        state = self.states.get(key)
        return state if state is not None and state.uid == uid else None

    def keys_for_claim(self, change: Change[PersistentVolumeClaim]) -> Iterable[ObjectKey]:
        """Return the workload of a claim that is created, deleted or transferred; other changes are ignored. [CS-49]"""
        claim, managing = change.object, self.kind.managing_reference
        old = managing(change.old.metadata) if change.old is not None else None
        new = managing(change.new.metadata) if change.new is not None else None
        going = change.new is None or claim.metadata.deletion_timestamp is not None
        if change.old is not None and old == new and not going:
            return ()
        keys = []
        for reference in {found.uid: found for found in (old, new) if found is not None}.values():
            name, key = claim_expectation(claim.metadata.name), ObjectKey(claim.metadata.namespace, reference.name)
            keys.append(key)
            if self._known(key, reference.uid) is None:
                continue
            self.expectations.creation_observed(reference.uid, name)
            if going:
                self.expectations.deletion_observed(reference.uid, name)
        return keys

    def keys_for_revision(self, change: Change[ControllerRevision]) -> Iterable[ObjectKey]:
        """Update the history. Changes to revisions do not enqueue a workload. [CS-49]"""
        self.history.observe(change)
        return ()

    def coalesce_delay(self, change: Change[Any], key: ObjectKey) -> float:
        """Return the delay of a reconcile triggered by a Pod, so that a burst of events causes few reconciles."""
        state = self.states.get(key)
        if state is None or state.waits_for_change(change):
            return 0.0
        if state.next_reconcile is None:
            state.next_reconcile = state.last_reconcile + COALESCE_SECONDS
        return state.next_reconcile - self.clock.monotonic()

    def begun(self, state: S) -> None:
        """Record the start of a reconcile, which replaces any delayed reconcile that must run by now."""
        state.last_reconcile = self.clock.monotonic()
        if state.next_reconcile is not None and state.next_reconcile <= state.last_reconcile + TIMER_TOLERANCE:
            state.next_reconcile = None


def _is_own_status_write(change: Change[W], version: str) -> bool:
    """Return whether the change is only the status written as ``version``. If the cache was stale, the event may also
    contain earlier changes by users."""
    return change.object.metadata.resource_version == version and is_status_change(change)


# The skeleton of a workload's reconcile: expectations, spec, Pods, revisions; then the workload's own plan and status.
#
# class MyReconciler(WorkloadReconciler[My, MyState, MySpec]):
#     def resolve(self, workload): ...        # once per generation
#     async def reconcile(self, snapshot): ...  # plan, carry out, report

logger = logging.getLogger(__name__)

#: Seconds for which node labels are cached.
NODE_LABELS_TTL: Final = 60.0


class WorkloadReconciler(ABC, Generic[W, S, R]):
    """Reconciles all workloads of a kind. With ``adopts``, matching orphans are adopted [PM-109].

    ``expectation_timeout`` is the number of seconds the cache may take to reflect our writes [CS-52];
    ``force_expectations`` is the gate ForceDeleteTimeoutExpectationGate.
    """

    adopts: ClassVar[bool] = False
    #: Whether the history limit also counts old revisions that Pods use. [DS-57]
    limits_used_revisions: ClassVar[bool] = False
    #: Go type of the kind's spec in the stored version.
    spec_type: ClassVar[GoType]

    def __init__(
        self,
        client: Client,
        kind: WorkloadKind,
        caches: Caches[W],
        writer: Writer,
        make_state: Callable[[str, ObjectKey], S],
        *,
        budget: DisruptionBudget | None = None,
        agents: NodeAgents | None = None,
        metrics: Metrics | None = None,
        expectation_timeout: float = 300.0,
        force_expectations: bool = False,
    ) -> None:
        self.client = client
        self.clock = client.clock
        self.kind = kind
        self.caches = caches
        self.metrics = metrics if metrics is not None else Metrics()
        self.writer = writer
        if budget is not None:
            writer.budget = budget
        if agents is not None:
            writer.agents = agents
        self.history = History(client, caches.revisions)
        self.states: States[S] = States(make_state)
        expectations = self.writer.expectations
        self.mappers: EventMappers[W, S] = EventMappers(
            client.clock, kind, expectations, self.history, self.states, self.adopts
        )
        self._expectations = ExpectationCheck(
            client, caches.pods, expectations, self.metrics, timeout=expectation_timeout, force=force_expectations
        )
        self.node_labels = Remembered(client.clock, self._node_labels, seconds=NODE_LABELS_TTL)

    # ---- implemented by kinds

    @abstractmethod
    def resolve(self, workload: W) -> R:
        """Resolve the workload's spec for its plan. Raises SelectorError if the selector is invalid."""

    @abstractmethod
    async def reconcile(self, snapshot: Snapshot[W, S, R]) -> Result | None:
        """Make a plan, carry it out, and report. Return when to reconcile again."""

    def may_adopt(self, resolved: R, pod: Pod) -> bool:  # noqa: ARG002
        """Return whether the workload could have created a matching Pod; other Pods are released."""
        return True

    # ---- watches

    def watches(self) -> list[Watch[Any]]:
        mappers, caches = self.mappers, self.caches
        watched: list[Watch[Any]] = [Watch(caches.revisions, mappers.keys_for_revision)]
        if caches.claims is not None:
            watched.append(Watch(caches.claims, mappers.keys_for_claim, mappers.coalesce_delay))
        watched.append(Watch(caches.pods, mappers.keys_for_pod, mappers.coalesce_delay))
        watched.append(Watch(caches.workloads, mappers.keys_for_workload))
        return watched

    # ---- reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        workload = self.caches.workloads.by_key(key)
        if workload is None:
            gone = self.states.pop(key)
            if gone is not None:
                self.writer.expectations.forget(gone.uid)  # [CS-50]
            return None
        return await self._reconcile(key, workload)

    async def _reconcile(self, key: ObjectKey, workload: W) -> Result | None:
        state = self.states.of(key, workload.metadata.uid, self.writer.expectations.forget)
        self.mappers.begun(state)
        resolved = self._resolved(workload, state)
        if resolved is None:
            return None  # [CS-51]
        waiting = await self._expectations.unsatisfied(resolved.owner)
        if waiting is not None:
            return waiting
        try:
            if state.pods_deleted_by_others and not await self._still_exists(workload, state):
                return None  # the deletion is not in the cache yet; its event triggers the next reconcile
            if self.adopts and not workload.deleting and await self._adopt(workload, state, resolved):
                return None  # the adopted Pods' events trigger the next reconcile
            state.side_task_left = False
            result = await self.reconcile(await self._snapshot(workload, state, resolved))
            if state.side_task_left:
                return Result(requeue=True, requeue_after=result.requeue_after if result is not None else 0.0)
            return result
        finally:
            state.last_reconcile = self.clock.monotonic()

    async def _still_exists(self, workload: W, state: S) -> bool:
        """Return whether the workload still exists after other clients deleted its Pods. The garbage collector deletes
        all Pods of a deleted workload; with a stale cache, each would be recreated and deleted again in a tight
        loop."""
        state.pods_deleted_by_others = False
        there, metadata = False, workload.metadata
        try:
            live = await self.client.get(self.kind.resource, workload.name, metadata.namespace, decode=decode_metadata)
            there = live.metadata.uid == state.uid and (workload.deleting or live.metadata.deletion_timestamp is None)
        except NotFound:
            pass
        except Forbidden:
            there = True  # the roles are those of an older release: skip the check
            logger.warning(
                "%s %s: cannot be read, so its Pods are replaced even if it was deleted",
                self.kind.resource.kind,
                state.key,
            )
        finally:
            state.pods_deleted_by_others |= not there
        return there

    async def _adopt(self, workload: W, state: S, resolved: R) -> bool:
        """Adopt matching orphans after the API server confirmed that the workload exists and is not being deleted.
        Return whether any were found. If so, the caller must wait until the cache reflects the adoption, or it might
        create replacements. [PM-109]"""
        namespace = workload.metadata.namespace
        orphans = [
            pod
            for pod in self.caches.pods.by_index(OWNER, ownerless(namespace))
            # Finished Pods are adopted too: they occupy their name or node until they are replaced.
            if pod.metadata.deletion_timestamp is None
            and resolved.selector.matches(pod.metadata.labels)
            and self.may_adopt(resolved, pod)
        ]
        if orphans and await self._still_exists(workload, state):
            # The cache may not reflect an earlier adoption yet.
            unsatisfied = self.writer.expectations.versions.unsatisfied
            due = [pod for pod in orphans if unsatisfied(pod.metadata) is None]
            for found in await gather_results(self.writer.adopt(resolved.owner, pod) for pod in due):
                if isinstance(found, KubeError):
                    raise found
        return bool(orphans)

    def _resolved(self, workload: W, state: S) -> R | None:
        # Some labels and annotations of an older API version are spec fields in the stored version, but changing them
        # does not change the generation. [CS-9, CS-10]
        metadata = workload.metadata
        key = (metadata.generation, metadata.labels, metadata.annotations)
        if state.resolved_key != key:
            try:
                # A template stored while no webhook was running may contain anything.
                go_value(self.spec_type, workload.to_dict().get("spec"), "spec")
                resolved: R | None = self.resolve(workload)
            except (SelectorError, GoTypeError) as error:
                field = "spec.selector: " if isinstance(error, SelectorError) else ""
                self.writer.event(workload, INVALID_SPEC, f"{field}{error}", warning=True)
                resolved = None
            state.set_resolved(resolved, key)
        return state.resolved

    async def _snapshot(self, workload: W, state: S, resolved: R) -> Snapshot[W, S, R]:
        """Read Pods, claims and revisions, and record the current spec as a revision. [CS-55, PM-85, MGR-61]"""
        owned = resolved.owner.index_key
        observed, state.facts = observed_pods(
            self.caches.pods.by_index(OWNER, owned),
            state.facts,
            resolved.settings,
            matches=lambda pod: resolved.selector.matches(pod.metadata.labels) and self.may_adopt(resolved, pod),
            releases_inactive=self.adopts,
        )
        claims = [
            claim
            for claim in (self.caches.claims.by_index(OWNER, owned) if self.caches.claims is not None else ())
            if claim.metadata.deletion_timestamp is None
        ]
        status = dict(state.present_status(workload).status)
        current, collisions = str(status.get("currentRevision") or ""), int(status.get("collisionCount") or 0)
        ordered = await self._revisions(state, resolved, observed.active, current)
        revisions = await self.history.record(resolved.content, resolved.selector, ordered, current, collisions)
        orphans = [one for one in revisions.ordered if one.controller is None and one.name != revisions.update.name]
        if self.adopts and orphans and not workload.deleting and await self._still_exists(workload, state):
            await self.history.adopt(resolved.content, orphans)
        return Snapshot(
            workload=workload,
            state=state,
            resolved=resolved,
            status=status,
            observed=observed,
            claims=claims,
            revisions=revisions,
            now=self.clock.now(),
        )

    async def _revisions(self, state: S, resolved: R, pods: Iterable[PodFacts], current: str) -> list[Revision]:
        """Return all revisions, oldest first; ``current`` is the one in the status. Revisions missing from the cache
        are read from the API server: otherwise a Pod would be replaced (PM-10) or created at the wrong revision
        (CS-73). [PM-85]"""
        content, selector = resolved.content, resolved.selector
        ordered = self.history.revisions(content, selector)
        missing = state.missing_revisions(pods, current, ordered)
        for name in missing:
            if not await self.history.is_recorded(content, name):
                state.unrecorded.add(name)
        return self.history.revisions(content, selector) if missing else ordered

    # ---- shared steps

    async def release_foreign(self, snapshot: Snapshot[W, S, R]) -> None:
        """Release Pods that the workload controls but could not have created. Retry failures. [CS-55]"""
        uid, state = snapshot.owner.uid, snapshot.state
        found = await gather_results(self.writer.release(uid, pod) for pod in snapshot.observed.foreign)
        state.side_task_left |= any(isinstance(one, KubeError) for one in found)

    async def write_status(self, snapshot: Snapshot[W, S, R], wanted: Status, required: Collection[str]) -> None:
        """Write the status if it changed, and remember it until the cache has it. [CS-58, CS-61]

        ``required`` lists the fields that the schema requires. Raises any API error.
        """
        workload, state, revisions = snapshot.workload, snapshot.state, snapshot.revisions
        difference = partial(status_patch, wanted=wanted, required=required)
        known = state.present_status(workload)
        written = await write_status(self.client, self.kind.resource, workload.metadata, known, difference)
        if written is not None:
            state.written = KnownStatus(wanted, written.version)
            if wanted.get("currentRevision") == revisions.update.name != revisions.current.name:
                state.side_task_left = True  # the rollout is over: its ImagePullJobs must be deleted [CS-139]

    async def truncate_history(self, snapshot: Snapshot[W, S, R], needed: Collection[Revision]) -> None:
        """Delete old revisions, except those that are ``needed``, used by Pods, or current in the status. Log and retry
        failures. Writing the status does not trigger another reconcile, so this must happen in a rollout's last
        reconcile. [PM-93]"""
        ordered, limit = snapshot.revisions.ordered, snapshot.resolved.settings.history_limit
        if len(ordered) <= limit:
            return
        hashes = {pod.revision for pod in snapshot.pods}
        in_use = {one.name for one in ordered if short_hash(one.name) in hashes}
        in_use.update(one.name for one in needed)
        in_use.add(str(snapshot.state.present_status(snapshot.workload).status.get("currentRevision") or ""))
        if self.limits_used_revisions:
            limit -= sum(one.name in in_use and one.name != snapshot.revisions.update.name for one in ordered)
        try:
            await self.history.truncate(snapshot.resolved.content, ordered, in_use, limit)
        except KubeError as error:
            logger.info("%s: cleanup failed: %s", snapshot.owner, error)
            snapshot.state.side_task_left = True

    def seconds_until(self, time: float) -> float:
        """Return the seconds until ``time`` (POSIX seconds) has passed; 0 if it is infinite."""
        return max(0.001, time - self.clock.now().timestamp() + 0.001) if time < inf else 0.0

    # ---- other reads

    async def _node_labels(self) -> dict[str, Mapping[str, str]]:
        """Read the labels of all nodes. [CS-114]"""
        found = await self.client.list(NODES, metadata_only=True, decode=decode_metadata)
        return {node.metadata.name: node.metadata.labels for node in found.items}


def result_of(outcomes: Iterable[Outcome], seconds: Iterable[float], *, retry: bool) -> Result | None:
    """Return when to reconcile next unless a watch event arrives earlier: the earliest of all times. [CS-65]

    ``seconds`` are delays in addition to those of the outcomes; non-positive ones are ignored. ``retry`` requests a
    back-off after a failure, because there may be no watch event to trigger a retry. Raises an outcome's error, except
    conflicts.
    """
    times, errors = list(seconds), []
    for outcome in outcomes:
        times += outcome.requeue_after
        if isinstance(outcome.error, Conflict):
            # A conflict is common: the event of the newer Pod triggers the next reconcile.
            times.append(CONFLICT_DELAY)
        else:
            errors.append(outcome.error)
    error = most_urgent(errors)
    if error is not None:
        if error.retry_in:
            error.retry_in = min([error.retry_in, *(time for time in times if time > 0)])
        raise error
    if retry:
        return Result(requeue=True)
    positive = [time for time in times if time > 0]
    return Result(requeue_after=min(positive)) if positive else None
