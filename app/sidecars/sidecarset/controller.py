"""The SidecarSet controller as a table: what it watches, what that concerns, what it may do."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.controller import Controller, ControllerMetrics, Watch, to_self
from app.kube.queue import QueueMetrics, RateLimits
from app.sidecars.sidecarset.reconcile import Caches, SidecarSetReconciler

NAME: Final = "sidecarset-controller"
WORKERS: Final = 3
REVISION_SELECTOR: Final = names.SIDECARSET_NAME
"""The label selector of the ControllerRevisions to watch in the manager's namespace."""

_KEEP: Final = ("create", "delete", "get", "list", "patch", "watch")
PERMISSIONS: Final = (
    # SS-109
    PolicyRule(("get", "list", "watch"), (names.APPS_GROUP,), ("sidecarsets",)),
    PolicyRule(("patch",), (names.APPS_GROUP,), ("sidecarsets/status",)),
    # An owner reference that blocks the owner's deletion may only be set by who may finalize the owner.
    PolicyRule(("update",), (names.APPS_GROUP,), ("sidecarsets/finalizers",)),
    PolicyRule(_KEEP, ("apps",), ("controllerrevisions",), own_namespace=True),
    PolicyRule(("get", "list", "watch"), ("",), ("namespaces", "pods")),
)


def sidecarset_controller(
    client: Client,
    caches: Caches,
    namespace: str,
    *,
    workers: int = WORKERS,
    limits: RateLimits | None = None,
    metrics: ControllerMetrics | None = None,
    queue_metrics: QueueMetrics | None = None,
) -> Controller:
    """The controller, ready to ``run``. ``namespace`` is the manager's own: revisions are kept there."""
    reconciler = SidecarSetReconciler(client.named(NAME), caches, namespace)
    return Controller(
        NAME,
        client.clock,
        [
            Watch(caches.sets, to_self, reconciler.spacing),
            Watch(caches.pods, reconciler.of_pod, reconciler.spacing),
            Watch(caches.namespaces, reconciler.of_namespace),
            Watch(caches.revisions, reconciler.of_revision),
        ],
        reconciler,
        workers=workers,
        limits=limits,
        metrics=metrics,
        queue_metrics=queue_metrics,
    )
