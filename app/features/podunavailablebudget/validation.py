"""Validation of budgets, and of overlaps between them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

from app.api import names
from app.features.podunavailablebudget.kind import OPERATIONS, parse_total, split_operations
from app.features.podunavailablebudget.plan.pods import effective_selector
from app.kube.fielderrors import FieldError, GoLiteral, Path, go_int_or_string, invalid, not_supported, quote, required
from app.kube.patches import same
from app.kube.selectors import Operator, Requirement, Selector, go_label_selector, validate_selector
from app.kube.text import first_of

# Two checks of whether the selectors of two budgets can match the same Pod: a loose one, as in OpenKruise, and a
# strict one. A selector may have a hundred thousand values and be compared with a thousand others. Therefore it is
# compiled once, and the cost of a comparison depends only on the smaller selector.


@dataclass(frozen=True, slots=True)
class _Demand:
    """Requirements on one label. Values in ``excluded`` are never in ``allowed``, which is None if all other values are
    allowed."""

    allowed: frozenset[str] | None
    excluded: frozenset[str]
    present: bool
    absent: bool

    @classmethod
    def of(cls, requirements: Sequence[Requirement]) -> _Demand:
        """Combine the requirements on one label."""
        operators = {one.operator for one in requirements}
        allowed = [frozenset(one.values) for one in requirements if one.operator is Operator.IN]
        excluded = frozenset(value for one in requirements if one.operator is Operator.NOT_IN for value in one.values)
        return cls(
            frozenset.intersection(*allowed) - excluded if allowed else None,
            excluded,
            Operator.EXISTS in operators,
            Operator.DOES_NOT_EXIST in operators,
        )

    def agrees_with(self, other: _Demand) -> bool:
        """Return whether some value, or a missing label, satisfies the requirements of both."""
        if self.absent or other.absent:
            return not (self.present or other.present) and self.allowed is None and other.allowed is None
        if self.allowed is not None and other.allowed is not None:
            return not self.allowed.isdisjoint(other.allowed)
        if self.allowed is not None:
            return not self.allowed <= other.excluded
        return other.allowed is None or not other.allowed <= self.excluded


@dataclass(frozen=True)
class PodScope:
    """The Pods of a budget: those its selector matches, or those with exactly these labels."""

    selector: Mapping[str, Any] | None = None
    labels: Mapping[str, str] | None = None

    @cached_property
    def compiled(self) -> Selector | None:
        """The selector, or None (which matches nothing) if it is missing, empty or invalid."""
        return effective_selector(self.selector)

    @cached_property
    def demands(self) -> Mapping[str, _Demand]:
        """Requirements of the selector by label; empty if the selector matches nothing."""
        by_key: dict[str, list[Requirement]] = {}
        for requirement in self.compiled.requirements if self.compiled is not None else ():
            by_key.setdefault(requirement.key, []).append(requirement)
        return {key: _Demand.of(requirements) for key, requirements in by_key.items()}


def loosely_overlap(first: PodScope, second: PodScope) -> bool:
    """Return whether both selectors use the same keys, and no key rules out a Pod that matches both. [PUB-20]"""
    return first.demands.keys() == second.demands.keys() and _agree(first, second)


def may_meet(first: PodScope, second: PodScope) -> bool:
    """Return whether no label rules out a Pod that belongs to both. [PUB-128]"""
    for one, other in ((first, second), (second, first)):
        if one.compiled is not None and other.labels is not None:
            return one.compiled.matches(other.labels)
    return _agree(first, second)


def _agree(one: PodScope, other: PodScope) -> bool:
    if one.compiled is None or other.compiled is None:
        return False
    return all(one.demands[key].agrees_with(other.demands[key]) for key in one.demands.keys() & other.demands.keys())


# Validation of a PodUnavailableBudget by itself and against other budgets. [PUB-11 … PUB-20, PUB-128] Specs are v1beta1
# JSON; annotations of other versions have been converted to fields.

SPEC: Final = Path("spec")
ANNOTATIONS: Final = Path("metadata").child("annotations")
_WHO: Final = SPEC.child("selector, targetRef")
_HOW_MANY: Final = SPEC.child("maxUnavailable, minAvailable")
_KIND: Final = "PodUnavailableBudget"
#: Maximum number of other budgets named in a warning.
NAMED: Final = 5
#: The other budgets of the namespace: spec by name.
Specs: TypeAlias = Mapping[str, Mapping[str, Any]]
_percent: Final = re.compile(r"[0-9]+%").fullmatch
_api_version: Final = re.compile(r"[^/]+(/[^/]+)?").fullmatch
_PERCENT_EXPECTED: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
    "regex used for validation is '[0-9]+%')"
)


def budget_errors(
    annotations: Mapping[str, Any], spec: Mapping[str, Any], former: Mapping[str, Any] | None, others: Specs
) -> list[FieldError]:
    """Return the errors in a budget. ``former`` is its stored spec, if any."""
    whose = _who_errors(spec)
    errors = [
        *whose,
        *_how_many_errors(spec),
        *_protection_errors(spec),
        *_annotation_errors(annotations, spec),
    ]
    if former is not None and not all(_unchanged(spec, former, field) for field in ("selector", "targetRef")):
        errors.append(required(_WHO, "selector and targetRef cannot be modified"))
    return errors if whose else [*errors, *_conflicts(spec, others)]


def _unchanged(spec: Mapping[str, Any], former: Mapping[str, Any], field: str) -> bool:
    return same(_without_nulls(spec.get(field)), _without_nulls(former.get(field)))


def _without_nulls(value: Any) -> Any:
    return {key: item for key, item in value.items() if item is not None} if isinstance(value, Mapping) else value


def _who_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors in selector and targetRef. [PUB-11 … PUB-13]"""
    selector, target = spec.get("selector"), spec.get("targetRef")
    if selector is not None:
        if target is not None:
            return [required(_WHO, "selector and targetRef are mutually exclusive")]
        return _selector_errors(selector, SPEC.child("selector"))
    if target is None:
        return [required(_WHO, f"no selector or targetRef defined in {_KIND}")]
    return _target_errors(target)


