"""The webhook of PodUnavailableBudget: refuse what cannot work, warn of what meets other budgets (PUB-10 … PUB-21)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from app.api import names
from app.api.conversion import ConversionError, as_hub
from app.api.podunavailablebudget import POD_UNAVAILABLE_BUDGET, PodUnavailableBudget
from app.api.requested import version_to_judge
from app.api.webhooks import validating_webhook
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    Handler,
    MatchCondition,
    Operation,
    PolicyRule,
    Review,
)
from app.kube.fielderrors import aggregate
from app.protection.podunavailablebudget.overlap import PodScope
from app.protection.podunavailablebudget.validation import Other, budget_errors, overlap_warnings

#: Targets beside which a new budget's Pods are looked at; more make the warning less complete, not the write slower.
MAX_TARGETS: Final = 20
TURNED_OFF: Final = (
    "PodUnavailableBudget is turned off: open it by feature gate PodUnavailableBudgetDeleteGate or "
    "PodUnavailableBudgetUpdateGate"
)

VALIDATE: Final = validating_webhook(
    POD_UNAVAILABLE_BUDGET,
    "Refuses PodUnavailableBudgets that cannot work, alone or beside others",
    PolicyRule(("get", "list", "watch"), (names.POLICY_GROUP,), (POD_UNAVAILABLE_BUDGET.plural,)),
    PolicyRule(("get",), ("apps",), ("deployments", "replicasets", "statefulsets")),
    PolicyRule(("get",), (names.APPS_GROUP,), ("clonesets", "statefulsets")),
    # D-11: what changes neither spec nor annotations (a finalizer, a label) is nothing to judge.
    when=(
        MatchCondition(
            "settings-changed",
            "request.operation != 'UPDATE' || object.?spec != oldObject.?spec || "
            "object.metadata.?annotations != oldObject.metadata.?annotations",
        ),
    ),
)
WEBHOOKS: Final = (VALIDATE,)


class BudgetLookups(Protocol):
    """What validation asks. Whoever has no cluster answers from files."""

    #: PUB-10: whether one of the two gates is on.
    enabled: bool

    async def budgets(self, namespace: str) -> Iterable[PodUnavailableBudget]:
        """All budgets of the namespace, as they are now."""
        ...

    async def template_labels(self, namespace: str, target: Mapping[str, Any]) -> Mapping[str, str] | None:
        """The labels of the Pods that the workload makes; None where that is not known."""
        ...


def handlers(lookups: BudgetLookups) -> tuple[Handler, ...]:
    """The declarations with the functions that answer for them."""
    return (Handler(VALIDATE, partial(validate, lookups)),)


async def validate(lookups: BudgetLookups, review: Review) -> Decision:
    """All mistakes are reported together; OpenKruise's code for them is 400."""
    if not lookups.enabled:
        return Denied(TURNED_OFF, code=400)
    given = review.object or {}
    version = version_to_judge(POD_UNAVAILABLE_BUDGET, given)
    if isinstance(version, Denied):
        return version
    metadata = given.get("metadata") or {}
    if metadata.get("deletionTimestamp"):
        # What still has to happen (a finalizer leaving) must not fail on content that no longer matters.
        return Allowed()
    try:
        stored, former = as_hub(POD_UNAVAILABLE_BUDGET, given), _former(review)
    except ConversionError as error:
        return Denied(str(error), code=400)
    others = [Other(budget.name, _spec_of(budget)) for budget in await lookups.budgets(review.namespace)]
    spec = stored.get("spec") or {}
    if errors := budget_errors(stored.get("metadata") or {}, spec, former, others):
        return Denied(aggregate(errors), code=400)
    return Allowed(await _warnings(lookups, review.namespace, str(metadata.get("name") or ""), spec, others))


def _former(review: Review) -> Mapping[str, Any] | None:
    old = review.old_object
    if review.operation != Operation.UPDATE or not old:
        return None
    return as_hub(POD_UNAVAILABLE_BUDGET, old).get("spec") or {}


def _spec_of(budget: PodUnavailableBudget) -> Mapping[str, Any]:
    return budget.spec.to_dict()


async def _warnings(
    lookups: BudgetLookups, namespace: str, name: str, spec: Mapping[str, Any], others: Sequence[Other]
) -> tuple[str, ...]:
    """PUB-128. Only a target beside selectors, or a selector beside targets, needs to know the workloads."""
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
    any_selector = any(other.spec.get("selector") is not None for other in others if other.name != name)
    own = await reach(spec, needed=any_selector)
    theirs = [(other.name, await reach(other.spec, needed=chosen_by_labels)) for other in others if other.name != name]
    return overlap_warnings(name, own, theirs)
