"""The feature of launch priority: containers of a Pod start in an order."""

from __future__ import annotations

from typing import Final

from app.features.launchpriority.pod_admission import LaunchPriorityStep
from app.features.launchpriority.reconcile import LaunchBarrierReconciler
from app.framework.feature import (
    AdmissionContext,
    AdmissionPart,
    ControllerContext,
    ControllerPart,
    Decisions,
    Feature,
    Reconciling,
)
from app.framework.watched import PODS
from app.kube.admission import PolicyRule
from app.kube.controller import Watch

NAME: Final = "container-launch-priority-controller"
WORKERS: Final = 4
#: PM-151: without this gate no Pod gets a barrier, so there is nothing to run.
GATE: Final = "PodWebhook"


def launch_barrier(context: ControllerContext) -> Reconciling:
    """The controller."""
    pods = context.stores(PODS)
    reconciler = LaunchBarrierReconciler(context.client, pods, context.events)
    return Reconciling(reconciler, [Watch(pods, reconciler.keys_for_pod)])


def step(context: AdmissionContext) -> Decisions:
    """The step of Pod creation."""
    return Decisions(steps=(LaunchPriorityStep(context.rng),))


FEATURE: Final = Feature(
    name="launchpriority",
    controllers=(
        ControllerPart(
            NAME,
            watched=(PODS,),
            make=launch_barrier,
            permissions=(
                PolicyRule(("get", "patch"), ("",), ("pods",)),
                PolicyRule(("create", "delete", "get", "patch"), ("",), ("configmaps",)),
                PolicyRule(("create", "patch"), ("",), ("events",)),
            ),
            gates=(GATE,),
            workers=WORKERS,
        ),
    ),
    admission=(AdmissionPart(step),),
    gates=(GATE,),
)
