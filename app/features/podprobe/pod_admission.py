"""Pod creation step that hands a Pod's liveness probes to the node agent. [PW-18]"""

from __future__ import annotations

from app.api import names
from app.features.podprobe.plan.liveness import annotation, readable
from app.kube.admission import Review
from app.pods.admission import MutatorOrder
from app.pods.admission_draft import PodDraft, is_controlled_by_group


class LivenessStep:
    """Moves liveness probes from the Pod spec, where the kubelet would run them, to an annotation."""

    order = MutatorOrder.LIVENESS

    def __call__(self, draft: PodDraft, review: Review) -> None:  # noqa: ARG002
        """Move the probes if the Pod belongs to one of our workloads and an annotation requests it."""
        if draft.annotations.get(names.USING_ENHANCED_LIVENESS) != "true":
            return
        if not is_controlled_by_group(draft.owner_references, names.APPS_GROUP):
            return
        saved = []
        for index, container in enumerate(draft.containers):
            probe = container.get("livenessProbe")
            if isinstance(probe, dict) and readable(container["name"], probe) is not None:
                saved.append((container["name"], probe))
                draft.remove_container_field(index, "livenessProbe", "PW-18")
        if saved:
            draft.refuse_oversized_annotations()
            draft.set_annotations({names.CONTAINER_PROBE_CONTEXT: annotation(saved)}, "PW-18")
