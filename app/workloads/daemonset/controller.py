"""The DaemonSet controller: what it watches, and what it is made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api import names
from app.api.daemonset import DAEMON_SET, DaemonSet
from app.kube.objects import OwnerReference, Pod
from app.pods.budget import DisruptionBudget, LeastAvailable, known
from app.pods.counters import WorkloadCounters
from app.pods.passes import PassObserver
from app.pods.update_order import UpdateOrder
from app.slices import NODES, PODS, REVISIONS, ControllerContext, Reconciling, Stores, Watched
from app.workloads.daemonset.plan.resolved import settings_of
from app.workloads.daemonset.plan.settings import Gates
from app.workloads.daemonset.reconcile import DaemonSetCaches, DaemonSetReconciler

NAME: Final = "daemonset-controller"
WORKERS: Final = 3
DAEMON_SETS: Final = Watched.kind(DAEMON_SET, DaemonSet)
#: The revisions of DaemonSets, which carry their hash in a label of another name than those of other workloads.
DAEMON_REVISIONS: Final = REVISIONS.selected("ControllerRevisions of DaemonSets", names.CONTROLLER_REVISION_HASH)
WATCHED: Final = (DAEMON_SETS, PODS, DAEMON_REVISIONS, NODES)


def caches_of(stores: Stores) -> DaemonSetCaches:
    """What the controller reads, beside nodes."""
    return DaemonSetCaches(stores(DAEMON_SETS), stores(PODS), None, stores(DAEMON_REVISIONS))


def daemonset_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    flags = context.flags
    reconciler = DaemonSetReconciler(
        context.client,
        caches_of(context.stores),
        context.stores(NODES),
        context.events,
        context.rng,
        gates=Gates.of(context.enabled, by_scheduler=flags.boolean("assign-pods-by-scheduler")),
        budget=next(iter(context.provided(DisruptionBudget)), None),
        metrics=context.counters(WorkloadCounters).of(DAEMON_SET.kind),
        expectation_timeout=flags.seconds("expectation-timeout"),
        force_expectations=context.enabled("ForceDeleteTimeoutExpectationGate"),
        observer=next(iter(context.provided(PassObserver)), None),
    )
    return Reconciling(reconciler, reconciler.watches())


def least_available_of(context: ControllerContext) -> LeastAvailable:
    """PPM-53: what maxUnavailable of a DaemonSet leaves; one Pod may be unavailable in any case."""
    sets, gates = context.stores(DAEMON_SETS), Gates.of(context.enabled)

    def least_available(owner: OwnerReference, namespace: str) -> int | None:
        if (owner.group, owner.kind) != (DAEMON_SET.group, DAEMON_SET.kind):
            return None
        found = known(sets.get(owner.name, namespace), owner)
        desired = found.status.desired_number_scheduled if found.status is not None else 0
        return max(0, desired - max(1, settings_of(found, gates).limits(desired).max_unavailable))

    return least_available


def update_order_of(context: ControllerContext) -> UpdateOrder:
    """IMG-105: by descending name of their nodes (DS-40)."""
    sets = context.stores(DAEMON_SETS)

    def update_order(owner: OwnerReference, pods: Sequence[Pod]) -> Sequence[Pod] | None:
        found = next((sets.get(owner.name, one.metadata.namespace) for one in pods[:1]), None)
        if found is None or found.metadata.uid != owner.uid:
            return None
        return sorted(pods, key=lambda pod: pod.spec.node_name, reverse=True)

    return update_order
