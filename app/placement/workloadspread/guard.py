"""The guard of Pods that go: their places are given back before they do (WS-42 … WS-44)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.kube.admission import Denied
from app.kube.resources import ObjectKey
from app.placement.workloadspread.placing import Placer
from app.placement.workloadspread.plan.record import record_of
from app.pods.guards import GuardOrder, PodRequest, PodRequestKind
from app.pods.owners import controller_of
from app.pods.predicates import FINISHED


class WorkloadSpreadGuard:
    """Writes down that a Pod goes; refuses nothing."""

    order: Final = GuardOrder.COUNTING

    def __init__(self, placer: Placer) -> None:
        self._placer = placer

    async def __call__(self, request: PodRequest) -> Denied | None:
        """Nothing is read where the namespace has no WorkloadSpread. Raises KubeError."""
        if request.kind is PodRequestKind.UPDATE:
            return None  # others are asked about changes; the Pod stays where it is
        if request.dry_run or self._placer.index.of(request.namespace) is None:
            return None
        pod = await request.pod()
        if pod is None:
            return None
        metadata = _part(pod, "metadata")
        annotations, labels = (_part(metadata, field) for field in ("annotations", "labels"))
        record = record_of({key: value for key, value in annotations.items() if isinstance(value, str)})
        references = metadata.get("ownerReferences")
        controller = controller_of(references) if isinstance(references, Sequence) else None
        if record is None or controller is None or not _is_active(pod, metadata):
            return None
        spread = self._placer.index.get(ObjectKey(request.namespace, record.spread))
        if spread is not None:
            await self._placer.give_back(spread, record, controller, request.name, labels)
        return None


def _is_active(pod: Mapping[str, Any], metadata: Mapping[str, Any]) -> bool:
    return not metadata.get("deletionTimestamp") and _part(pod, "status").get("phase") not in FINISHED


def _part(held: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    found = held.get(field)
    return found if isinstance(found, Mapping) else {}
