"""The BroadcastJob controller: what it watches, and what it is made from."""

from __future__ import annotations

from typing import Final

from app.api.broadcastjob import BROADCAST_JOB, BroadcastJob
from app.kube.controller import Watch
from app.slices import NODES, PODS, ControllerContext, Reconciling, Watched
from app.workloads.broadcastjob.reconcile import BroadcastJobReconciler, Caches

NAME: Final = "broadcastjob-controller"
BROADCAST_JOBS: Final = Watched.kind(BROADCAST_JOB, BroadcastJob)
WATCHED: Final = (BROADCAST_JOBS, PODS, NODES)


def broadcastjob_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    caches = Caches(context.stores(BROADCAST_JOBS), context.stores(PODS), context.stores(NODES))
    reconciler = BroadcastJobReconciler(
        context.client,
        caches,
        context.events,
        by_scheduler=context.flags.boolean("assign-bcj-pods-by-scheduler"),
        expectation_timeout=context.flags.seconds("expectation-timeout"),
    )
    delay = reconciler.coalesce_delay
    return Reconciling(
        reconciler,
        [
            Watch(caches.pods, reconciler.keys_for_pod, delay),
            Watch(caches.nodes, reconciler.keys_for_node, delay),
            Watch(caches.jobs, reconciler.keys_for_job),
        ],
    )
