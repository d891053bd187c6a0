"""The CloneSet controller's reconcile: ask the plan, carry it out, report (CS-44 … CS-68)."""

from __future__ import annotations

from random import Random
from typing import Any

from app.api import names
from app.api.cloneset import CloneSet
from app.api.cloneset.gospec import SPECS
from app.kube.client import Client
from app.kube.controller import Result
from app.kube.events import EventRecorder
from app.workloads.cloneset.plan.creation import pod_name
from app.workloads.cloneset.plan.resolved import KIND, ResolvedSpec, resolve_spec
from app.workloads.cloneset.plan.rollout import Inputs, asks_for_nodes, counted, planned_scaling
from app.workloads.cloneset.plan.settings import Gates
from app.workloads.cloneset.reporting import Reporter
from app.workloads.cloneset.scaling import Scaler
from app.workloads.cloneset.snapshot import CloneSetSnapshot, Observed, PodsAndClaims
from app.workloads.cloneset.state import CloneSetState
from app.workloads.cloneset.updating import CloneSetUpdater
from app.workloads.engine.image_pulls import ImagePuller, RolloutCounts
from app.workloads.engine.outcome import Outcome
from app.workloads.engine.reconciler import WorkloadReconciler, result_of
from app.workloads.engine.shares import DEFAULT_MAX_UNAVAILABLE, share
from app.workloads.engine.snapshot import Caches

CloneSetCaches = Caches[CloneSet]


class CloneSetReconciler(WorkloadReconciler[CloneSet, CloneSetState, ResolvedSpec]):
    """Keeps the Pods of all CloneSets. ``rng`` draws instance ids; ``exclude_preparing_delete``: the flag of CS-175.

    ``options`` are those of the engine.
    """

    spec_type = SPECS[names.V1BETA1]

    def __init__(
        self,
        client: Client,
        caches: CloneSetCaches,
        events: EventRecorder,
        rng: Random,
        *,
        gates: Gates | None = None,
        exclude_preparing_delete: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(client, KIND, caches, events, CloneSetState, **options)
        self._gates = gates if gates is not None else Gates()
        self._exclude = exclude_preparing_delete
        self._scaler = Scaler(self.writer, rng)
        self._updater = CloneSetUpdater(self.writer, self.clock, self.budget, self.metrics)
        self._puller = ImagePuller(client, self.writer, self.history)
        self._reporter = Reporter(client, self.history)

    def resolve(self, workload: CloneSet) -> ResolvedSpec:
        """The CloneSet's spec in the words of its plan. Raises SelectorError for a selector that cannot be read."""
        return resolve_spec(workload, self._gates, exclude_preparing_delete=self._exclude)

    async def reconcile(self, snapshot: Observed) -> Result | None:
        """CS-53 … CS-64."""
        current = self._counted(snapshot)
        scaling, updating = Outcome(message=None), Outcome(message=None)
        deleting = snapshot.workload.deleting
        if not deleting:
            current = await self._prepare(current)
            scaling = await self._scale(current)
            if not scaling.changed:
                updating = await self._updater.update(current)
        again = await self._reporter.report(current, scaling, updating)
        if not deleting:
            # What was created just now may be at a revision that the status no longer names.
            revisions = current.revisions
            needed = (revisions.current, revisions.update) if scaling.changed else (revisions.update,)
            await self._reporter.clean_up(current, needed)
        return self._result(current, again, scaling, updating)

    def _counted(self, snapshot: Observed) -> CloneSetSnapshot:
        inputs = Inputs(
            snapshot.resolved, snapshot.pods, snapshot.revisions, snapshot.state.in_place, snapshot.now.timestamp()
        )
        name, namespace, pods = snapshot.owner.name, snapshot.owner.namespace, self.caches.pods
        pods_and_claims = PodsAndClaims(
            [one.pod for one in snapshot.pods],
            snapshot.observed.inactive,
            snapshot.claims,
            lambda instance: pods.get(pod_name(name, instance), namespace) is not None,
        )
        return CloneSetSnapshot.of(snapshot, inputs, counted(inputs), pods_and_claims)

    async def _prepare(self, snapshot: CloneSetSnapshot) -> CloneSetSnapshot:
        """What is due before any Pod is created, deleted or updated."""
        await self.release_foreign(snapshot)
        settings = snapshot.resolved.settings
        if not settings.reuse_claims and snapshot.claims:
            snapshot = await self._scaler.clean_up_claims(snapshot)
        if settings.gates.pre_download:
            await self._puller.reconcile(snapshot, _pull_counts(snapshot))
        return snapshot

    async def _scale(self, snapshot: CloneSetSnapshot) -> Outcome:
        inputs, rollout = snapshot.inputs, snapshot.rollout
        nodes = await self.node_labels() if asks_for_nodes(inputs, rollout) else {}
        plan = planned_scaling(inputs, rollout, nodes.get)
        return await self._scaler.carry_out(snapshot, plan, self.clock.monotonic())

    def _result(self, snapshot: CloneSetSnapshot, again: float, scaling: Outcome, updating: Outcome) -> Result | None:
        """CS-64, B-12."""
        times = (again, self.seconds_until(snapshot.rollout.next_available))
        return result_of((scaling, updating), times, retry=bool(updating.message))


def _pull_counts(snapshot: CloneSetSnapshot) -> RolloutCounts:
    rolling, numbers = snapshot.resolved.settings.rolling_update, snapshot.rollout.limits
    wanted = rolling.max_unavailable if rolling is not None else None
    at_once = share(DEFAULT_MAX_UNAVAILABLE if wanted is None else wanted, numbers.replicas, round_up=False)
    return RolloutCounts(
        replicas=numbers.replicas,
        partition=numbers.partition,
        max_unavailable=at_once or 0,
        updated_ready=snapshot.rollout.counts.updated_ready,
    )
