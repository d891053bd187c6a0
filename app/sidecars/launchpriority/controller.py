"""The launch barrier controller as a table: what it watches, what that concerns, what it may do."""

from __future__ import annotations

from typing import Final

from app.kube.admission import PolicyRule
from app.kube.client import Client
from app.kube.controller import Controller, ControllerMetrics, Watch
from app.kube.events import EventRecorder
from app.kube.objects import Pod
from app.kube.queue import QueueMetrics, RateLimits
from app.kube.store import Store
from app.sidecars.launchpriority.reconcile import LaunchBarrierReconciler

NAME: Final = "container-launch-priority-controller"
WORKERS: Final = 4
#: PM-151: without this gate no Pod gets a barrier, so there is nothing to run.
GATE: Final = "PodWebhook"
PERMISSIONS: Final = (
    PolicyRule(("get", "list", "patch", "watch"), ("",), ("pods",)),
    PolicyRule(("create", "delete", "get", "patch"), ("",), ("configmaps",)),
    PolicyRule(("create", "patch"), ("",), ("events",)),
)


def launch_barrier_controller(
    client: Client,
    pods: Store[Pod],
    events: EventRecorder,
    *,
    workers: int = WORKERS,
    limits: RateLimits | None = None,
    metrics: ControllerMetrics | None = None,
    queue_metrics: QueueMetrics | None = None,
) -> Controller:
    """The controller, ready to ``run``. ``events`` records as the component NAME."""
    reconciler = LaunchBarrierReconciler(client.named(NAME), pods, events)
    return Controller(
        NAME,
        client.clock,
        [Watch(pods, reconciler.of_pod)],
        reconciler,
        workers=workers,
        limits=limits,
        metrics=metrics,
        queue_metrics=queue_metrics,
    )
