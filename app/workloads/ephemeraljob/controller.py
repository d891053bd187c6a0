"""The EphemeralJob controller: what it watches, and what it is made from."""

from __future__ import annotations

from typing import Final

from app.api.ephemeraljob import EPHEMERAL_JOB, EphemeralJob
from app.kube.controller import Watch
from app.slices import PODS_BY_NAMESPACE, ControllerContext, Reconciling, Watched
from app.workloads.ephemeraljob.reconcile import BY_SELECTOR, BY_UID, EphemeralJobReconciler, by_selector, by_uid

NAME: Final = "ephemeraljob-controller"
WORKERS: Final = 10
EPHEMERAL_JOBS: Final = Watched.kind(EPHEMERAL_JOB, EphemeralJob, **{BY_SELECTOR: by_selector, BY_UID: by_uid})
WATCHED: Final = (EPHEMERAL_JOBS, PODS_BY_NAMESPACE)


def ephemeraljob_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    jobs, pods = context.stores(EPHEMERAL_JOBS), context.stores(PODS_BY_NAMESPACE)
    reconciler = EphemeralJobReconciler(
        context.client, jobs, pods, context.events, expectation_timeout=context.flags.seconds("expectation-timeout")
    )
    of_pods = Watch(pods, reconciler.keys_for_pod, reconciler.coalesce_delay)
    return Reconciling(reconciler, [of_pods, Watch(jobs, reconciler.keys_for_job)])
