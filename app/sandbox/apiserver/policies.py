"""Validating admission policies: rules in CEL that judge writes without a webhook.

Source: Kubernetes 1.34, apiserver/pkg/admission/plugin/policy/validating. Policies with parameters are not evaluated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.kube.selectors import compile_selector
from app.sandbox.apiserver import status
from app.sandbox.apiserver.attributes import Attributes
from app.sandbox.apiserver.cel import CelError, compiled
from app.sandbox.apiserver.core import Core
from app.sandbox.apiserver.hooks import Hook, conditions_hold, matching
from app.sandbox.apiserver.status import Refusal

Json: TypeAlias = dict[str, Any]

POLICIES: Final = "validatingadmissionpolicies.admissionregistration.k8s.io"
BINDINGS: Final = "validatingadmissionpolicybindings.admissionregistration.k8s.io"
_ANYTHING: Final = ({"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*", "*/*"]},)
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}


@dataclass(frozen=True, slots=True)
class BoundPolicy:
    """A policy as one binding puts it into effect. ``excluded`` and ``narrowed``: which writes it leaves alone."""

    policy: str
    binding: str
    spec: Mapping[str, Any]
    actions: tuple[str, ...]
    wanted: Hook
    excluded: Hook
    narrowed: Hook
    narrowed_excluded: Hook


def bound_policies(core: Core) -> tuple[BoundPolicy, ...]:
    """All policies in effect, by name of policy and binding."""
    found = []
    policies = core.named(POLICIES).objects
    for entry in core.named(BINDINGS).select(""):
        binding = entry.obj.get("spec") or {}
        policy = policies.get(binding.get("policyName") or "")
        if policy is None or (spec := policy.obj.get("spec") or {}).get("paramKind"):
            continue
        constraints, narrowed = spec.get("matchConstraints") or {}, binding.get("matchResources") or {}
        found.append(
            BoundPolicy(
                policy=policy.key,
                binding=entry.key,
                spec=spec,
                actions=tuple(binding.get("validationActions") or ()),
                wanted=_matcher(spec, constraints, constraints.get("resourceRules") or ()),
                excluded=_matcher(spec, constraints, constraints.get("excludeResourceRules") or ()),
                narrowed=_matcher(spec, narrowed, narrowed.get("resourceRules") or _ANYTHING),
                narrowed_excluded=_matcher(spec, narrowed, narrowed.get("excludeResourceRules") or ()),
            )
        )
    return tuple(sorted(found, key=lambda one: (one.policy, one.binding)))


def _matcher(spec: Mapping[str, Any], match: Mapping[str, Any], rules: Any) -> Hook:
    raw = {
        "rules": rules,
        "matchPolicy": match.get("matchPolicy", "Equivalent"),
        "matchConditions": spec.get("matchConditions") or (),
        "failurePolicy": spec.get("failurePolicy", "Fail"),
    }
    namespaces, objects = match.get("namespaceSelector"), match.get("objectSelector")
    return Hook("", "", raw, compile_selector(namespaces), compile_selector(objects))


def concerned(core: Core, bound: BoundPolicy, attributes: Attributes) -> bool:
    """Whether a write is one that the policy judges. Match conditions are looked at with the rest."""
    resource = attributes.resource
    if resource.qualified in (POLICIES, BINDINGS):
        return False  # nobody could repair a policy that stands in its own way
    return (
        matching(core, bound.wanted, attributes) is not None
        and matching(core, bound.narrowed, attributes) is not None
        and matching(core, bound.excluded, attributes) is None
        and matching(core, bound.narrowed_excluded, attributes) is None
    )


def judge(core: Core, bound: BoundPolicy, attributes: Attributes, request: Json) -> None:
    """Refuse, or warn of, what the policy does not let pass."""
    namespace = core.named("namespaces").objects.get(attributes.namespace)
    variables: Json = {
        "object": attributes.obj,
        "oldObject": attributes.old,
        "request": request,
        "params": None,
        "namespaceObject": namespace.obj if namespace is not None else None,
        "variables": {},
    }
    for message, reason in _faults(bound, variables):
        named = f"ValidatingAdmissionPolicy '{bound.policy}' with binding '{bound.binding}'"
        if "Warn" in bound.actions:
            attributes.warnings.append(f"Validation failed for {named}: {message}")
        if "Deny" in bound.actions:
            raise _denied(attributes, f"{named} denied request: {message}", reason)


def _faults(bound: BoundPolicy, variables: Json) -> Iterator[tuple[str, str]]:
    """Message and reason of every validation that does not hold."""
    ignored = bound.spec.get("failurePolicy") == "Ignore"
    try:
        if not conditions_hold(bound.wanted, variables):
            return
    except CelError as error:
        yield str(error), ""
        return
    for variable in bound.spec.get("variables") or ():
        try:
            variables["variables"][variable["name"]] = compiled(variable["expression"]).evaluate(variables)
        except CelError:
            continue  # who asks for it fails
    for validation in bound.spec.get("validations") or ():
        source = validation["expression"]
        try:
            holds = compiled(source).evaluate(variables) is True
        except CelError as error:
            if not ignored:
                yield str(error), ""
            continue
        if not holds:
            yield _message(validation, variables) or f"failed expression: {source}", validation.get("reason") or ""


def _message(validation: Mapping[str, Any], variables: Json) -> str:
    given = str(validation.get("message") or "").strip()
    if source := validation.get("messageExpression"):
        try:
            found = compiled(source).evaluate(variables)
        except CelError:
            return given
        if isinstance(found, str) and found.strip() and "\n" not in found:
            return found
    return given


def _denied(attributes: Attributes, message: str, reason: str) -> Refusal:
    found = status.forbidden(attributes.resource, attributes.name, message)
    found.reason = reason or "Invalid"
    found.code = _CODES.get(found.reason, 422)
    found.details = {**found.details, "causes": [{"message": message}]}
    return found
