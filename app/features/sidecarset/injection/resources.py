"""A sidecar's resources, computed from those of the app containers in its Pod. [SS-60 … SS-67]

The policy is compiled once per change of the SidecarSet and evaluated for every new Pod; running Pods keep their
resources.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from app.features.sidecarset.injection.expressions import (
    Expression,
    ExpressionError,
    NegativeResultError,
    compile_expression,
)
from app.kube.fielderrors import FieldError, Path, invalid, not_supported, quote, required
from app.kube.quantities import ZERO, Quantity, QuantityError, parse
from app.kube.regex import Pattern, PatternError, compile_re2

RESOURCES = ("cpu", "memory")
MODES = ("sum", "max")
MATCH_ALL = ".*"
_KINDS = ("limits", "requests")
#: Smallest meaningful amount of each resource, as a power of ten: a thousandth of a CPU, and one byte.
_FINEST = {"cpu": -3, "memory": 0}
#: Amounts with which expressions are tested at admission of a SidecarSet: those of tiny to large containers.
_TRIALS = {
    "cpu": tuple(map(parse, ("10m", "100m", "1", "10", "100"))),
    "memory": tuple(map(parse, ("1Mi", "100Mi", "1Gi", "100Gi", "1Ti"))),
}


class ResourcesPolicyError(ValueError):
    """A policy that cannot be compiled, or has no result for a Pod."""


@dataclass(frozen=True, slots=True)
class ResourcesPolicy:
    """A compiled policy. ``limits`` and ``requests`` map resource names to expressions."""

    sums: bool
    pattern: Pattern
    limits: Mapping[str, Expression]
    requests: Mapping[str, Expression]


def compile_policy(policy: Mapping[str, Any]) -> ResourcesPolicy:
    """Compile a container's ``resourcesPolicy`` from JSON. Raises :class:`ResourcesPolicyError`."""
    for error in policy_errors(policy, Path("resourcesPolicy"), tried=False):
        raise ResourcesPolicyError(str(error))
    expressions = policy["resourcesExpr"]
    limits, requests = (_compiled(expressions.get(kind) or {}) for kind in _KINDS)
    return ResourcesPolicy(
        sums=policy["targetContainersMode"] == "sum",
        pattern=compile_re2(policy.get("targetContainersNameRegex") or MATCH_ALL),
        limits=limits,
        requests=requests,
    )


def _compiled(expressions: Mapping[str, str]) -> dict[str, Expression]:
    # An empty expression sets nothing. [SS-63]
    return {name: compile_expression(expressions[name], name) for name in RESOURCES if expressions.get(name)}


def targets(
    policy: ResourcesPolicy,
    init_containers: Iterable[Mapping[str, Any]],
    containers: Iterable[Mapping[str, Any]],
    injected: Collection[str],
) -> list[Mapping[str, Any]]:
    """Return the Pod's own containers that the policy counts: native sidecars, then containers. [SS-61]

    ``injected`` names every container of every SidecarSet applied to this Pod; those never count. Raises
    :class:`ResourcesPolicyError` if no container is left.
    """
    running = (container for container in init_containers if container.get("restartPolicy") == "Always")
    counted = [
        container
        for group in (running, containers)
        for container in group
        if container["name"] not in injected and policy.pattern.search(container["name"])
    ]
    if not counted:
        raise ResourcesPolicyError(f"no containers match the regex pattern {quote(policy.pattern.text)}")
    return counted


def evaluate(policy: ResourcesPolicy, counted: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, str]]:
    """Return the sidecar's complete ``resources`` for the counted containers. [SS-60]

    Raises :class:`ResourcesPolicyError` if an expression has no usable value for these containers.
    """
    resources = [target.get("resources") or {} for target in counted]
    limits: dict[str, Quantity] = {}
    for name, expression in policy.limits.items():
        aggregate = _aggregate(policy, resources, "limits", name)
        # Even a constant limit is dropped if a target has no limit. [SS-63]
        if aggregate is not None:
            limits[name] = _amount(expression, aggregate, "limits", name)
    requests: dict[str, Quantity] = {}
    for name, expression in policy.requests.items():
        aggregate = _aggregate(policy, resources, "requests", name)
        requests[name] = _amount(expression, aggregate or ZERO, "requests", name)
    for name in limits.keys() & requests.keys():
        # Raise limits to the requests: the API server rejects Pods with a limit below the request. [SS-67]
        limits[name] = max(limits[name], requests[name])
    result = (("limits", limits), ("requests", requests))
    return {
        kind: {name: str(amounts[name]) for name in RESOURCES if name in amounts} for kind, amounts in result if amounts
    }


