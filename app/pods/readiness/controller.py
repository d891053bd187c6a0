"""The Pod readiness controller as a table: what it watches, what that concerns, what it may do."""

from __future__ import annotations

from typing import Final

from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.controller import Controller, ControllerMetrics, Watch
from app.kube.objects import Pod
from app.kube.queue import QueueMetrics, RateLimits
from app.kube.store import Store
from app.pods.readiness.reconcile import InitialMetadata, PodReadinessReconciler

NAME: Final = "pod-readiness-controller"
#: A worker is a request under way; OpenKruise has 3.
WORKERS: Final = 16
PERMISSIONS: Final = (
    PolicyRule(("get", "list", "watch"), ("",), ("pods",)),
    PolicyRule(("patch",), ("",), ("pods/status",)),
)


def pod_readiness_controller(
    client: Client,
    pods: Store[Pod],
    *,
    initial_metadata: InitialMetadata | None = None,
    workers: int = WORKERS,
    limits: RateLimits | None = None,
    metrics: ControllerMetrics | None = None,
    queue_metrics: QueueMetrics | None = None,
) -> Controller:
    """The controller, ready to ``run``. ``arrival``: what workloads add to the first write on a Pod of theirs."""
    named = client.named(NAME)
    reconciler = (
        PodReadinessReconciler(named, pods)
        if initial_metadata is None
        else PodReadinessReconciler(named, pods, initial_metadata)
    )
    return Controller(
        NAME,
        client.clock,
        [Watch(pods, reconciler.keys_for_pod, reconciler.delay)],
        reconciler,
        workers=workers,
        limits=limits,
        metrics=metrics,
        queue_metrics=queue_metrics,
    )
