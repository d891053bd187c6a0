"""The CloneSet controller as a table: what it watches, what that concerns, what it may do."""

from __future__ import annotations

from random import Random
from typing import Final

from app.api import names
from app.api.cloneset import CloneSet
from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.controller import Controller, ControllerMetrics
from app.kube.events import EventRecorder
from app.kube.objects import OwnerReference
from app.kube.queue import QueueMetrics, RateLimits
from app.kube.store import Store
from app.pods.budget import DisruptionBudget
from app.pods.lifecycle import Lifecycle
from app.pods.readiness.reconcile import InitialMetadata
from app.workloads.cloneset.plan.resolved import KIND
from app.workloads.cloneset.plan.settings import Gates
from app.workloads.cloneset.reconcile import CloneSetCaches, CloneSetReconciler
from app.workloads.engine.initial_conditions import initial_metadata as engine_initial_metadata
from app.workloads.engine.kind import by_owner, by_owner_or_none
from app.workloads.engine.metrics import Metrics

NAME: Final = "cloneset-controller"
WORKERS: Final = 3
REVISION_SELECTOR: Final = names.CONTROLLER_HASH
"""The label selector of the ControllerRevisions to watch."""
CLAIM_SELECTOR: Final = names.CLONESET_INSTANCE_ID
"""The label selector of the PersistentVolumeClaims to watch."""
#: The index functions of the caches, under OWNER.
POD_OWNER: Final = by_owner
CLAIM_OWNER: Final = by_owner
REVISION_OWNER: Final = by_owner_or_none

PERMISSIONS: Final = (
    # CS-174
    PolicyRule(("get", "list", "patch", "watch"), (names.APPS_GROUP,), ("clonesets",)),
    PolicyRule(("patch",), (names.APPS_GROUP,), ("clonesets/status",)),
    # An owner reference that blocks the owner's deletion may only be set by who may finalize the owner.
    PolicyRule(("update",), (names.APPS_GROUP,), ("clonesets/finalizers",)),
    PolicyRule(("create", "delete", "get", "list", "patch", "watch"), ("",), ("pods",)),
    PolicyRule(("create", "delete", "list", "patch", "watch"), ("",), ("persistentvolumeclaims",)),
    PolicyRule(("patch",), ("",), ("pods/status", "pods/resize")),
    # A claim that is given to its Pod must not be deleted before it (CS-120).
    PolicyRule(("update",), ("",), ("pods/finalizers",)),
    PolicyRule(("create", "delete", "get", "list", "patch", "watch"), ("apps",), ("controllerrevisions",)),
    PolicyRule(("create", "patch"), ("",), ("events",)),
    # CS-139, CS-141
    PolicyRule(("create", "delete", "list"), (names.APPS_GROUP,), ("imagepulljobs",)),
    # CS-114
    PolicyRule(("list",), ("",), ("nodes",)),
)


def initial_metadata(sets: Store[CloneSet]) -> InitialMetadata:
    """CS-135: what is written on a new Pod of a CloneSet together with its first conditions."""

    def lifecycle_of(reference: OwnerReference, namespace: str) -> tuple[Lifecycle | None] | None:
        owner = sets.get(reference.name, namespace)
        if owner is None or owner.metadata.uid != reference.uid or owner.deleting:
            return None
        return (Lifecycle.of(owner.spec.lifecycle.to_dict()) if owner.spec.lifecycle is not None else None,)

    return engine_initial_metadata(KIND, lifecycle_of)


def cloneset_controller(
    client: Client,
    caches: CloneSetCaches,
    events: EventRecorder,
    rng: Random,
    *,
    gates: Gates | None = None,
    budget: DisruptionBudget | None = None,
    counters: Metrics | None = None,
    expectation_timeout: float = 300.0,
    force_expectations: bool = False,
    exclude_preparing_delete: bool = False,
    workers: int = WORKERS,
    limits: RateLimits | None = None,
    metrics: ControllerMetrics | None = None,
    queue_metrics: QueueMetrics | None = None,
) -> Controller:
    """The controller, ready to ``run``. ``events`` records as the component NAME; ``rng`` draws instance ids."""
    reconciler = CloneSetReconciler(
        client.named(NAME),
        caches,
        events,
        rng,
        gates=gates,
        budget=budget,
        metrics=counters,
        expectation_timeout=expectation_timeout,
        force_expectations=force_expectations,
        exclude_preparing_delete=exclude_preparing_delete,
    )
    return Controller(
        NAME,
        client.clock,
        reconciler.watches(),
        reconciler,
        workers=workers,
        limits=limits,
        metrics=metrics,
        queue_metrics=queue_metrics,
    )
