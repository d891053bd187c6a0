"""Launch priority feature: starts the containers of a Pod in order."""

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
#: Without this gate, no Pod gets a barrier, so the controller is not needed. [PM-151]
GATE: Final = "PodWebhook"


def launch_barrier(context: ControllerContext) -> Reconciling:
    """Return the launch barrier controller."""
    pods = context.stores(PODS)
    reconciler = LaunchBarrierReconciler(context.client, pods, context.events)
    return Reconciling(reconciler, [Watch(pods, reconciler.keys_for_pod)])


def step(context: AdmissionContext) -> Decisions:
    """Return the Pod creation step."""
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
            ),
            gates=(GATE,),
            workers=4,
        ),
    ),
    admission=(AdmissionPart(step),),
    gates=(GATE,),
)
