"""Whether the selectors of two budgets could choose one Pod: loosely as OpenKruise refuses it, and strictly. Pure.

LabelSelectors come in their JSON form, already valid. The cost is linear in their size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.kube.selectors import Operator, Requirement, compile_selector


@dataclass(frozen=True, slots=True)
class _Demand:
    """What is asked of one label. ``allowed``: None for any value."""

    allowed: frozenset[str] | None = None
    excluded: frozenset[str] = frozenset()
    present: bool = False
    absent: bool = False

    def joined(self, other: _Demand) -> _Demand:
        both = [allowed for allowed in (self.allowed, other.allowed) if allowed is not None]
        return _Demand(
            frozenset.intersection(*both) if both else None,
            self.excluded | other.excluded,
            self.present or other.present,
            self.absent or other.absent,
        )

    @property
    def possible(self) -> bool:
        """Whether a value, or its absence, fulfils it."""
        if self.absent:
            return not self.present and self.allowed is None
        return self.allowed is None or bool(self.allowed - self.excluded)


_ByKey: TypeAlias = dict[str, _Demand]


@dataclass(frozen=True, slots=True)
class PodScope:
    """Which Pods a budget is for: those its selector matches, or those that have just these labels."""

    selector: Mapping[str, Any] | None = None
    labels: Mapping[str, str] | None = None


def loosely_overlap(first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    """PUB-20: they name exactly the same keys, and no key tells them apart."""
    one, two = _by_key(first), _by_key(second)
    return one.keys() == two.keys() and _agree(one, two)


def may_meet(first: PodScope, second: PodScope) -> bool:
    """PUB-128: nothing that is said about one label tells them apart."""
    if first.selector is not None and second.selector is not None:
        return _agree(_by_key(first.selector), _by_key(second.selector))
    for one, other in ((first, second), (second, first)):
        if one.selector is not None and other.labels is not None:
            return compile_selector(one.selector).matches(other.labels)
    return False


def _by_key(selector: Mapping[str, Any]) -> _ByKey:
    found: _ByKey = {}
    for requirement in compile_selector(selector).requirements:
        demand = _demand(requirement)
        known = found.get(requirement.key)
        found[requirement.key] = demand if known is None else known.joined(demand)
    return found


def _demand(requirement: Requirement) -> _Demand:
    values = frozenset(requirement.values)
    match requirement.operator:
        case Operator.IN:
            return _Demand(allowed=values)
        case Operator.NOT_IN:
            return _Demand(excluded=values)
        case Operator.EXISTS:
            return _Demand(present=True)
        case _:
            return _Demand(absent=True)


def _agree(one: _ByKey, two: _ByKey) -> bool:
    return all(one[key].joined(two[key]).possible for key in one.keys() & two.keys())
