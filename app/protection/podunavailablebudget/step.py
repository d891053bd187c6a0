"""The step of Pod creation that puts a new Pod under its budget (PUB-31, PW-16)."""

from __future__ import annotations

import logging
from typing import Final

from app.kube.admission import Denied, Review
from app.pods.draft import PodDraft
from app.pods.steps import StepOrder
from app.protection.podunavailablebudget.claims import Claims
from app.protection.podunavailablebudget.matching import budget_for
from app.protection.podunavailablebudget.owners import Owners, controller_of
from app.protection.podunavailablebudget.podstate import is_related

logger = logging.getLogger(__name__)


class BudgetStep:
    """Annotates a new Pod with the name of its budget. Never refuses one."""

    order: Final = StepOrder.UNAVAILABLE_BUDGET

    def __init__(self, claims: Claims, owners: Owners) -> None:
        self._claims = claims
        self._owners = owners

    async def __call__(self, draft: PodDraft, review: Review) -> Denied | None:  # noqa: ARG002  # the protocol's
        """PUB-31: the oldest budget of the namespace that is for the Pod. Nothing is asked where it has none."""
        claims = self._claims.of(draft.namespace)
        if not claims:
            return None
        controller = None
        if any(claim.target is not None for claim in claims):
            controller = controller_of(draft.owner_references)
        owners = await self._owners.above(controller, draft.namespace) if controller is not None else ()
        name = budget_for(claims, draft.labels, owners)
        if name:
            draft.set_annotations(is_related(name), "PUB-31")
        return None
