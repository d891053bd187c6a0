"""The CloneSet controller as a table: what it watches, what that concerns, what it may do."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from random import Random
from typing import Any, Final

from app.api import names
from app.api.cloneset import CloneSet
from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.controller import Controller, ControllerMetrics, Watch
from app.kube.events import EventRecorder
from app.kube.objects import Pod
from app.kube.queue import QueueMetrics, RateLimits
from app.kube.store import Store
from app.pods.budget import DisruptionBudget
from app.pods.lifecycle import Lifecycle, LifecycleState, state_members
from app.pods.readiness.reconcile import InitialMetadata
from app.workloads.cloneset.history import revision_owner
from app.workloads.cloneset.reconcile import CloneSetReconciler
from app.workloads.cloneset.refresh import gets_initial_conditions
from app.workloads.cloneset.settings import Gates
from app.workloads.cloneset.state import Caches, Metrics, managing_reference, owned

NAME: Final = "cloneset-controller"
WORKERS: Final = 3
REVISION_SELECTOR: Final = names.CONTROLLER_HASH
"""The label selector of the ControllerRevisions to watch."""
CLAIM_SELECTOR: Final = names.CLONESET_INSTANCE_ID
"""The label selector of the PersistentVolumeClaims to watch."""
#: The index functions of the caches, under OWNER.
POD_OWNER: Final = owned
CLAIM_OWNER: Final = owned
REVISION_OWNER: Final = revision_owner

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
    """CS-135: a Pod without a preNormal hook becomes Normal once it is scheduled; its first conditions go into the same
    write. One that no node takes shows them all the same, for it may stay so."""

    def members(pod: Pod, now: datetime) -> Mapping[str, Any] | None:
        reference = managing_reference(pod.metadata)
        owner = sets.get(reference.name, pod.metadata.namespace) if reference is not None else None
        if owner is None or reference is None or owner.metadata.uid != reference.uid or owner.deleting:
            return {}
        lifecycle = Lifecycle.of(owner.spec.lifecycle.to_dict()) if owner.spec.lifecycle is not None else None
        if not gets_initial_conditions(pod, lifecycle):
            return {}
        if not pod.spec.node_name:
            scheduled = pod.condition("PodScheduled")
            return {} if scheduled is not None and scheduled.status == "False" else None
        labels, annotations = state_members(LifecycleState.NORMAL, now)
        return {"labels": labels, "annotations": annotations}

    return members


def cloneset_controller(
    client: Client,
    caches: Caches,
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
        [
            Watch(caches.revisions, reconciler.keys_for_revision),
            Watch(caches.claims, reconciler.keys_for_claim, reconciler.coalesce_delay),
            Watch(caches.pods, reconciler.keys_for_pod, reconciler.coalesce_delay),
            Watch(caches.sets, reconciler.keys_for_cloneset),
        ],
        reconciler,
        workers=workers,
        limits=limits,
        metrics=metrics,
        queue_metrics=queue_metrics,
    )