def _target_errors(target: Mapping[str, Any]) -> list[FieldError]:
    at = SPEC.child("targetRef")
    api_version, kind, name = (str(target.get(field) or "") for field in ("apiVersion", "kind", "name"))
    if not (api_version and kind and name):
        return [invalid(at, go_target(target), f"empty targetRef is not valid for {_KIND}")]
    if not _api_version(api_version):
        return [invalid(at, go_target(target), f"unexpected GroupVersion string: {api_version}")]
    return []


def go_target(target: Mapping[str, Any]) -> GoLiteral:
    """Return a targetRef formatted like Go's ``%#v``, as in OpenKruise's messages."""
    values = {"APIVersion": "apiVersion", "Kind": "kind", "Name": "name"}
    shown = ", ".join(f"{field}:{quote(str(target.get(key) or ''))}" for field, key in values.items())
    return GoLiteral(f"v1beta1.TargetReference{{{shown}}}")


def _selector_errors(selector: Mapping[str, Any], at: Path) -> list[FieldError]:
    """Return an error if the selector is invalid or empty. The error shows the whole selector. [PUB-13, PUB-16]"""
    if errors := validate_selector(selector, at):
        return [*errors, invalid(at, go_label_selector(selector))]
    if not (selector.get("matchLabels") or selector.get("matchExpressions")):
        return [invalid(at, go_label_selector(selector), f"empty selector is not valid for {_KIND}.")]
    return []


