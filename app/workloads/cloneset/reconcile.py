"""The CloneSet controller's pass: read the caches, ask the plan, carry it out, report (CS-44 … CS-68)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from app.api.cloneset import CLONE_SET, CloneSet
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.errors import Conflict, Forbidden, NotFound
from app.kube.events import EventRecorder
from app.kube.expectations import ScaleAction, is_at_least
from app.kube.objects import (
    ControllerRevision,
    PersistentVolumeClaim,
    Pod,
    decode_metadata,
    decode_pod,
)
from app.kube.resources import NODES, PODS, ObjectKey
from app.kube.selectors import SelectorError
from app.kube.store import Change
from app.pods.budget import DisruptionBudget, NoBudget
from app.pods.revisions import Revision, short_hash
from app.workloads.cloneset.history import OWNER, History
from app.workloads.cloneset.orders import deletion_order, topology_keys
from app.workloads.cloneset.plan import RolloutState, rollout_state, scale
from app.workloads.cloneset.pods import PodFacts
from app.workloads.cloneset.pulling import ImagePuller
from app.workloads.cloneset.reporting import Reporter
from app.workloads.cloneset.resolved import ResolvedSpec, resolve_spec
from app.workloads.cloneset.scaling import Outcome, PodsAndClaims, Scaler
from app.workloads.cloneset.settings import Gates
from app.workloads.cloneset.state import Caches, CloneSetState, Metrics, NoMetrics, managing_reference
from app.workloads.cloneset.status import Revisions
from app.workloads.cloneset.updating import Updater
from app.workloads.cloneset.writer import Writer, gather_results, observe_claim

logger = logging.getLogger(__name__)

#: Seconds between two passes that only Pods ask for: what comes meanwhile is seen together.
COALESCE_SECONDS: Final = 0.05
#: Seconds that a timer may fire early.
TIMER_TOLERANCE: Final = 0.005
#: Seconds after which an expectation that was given up is looked at again.
RECHECK_DELAY: Final = 10.0
#: Seconds after which Pods are looked at again that somebody else wrote at the same time.
CONFLICT_DELAY: Final = 1.0
#: How long the labels of nodes are believed, in seconds.
NODE_LABELS_TTL: Final = 60.0

_CLONESETS = CLONE_SET.resource()


class CloneSetReconciler:
    """Keeps the Pods of all CloneSets.

    ``expectation_timeout``: seconds the cache may take to show our writes (CS-52); ``force_expectations``: gate
    ForceDeleteTimeoutExpectationGate; ``exclude_preparing_delete``: the flag of CS-175.
    """

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: EventRecorder,
        rng: Random,
        *,
        gates: Gates | None = None,
        budget: DisruptionBudget | None = None,
        metrics: Metrics | None = None,
        expectation_timeout: float = 300.0,
        force_expectations: bool = False,
        exclude_preparing_delete: bool = False,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._caches = caches
        self._gates = gates if gates is not None else Gates()
        self._metrics = metrics if metrics is not None else NoMetrics()
        self._timeout = expectation_timeout
        self._force = force_expectations
        self._exclude = exclude_preparing_delete
        self.writer = Writer(client, events)
        self._history = History(client, caches.revisions)
        self._scaler = Scaler(self.writer, rng)
        self._updater = Updater(self.writer, client.clock, budget if budget is not None else NoBudget(), self._metrics)
        self._puller = ImagePuller(client, self.writer, self._history)
        self._reporter = Reporter(client, self._history)
        self._states: dict[ObjectKey, CloneSetState] = {}
        self._nodes: dict[str, Mapping[str, str]] = {}
        self._nodes_until = 0.0

    # ---- what changes concern

    def keys_for_cloneset(self, change: Change[CloneSet]) -> Iterable[ObjectKey]:
        """CS-44: itself, but for a status that we wrote, if that is all that is new."""
        found = change.object
        key = ObjectKey(found.metadata.namespace, found.name)
        state = self._states.get(key)
        if state is not None and state.written is not None and _is_own_status_write(change, state.written.version):
            return ()
        return (key,)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """CS-45 … CS-48: the CloneSets that manage the Pod, or did until now."""
        pod, expected = change.object, self.writer.scale
        references = [managing_reference(one.metadata) for one in (change.old, change.new) if one is not None]
        keys: dict[ObjectKey, None] = {}
        for uid, name in {found.uid: found.name for found in references if found is not None}.items():
            key = ObjectKey(pod.metadata.namespace, name)
            keys[key] = None
            if change.old is None:
                expected.observe(uid, ScaleAction.CREATE, pod.metadata.name)
            if change.new is None or pod.metadata.deletion_timestamp is not None:
                expected.observe(uid, ScaleAction.CREATE, pod.metadata.name)
                asked = expected.observe(uid, ScaleAction.DELETE, pod.metadata.name)
                if not asked and (change.old is None or change.old.metadata.deletion_timestamp is None):
                    self._deleted_by_others(key, uid)
        if change.new is None:
            self.writer.versions.forget(pod.metadata.uid)
        return keys

    def _deleted_by_others(self, key: ObjectKey, uid: str) -> None:
        state = self._states.get(key)
        if state is not None and state.uid == uid:
            state.pods_deleted_by_others = True

    def keys_for_claim(self, change: Change[PersistentVolumeClaim]) -> Iterable[ObjectKey]:
        """CS-49: the CloneSet of a claim that comes, goes or is given away; other changes concern nobody."""
        claim = change.object
        old = managing_reference(change.old.metadata) if change.old is not None else None
        new = managing_reference(change.new.metadata) if change.new is not None else None
        going = change.new is None or claim.metadata.deletion_timestamp is not None
        if change.old is not None and old == new and not going:
            return ()
        keys = []
        for reference in {found.uid: found for found in (old, new) if found is not None}.values():
            name = observe_claim(claim.metadata.name)
            self.writer.scale.observe(reference.uid, ScaleAction.CREATE, name)
            if going:
                self.writer.scale.observe(reference.uid, ScaleAction.DELETE, name)
            keys.append(ObjectKey(claim.metadata.namespace, reference.name))
        return keys

    def keys_for_revision(self, change: Change[ControllerRevision]) -> Iterable[ObjectKey]:
        """CS-49: nobody; the history is told what the cache shows."""
        self._history.observe(change)
        return ()

    def coalesce_delay(self, change: Change[Any], key: ObjectKey) -> float:  # noqa: ARG002
        """How long a pass that a Pod asks for is put off: a burst of events costs few passes."""
        state = self._states.get(key)
        if state is None:
            return 0.0
        if state.next_reconcile is None:
            state.next_reconcile = state.last_reconcile + COALESCE_SECONDS
        return state.next_reconcile - self._clock.monotonic()

    # ---- one pass

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Bring one CloneSet's Pods and status up to date."""
        owner = self._caches.sets.by_key(key)
        if owner is None:
            gone = self._states.pop(key, None)
            if gone is not None:
                self.writer.forget(gone.uid)  # CS-50
            return None
        state = self._state(key, owner)
        resolved = self._view(owner, state)
        if resolved is None:
            return None  # CS-51
        waiting = await self._expectations(owner, state)
        if waiting is not None:
            return waiting
        try:
            if state.pods_deleted_by_others and not await self._still_exists(owner, state):
                return None  # the cache does not know yet; when it does we come here again
            return await self._reconcile(owner, state, resolved)
        finally:
            state.last_reconcile = self._clock.monotonic()

    async def _still_exists(self, owner: CloneSet, state: CloneSetState) -> bool:
        """Whether the CloneSet is not gone, after somebody else took Pods of it. The garbage collector takes all of one
        that is; where the cache learns of that late, each would be replaced, and taken again, at full speed."""
        state.pods_deleted_by_others = False
        there = False
        try:
            live = await self._client.get(_CLONESETS, owner.name, owner.metadata.namespace, decode=decode_metadata)
            there = live.metadata.uid == state.uid and (owner.deleting or live.metadata.deletion_timestamp is None)
        except NotFound:
            pass
        except Forbidden:
            there = True  # roles of an older release: as good as not looking
            logger.warning("CloneSet %s: may not be read, so Pods of it are replaced though it may be gone", state.key)
        finally:
            state.pods_deleted_by_others |= not there
        return there

    def _state(self, key: ObjectKey, owner: CloneSet) -> CloneSetState:
        state = self._states.get(key)
        if state is None or state.uid != owner.metadata.uid:
            if state is not None:
                self.writer.forget(state.uid)
            state = self._states[key] = CloneSetState(owner.metadata.uid, key)
        state.last_reconcile = self._clock.monotonic()
        if state.next_reconcile is not None and state.next_reconcile <= state.last_reconcile + TIMER_TOLERANCE:
            state.next_reconcile = None
        return state

    def _view(self, owner: CloneSet, state: CloneSetState) -> ResolvedSpec | None:
        # A label or an annotation written in v1alpha1 may be a field here, and moves no generation (CS-9, CS-10).
        key = (owner.metadata.generation, owner.metadata.labels, owner.metadata.annotations)
        if state.resolved is None or state.resolved_key != key:
            try:
                state.resolved = resolve_spec(owner, self._gates, exclude_preparing_delete=self._exclude)
            except SelectorError as error:
                logger.warning("CloneSet %s is left alone, its selector cannot be read: %s", state.key, error)
                state.resolved = None
                return None
            state.resolved_key = key
            state.facts, state.specs = {}, {}
            state.unrecorded.clear()
            state.refused_creations, state.create_after = 0, 0.0
        return state.resolved

    async def _reconcile(self, owner: CloneSet, state: CloneSetState, resolved: ResolvedSpec) -> Result | None:
        """CS-53 … CS-65."""
        pods, foreign, inactive = state.pods(self._caches, resolved)
        claims = [
            claim
            for claim in self._caches.claims.by_index(OWNER, state.uid)
            if claim.metadata.deletion_timestamp is None
        ]
        present = state.present_status(owner).status
        ordered = await self._revisions(owner, state, resolved, pods, present.get("currentRevision") or "")
        update, collisions = await self._history.record(
            owner, resolved.content, ordered, int(present.get("collisionCount") or 0)
        )
        if not any(one.name == update.name for one in ordered) or update.number != ordered[-1].number:
            ordered = self._history.revisions(owner, resolved.selector)
        name = present.get("currentRevision")
        current = next((one for one in ordered if one.name == name), update)  # CS-73
        now = self._clock.now()
        rollout = rollout_state(
            pods,
            resolved.settings,
            short_hash(current.name),
            short_hash(update.name),
            now.timestamp(),
            in_place_surge=state.in_place_surge(current, update, ordered, resolved),
        )
        pods_and_claims = PodsAndClaims([one.pod for one in pods], inactive, claims, self._caches.name_taken(owner))
        scaling, updating = Outcome(message=None), Outcome(message=None)
        if not owner.deleting:
            if foreign:
                await gather_results(self.writer.release(state.uid, pod) for pod in foreign)
            if not resolved.settings.reuse_claims and claims:
                kept = await self._scaler.clean_up_claims(owner, pods_and_claims)
                pods_and_claims = PodsAndClaims(pods_and_claims.active, [], kept)
            if resolved.settings.gates.pre_download:
                await self._puller.look(owner, state, resolved, rollout, current, ordered)
            scaling = await self._scale(owner, state, resolved, rollout, (current, update), pods_and_claims)
            if not scaling.changed:
                updating = await self._updater.carry_out(owner, state, resolved, rollout, (current, update), ordered)
        revisions = Revisions(current.name, update.name, collisions)
        again = await self._reporter.report(owner, state, resolved, rollout, revisions, scaling, updating)
        if not owner.deleting:
            # What was created just now may be at a revision that the status no longer names.
            needed = (current, update) if scaling.changed else (update,)
            await self._reporter.clean_up(owner, state, resolved, rollout, needed, ordered)
        return self._result(rollout, again, scaling, updating)

    async def _revisions(
        self, owner: CloneSet, state: CloneSetState, resolved: ResolvedSpec, pods: list[PodFacts], current: str
    ) -> list[Revision]:
        """CS-56: all of them, oldest first; ``current`` is the one the status names. What the cache lacks is asked for:
        for want of its revision a Pod would be replaced (PM-10), or made at the wrong one (CS-73)."""
        ordered = self._history.revisions(owner, resolved.selector)
        missing_revisions = state.missing_revisions(pods, current, ordered)
        for name in missing_revisions:
            if not await self._history.is_recorded(owner, name):
                state.unrecorded.add(name)
        return self._history.revisions(owner, resolved.selector) if missing_revisions else ordered

    async def _scale(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        rollout: RolloutState,
        revisions: tuple[Revision, Revision],
        pods_and_claims: PodsAndClaims,
    ) -> Outcome:
        nodes = {}
        if rollout.to_scale.delete and topology_keys(resolved.template):
            nodes = await self._node_labels()
        plan = scale(rollout, deletion_order(resolved.template, nodes.get, rollout.now))
        return await self._scaler.carry_out(
            owner, state, resolved, plan, revisions, pods_and_claims, self._clock.monotonic()
        )

    def _result(self, rollout: RolloutState, again: float, scaling: Outcome, updating: Outcome) -> Result | None:
        """CS-64, CS-65, B-12: the earliest time at which something may have changed by itself."""
        times = [again, *scaling.requeue_after, *updating.requeue_after]
        for outcome in (scaling, updating):
            if isinstance(outcome.error, Conflict):
                # Everyday: the newer Pod is on its way and brings us here again.
                times.append(CONFLICT_DELAY)
            elif outcome.error is not None:
                raise outcome.error
        if rollout.next_available < float("inf"):
            times.append(max(0.001, rollout.next_available - self._clock.now().timestamp() + 0.001))
        positive = [seconds for seconds in times if seconds > 0]
        if updating.message:
            # Nothing that is watched may change what failed: with the growing back-off.
            return Result(requeue=True)
        return Result(requeue_after=min(positive)) if positive else None

    # ---- expectations

    async def _expectations(self, owner: CloneSet, state: CloneSetState) -> Result | None:
        """CS-52, CS-57: nothing is decided before the cache shows what we wrote."""
        writer, uid = self.writer, state.uid
        unsatisfied = writer.scale.unsatisfied(uid)
        if unsatisfied is not None:
            if unsatisfied.waited < self._timeout:
                return Result(requeue_after=unsatisfied.remaining(self._timeout))
            self._metrics.expectation_leaked(owner.metadata.namespace, owner.name)
            logger.warning("CloneSet %s: the cache does not show: %s", state.key, unsatisfied.outstanding)
            if not self._force and not await self._cache_is_complete(owner, state):
                return Result(requeue_after=RECHECK_DELAY)
            writer.scale.forget(uid)
            return Result(requeue_after=RECHECK_DELAY)
        written = writer.written.get(uid)
        if not written:
            return None
        for pod in self._caches.pods.by_index(OWNER, uid):
            if pod.metadata.uid not in written:
                continue
            late = writer.versions.unsatisfied(pod.metadata)
            if late is None:
                continue
            if late.waited < self._timeout:
                return Result(requeue_after=late.remaining(self._timeout))
            # B-4: whoever is right, waiting longer does not help.
            await self._forget_if_shown(pod)
        written.clear()
        return None

    async def _cache_is_complete(self, owner: CloneSet, state: CloneSetState) -> bool:
        """Whether the API server has the same Pods as the cache: then what was expected will never come."""
        live = await self._client.list(PODS, owner.metadata.namespace, decode=decode_pod)
        known = {pod.metadata.uid for pod in self._caches.pods.by_index(OWNER, state.uid)}
        present = {
            pod.metadata.uid
            for pod in live.items
            if (reference := managing_reference(pod.metadata)) is not None and reference.uid == state.uid
        }
        return known == present

    async def _forget_if_shown(self, pod: Pod) -> None:
        try:
            live = await self._client.get(PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_pod)
        except NotFound:
            return
        if live.metadata.uid == pod.metadata.uid and is_at_least(
            pod.metadata.resource_version, live.metadata.resource_version
        ):
            self.writer.versions.forget(pod.metadata.uid)

    # ---- what else is read

    async def _node_labels(self) -> dict[str, Mapping[str, str]]:
        """CS-114: the labels of all nodes, read when they are needed."""
        now = self._clock.monotonic()
        if now >= self._nodes_until:
            nodes: dict[str, Mapping[str, str]] = {}
            token = ""
            while True:
                page = await self._client.list_page(
                    NODES, metadata_only=True, continue_token=token, decode=decode_metadata
                )
                nodes.update({node.metadata.name: node.metadata.labels for node in page.items})
                token = page.continue_token
                if not token:
                    break
            self._nodes, self._nodes_until = nodes, now + NODE_LABELS_TTL
        return self._nodes


def _is_own_status_write(change: Change[CloneSet], version: str) -> bool:
    """Whether the change is the status written as ``version``, alone: a cache that was behind may show it together with
    what users wrote before it."""
    old, new = change.old, change.new
    if old is None or new is None or new.metadata.resource_version != version:
        return False
    return new.is_but_for_status(old)
