"""The CloneSet controller: its watches, its reconcile method, and the status it writes."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from random import Random
from typing import Any, Final

from app.api import names
from app.features.cloneset.defaults import MAX_UNAVAILABLE
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.plan.diff import Inputs, RolloutState, counted
from app.features.cloneset.plan.new_pods import pod_name
from app.features.cloneset.plan.scale import asks_for_nodes, planned_scaling
from app.features.cloneset.plan.settings import KIND, Gates, ResolvedSpec, limits, resolve_spec, settings_of
from app.features.cloneset.plan.status import REQUIRED, base_status, progress
from app.features.cloneset.plan.update import in_order, planned_update, released
from app.features.cloneset.types import CloneSet
from app.features.cloneset.webhooks import SPECS
from app.features.cloneset.writes import (
    CloneSetState,
    CloneSetUpdater,
    Observed,
    PodsAndClaims,
    Scaler,
)
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import CLAIMS, PODS, REVISIONS, Stores, Watched
from app.kube.client import Client, PatchType
from app.kube.controller import Result
from app.kube.errors import Conflict, KubeError
from app.kube.events import EventRecorder
from app.kube.objects import Pod, decode_metadata
from app.kube.store import Store
from app.pods.disruption_budget import LeastAvailable
from app.pods.lifecycle import LifecycleState, state_members
from app.pods.predicates import refers_to
from app.pods.readiness import InitialMetadata
from app.pods.revisions import Revision
from app.pods.sorting import UpdateOrder
from app.workloads import controllers as engine
from app.workloads.image_pulls import ImagePuller, RolloutCounts
from app.workloads.pods import gets_initial_conditions
from app.workloads.reconciler import WorkloadReconciler, result_of
from app.workloads.settings import share
from app.workloads.state import Caches, Outcome, failures_of
from app.workloads.status import FAILED_SCALE, FAILED_UPDATE, WAITING_FOR_AGENT, with_failures
from app.workloads.writer import Writer

logger = logging.getLogger(__name__)


# Reconciliation: compute the plan, carry it out, report the result. [CS-44 … CS-68]


class CloneSetReconciler(WorkloadReconciler[CloneSet, CloneSetState, ResolvedSpec]):
    """Reconciles CloneSets.

    ``rng`` generates instance IDs; ``exclude_preparing_delete`` is the value of flag
    ``--cloneset-scaling-exclude-preparing-delete`` [CS-175]; ``options`` are passed to the workload engine.
    """

    spec_type = SPECS[names.V1BETA1]

    def __init__(
        self,
        client: Client,
        caches: Caches[CloneSet],
        events: EventRecorder,
        rng: Random,
        *,
        gates: Gates | None = None,
        exclude_preparing_delete: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(client, KIND, caches, Writer(client, events, KIND), CloneSetState, **options)
        self._gates = gates if gates is not None else Gates()
        self._exclude = exclude_preparing_delete
        self._scaler = Scaler(self.writer, rng)
        self._updater = CloneSetUpdater(self.writer, self.metrics)
        self._puller = ImagePuller(client, self.writer, self.history)

    def resolve(self, workload: CloneSet) -> ResolvedSpec:
        return resolve_spec(workload, self._gates, exclude_preparing_delete=self._exclude)

    async def reconcile(self, snapshot: Observed) -> Result | None:
        """Reconcile one CloneSet. [CS-55 … CS-65]"""
        inputs = Inputs(
            snapshot.resolved, snapshot.pods, snapshot.revisions, snapshot.state.in_place, snapshot.now.timestamp()
        )
        rollout = counted(inputs)
        scaling, updating = Outcome(message=None), Outcome(message=None)
        deleting = snapshot.workload.deleting
        if not deleting:
            owned = await self._prepare(snapshot, rollout)
            nodes = await self.node_labels() if asks_for_nodes(inputs, rollout) else {}
            plan = planned_scaling(inputs, rollout, nodes.get)
            scaling = await self._scaler.carry_out(snapshot, owned, plan, self.clock.monotonic())
            if not scaling.changed:
                updating = await self._update(snapshot, inputs, rollout)
        again = await self._report(snapshot, rollout, scaling, updating)
        if not deleting:
            # Newly created Pods may be at a revision that the status no longer contains.
            revisions = snapshot.revisions
            needed = (revisions.current, revisions.update) if scaling.changed else (revisions.update,)
            await self._clean_up(snapshot, needed)
        times = (again, self.seconds_until(rollout.next_available))
        return result_of((scaling, updating), times, retry=bool(updating.message))  # [CS-65]

    async def _report(self, snapshot: Observed, rollout: RolloutState, scaling: Outcome, updating: Outcome) -> float:
        """Write the status if it changed. Return the seconds until the progress deadline must be checked again. [CS-58,
        CS-61, CS-148]"""
        workload, settings = snapshot.workload, snapshot.resolved.settings
        now, present = self.clock.now(), snapshot.state.present_status(workload).status
        wanted = base_status(
            rollout.counts,
            snapshot.revisions,
            generation=workload.metadata.generation,
            replicas=rollout.limits.replicas,
            partition=rollout.limits.partition,
            label_selector=snapshot.resolved.selector_text,
        )
        failures = failures_of({FAILED_SCALE: scaling, FAILED_UPDATE: updating})
        failures[WAITING_FOR_AGENT] = updating.waiting or None
        conditions = with_failures(present.get("conditions") or [], failures, now)
        judged = progress(
            present,
            wanted,
            conditions,
            replicas=rollout.limits.replicas,
            paused=settings.paused,
            deadline=settings.progress_deadline,
            now=now,
        )
        wanted["conditions"] = list(judged.conditions)
        await self.write_status(snapshot, wanted, REQUIRED)
        return judged.requeue_after

    async def _clean_up(self, snapshot: Observed, needed: Collection[Revision]) -> None:
        """Remove the names of deleted Pods from podsToDelete, and delete unused revisions that are not in ``needed``. A
        failure is logged and retried. [CS-62, PM-93]"""
        named = snapshot.workload.spec.scale_strategy.pods_to_delete
        if named:
            present = {pod.name for pod in snapshot.pods}
            left = [name for name in named if name in present]
            try:
                if len(left) < len(named):
                    await self._truncate_pods_to_delete(snapshot.workload, named, left)
            except KubeError as error:
                logger.info("%s: cleanup failed: %s", snapshot.owner, error)
                snapshot.state.side_task_left = True
                return
        await self.truncate_history(snapshot, needed)

    async def _truncate_pods_to_delete(self, workload: CloneSet, named: list[str], left: list[str]) -> None:
        path = "/spec/scaleStrategy/podsToDelete"
        operations: list[dict[str, Any]] = [
            {"op": "test", "path": "/metadata/uid", "value": workload.metadata.uid},
            {"op": "test", "path": path, "value": named},
        ]
        if left:
            operations.append({"op": "replace", "path": path, "value": left})
        else:
            operations.append({"op": "remove", "path": path})
        with suppress(Conflict):
            await self.client.patch(
                self.kind.resource,
                workload.name,
                operations,
                workload.metadata.namespace,
                kind=PatchType.JSON,
                decode=decode_metadata,
            )

    async def _prepare(self, snapshot: Observed, rollout: RolloutState) -> PodsAndClaims:
        """Run the steps that precede creating, deleting and updating Pods. Return the Pods and the remaining claims."""
        name, namespace, pods = snapshot.owner.name, snapshot.owner.namespace, self.caches.pods
        owned = PodsAndClaims(
            [one.pod for one in snapshot.pods],
            snapshot.observed.inactive,
            snapshot.claims,
            lambda instance: pods.get(pod_name(name, instance), namespace) is not None,
        )
        await self.release_foreign(snapshot)
        settings = snapshot.resolved.settings
        if not settings.reuse_claims and snapshot.claims:
            owned = await self._scaler.clean_up_claims(snapshot, owned)
        if settings.gates.pre_download:
            await self._puller.reconcile(snapshot, _pull_counts(rollout))
        return owned

    async def _update(self, snapshot: Observed, inputs: Inputs, rollout: RolloutState) -> Outcome:
        """Continue updates in progress, then plan and start others: an update in progress must not depend on the plan.
        [CS-122 … CS-132]"""
        outcome, moved = await self._updater.refresh(snapshot, released(rollout))
        if outcome.error is not None:
            return outcome
        return await self._updater.carry_out(snapshot, planned_update(inputs, rollout), outcome, moved)


def _pull_counts(rollout: RolloutState) -> RolloutCounts:
    rolling, numbers = rollout.settings.rolling_update, rollout.limits
    wanted = rolling.max_unavailable if rolling is not None else None
    at_once = share(MAX_UNAVAILABLE if wanted is None else wanted, numbers.replicas, round_up=False)
    return RolloutCounts(
        replicas=numbers.replicas,
        partition=numbers.partition,
        max_unavailable=at_once or 0,
        updated_ready=rollout.counts.updated_ready,
    )


NAME: Final = "cloneset-controller"
CLONE_SETS: Final = Watched.kind(CLONE_SET, CloneSet)
#: PersistentVolumeClaims of CloneSet Pods.
SET_CLAIMS: Final = CLAIMS.selected("PersistentVolumeClaims", names.CLONESET_INSTANCE_ID)
WATCHED: Final = (CLONE_SETS, PODS, SET_CLAIMS, REVISIONS)


def caches_of(stores: Stores) -> Caches[CloneSet]:
    """Return the caches that the controller reads."""
    return Caches(stores(CLONE_SETS), stores(PODS), stores(SET_CLAIMS), stores(REVISIONS))


def cloneset_controller(context: ControllerContext) -> Reconciling:
    """Build the controller."""
    flags = context.flags
    reconciler = CloneSetReconciler(
        context.client,
        caches_of(context.stores),
        context.events,
        context.rng,
        gates=Gates.of(context.enabled),
        exclude_preparing_delete=flags.boolean("cloneset-scaling-exclude-preparing-delete"),
        **engine.options(context, CLONE_SET),
    )
    return Reconciling(reconciler, reconciler.watches())


def initial_metadata_of(context: ControllerContext) -> InitialMetadata:
    """Return the function that provides initial metadata for new CloneSet Pods."""
    return initial_metadata(context.stores(CLONE_SETS))


def initial_metadata(sets: Store[CloneSet]) -> InitialMetadata:
    """Return a function that provides the metadata to write to a new Pod along with its initial conditions. A Pod
    without a preNormal hook becomes Normal when it is scheduled; an unschedulable Pod gets only its conditions.
    [CS-135]"""

    def members(pod: Pod, now: datetime) -> Mapping[str, Any] | None:
        reference, namespace = KIND.managing_reference(pod.metadata), pod.metadata.namespace
        owner = sets.get(reference.name, namespace) if reference is not None else None
        if reference is None or owner is None or owner.deleting:
            return {}
        waits_for_hook = owner.spec.lifecycle is not None and owner.spec.lifecycle.pre_normal is not None
        if (
            waits_for_hook
            or not refers_to(reference, namespace, KIND.owner(owner.metadata))
            or not gets_initial_conditions(pod, None)
        ):
            return {}
        if not pod.spec.node_name:
            scheduled = pod.condition("PodScheduled")
            return {} if scheduled is not None and scheduled.status == "False" else None
        labels, annotations = state_members(LifecycleState.NORMAL, now)
        return {"labels": labels, "annotations": annotations}

    return members


def least_available_of(context: ControllerContext) -> LeastAvailable:
    """Return a function that computes the minimum number of available Pods: replicas minus maxUnavailable, which counts
    as at least 1."""
    gates = Gates.of(context.enabled)

    def least(found: CloneSet) -> int:
        numbers = limits(settings_of(found, gates))
        return numbers.replicas - max(1, numbers.max_unavailable)

    return engine.least_available(context, CLONE_SETS, least)


def update_order_of(context: ControllerContext) -> UpdateOrder:
    """Return the function that sorts the Pods of a CloneSet into update order: default order, priorities and
    scattering."""

    def order(found: CloneSet, pods: Sequence[Pod]) -> Sequence[Pod]:
        return in_order(pods, pods, found.spec.update_strategy.rolling_update)

    return engine.update_order(context, CLONE_SETS, order)
