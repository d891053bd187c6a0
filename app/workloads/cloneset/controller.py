"""The CloneSet controller: what it watches, what it is made from, and its word on new Pods."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api import names
from app.api.cloneset import CLONE_SET, CloneSet
from app.kube.objects import OwnerReference, Pod
from app.kube.store import Store
from app.pods.budget import LeastAvailable
from app.pods.lifecycle import Lifecycle
from app.pods.owners import refers_to
from app.pods.readiness.plan import InitialMetadata
from app.pods.update_order import UpdateOrder
from app.slices import CLAIMS, PODS, REVISIONS, ControllerContext, Reconciling, Stores, Watched
from app.workloads.cloneset.plan.limits import limits
from app.workloads.cloneset.plan.orders import in_order
from app.workloads.cloneset.plan.resolved import KIND, settings_of
from app.workloads.cloneset.plan.settings import Gates
from app.workloads.cloneset.reconcile import CloneSetCaches, CloneSetReconciler
from app.workloads.engine import controllers as engine
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
        exclude_preparing_delete=flags.boolean("cloneset-scaling-exclude-preparing-delete"),
        **engine.options(context, CLONE_SET),
    )
    return Reconciling(reconciler, reconciler.watches())


def initial_metadata_of(context: ControllerContext) -> InitialMetadata:
    """What CloneSets write on a new Pod of theirs."""
    return initial_metadata(context.stores(CLONE_SETS))


def initial_metadata(sets: Store[CloneSet]) -> InitialMetadata:
    """CS-135: what is written on a new Pod of a CloneSet together with its first conditions."""

    def lifecycle_of(reference: OwnerReference, namespace: str) -> tuple[Lifecycle | None] | None:
        owner = sets.get(reference.name, namespace)
        if owner is None or owner.deleting or not refers_to(reference, namespace, KIND.owner(owner.metadata)):
            return None
        return (Lifecycle.of(owner.spec.lifecycle.to_dict()) if owner.spec.lifecycle is not None else None,)

    return engine_initial_metadata(KIND, lifecycle_of)


def least_available_of(context: ControllerContext) -> LeastAvailable:
    """What maxUnavailable of a CloneSet leaves; one Pod may be unavailable in any case."""
    gates = Gates.of(context.enabled)

    def least(found: CloneSet) -> int:
        numbers = limits(settings_of(found, gates))
        return numbers.replicas - max(1, numbers.max_unavailable)

    return engine.least_available(context, CLONE_SET, CLONE_SETS, least)


def update_order_of(context: ControllerContext) -> UpdateOrder:
    """The default order, priorities and scattering of a CloneSet."""

    def order(found: CloneSet, pods: Sequence[Pod]) -> Sequence[Pod]:
        return in_order(pods, pods, found.spec.update_strategy.rolling_update)

    return engine.update_order(context, CLONE_SETS, order)
