"""The WorkloadSpread controller: what it watches, and what a change concerns (WS-46)."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.cloneset import CLONE_SET, CloneSet
from app.api.statefulset import STATEFUL_SET, StatefulSet
from app.api.workloadspread import WORKLOAD_SPREAD, WorkloadSpread
from app.kube.controller import Watch
from app.placement.workloadspread.configuration import CustomWorkloads
from app.placement.workloadspread.placing import shared_statuses
from app.placement.workloadspread.plan.record import versioned_kinds
from app.placement.workloadspread.reconcile import WorkloadSpreadReconciler
from app.placement.workloadspread.workloads import Caches
from app.slices import (
    CONFIGURATION,
    DEPLOYMENTS,
    JOBS,
    NODES,
    PODS_BY_NAMESPACE,
    REPLICASETS,
    STATEFULSETS,
    ControllerContext,
    Reconciling,
    Watched,
)

NAME: Final = "workloadspread-controller"
VERSIONED_FLAG: Final = "ws-enabled-versioned-status"

SPREADS: Final = Watched.kind(WORKLOAD_SPREAD, WorkloadSpread)
CLONE_SETS: Final = Watched.kind(CLONE_SET, CloneSet)
ADVANCED_STATEFUL_SETS: Final = Watched.kind(STATEFUL_SET, StatefulSet)
WATCHED: Final = (
    SPREADS,
    PODS_BY_NAMESPACE,
    NODES,
    DEPLOYMENTS,
    REPLICASETS,
    STATEFULSETS,
    CLONE_SETS,
    ADVANCED_STATEFUL_SETS,
    JOBS,
    CONFIGURATION,
)


def workloadspread_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    caches = Caches(*map(context.stores, WATCHED))  # type: ignore[arg-type]
    reconciler = WorkloadSpreadReconciler(
        context.client,
        caches,
        shared_statuses(context.client, caches.spreads, context.rng),
        context.events,
        CustomWorkloads(caches.configuration, context.own_namespace),
        versioned_kinds(context.flags.text("ws-enabled-versioned-status")),
    )
    return Reconciling(
        reconciler,
        [
            Watch(caches.spreads, reconciler.of_spread, reconciler.delay),
            Watch(caches.deployments, reconciler.of_workload("apps", "Deployment")),
            Watch(caches.replicasets, reconciler.of_workload("apps", "ReplicaSet")),
            Watch(caches.statefulsets, reconciler.of_workload("apps", "StatefulSet")),
            Watch(caches.clonesets, reconciler.of_workload(names.APPS_GROUP, "CloneSet")),
            Watch(caches.advanced_statefulsets, reconciler.of_workload(names.APPS_GROUP, "StatefulSet")),
            Watch(caches.jobs, reconciler.of_workload("batch", "Job")),
            Watch(caches.configuration, reconciler.of_configuration),
            Watch(caches.pods, reconciler.of_pod, reconciler.delay),
        ],
    )
