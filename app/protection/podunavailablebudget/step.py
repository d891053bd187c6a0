"""The step of Pod creation that puts a new Pod under its budget (PUB-31, PW-16)."""

from __future__ import annotations

from typing import Final

from app.kube.admission import Review
from app.kube.objects import OwnerReference
from app.pods.draft import PodDraft
from app.pods.owners import controller_of
from app.pods.steps import StepOrder, StepOutcome
from app.protection.podunavailablebudget.claims import Claims
from app.protection.podunavailablebudget.owners import Owners
from app.protection.podunavailablebudget.podstate import is_related


class BudgetStep:
    """Annotates a new Pod with the name of its budget. Never refuses one."""

    order: Final = StepOrder.PROTECTION

    def __init__(self, claims: Claims, owners: Owners) -> None:
        self._claims = claims
        self._owners = owners

    def __call__(self, draft: PodDraft, review: Review) -> StepOutcome:  # noqa: ARG002  # the protocol's
        """PUB-31: the oldest budget of the namespace that is for the Pod. Nothing is asked where no target is named."""
        if not self._claims.names(draft.namespace):
            return None
        if self._claims.name_targets(draft.namespace):
            controller = controller_of(draft.owner_references)
            if controller is not None:
                return self._ask(draft, controller)
        _annotate(draft, self._claims.budget_for(draft.namespace, draft.labels, ()))
        return None

    async def _ask(self, draft: PodDraft, controller: OwnerReference) -> None:
        owners = await self._owners.above(controller, draft.namespace)
        _annotate(draft, self._claims.budget_for(draft.namespace, draft.labels, owners))


def _annotate(draft: PodDraft, budget: str) -> None:
    if budget:
        draft.set_annotations(is_related(budget), "PUB-31")
