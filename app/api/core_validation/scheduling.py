"""Node selector terms, preferred terms and tolerations, with the API server's messages (WS-10).

Source: Kubernetes 1.34, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from app.api.scheduling import NodeSelectorRequirement, NodeSelectorTerm, PreferredSchedulingTerm, Toleration
from app.kube.fielderrors import FieldError, GoLiteral, Path, forbidden, invalid, not_supported, required
from app.kube.gotext import quote
from app.kube.validation import is_dns1123_subdomain, is_label_value, is_qualified_name

_SET: Final = ("In", "NotIn")
_PRESENCE: Final = ("Exists", "DoesNotExist")
_COMPARISON: Final = ("Gt", "Lt")
_NAME_FIELD: Final = "metadata.name"
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST_WEIGHT: Final = 100


def node_selector_term_errors(term: NodeSelectorTerm, path: Path) -> list[FieldError]:
    """What is wrong with a term."""
    errors: list[FieldError] = []
    for index, requirement in enumerate(term.match_expressions or ()):
        errors += _label_errors(requirement, path.child("matchExpressions").index(index))
    for index, requirement in enumerate(term.match_fields or ()):
        errors += _field_errors(requirement, path.child("matchFields").index(index))
    return errors


def preferred_term_errors(terms: Sequence[PreferredSchedulingTerm], path: Path) -> list[FieldError]:
    """What is wrong with preferred terms."""
    errors: list[FieldError] = []
    for index, term in enumerate(terms):
        at = path.index(index)
        if not 0 < term.weight <= _MOST_WEIGHT:
            errors.append(invalid(at.child("weight"), term.weight, "must be in the range 1-100"))
        errors += node_selector_term_errors(term.preference, at.child("preference"))
    return errors


def toleration_errors(tolerations: Sequence[Toleration], path: Path) -> list[FieldError]:
    """What is wrong with tolerations."""
    errors: list[FieldError] = []
    for index, toleration in enumerate(tolerations):
        errors += _toleration_errors(toleration, path.index(index))
    return errors


def _label_errors(requirement: NodeSelectorRequirement, path: Path) -> list[FieldError]:
    errors: list[FieldError] = []
    values = requirement.values or []
    if requirement.operator in _SET:
        if not values:
            errors.append(required(path.child("values"), "must be specified when `operator` is 'In' or 'NotIn'"))
    elif requirement.operator in _PRESENCE:
        if values:
            detail = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(forbidden(path.child("values"), detail))
    elif requirement.operator in _COMPARISON:
        if len(values) != 1:
            detail = "must be specified single value when `operator` is 'Lt' or 'Gt'"
            errors.append(required(path.child("values"), detail))
    else:
        errors.append(invalid(path.child("operator"), requirement.operator, "not a valid selector operator"))
    errors += [invalid(path.child("key"), requirement.key, text) for text in is_qualified_name(requirement.key)]
    for index, value in enumerate(values):
        errors += [invalid(path.child("values").index(index), value, text) for text in is_label_value(value)]
    return errors


def _field_errors(requirement: NodeSelectorRequirement, path: Path) -> list[FieldError]:
    errors: list[FieldError] = []
    values = requirement.values or []
    if requirement.operator not in _SET:
        errors.append(invalid(path.child("operator"), requirement.operator, "not a valid selector operator"))
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        errors.append(required(path.child("values"), detail))
    if requirement.key != _NAME_FIELD:
        errors.append(invalid(path.child("key"), requirement.key, "not a valid field selector key"))
        return errors
    for index, value in enumerate(values):
        errors += [invalid(path.child("values").index(index), value, text) for text in is_dns1123_subdomain(value)]
    return errors


def _toleration_errors(toleration: Toleration, path: Path) -> list[FieldError]:
    errors: list[FieldError] = []
    operator = path.child("operator")
    errors += [invalid(path.child("key"), toleration.key, text) for text in _key_errors(toleration.key)]
    if not toleration.key and toleration.operator != "Exists":
        detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        errors.append(invalid(operator, toleration.operator, detail))
    if toleration.toleration_seconds is not None and toleration.effect != "NoExecute":
        detail = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(invalid(path.child("effect"), toleration.effect, detail))
    if toleration.operator in ("Equal", ""):
        texts = is_label_value(toleration.value)
        if texts:
            errors.append(invalid(operator, toleration.value, ";".join(texts)))
    elif toleration.operator == "Exists":
        if toleration.value:
            errors.append(invalid(operator, _go(toleration), "value must be empty when `operator` is 'Exists'"))
    else:
        errors.append(not_supported(operator, toleration.operator, ("Equal", "Exists")))
    if toleration.effect and toleration.effect not in _EFFECTS:
        errors.append(not_supported(path.child("effect"), toleration.effect, _EFFECTS))
    return errors


def _key_errors(key: str) -> list[str]:
    return is_qualified_name(key) if key else []


def _go(toleration: Toleration) -> GoLiteral:
    seconds = toleration.toleration_seconds
    return GoLiteral(
        f"core.Toleration{{Key:{quote(toleration.key)}, Operator:{quote(toleration.operator)}, "
        f"Value:{quote(toleration.value)}, Effect:{quote(toleration.effect)}, "
        f"TolerationSeconds:{'(*int64)(nil)' if seconds is None else seconds}}}"
    )
