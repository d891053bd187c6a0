"""The EphemeralJob controller: what it watches, and what it is made from."""

from __future__ import annotations

from typing import Final

from app.api.ephemeraljob import EPHEMERAL_JOB, EphemeralJob
from app.kube.controller import Watch
from app.slices import PODS_BY_NAMESPACE, ControllerContext, Reconciling, Watched
from app.workloads.ephemeraljob.reconcile import UNFINISHED, EphemeralJobReconciler, by_namespace

NAME: Final = "ephemeraljob-controller"
WORKERS: Final = 10
EPHEMERAL_JOBS: Final = Watched.kind(EPHEMERAL_JOB, EphemeralJob, **{UNFINISHED: by_namespace})
WATCHED: Final = (EPHEMERAL_JOBS, PODS_BY_NAMESPACE)


def ephemeraljob_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    jobs, pods = context.stores(EPHEMERAL_JOBS), context.stores(PODS_BY_NAMESPACE)
    reconciler = EphemeralJobReconciler(
        context.client, jobs, pods, context.events, expectation_timeout=context.flags.seconds("expectation-timeout")
    )
    return Reconciling(reconciler, [Watch(pods, reconciler.keys_for_pod), Watch(jobs, reconciler.keys_for_job)])
