"""The CloneSet controller: what it watches, what it is made from, and its word on new Pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api import names
from app.api.cloneset import CLONE_SET, CloneSet
from app.kube.objects import OwnerReference, Pod
from app.kube.store import Store
from app.pods.budget import DisruptionBudget, LeastAvailable, known
from app.pods.counters import WorkloadCounters
from app.pods.lifecycle import Lifecycle
from app.pods.passes import PassObserver
from app.pods.readiness.plan import InitialMetadata
from app.pods.update_order import UpdateOrder
from app.slices import CLAIMS, PODS, REVISIONS, ControllerContext, Reconciling, Stores, Watched
from app.workloads.cloneset.plan.limits import limits
from app.workloads.cloneset.plan.orders import in_order
from app.workloads.cloneset.plan.resolved import KIND, settings_of
from app.workloads.cloneset.plan.settings import Gates
from app.workloads.cloneset.reconcile import CloneSetCaches, CloneSetReconciler
from app.workloads.engine.initial_conditions import initial_metadata as engine_initial_metadata

NAME: Final = "cloneset-controller"
WORKERS: Final = 3
CLONE_SETS: Final = Watched.kind(CLONE_SET, CloneSet)
#: The claims of CloneSets' Pods.
SET_CLAIMS: Final = CLAIMS.selected("PersistentVolumeClaims", names.CLONESET_INSTANCE_ID)
WATCHED: Final = (CLONE_SETS, PODS, SET_CLAIMS, REVISIONS)


def caches_of(stores: Stores) -> CloneSetCaches:
    """What the controller reads."""
    return CloneSetCaches(stores(CLONE_SETS), stores(PODS), stores(SET_CLAIMS), stores(REVISIONS))


def cloneset_controller(context: ControllerContext) -> Reconciling:
    """The controller."""
    flags = context.flags
    reconciler = CloneSetReconciler(
        context.client,
        caches_of(context.stores),
        context.events,
        context.rng,
        gates=Gates.of(context.enabled),
        budget=next(iter(context.provided(DisruptionBudget)), None),
        metrics=context.counters(WorkloadCounters).of(CLONE_SET.kind),
        expectation_timeout=flags.seconds("expectation-timeout"),
        force_expectations=context.enabled("ForceDeleteTimeoutExpectationGate"),
        observer=next(iter(context.provided(PassObserver)), None),
        exclude_preparing_delete=flags.boolean("cloneset-scaling-exclude-preparing-delete"),
    )
    return Reconciling(reconciler, reconciler.watches())


def initial_metadata_of(context: ControllerContext) -> InitialMetadata:
    """What CloneSets write on a new Pod of theirs."""
    return initial_metadata(context.stores(CLONE_SETS))


def initial_metadata(sets: Store[CloneSet]) -> InitialMetadata:
    """CS-135: what is written on a new Pod of a CloneSet together with its first conditions."""

    def lifecycle_of(reference: OwnerReference, namespace: str) -> tuple[Lifecycle | None] | None:
        owner = sets.get(reference.name, namespace)
        if owner is None or owner.metadata.uid != reference.uid or owner.deleting:
            return None
        return (Lifecycle.of(owner.spec.lifecycle.to_dict()) if owner.spec.lifecycle is not None else None,)

    return engine_initial_metadata(KIND, lifecycle_of)


def least_available_of(context: ControllerContext) -> LeastAvailable:
    """PPM-53: what maxUnavailable of a CloneSet leaves; one Pod may be unavailable in any case."""
    sets, gates = context.stores(CLONE_SETS), Gates.of(context.enabled)

    def least_available(owner: OwnerReference, namespace: str) -> int | None:
        if (owner.group, owner.kind) != (CLONE_SET.group, CLONE_SET.kind):
            return None
        found = known(sets.get(owner.name, namespace), owner)
        numbers = limits(settings_of(found, gates))
        return max(0, numbers.replicas - max(1, numbers.max_unavailable))

    return least_available


def update_order_of(context: ControllerContext) -> UpdateOrder:
    """IMG-105: by the default order, priorities and scattering of a CloneSet."""
    sets = context.stores(CLONE_SETS)

    def update_order(owner: OwnerReference, pods: Sequence[Pod]) -> Sequence[Pod] | None:
        found = next((sets.get(owner.name, one.metadata.namespace) for one in pods[:1]), None)
        if found is None or found.metadata.uid != owner.uid:
            return None
        rolling = found.spec.update_strategy.rolling_update
        return in_order(pods, pods, rolling)

    return update_order
