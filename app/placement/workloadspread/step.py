"""The step of Pod creation that puts a new Pod into a subset (WS-21 … WS-34)."""

from __future__ import annotations

from typing import Any, Final

from app.api import names
from app.kube.admission import Review
from app.kube.errors import KubeError, NotFound, message_of
from app.kube.objects import OwnerReference
from app.kube.patches import PatchError
from app.placement.workloadspread.index import NamespaceSpreads, PreparedSpread
from app.placement.workloadspread.placing import Placer
from app.placement.workloadspread.plan.injection import PreparedSubset, affinity_with, patched, tolerations_with
from app.placement.workloadspread.plan.replicas import ReplicasPathError
from app.pods.draft import PodDraft, PodRefusedError
from app.pods.owners import controller_of
from app.pods.shape import check_shape
from app.pods.steps import StepOrder, StepOutcome

_PARTS: Final = ("metadata", "spec")


class WorkloadSpreadStep:
    """Takes a place, and makes the Pod one of the subset."""

    order: Final = StepOrder.SUBSET

    def __init__(self, placer: Placer) -> None:
        self._placer = placer

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:
        """Nothing is asked where the namespace has no WorkloadSpread. Raises PodRefusedError (500): the workload tries
        again."""
        here = self._placer.index.of(draft.namespace)
        if here is None or review.dry_run:
            return None
        controller = controller_of(draft.owner_references)
        return self._placed(draft, here, controller) if controller is not None else None

    async def _placed(self, draft: PodDraft, here: NamespaceSpreads, controller: OwnerReference) -> None:
        try:
            spread = await self._placer.find(here, controller, draft.labels, draft.namespace)
        except NotFound as error:
            raise _refused(draft, f"an owner of it is not there (yet): {message_of(error)}") from error
        except KubeError as error:
            raise _refused(draft, f"its owners cannot be read: {message_of(error)}") from error
        if spread is None:
            return
        try:
            record = await self._placer.take(spread, controller, draft.name, draft.labels)
        except (KubeError, ReplicasPathError) as error:
            text = str(error) if isinstance(error, ReplicasPathError) else message_of(error)
            raise _refused(draft, f"WorkloadSpread {spread.key} could not be asked for a place: {text}") from error
        if record is None:
            return
        subset = spread.subsets.get(record.subset)
        if subset is not None:
            inject(draft, subset, spread)
        draft.set_annotations(record.annotation(), "WS-33")
        cost = spread.costs.get(record.subset)
        if cost is not None and names.POD_DELETION_COST not in draft.annotations:
            draft.set_annotations({names.POD_DELETION_COST: cost}, "WS-55")  # else the controller has to write it


def inject(draft: PodDraft, subset: PreparedSubset, spread: PreparedSpread) -> None:
    """WS-31, WS-32. Raises PodRefusedError where the patch does not fit the Pod."""
    if subset.tolerations:
        draft.change_field("spec", "tolerations", tolerations_with(subset, draft.spec), "WS-31")
    draft.change_field("spec", "affinity", affinity_with(subset, draft.spec), "WS-31")
    if not subset.patch:
        return
    try:
        merged: Any = patched(subset, {"metadata": draft.metadata, "spec": draft.spec})
        check_shape(merged)
    except (PatchError, PodRefusedError) as error:
        text = error.message if isinstance(error, PodRefusedError) else str(error)
        raise _refused(
            draft, f"WorkloadSpread {spread.key}, subset {subset.name}: its patch does not fit: {text}"
        ) from error
    for part in _PARTS:
        before = draft.metadata if part == "metadata" else draft.spec
        after = merged.get(part) or {}
        for field in {**before, **after}:
            if after.get(field) is not before.get(field):
                draft.change_field(part, field, after.get(field), "WS-32")


def _refused(draft: PodDraft, text: str) -> PodRefusedError:
    return PodRefusedError(f"{draft.display}: {text}", code=500)
