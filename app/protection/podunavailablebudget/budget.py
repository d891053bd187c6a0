"""What workloads ask before they touch a Pod (PUB-90): the common judgement, in the process of the controllers."""

from __future__ import annotations

from typing import Final

from app.api.podunavailablebudget import ProtectedOperation
from app.kube.objects import Pod
from app.pods.budget import ALLOWED, Disruption, Verdict
from app.protection.podunavailablebudget.keeper import BudgetKeeper
from app.protection.podunavailablebudget.refusals import Refused

#: Who asks.
USERNAME: Final = "kruise-manager"


class ControllerBudget:
    """``judged``: the disruptions that the gates have judged."""

    def __init__(self, keeper: BudgetKeeper, refused: Refused, judged: frozenset[Disruption]) -> None:
        self.keeper = keeper
        self._refused = refused
        self._judged = judged

    async def ask(self, pod: Pod, disruption: Disruption) -> Verdict:
        """Whether the Pod may be disrupted now; noted, so that the request that follows passes without a charge."""
        if disruption not in self._judged:
            return ALLOWED
        found = await self.keeper.judge(pod, ProtectedOperation(disruption.value))
        if found.allowed:
            return ALLOWED
        self._refused(pod, USERNAME)
        return Verdict(False, found.message)
