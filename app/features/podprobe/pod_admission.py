"""The step of Pod creation by which the node agent gets the liveness probes of a Pod (PW-18)."""

from __future__ import annotations

from app.api import names
from app.features.podprobe.plan.liveness import annotation, readable
from app.kube.admission import Review
from app.pods.admission import MutatorOrder
from app.pods.draft import PodDraft, is_controlled_by_group, is_mirror_pod


class LivenessStep:
    """The kubelet no longer sees the probes; the annotation keeps them."""

    order = MutatorOrder.LIVENESS

    __slots__ = ()

    def __call__(self, draft: PodDraft, review: Review) -> None:
        """Move them, if the Pod belongs to a workload of ours and asks for it."""
        if draft.annotations.get(names.USING_ENHANCED_LIVENESS) != "true":
            return
        if not is_controlled_by_group(draft.owner_references, names.APPS_GROUP) or is_mirror_pod(draft, review):
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
