"""The readiness gate ``KruisePodReady``, put into new Pods so that a controller can take them out of service later."""

from __future__ import annotations

from app.api.names import APPS_GROUP, KRUISE_POD_READY
from app.kube.admission import Review
from app.pods.draft import PodDraft, is_controlled_by_group
from app.pods.steps import StepOrder


class ReadinessGateStep:
    """PM-176: Pods of OpenKruise workloads get the gate; all Pods with feature gate KruisePodReadinessGate."""

    order = StepOrder.READINESS_GATE

    __slots__ = ("_every_pod",)

    def __init__(self, every_pod: bool = False) -> None:
        self._every_pod = every_pod

    def __call__(self, draft: PodDraft, review: Review) -> None:  # noqa: ARG002
        """Append the gate, once."""
        owners = draft.owner_references
        if self._every_pod or (owners and is_controlled_by_group(owners, APPS_GROUP)):
            draft.add_readiness_gate(KRUISE_POD_READY, "PM-176")
