"""The StatefulSet controller: what it watches, and what it is made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api.statefulset import STATEFUL_SET, StatefulSet
from app.kube.objects import Pod
from app.pods.budget import LeastAvailable
from app.pods.ordinals import ordinal_of
from app.pods.update_order import UpdateOrder, by_readable_priority
from app.slices import CLAIMS, PODS, REVISIONS, ControllerContext, Reconciling, Stores, Watched
from app.workloads.engine import controllers as engine
from app.workloads.engine.snapshot import Caches
from app.workloads.statefulset.plan.resolved import settings_of
from app.workloads.statefulset.plan.settings import Gates
from app.workloads.statefulset.reconcile import StatefulSetReconciler

NAME: Final = "statefulset-controller"
WORKERS: Final = 3
STATEFUL_SETS: Final = Watched.kind(STATEFUL_SET, StatefulSet)
#: Claims of a StatefulSet have no label in common: all are watched, and found by their names.
ALL_CLAIMS: Final = CLAIMS.selected("PersistentVolumeClaims of whoever", "")
WATCHED: Final = (STATEFUL_SETS, PODS, ALL_CLAIMS, REVISIONS)


def caches_of(stores: Stores) -> Caches[StatefulSet]:
    """What the controller reads beside claims."""
    return Caches(stores(STATEFUL_SETS), stores(PODS), None, stores(REVISIONS))


def statefulset_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
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
    """What maxUnavailable of a StatefulSet leaves."""
    gates = Gates.of(context.enabled)

    def least(found: StatefulSet) -> int:
        settings = settings_of(found.spec, gates)
        return settings.replicas - settings.update_limit

    return engine.least_available(context, STATEFUL_SET, STATEFUL_SETS, least)


def update_order_of(context: ControllerContext) -> UpdateOrder:
    """By descending ordinal, or by the priorities of a StatefulSet that updates in no order."""
    gates = Gates.of(context.enabled)

    def order(found: StatefulSet, pods: Sequence[Pod]) -> Sequence[Pod]:
        descending = sorted(pods, key=lambda pod: -ordinal_of(found.name, pod.metadata.name))
        settings = settings_of(found.spec, gates)
        return by_readable_priority(descending, settings.priority) if settings.unordered else descending

    return engine.update_order(context, STATEFUL_SETS, order)