def _how_many_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return the errors in maxUnavailable and minAvailable. [PUB-14, PUB-15]"""
    given = [field for field in ("maxUnavailable", "minAvailable") if spec.get(field) is not None]
    if not given:
        return [required(_HOW_MANY, f"no maxUnavailable or minAvailable defined in {_KIND}")]
    if len(given) > 1:
        return [required(_HOW_MANY, "maxUnavailable and minAvailable are mutually exclusive")]
    at, value = SPEC.child(given[0]), spec[given[0]]
    if not isinstance(value, str):
        return [invalid(at, value, "must be greater than or equal to 0")] if value < 0 else []
    shown = go_int_or_string(value)
    if not _percent(value):
        return [invalid(at, shown, _PERCENT_EXPECTED)]
    # Compare the text, because parsing a very long number is slow.
    digits = value[:-1].lstrip("0")
    return [invalid(at, shown, "must not be greater than 100%")] if len(digits) > 3 or int(digits or 0) > 100 else []


def _protection_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate the protection settings. [PUB-16]"""
    for index, operation in enumerate(spec.get("protectOperations") or ()):
        if operation not in OPERATIONS:
            yield not_supported(SPEC.child("protectOperations").index(index), operation, OPERATIONS)
    ignored = spec.get("ignoredPodSelector")
    if ignored is not None:
        yield from _selector_errors(ignored, SPEC.child("ignoredPodSelector"))


def _annotation_errors(annotations: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Reject annotations left by conversion if their value is invalid or differs from the field. [PUB-17]"""
    at = ANNOTATIONS.key(names.PUB_PROTECT_OPERATIONS)
    for item in dict.fromkeys(split_operations(str(annotations.get(names.PUB_PROTECT_OPERATIONS) or ""))):
        if item not in OPERATIONS:
            yield not_supported(at, item, OPERATIONS)
    total = annotations.get(names.PUB_PROTECT_TOTAL_REPLICAS)
    if total is not None:
        at = ANNOTATIONS.key(names.PUB_PROTECT_TOTAL_REPLICAS)
        number, field = parse_total(str(total).strip()), spec.get("protectTotalReplicas")
        if number is None:
            yield invalid(at, str(total), "must be a 32-bit integer")
        elif field is not None and field != number:
            yield invalid(at, str(total), f"must be equal to spec.protectTotalReplicas, which is {field}")
        elif number < 1:
            yield invalid(at, str(total), "must be greater than or equal to 1")


def _conflicts(spec: Mapping[str, Any], others: Specs) -> Iterator[FieldError]:
    """Reject conflicts with other budgets. [PUB-19]"""
    target, own, shown = spec.get("targetRef"), PodScope(spec.get("selector")), None
    for name, other in others.items():
        way_out = f"is in conflict with other {_KIND} {name}: change or delete that one"
        other_target, theirs = other.get("targetRef"), PodScope(other.get("selector"))
        if target is not None and other_target is not None and _workload(target) == _workload(other_target):
            yield invalid(SPEC.child("targetRef"), go_target(target), f"pub.spec.targetRef {way_out}")
        elif loosely_overlap(own, theirs):
            # All errors share the text of the selector, which may be a megabyte long.
            shown = shown or go_label_selector(own.selector)
            yield invalid(SPEC.child("selector"), shown, f"pub.spec.selector {way_out}")


def _workload(target: Mapping[str, Any]) -> tuple[str, str, str]:
    """Return the group, kind and name of a target; the version is irrelevant. [PUB-19]"""
    group = str(target.get("apiVersion") or "").rpartition("/")[0]
    return group, str(target.get("kind") or ""), str(target.get("name") or "")


def overlap_warnings(reach: PodScope, others: Sequence[tuple[str, PodScope]]) -> tuple[str, ...]:
    """Return warnings about budgets that can match the same Pods but are not rejected. Two budgets with a targetRef
    never overlap. [PUB-128]"""
    found = [other for other, theirs in others if may_meet(reach, theirs)]
    if not found:
        return ()
    return (f"Pods can match this {_KIND} and {first_of(sorted(found), NAMED)}: the oldest budget applies",)
