"""The guard of Pods: asks a Pod's budget before it is deleted, evicted, updated or resized (PUB-60 … PUB-70)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import msgspec

from app.api.podunavailablebudget import ProtectedOperation
from app.kube.admission import Denied
from app.kube.errors import KubeError, message_of
from app.kube.objects import Pod
from app.pods.guards import GuardOrder, PodRequest, PodRequestKind
from app.protection.podunavailablebudget.judgement import Judgement
from app.protection.podunavailablebudget.keeper import BudgetKeeper
from app.protection.podunavailablebudget.podstate import related_budget
from app.protection.podunavailablebudget.refusals import Refused
from app.protection.podunavailablebudget.resize import update_operation

DELETE_GATE: Final = "PodUnavailableBudgetDeleteGate"
UPDATE_GATE: Final = "PodUnavailableBudgetUpdateGate"
_REMOVALS: Final = {
    PodRequestKind.DELETE: ProtectedOperation.DELETE,
    PodRequestKind.EVICT: ProtectedOperation.EVICT,
}


class BudgetGuard:
    """``any_budget``: whether Pods of a namespace may have one; ``removals``, ``updates``: which the gates judge."""

    order: Final = GuardOrder.JUDGING

    def __init__(
        self,
        keeper: BudgetKeeper,
        any_budget: Callable[[str], Awaitable[bool]],
        refused: Refused,
        *,
        removals: bool,
        updates: bool,
    ) -> None:
        self._keeper = keeper
        self._any_budget = any_budget
        self._refused = refused
        self._removals = removals
        self._updates = updates

    async def __call__(self, request: PodRequest) -> Denied | None:
        """A refusal, or nothing."""
        operation = self._operation(request)
        if operation is None:
            return None
        if request.kind is PodRequestKind.EVICT:
            # In a cluster without budgets an eviction costs no look at its Pod. In one that has some, the Pod says more
            # than the cache, which may not know of the budget yet (PUB-30).
            try:
                if not await self._any_budget(request.namespace):
                    return None
            except KubeError as error:
                return Denied(f"whether there are PodUnavailableBudgets: {message_of(error)}", 429, "TooManyRequests")
        raw = await request.pod()
        if raw is None:
            return None
        name = related_budget(_annotations(raw))
        if not name and request.kind is PodRequestKind.UPDATE:
            name = related_budget(_annotations(request.review.object or {}))
        if not name:
            return None
        try:
            pod = msgspec.convert(raw, Pod)
        except msgspec.ValidationError as error:
            return Denied(f"request.oldObject: expected a Pod: {error}", code=400)
        found = await self._keeper.judge(pod, operation, budget=name, dry_run=request.dry_run)
        if found.allowed:
            return None
        self._refused(pod, request.review.username)
        return refusal(found, operation)

    def _operation(self, request: PodRequest) -> ProtectedOperation | None:
        """What it is judged as; None for what is not judged."""
        if request.kind is not PodRequestKind.UPDATE:
            return _REMOVALS[request.kind] if self._removals else None
        if not self._updates:
            return None
        return update_operation(request.review.old_object or {}, request.review.object or {})


def refusal(judgement: Judgement, operation: ProtectedOperation) -> Denied:
    """PUB-67, PUB-127: who evicts is told to come again, as by a PodDisruptionBudget."""
    if operation is ProtectedOperation.EVICT:
        return Denied(judgement.message, code=429, reason="TooManyRequests")
    return Denied(judgement.message, code=403, reason="Forbidden")


def _annotations(pod: Mapping[str, Any]) -> Mapping[str, str]:
    metadata = pod.get("metadata")
    annotations = metadata.get("annotations") if isinstance(metadata, Mapping) else None
    if not isinstance(annotations, Mapping):
        return {}
    return {key: value for key, value in annotations.items() if isinstance(value, str)}
