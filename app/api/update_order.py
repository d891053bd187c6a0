"""The order in which a workload's Pods are updated: priorityStrategy and scatterStrategy, shared by several kinds.

Rules PM-6 and PM-7; SidecarSet's SS-25 is the same check.
"""

from __future__ import annotations

from typing import Any

from app.api.model import ApiModel
from app.api.schema import Int32, LabelSelector
from app.kube.selectors import SelectorError, compile_selector


class WeightPriorityTerm(ApiModel):
    """Pods that match the selector weigh this much more."""

    weight: Int32
    """What a matching Pod weighs, from 0 to 100; weights of several terms add up, and heavier Pods come first."""
    match_selector: LabelSelector
    """The Pods this term speaks of."""


class OrderPriorityTerm(ApiModel):
    """Pods that have this label are ordered by the number its value ends with."""

    ordered_key: str
    """The label key. Larger numbers come first; Pods with none of the keys come before all others."""


class UpdatePriorityStrategy(ApiModel):
    """Which Pods are updated first: by weight or by order, not both."""

    order_priority: list[OrderPriorityTerm] | None = None
    """Label keys whose values end in a number; earlier terms take precedence."""
    weight_priority: list[WeightPriorityTerm] | None = None
    """Weights for Pods by selector."""


class UpdateScatterTerm(ApiModel):
    """Pods with this label are spread over the whole update instead of being updated together."""

    key: str
    """The label key."""
    value: str
    """The label value; in a SidecarSet `*` stands for every value there is."""


def priority_error(strategy: dict[str, Any] | None) -> str:
    """PM-6: what is wrong with a priorityStrategy in its JSON form, or ''. The first mistake, as OpenKruise has it."""
    strategy = strategy or {}
    weights, orders = strategy.get("weightPriority") or [], strategy.get("orderPriority") or []
    if weights and orders:
        return "only one of weightPriority and orderPriority can be used"
    for term in weights:
        if not 0 <= (term.get("weight") or 0) <= 100:
            return "weight must be valid number in the range 1-100"
        selector = term.get("matchSelector") or {}
        if not selector.get("matchLabels") and not selector.get("matchExpressions"):
            return "selector can not be empty"
        try:
            compile_selector(selector)
        except SelectorError as error:
            return f"invalid selector {error}"
    return "" if all(term.get("orderedKey") for term in orders) else "order key can not be empty"


def scatter_error(terms: list[dict[str, Any]] | None) -> str:
    """PM-7: what is wrong with a scatterStrategy in its JSON form, or ''."""
    seen: set[tuple[str, str]] = set()
    for term in terms or []:
        key, value = term.get("key") or "", term.get("value") or ""
        if not key:
            return "key should not be empty"
        if (key, value) in seen:
            return f"duplicated key={key} value={value}"
        seen.add((key, value))
    return ""
