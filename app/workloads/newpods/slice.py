"""The slice of new Pods: a readiness gate, the controller that sets its first condition, managed fields left out."""

from __future__ import annotations

from typing import Final

from app.kube.admission import PolicyRule
from app.kube.controller import Watch
from app.pods.fieldtracking import FieldTrackingStep
from app.pods.readiness import ReadinessGateStep
from app.pods.readiness.plan import InitialMetadata
from app.pods.readiness.reconcile import PodReadinessReconciler
from app.slices import (
    PODS,
    AdmissionContext,
    AdmissionPart,
    ControllerContext,
    ControllerPart,
    Decisions,
    Reconciling,
    Slice,
)

NAME: Final = "pod-readiness-controller"
#: A worker is a request under way; OpenKruise has 3.
WORKERS: Final = 16
_EVERY_POD: Final = "KruisePodReadinessGate"


def pod_readiness(context: ControllerContext) -> Reconciling:
    """The controller."""
    pods = context.stores(PODS)
    reconciler = PodReadinessReconciler(context.client, pods, context.provided(InitialMetadata))
    return Reconciling(reconciler, [Watch(pods, reconciler.keys_for_pod, reconciler.delay)])


def steps(context: AdmissionContext) -> Decisions:
    """The two steps of Pod creation."""
    return Decisions(steps=(ReadinessGateStep(context.enabled(_EVERY_POD)), FieldTrackingStep()))


SLICE: Final = Slice(
    name="newpods",
    controllers=(
        ControllerPart(
            NAME,
            watched=(PODS,),
            make=pod_readiness,
            permissions=(
                PolicyRule(("get",), ("",), ("pods",)),
                PolicyRule(("patch",), ("",), ("pods/status",)),
            ),
            workers=WORKERS,
        ),
    ),
    admission=(AdmissionPart(steps),),
    gates=(_EVERY_POD,),
)
