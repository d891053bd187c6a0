"""The DaemonSet controller: its watches and its reconcile method."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, Final

from app.api import names
from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.plan.scale import Observed, observe, plan_scaling
from app.features.daemonset.plan.settings import KIND, Gates, ResolvedSpec, resolve_spec, settings_of
from app.features.daemonset.plan.status import REQUIRED, base_status
from app.features.daemonset.plan.update import next_available
from app.features.daemonset.types import DaemonSet
from app.features.daemonset.webhooks import SPECS
from app.features.daemonset.writes import (
    WORDING,
    DaemonSetImagePuller,
    DaemonSetState,
    DaemonSetUpdater,
    Scaler,
    Seen,
    counts_of,
)
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import NODES, PODS, REVISIONS, Stores, Watched
from app.kube.client import Client
from app.kube.controller import Result, Watch
from app.kube.events import EventRecorder
from app.kube.objects import Node, Pod
from app.kube.resources import ObjectKey
from app.kube.store import Change, Store
from app.pods.disruption_budget import LeastAvailable
from app.pods.revisions import short_hash
from app.pods.sorting import UpdateOrder
from app.workloads import controllers as engine
from app.workloads.reconciler import WorkloadReconciler, result_of
from app.workloads.state import Caches, Outcome
from app.workloads.status import WAITING_FOR_AGENT, with_failures
from app.workloads.writer import Writer

# Reconciliation: compute the plans, carry them out, report the result. [DS-20 … DS-23]


class DaemonSetReconciler(WorkloadReconciler[DaemonSet, DaemonSetState, ResolvedSpec]):
    """Reconciles DaemonSets. ``rng`` draws the suffixes of Pod names; ``options`` are passed to the workload engine."""

    adopts = True
    limits_used_revisions = True
    spec_type = SPECS[names.V1BETA1]

    def __init__(
        self,
        client: Client,
        caches: Caches[DaemonSet],
        nodes: Store[Node],
        events: EventRecorder,
        rng: Random,
        *,
        gates: Gates | None = None,
        **options: Any,
    ) -> None:
        super().__init__(client, KIND, caches, Writer(client, events, KIND, WORDING), DaemonSetState, **options)
        self._gates = gates if gates is not None else Gates()
        self._cluster_nodes = nodes
        self._scaler = Scaler(self.writer, caches.pods, rng)
        self._updater = DaemonSetUpdater(self.writer, self.metrics, self._scaler)
        self._puller = DaemonSetImagePuller(client, self.writer, self.history)

    def resolve(self, workload: DaemonSet) -> ResolvedSpec:
        return resolve_spec(workload, self._gates)

    def may_adopt(self, resolved: ResolvedSpec, pod: Pod) -> bool:  # noqa: ARG002
        """Return False for an empty selector: it matches all Pods, so none may be adopted. [DS-20, DS-69]"""
        return not resolved.selector.empty

    def watches(self) -> list[Watch[Any]]:
        return [*super().watches(), Watch(self._cluster_nodes, self.keys_for_node, self.mappers.coalesce_delay)]

    def keys_for_node(self, change: Change[Node]) -> Iterable[ObjectKey]:
        """Return the DaemonSets that the change affects, except those not reconciled yet, which are queued anyway.
        [DS-71]"""
        old, new = change.old, change.new
        if old is not None and new is not None and old.spec == new.spec and old.metadata.labels == new.metadata.labels:
            return  # most updates of nodes are heartbeats
        for state in self.states.everywhere():
            resolved = state.resolved
            if resolved is None:
                continue
            before = state.facts_of_node(resolved, old).relevant if old is not None else (False, False, False)
            after = state.facts_of_node(resolved, new).relevant if new is not None else (False, False, False)
            if before != after and (old is not None or after[0]):
                yield state.key

    async def reconcile(self, snapshot: Seen) -> Result | None:
        """Reconcile one DaemonSet. [DS-21 … DS-23]"""
        if snapshot.workload.deleting:
            return None
        if snapshot.resolved.selector.empty:
            text = "This DaemonSet is selecting all pods. A non-empty selector is required."
            self.writer.event(snapshot.workload, "SelectingAll", text, warning=True)
            return None
        await self.release_foreign(snapshot)
        nodes, settings = self._observed(snapshot), snapshot.resolved.settings
        if settings.gates.pre_download_images:
            await self._puller.reconcile(snapshot, counts_of(nodes, settings.limits(nodes.desired)))
        plan = plan_scaling(nodes, settings, snapshot.state.held(self.clock.monotonic()))
        scaling, updating = await self._scaler.carry_out(snapshot, plan), Outcome()
        if not scaling.changed and scaling.error is None:
            # Scaling wrote nothing, so the counts are still valid. If creations were refused before, updates wait for
            # them. [DS-22]
            updating = await self._updater.update(snapshot, nodes, may_start=not plan.create)
        await self._report(snapshot, nodes, updating)
        await self.truncate_history(snapshot, (snapshot.revisions.update,))  # [PM-93]
        # Reconcile again when the next ready Pod becomes available. [DS-68]
        return result_of((scaling, updating), [self.seconds_until(next_available(nodes))], retry=False)

    def _observed(self, snapshot: Seen) -> Observed:
        """Return all nodes of the cluster, and the DaemonSet's Pods in any state."""
        state, resolved, revisions = snapshot.state, snapshot.resolved, snapshot.revisions
        found = [state.facts_of_node(resolved, node) for node in self._cluster_nodes.list()]
        state.nodes = {one.node.metadata.name: one for one in found}
        active = [one.pod for one in snapshot.observed.active]
        pods = state.facts_of_pods(resolved, [*active, *snapshot.observed.inactive])
        # Revisions with the same data are equivalent. [DS-54]
        new = {short_hash(one.name) for one in revisions.ordered if one.data == revisions.update.data}
        return observe(
            {name: one.eligibility for name, one in state.nodes.items()},
            pods,
            unselected=frozenset(name for name, one in state.nodes.items() if not one.selected),
            new=new | {short_hash(revisions.update.name)},
            now=snapshot.now.timestamp(),
        )

    async def _report(self, snapshot: Seen, nodes: Observed, updating: Outcome) -> None:
        """Write the status. [DS-66, DS-67]"""
        revisions = snapshot.revisions
        wanted = base_status(
            nodes,
            generation=snapshot.workload.metadata.generation,
            update_hash=short_hash(revisions.update.name),
            collision_count=revisions.collision_count,
        )
        present = snapshot.state.present_status(snapshot.workload).status
        waiting = {WAITING_FOR_AGENT: updating.waiting or None}
        wanted["conditions"] = with_failures(present.get("conditions") or [], waiting, self.clock.now())
        await self.write_status(snapshot, wanted, REQUIRED)