def _aggregate(
    policy: ResourcesPolicy, resources: Iterable[Mapping[str, Any]], kind: str, name: str
) -> Quantity | None:
    """Return the sum or the maximum; None for a limit that one target lacks. [SS-62]"""
    total = ZERO
    for requirements in resources:
        given = (requirements.get(kind) or {}).get(name)
        if given is None:
            if kind == "limits":
                return None
            continue
        try:
            amount = parse(given)
        except QuantityError as error:
            raise ResourcesPolicyError(f"resources.{kind}.{name} of a container of the Pod: {error}") from error
        total = total + amount if policy.sums else max(total, amount)
    return total


def _amount(expression: Expression, variable: Quantity, kind: str, name: str) -> Quantity:
    try:
        amount = expression.evaluate(variable)
    except ExpressionError as error:
        raise ResourcesPolicyError(
            f"resourcesPolicy.resourcesExpr.{kind}.{name} for {name}={variable}: {error}"
        ) from error
    # Round up, because there are no fractions of a byte. [SS-67]
    return amount.round_up(_FINEST[name])


def policy_errors(policy: Mapping[str, Any], path: Path, *, tried: bool = True) -> Iterator[FieldError]:
    """Validate a ``resourcesPolicy`` whose fields have the right types; ``path`` is its location. [SS-23, SS-67]

    If ``tried``, also reject an expression that fails for every amount a container could have. Conflicts with other
    fields (own resources, a plain init container) are checked by the caller.
    """
    mode = policy.get("targetContainersMode") or ""
    if mode not in MODES:
        yield not_supported(path.child("targetContainersMode"), mode, MODES)
    pattern = policy.get("targetContainersNameRegex")
    try:
        compile_re2(pattern or MATCH_ALL)
    except PatternError as error:
        yield invalid(path.child("targetContainersNameRegex"), pattern, f"invalid regex: {error}")
    at, expressions = path.child("resourcesExpr"), policy.get("resourcesExpr") or {}
    if all(expressions.get(kind) is None for kind in _KINDS):
        yield required(at, "at least one of limits and requests must be given")
    for kind in _KINDS:
        for name in RESOURCES:
            if text := (expressions.get(kind) or {}).get(name):
                yield from _expression_errors(text, name, at.child(kind, name), tried=tried)


def _expression_errors(text: str, name: str, path: Path, *, tried: bool) -> Iterator[FieldError]:
    try:
        expression = compile_expression(text, name)
        reason = _never_usable(expression, name) if tried else ""
    except ExpressionError as error:
        reason = str(error)
    if reason:
        yield invalid(path, text, f"invalid expression: {reason}")


def _never_usable(expression: Expression, name: str) -> str:
    """Return why admission rejects an expression; '' if it does not. [SS-67]

    Like OpenKruise, evaluate it with the plain number 1. Unlike OpenKruise, reject a negative result, because Pods with
    small containers would be refused. Also evaluate the expression with quantities, to find expressions that fail for
    every Pod, such as ``cpu*cpu``.
    """
    try:
        expression.evaluate(1.0)
    except NegativeResultError as error:
        return f"with {name}=1: {error}; write max({expression.text}, 0) to keep it from falling below zero"
    except ExpressionError as error:
        return f"with {name}=1: {error}"
    reason = ""
    for amount in _TRIALS[name]:
        try:
            expression.evaluate(amount)
        except ExpressionError as error:
            reason = reason or f"with {name}={amount}: {error}"
        else:
            return ""
    return reason
