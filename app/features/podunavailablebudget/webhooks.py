"""Webhooks of PodUnavailableBudget and the lookups they need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.conversion import as_hub
from app.api.webhooks import Judgment, Submitted, validating, validating_webhook
from app.features.podunavailablebudget.kind import POD_UNAVAILABLE_BUDGET
from app.features.podunavailablebudget.targets import BUDGETS, WORKLOADS
from app.features.podunavailablebudget.types import PodUnavailableBudget
from app.features.podunavailablebudget.validation import PodScope, Specs, budget_errors, overlap_warnings
from app.framework.live import LiveObjects
from app.framework.watched import Stores
from app.kube.admission import Allowed, Denied, Handler, MatchCondition, Operation, PolicyRule, Review
from app.kube.client import Client
from app.kube.errors import KubeError
from app.kube.objects import decode_workload

# Rejects invalid budgets, and warns about overlaps with other budgets. [PUB-10 … PUB-21]

#: Maximum number of targets compared for a warning. The limit keeps writes fast.
MAX_TARGETS: Final = 20
TURNED_OFF: Final = (
    "PodUnavailableBudget is disabled: enable feature gate PodUnavailableBudgetDeleteGate or "
    "PodUnavailableBudgetUpdateGate"
)

VALIDATE: Final = validating_webhook(
    POD_UNAVAILABLE_BUDGET,
    "Rejects PodUnavailableBudgets that are invalid or conflict with others",
    PolicyRule(("get", "list", "watch"), (names.POLICY_GROUP,), (POD_UNAVAILABLE_BUDGET.plural,)),
    PolicyRule(("get",), ("apps",), ("deployments", "replicasets", "statefulsets")),
    PolicyRule(("get",), (names.APPS_GROUP,), ("clonesets", "statefulsets")),
    # Changes outside spec and annotations (a finalizer, a label) are not validated.
    when=(
        MatchCondition(
            "settings-changed",
            "request.operation != 'UPDATE' || object.?spec != oldObject.?spec || "
            "object.metadata.?annotations != oldObject.metadata.?annotations",
        ),
    ),
)
WEBHOOKS: Final = (VALIDATE,)


def handlers(lookups: BudgetLookups) -> tuple[Handler, ...]:
    """Return the webhook handlers."""
    # Like OpenKruise, deny requests with code 400 if the gates are off, without reading the budget.
    judging = validating(POD_UNAVAILABLE_BUDGET, partial(judge, lookups), code=400)
    decide = judging if lookups.enabled else lambda _: Denied(TURNED_OFF, code=400)
    return (Handler(VALIDATE, decide, lookups.is_slow),)


async def judge(lookups: BudgetLookups, given: Submitted) -> Judgment:
    """Validate a budget."""
    if given.metadata.get("deletionTimestamp"):
        # Updates of a budget being deleted, such as removing a finalizer, must not fail because of its content.
        return Allowed()
    stored, former = as_hub(POD_UNAVAILABLE_BUDGET, given.object), _former(given.review)
    namespace, spec, metadata = given.review.namespace, stored.get("spec") or {}, stored.get("metadata") or {}
    found = await lookups.budgets(namespace)
    others = {budget.name: budget.spec.to_dict() for budget in found if budget.name != metadata.get("name")}
    errors = budget_errors(metadata.get("annotations") or {}, spec, former, others)
    return errors or Allowed(await _warnings(lookups, namespace, spec, others))


def _former(review: Review) -> Mapping[str, Any] | None:
    old = review.old_object
    if review.operation != Operation.UPDATE or not old:
        return None
    return as_hub(POD_UNAVAILABLE_BUDGET, old).get("spec") or {}


async def _warnings(lookups: BudgetLookups, namespace: str, spec: Mapping[str, Any], others: Specs) -> tuple[str, ...]:
    """Return the overlap warnings. Workloads are read only to compare targets with selectors. [PUB-128]"""
    asked = 0

    async def reach(one: Mapping[str, Any], *, needed: bool) -> PodScope:
        nonlocal asked
        if one.get("selector") is not None:
            return PodScope(selector=one["selector"])
        if not needed or asked >= MAX_TARGETS or one.get("targetRef") is None:
            return PodScope()
        asked += 1
        return PodScope(labels=await lookups.template_labels(namespace, one["targetRef"]))

    chosen_by_labels = spec.get("selector") is not None
    any_selector = any(other.get("selector") is not None for other in others.values())
    own = await reach(spec, needed=any_selector)
    theirs = [(name, await reach(other, needed=chosen_by_labels)) for name, other in others.items()]
    return overlap_warnings(own, theirs)


class BudgetLookups:
    """Objects that validation reads on demand: from the API server, or from files in standalone mode. [PUB-21]"""

    def __init__(self, enabled: bool, client: Client | None, stores: Stores) -> None:
        """``enabled`` is set if at least one of the two feature gates is on."""
        self.enabled = enabled
        self._client = client
        self._live = LiveObjects(client, stores)
        self.is_slow = self._live.are_large

    async def budgets(self, namespace: str) -> Iterable[PodUnavailableBudget]:
        """Return the budgets of the namespace. Invalid ones are skipped, as they protect nothing."""
        return await self._live.list(BUDGETS, namespace)

    async def template_labels(self, namespace: str, target: Mapping[str, Any]) -> Mapping[str, str] | None:
        """Return the labels of the workload's Pod template, or None if they are unknown. Errors are ignored, as they
        affect only a warning."""
        group = str(target.get("apiVersion") or "").rpartition("/")[0]
        watched = WORKLOADS.get((group, str(target.get("kind") or "")))
        if watched is None or self._client is None:
            return None
        try:
            # Only the labels are decoded: a budget may be compared with twenty templates of a megabyte each.
            workload = await self._client.get(
                watched.resource, str(target.get("name") or ""), namespace, decode=decode_workload
            )
        except (KubeError, ValueError):
            return None
        return workload.spec.template.metadata.labels