NAME: Final = "daemonset-controller"
DAEMON_SETS: Final = Watched.kind(DAEMON_SET, DaemonSet)
#: Revisions of DaemonSets, whose hash label differs from that of other workloads' revisions.
DAEMON_REVISIONS: Final = REVISIONS.selected("ControllerRevisions of DaemonSets", names.CONTROLLER_REVISION_HASH)
WATCHED: Final = (DAEMON_SETS, PODS, DAEMON_REVISIONS, NODES)


def caches_of(stores: Stores) -> Caches[DaemonSet]:
    """Return the caches that the controller reads in addition to nodes."""
    return Caches(stores(DAEMON_SETS), stores(PODS), None, stores(DAEMON_REVISIONS))


def daemonset_controller(context: ControllerContext) -> Reconciling:
    """Return the DaemonSet controller."""
    flags = context.flags
    reconciler = DaemonSetReconciler(
        context.client,
        caches_of(context.stores),
        context.stores(NODES),
        context.events,
        context.rng,
        gates=Gates.of(context.enabled, by_scheduler=flags.boolean("assign-pods-by-scheduler")),
        **engine.options(context, DAEMON_SET),
    )
    return Reconciling(reconciler, reconciler.watches())


def least_available_of(context: ControllerContext) -> LeastAvailable:
    """Return a function that computes the minimum number of available Pods: the desired number minus maxUnavailable,
    which counts as at least 1."""
    gates = Gates.of(context.enabled)

    def least(found: DaemonSet) -> int:
        desired = found.status.desired_number_scheduled if found.status is not None else 0
        return desired - max(1, settings_of(found, gates).limits(desired).max_unavailable)

    return engine.least_available(context, DAEMON_SETS, least)


def update_order_of(context: ControllerContext) -> UpdateOrder:
    """Return the function that sorts Pods into update order: by descending node name. [DS-40]"""

    def order(_found: DaemonSet, pods: Sequence[Pod]) -> Sequence[Pod]:
        return sorted(pods, key=lambda pod: pod.spec.node_name, reverse=True)

    return engine.update_order(context, DAEMON_SETS, order)
