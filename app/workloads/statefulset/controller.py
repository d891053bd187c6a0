"""The StatefulSet controller: what it watches, and what it is made from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api.statefulset import STATEFUL_SET, StatefulSet
from app.kube.objects import OwnerReference, Pod
from app.kube.selectors import SelectorError
from app.pods.budget import DisruptionBudget, LeastAvailable, known
from app.pods.counters import WorkloadCounters
from app.pods.ordinals import ordinal_of
from app.pods.passes import PassObserver
from app.pods.update_order import UpdateOrder, by_priority
from app.slices import CLAIMS, PODS, REVISIONS, ControllerContext, Reconciling, Stores, Watched
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
        budget=next(iter(context.provided(DisruptionBudget)), None),
        metrics=context.counters(WorkloadCounters).of(STATEFUL_SET.kind),
        expectation_timeout=context.flags.seconds("expectation-timeout"),
        force_expectations=context.enabled("ForceDeleteTimeoutExpectationGate"),
        observer=next(iter(context.provided(PassObserver)), None),
    )
    return Reconciling(reconciler, reconciler.watches())


def least_available_of(context: ControllerContext) -> LeastAvailable:
    """PPM-53: what maxUnavailable of a StatefulSet leaves."""
    sets, gates = context.stores(STATEFUL_SETS), Gates.of(context.enabled)

    def least_available(owner: OwnerReference, namespace: str) -> int | None:
        if (owner.group, owner.kind) != (STATEFUL_SET.group, STATEFUL_SET.kind):
            return None
        found = known(sets.get(owner.name, namespace), owner)
        settings = settings_of(found.spec, gates)
        return max(0, settings.replicas - settings.update_limit)

    return least_available


def update_order_of(context: ControllerContext) -> UpdateOrder:
    """IMG-105: by descending ordinal, or by the priorities of a StatefulSet that updates in no order."""
    sets, gates = context.stores(STATEFUL_SETS), Gates.of(context.enabled)

    def update_order(owner: OwnerReference, pods: Sequence[Pod]) -> Sequence[Pod] | None:
        found = next((sets.get(owner.name, one.metadata.namespace) for one in pods[:1]), None)
        if found is None or found.metadata.uid != owner.uid:
            return None
        descending = sorted(pods, key=lambda pod: -ordinal_of(owner.name, pod.metadata.name))
        settings = settings_of(found.spec, gates)
        try:
            return by_priority(descending, settings.priority) if settings.unordered else descending
        except SelectorError:
            return descending

    return update_order
