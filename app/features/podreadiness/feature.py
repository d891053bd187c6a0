"""Pod readiness feature and its Pod creation steps."""

from __future__ import annotations

from typing import Final

from app.api.names import APPS_GROUP, KRUISE_POD_READY
from app.features.podreadiness.reconcile import NAME, pod_readiness_controller
from app.framework.feature import AdmissionContext, AdmissionPart, ControllerPart, Decisions, Feature
from app.framework.watched import PODS
from app.kube.admission import PolicyRule, Review
from app.pods.admission import FieldTrackingStep, MutatorOrder
from app.pods.admission_draft import PodDraft, is_controlled_by_group


class ReadinessGateStep:
    """Adds the readiness gate KruisePodReady to Pods of OpenKruise workloads or, with feature gate
    KruisePodReadinessGate, to all Pods. [PM-176]"""

    order = MutatorOrder.READINESS_GATE

    def __init__(self, every_pod: bool = False) -> None:
        self._every_pod = every_pod

    def __call__(self, draft: PodDraft, review: Review) -> None:  # noqa: ARG002
        owners = draft.owner_references
        if self._every_pod or (owners and is_controlled_by_group(owners, APPS_GROUP)):
            draft.add_readiness_gate(KRUISE_POD_READY, "PM-176")


_EVERY_POD: Final = "KruisePodReadinessGate"


def steps(context: AdmissionContext) -> Decisions:
    """Return the two Pod creation steps."""
    return Decisions(steps=(ReadinessGateStep(context.enabled(_EVERY_POD)), FieldTrackingStep()))


FEATURE: Final = Feature(
    name="podreadiness",
    controllers=(
        ControllerPart(
            NAME,
            watched=(PODS,),
            make=pod_readiness_controller,
            permissions=(
                PolicyRule(("get",), ("",), ("pods",)),
                PolicyRule(("patch",), ("",), ("pods/status",)),
            ),
            workers=16,  # one per concurrent request; OpenKruise uses 3
        ),
    ),
    admission=(AdmissionPart(steps),),
    gates=(_EVERY_POD,),
)
