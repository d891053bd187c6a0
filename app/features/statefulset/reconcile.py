"""The StatefulSet controller: its watches and its reconcile method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from app.api import names
from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.plan.claims import (
    GROWN_BY,
    ClaimState,
    claim_counts,
    claim_state,
    growths,
    uncounted_claims,
)
from app.features.statefulset.plan.settings import (
    KIND,
    Gates,
    Replica,
    Replicas,
    ResolvedSpec,
    resolve_spec,
    settings_of,
)
from app.features.statefulset.plan.status import FAILED_CREATE, FAILED_UPDATE, REQUIRED, base_status
from app.features.statefulset.plan.update import candidates, plan_update, released
from app.features.statefulset.types import StatefulSet
from app.features.statefulset.webhooks import SPECS
from app.features.statefulset.writes import (
    WORDING,
    NamedClaimsWriter,
    Observed,
    Scaler,
    StatefulSetState,
    StatefulSetUpdater,
)
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import CLAIMS, PODS, REVISIONS, Stores, Watched
from app.kube.client import Client
from app.kube.controller import Result, Watch
from app.kube.events import EventRecorder
from app.kube.objects import PersistentVolumeClaim, Pod
from app.kube.resources import ObjectKey
from app.kube.store import Change, Store
from app.pods.disruption_budget import LeastAvailable
from app.pods.ordinals import ordinal_of
from app.pods.sorting import UpdateOrder, by_readable_priority
from app.workloads import controllers as engine
from app.workloads.image_pulls import ImagePuller, RolloutCounts
from app.workloads.pods import PodFacts
from app.workloads.reconciler import WorkloadReconciler, result_of
from app.workloads.state import Caches, Outcome, failures_of
from app.workloads.status import WAITING_FOR_AGENT, with_failures

# Reconciliation: compute the plan, carry it out, report the result. [AS-34 … AS-41, AS-116 … AS-121]


class StatefulSetReconciler(WorkloadReconciler[StatefulSet, StatefulSetState, ResolvedSpec]):
    """Reconciles StatefulSets. ``claims`` is the cache of all claims. ``options`` are passed to the workload engine."""

    adopts: ClassVar[bool] = True

    spec_type = SPECS[names.V1BETA1]

    def __init__(
        self,
        client: Client,
        caches: Caches[StatefulSet],
        claims: Store[PersistentVolumeClaim],
        events: EventRecorder,
        *,
        gates: Gates | None = None,
        **options: Any,
    ) -> None:
        self._writer = NamedClaimsWriter(client, events, KIND, WORDING)
        super().__init__(client, KIND, caches, self._writer, StatefulSetState, **options)
        self._gates = gates if gates is not None else Gates()
        self._claims = claims
        self._scaler = Scaler(self._writer, claims)
        self._updater = StatefulSetUpdater(self._writer, self.metrics)
        self._puller = ImagePuller(client, self._writer, self.history)

    def resolve(self, workload: StatefulSet) -> ResolvedSpec:
        return resolve_spec(workload, self._gates)

    def may_adopt(self, resolved: ResolvedSpec, pod: Pod) -> bool:
        """Return whether the Pod's name consists of the set's name and an ordinal. [AS-38, AS-134]"""
        return ordinal_of(resolved.owner.name, pod.metadata.name) >= 0

    def watches(self) -> list[Watch[Any]]:
        """Return the watches of the controller. [AS-34, AS-146]"""
        return [*super().watches(), Watch(self._claims, self.keys_for_claim, self.mappers.coalesce_delay)]

    def keys_for_claim(self, change: Change[PersistentVolumeClaim]) -> Iterable[ObjectKey]:
        """Return the StatefulSets that are waiting for the claim to be deleted, are expanding it, or have not yet
        counted it in their status."""
        metadata = change.object.metadata
        name, states = metadata.name, self.states.in_namespace(metadata.namespace)
        if change.old is None:
            return [state.key for state in states if name in state.uncounted]
        keys = [state.key for state in states if name in state.waits_for or name in state.uncounted]
        if owner := metadata.annotations.get(GROWN_BY):
            keys.append(ObjectKey(metadata.namespace, owner))
        return dict.fromkeys(keys)

    async def reconcile(self, snapshot: Observed) -> Result | None:
        """Reconcile one StatefulSet. [AS-53, AS-85]"""
        settings = snapshot.resolved.settings
        leaving = snapshot.state.facts_of(snapshot.observed.inactive, snapshot.resolved)
        replicas = Replicas.of(settings, snapshot.owner.name, [*snapshot.pods, *leaving])
        scaling, updating, deleting = Outcome(message=None), Outcome(message=None), snapshot.workload.deleting
        begun: frozenset[PodFacts] = frozenset()
        if not deleting:
            await self.release_foreign(snapshot)
            if settings.gates.pre_download:
                await self._puller.reconcile(snapshot, _pull_counts(snapshot, replicas))
            scaling, updating, begun = await self._work(snapshot, replicas)
        await self._report(snapshot, replicas, scaling, updating, begun)
        if not deleting:
            # Newly created Pods may be at a revision that the status no longer contains.
            revisions = snapshot.revisions
            needed = (revisions.current, revisions.update) if scaling.changed else (revisions.update,)
            await self.truncate_history(snapshot, needed)
        again = self.seconds_until(replicas.next_available(snapshot.now.timestamp()))
        return result_of((scaling, updating), [again], retry=bool(updating.message))

    async def _work(self, snapshot: Observed, replicas: Replicas) -> tuple[Outcome, Outcome, frozenset[PodFacts]]:
        """Scale and update. Return both outcomes, and the Pods whose update or deletion has begun."""
        current, update = snapshot.current_hash, snapshot.update_hash
        listed = candidates(replicas, current=current, update=update)
        refreshed, moved = await self._updater.refresh(snapshot, released(replicas, listed, update=update))
        plan = self._scaler.plan(snapshot, replicas).without(moved)
        upkeep = await self._scaler.keep_up(snapshot, replicas)
        scaling = await self._scaler.carry_out(snapshot, plan, upkeep, self.clock.monotonic())
        if scaling.changed or refreshed.error is not None:
            refreshed.message = _joined(upkeep.message, refreshed.message)
            return scaling, refreshed, frozenset()
        states = self._claim_states(snapshot, replicas.wanted)
        rollout = plan_update(
            _with_claims(replicas, states),
            listed,
            update=update,
            now=snapshot.now.timestamp(),
            obstacle=lambda pod: snapshot.state.in_place.obstacle(
                pod, snapshot.revisions.update, snapshot.revisions.ordered, snapshot.resolved.settings
            ),
            claims=states,
            # If a Pod cannot be created, no other Pod is taken down. [AS-55]
            begin=not (plan.blocked or scaling.error or snapshot.state.creation_backoff.refused),
            held_by=plan.held_by,
        )
        updating = await self._updater.carry_out(snapshot, rollout.update, refreshed, moved)
        problem = await self._grow(snapshot, rollout.grow) if rollout.grow else ""
        updating.message = _joined(upkeep.message, updating.message, problem)
        return scaling, updating, rollout.begun(updating.done)

    def _claim_states(self, snapshot: Observed, pods: Sequence[Replica]) -> dict[int, ClaimState]:
        resolved = snapshot.resolved
        if not resolved.settings.resize_claims or not resolved.claim_templates:
            return {}
        claims = self._scaler.claims_of(snapshot)
        return {one.ordinal: claim_state(resolved, one, claims) for one in pods}

    async def _grow(self, snapshot: Observed, pods: Sequence[Replica]) -> str:
        claims = self._scaler.claims_of(snapshot)
        wanted = [(pod.name, one) for pod in pods for one in growths(snapshot.resolved, pod, claims)]
        return await self._writer.grow_claims(snapshot.workload, wanted)

    async def _report(
        self,
        snapshot: Observed,
        replicas: Replicas,
        scaling: Outcome,
        updating: Outcome,
        begun: frozenset[PodFacts],
    ) -> None:
        """Write the status. [AS-116 … AS-121]"""
        workload, resolved, now = snapshot.workload, snapshot.resolved, self.clock.now()
        wanted = base_status(
            replicas,
            snapshot.revisions,
            generation=workload.metadata.generation,
            label_selector=resolved.selector_text,
            now=now.timestamp(),
            begun=begun,
        )
        claims = self._scaler.claims_of(snapshot)
        wanted["volumeClaims"] = claim_counts(resolved, replicas, claims)
        snapshot.state.uncounted = uncounted_claims(resolved, replicas, claims)
        failures = failures_of({FAILED_CREATE: scaling, FAILED_UPDATE: updating})
        failures[WAITING_FOR_AGENT] = updating.waiting or None
        present = snapshot.state.present_status(workload).status
        wanted["conditions"] = with_failures(present.get("conditions") or [], failures, now)
        await self.write_status(snapshot, wanted, REQUIRED)


def _joined(*messages: str | None) -> str:
    return "; ".join(filter(None, messages))


def _with_claims(replicas: Replicas, states: dict[int, ClaimState]) -> Replicas:
    """Treat Pods whose claims wait for an expansion as unavailable. [AS-78]"""
    if not states:
        return replicas
    wanted = [
        Replica(one.ordinal, one.facts, (state := states.get(one.ordinal)) is None or state.ready)
        for one in replicas.wanted
    ]
    return Replicas(replicas.settings, wanted, replicas.condemned)


def _pull_counts(snapshot: Observed, replicas: Replicas) -> RolloutCounts:
    settings, update = snapshot.resolved.settings, snapshot.update_hash
    return RolloutCounts(
        replicas=settings.replicas,
        partition=min(settings.partition, settings.replicas),
        max_unavailable=settings.update_limit,
        updated_ready=sum(one.running_and_ready and one.is_at(update) for one in replicas.everyone),
    )


NAME: Final = "statefulset-controller"
STATEFUL_SETS: Final = Watched.kind(STATEFUL_SET, StatefulSet)
#: Claims of a StatefulSet have no common label, so all claims are watched and looked up by name.
ALL_CLAIMS: Final = CLAIMS.selected("all PersistentVolumeClaims", "")
WATCHED: Final = (STATEFUL_SETS, PODS, ALL_CLAIMS, REVISIONS)


def caches_of(stores: Stores) -> Caches[StatefulSet]:
    """Return the caches that the controller reads in addition to claims."""
    return Caches(stores(STATEFUL_SETS), stores(PODS), None, stores(REVISIONS))


def statefulset_controller(context: ControllerContext) -> Reconciling:
    """Build the controller."""
    reconciler = StatefulSetReconciler(
        context.client,
        caches_of(context.stores),
        context.stores(ALL_CLAIMS),
        context.events,
        gates=Gates.of(context.enabled),
        **engine.options(context, STATEFUL_SET),
    )
    return Reconciling(reconciler, reconciler.watches())


def least_available_of(context: ControllerContext) -> LeastAvailable:
    """Return a function that computes the minimum number of available Pods: replicas minus maxUnavailable."""
    gates = Gates.of(context.enabled)

    def least(found: StatefulSet) -> int:
        settings = settings_of(found.spec, gates)
        return settings.replicas - settings.update_limit

    return engine.least_available(context, STATEFUL_SETS, least)


def update_order_of(context: ControllerContext) -> UpdateOrder:
    """Return the function that sorts Pods into update order: by descending ordinal, or by priority if the update is
    unordered."""
    gates = Gates.of(context.enabled)

    def order(found: StatefulSet, pods: Sequence[Pod]) -> Sequence[Pod]:
        descending = sorted(pods, key=lambda pod: -ordinal_of(found.name, pod.metadata.name))
        settings = settings_of(found.spec, gates)
        return by_readable_priority(descending, settings.priority) if settings.unordered else descending

    return engine.update_order(context, STATEFUL_SETS, order)
