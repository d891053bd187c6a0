"""The DaemonSet controller: what it watches, and what it is made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api import names
from app.api.daemonset import DAEMON_SET, DaemonSet
from app.kube.objects import Pod
from app.pods.budget import LeastAvailable
from app.pods.update_order import UpdateOrder
from app.slices import NODES, PODS, REVISIONS, ControllerContext, Reconciling, Stores, Watched
from app.workloads.daemonset.plan.resolved import settings_of
from app.workloads.daemonset.plan.settings import Gates
from app.workloads.daemonset.reconcile import DaemonSetCaches, DaemonSetReconciler
from app.workloads.engine import controllers as engine

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
        **engine.options(context, DAEMON_SET),
    )
    return Reconciling(reconciler, reconciler.watches())


def least_available_of(context: ControllerContext) -> LeastAvailable:
    """What maxUnavailable of a DaemonSet leaves; one Pod may be unavailable in any case."""
    gates = Gates.of(context.enabled)

    def least(found: DaemonSet) -> int:
        desired = found.status.desired_number_scheduled if found.status is not None else 0
        return desired - max(1, settings_of(found, gates).limits(desired).max_unavailable)

    return engine.least_available(context, DAEMON_SET, DAEMON_SETS, least)


def update_order_of(context: ControllerContext) -> UpdateOrder:
    """By descending name of their nodes (DS-40)."""

    def order(_found: DaemonSet, pods: Sequence[Pod]) -> Sequence[Pod]:
        return sorted(pods, key=lambda pod: pod.spec.node_name, reverse=True)

    return engine.update_order(context, DAEMON_SETS, order)
