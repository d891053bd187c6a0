"""Validation of Advanced StatefulSets [AS-15 … AS-32]. Messages, paths and their order are OpenKruise's. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.api import names
from app.api.fields import (
    IN_PLACE_ONLY,
    IN_PLACE_POLICIES,
    ON_DELETE,
    ON_POD_ROLLING_UPDATE,
    POD_UPDATE_POLICIES,
    ROLLING_UPDATE,
    priority_error,
)
from app.features.statefulset.types import DELETE, ORDERED_READY, PARALLEL, RETAIN
from app.kube.fielderrors import (
    FieldError,
    GoLiteral,
    Path,
    forbidden,
    go_int_or_string,
    invalid,
    new_errors,
    not_supported,
    quote,
    required,
)
from app.kube.jsonvalues import as_object
from app.kube.patches import same
from app.kube.validation import LABEL_VALUE_MAX_LENGTH, is_dns1123_label, validate_annotations, validate_labels
from app.pods.ordinals import reserve_problems
from app.workloads.validation import (
    HOLDS_NOTHING,
    LONGEST_NAME,
    NOT_NEGATIVE,
    SPEC,
    claim_change_errors,
    claims_without_spec,
    holds_nothing,
    hook_errors,
    hooks,
    in_place_only_errors,
    metadata_errors,
    policy_hint,
    positive_count_errors,
    repeated_claims,
    selector_errors,
    template_errors,
    template_spec,
    without_empties,
)

MAX_MIN_READY_SECONDS: Final = 300
_ROLLING: Final = SPEC.child("updateStrategy", "rollingUpdate")
_IMMUTABLE: Final = ("serviceName", "podManagementPolicy")
_FORBIDDEN: Final = (
    "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', 'reserveOrdinals', "
    "'lifecycle', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy', `volumeClaimTemplates`, "
    "`VolumeClaimUpdateStrategy` and 'updateStrategy' are forbidden"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts that validation depends on. ``resize`` and ``vertical_scaling`` are the gates StatefulSetAutoResizePVCGate
    and InPlaceWorkloadVerticalScaling. ``expandable`` maps the name of a storage class ("" for the default class) to
    whether it allows volume expansion, or to None if it does not exist; it is empty without a cluster."""

    resize: bool = False
    vertical_scaling: bool = False
    expandable: Mapping[str, bool | None] = field(default_factory=dict)


def name_errors(metadata: Mapping[str, Any], *, new: bool) -> list[FieldError]:
    """Return errors in the name, which is a prefix of Pod names and label values. [AS-15, AS-143]"""
    name, errors = str(metadata.get("name") or ""), metadata_errors(metadata, is_dns1123_label)
    if new and not errors and len(name) > LONGEST_NAME:
        words = (
            f"must be no more than {LONGEST_NAME} characters: the name and a revision hash form the value of label "
            f"{names.CONTROLLER_REVISION_HASH} of every Pod; label values are limited to {LABEL_VALUE_MAX_LENGTH}"
        )
        errors.append(invalid(Path("metadata").child("name"), name, words))
    return errors


def spec_errors(spec: Mapping[str, Any], former: Mapping[str, Any] | None, facts: Facts) -> list[FieldError]:
    """Return all errors in a (defaulted) spec. ``former`` is the stored spec, or None on creation."""
    errors = [*_policy_errors(spec), *_reserve_errors(spec), *_scale_errors(spec), *_strategy_errors(spec)]
    errors += _retention_errors(spec)
    if (spec.get("replicas") or 0) < 0:
        errors.append(invalid(SPEC.child("replicas"), spec["replicas"], NOT_NEGATIVE))
    errors += selector_errors(spec, "statefulset")
    errors += _template_metadata_errors(spec)
    errors += template_errors(spec, "statefulset")
    errors += new_errors(_stricter_errors(spec), _stricter_errors(former or {}))
    if former is None or former.get("volumeClaimTemplates") != spec.get("volumeClaimTemplates"):
        errors += claims_without_spec(spec)
    if former is not None:
        errors += _update_errors(spec, former, facts)
    return errors


def _policy_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield errors in podManagementPolicy. [AS-16]"""
    policy, path = spec.get("podManagementPolicy"), SPEC.child("podManagementPolicy")
    if not policy:
        yield required(path, "")
    elif policy not in (ORDERED_READY, PARALLEL):
        yield invalid(path, policy, f"must be '{ORDERED_READY}' or '{PARALLEL}'")


def _reserve_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield errors in reserveOrdinals. [AS-17]"""
    listed = spec.get("reserveOrdinals") or []
    shown = GoLiteral("[]intstr.IntOrString{" + ", ".join(str(go_int_or_string(one)) for one in listed) + "}")
    yield from (invalid(SPEC, shown, problem) for problem in reserve_problems(listed))


def _scale_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield errors in scaleStrategy. [AS-18, AS-19]"""
    limit = (spec.get("scaleStrategy") or {}).get("maxUnavailable")
    if limit is not None:
        yield from _limit_errors(limit, spec, SPEC.child("scaleStrategy", "maxUnavailable"))


def _limit_errors(limit: int | str, spec: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Yield errors in a maxUnavailable field. [AS-18]"""
    yield from positive_count_errors(limit, path)
    if spec.get("podManagementPolicy") != PARALLEL and limit != 1:
        words = f"can only work with {PARALLEL} PodManagementPolicyType"
        yield invalid(path, go_int_or_string(limit), words)


def _strategy_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield errors in updateStrategy. [AS-20 … AS-23]"""
    strategy, path = spec.get("updateStrategy") or {}, SPEC.child("updateStrategy")
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if not kind:
        yield required(path, "")
    elif kind == ON_DELETE:
        if rolling is not None:
            yield invalid(_ROLLING, rolling, f"only allowed for updateStrategy '{ROLLING_UPDATE}'")
    elif kind != ROLLING_UPDATE:
        block = "(nil)" if rolling is None else "{…}"
        shown = f"Type:{quote(kind)}, RollingUpdate:(*v1beta1.RollingUpdateStatefulSetStrategy){block}"
        words = f"must be '{ROLLING_UPDATE}' or '{ON_DELETE}'{policy_hint(kind)}"
        yield invalid(path, GoLiteral(f"v1beta1.StatefulSetUpdateStrategy{{{shown}}}"), words)
    elif rolling is not None:
        yield from _rolling_errors(spec, rolling)


def _rolling_errors(spec: Mapping[str, Any], rolling: Mapping[str, Any]) -> Iterator[FieldError]:
    partition, ready, policy = (rolling.get(name) for name in ("partition", "minReadySeconds", "podUpdatePolicy"))
    if (partition or 0) < 0:
        yield invalid(_ROLLING.child("partition"), partition, NOT_NEGATIVE)
    if rolling.get("maxUnavailable") is None:
        yield required(_ROLLING.child("maxUnavailable"), "")
    else:
        yield from _limit_errors(rolling["maxUnavailable"], spec, _ROLLING.child("maxUnavailable"))
    if (ready or 0) < 0:
        yield invalid(_ROLLING.child("minReadySeconds"), ready, NOT_NEGATIVE)
    elif (ready or 0) > MAX_MIN_READY_SECONDS:
        words = f"must be no more than {MAX_MIN_READY_SECONDS} seconds"
        yield invalid(_ROLLING.child("minReadySeconds"), ready, words)
    if not policy:
        yield required(_ROLLING.child("podUpdatePolicy"), "")
    elif policy not in POD_UPDATE_POLICIES:
        words = "must be 'ReCreate', InPlaceIfPossible or 'InPlaceOnly'"
        yield invalid(_ROLLING.child("podUpdatePolicy"), policy, words)
    elif policy in IN_PLACE_POLICIES:
        yield from _gate_errors(spec, policy)
    if (unordered := rolling.get("unorderedUpdate")) is not None:
        at = _ROLLING.child("unorderedUpdate")
        if spec.get("podManagementPolicy") != PARALLEL:
            yield required(at, f"unorderedUpdate can only work with {PARALLEL} PodManagementPolicyType")
        if reason := priority_error(unordered.get("priorityStrategy")):
            yield required(at.child("priorityStrategy"), reason)


def _gate_errors(spec: Mapping[str, Any], policy: str) -> Iterator[FieldError]:
    """Yield an error if the readiness gate is missing; without it a Pod stays in service during its in-place update.
    [AS-22]"""
    gates = template_spec(spec).get("readinessGates")
    listed = [str(gate.get("conditionType")) for gate in gates or () if isinstance(gate, Mapping)]
    if names.IN_PLACE_UPDATE_READY not in listed:
        items = ", ".join(f"v1.PodReadinessGate{{ConditionType:{quote(one)}}}" for one in listed)
        shown = GoLiteral(f"[]v1.PodReadinessGate{{{items}}}" if listed else "[]v1.PodReadinessGate(nil)")
        words = f"must contains {names.IN_PLACE_UPDATE_READY} when podUpdatePolicy is {policy}"
        yield invalid(SPEC.child("template", "spec", "readinessGates"), shown, words)


def _retention_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield errors in persistentVolumeClaimRetentionPolicy. [AS-24]"""
    policy = spec.get("persistentVolumeClaimRetentionPolicy")
    if policy is None:
        return
    path = SPEC.child("persistentVolumeClaimRetentionPolicy")
    for name in ("whenDeleted", "whenScaled"):
        if policy.get(name) not in (RETAIN, DELETE):
            yield not_supported(path.child(name), policy.get(name) or "", (RETAIN, DELETE))


def _template_metadata_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return errors in the template's labels and annotations. The Pod spec is not validated. [AS-26]"""
    metadata, path = as_object(as_object(spec.get("template")).get("metadata")), SPEC.child("template")
    return [
        *validate_labels(metadata.get("labels") or {}, path.child("labels")),
        *validate_annotations(metadata.get("annotations") or {}, path.child("annotations")),
    ]


def _stricter_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Yield errors in values that OpenKruise admits but that are unusable. [AS-143]

    The schema of a version without these fields does not validate them.
    """
    ordinals = spec.get("ordinals")
    start = ordinals.get("start") if isinstance(ordinals, Mapping) else 0
    if isinstance(start, int) and start < 0:
        yield invalid(SPEC.child("ordinals", "start"), start, NOT_NEGATIVE)
    strategy = spec.get("volumeClaimUpdateStrategy")
    kind = (strategy.get("type") if isinstance(strategy, Mapping) else "") or ON_DELETE
    if kind not in (ON_DELETE, ON_POD_ROLLING_UPDATE):
        at = SPEC.child("volumeClaimUpdateStrategy", "type")
        yield not_supported(at, kind, (ON_DELETE, ON_POD_ROLLING_UPDATE))


def _update_errors(spec: Mapping[str, Any], former: Mapping[str, Any], facts: Facts) -> Iterator[FieldError]:
    """Yield errors in an update of the spec. [AS-28 … AS-30]"""
    kept = same(without_empties(spec.get("selector") or {}), without_empties(former.get("selector") or {}))
    if not kept or any((spec.get(name) or "") != (former.get(name) or "") for name in _IMMUTABLE):
        yield forbidden(SPEC, _FORBIDDEN)
    if ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("podUpdatePolicy") == IN_PLACE_ONLY:
        # [AS-144]
        yield from in_place_only_errors(spec, former, vertical_scaling=facts.vertical_scaling)
    # The new strategy applies, not the former one. [AS-32]
    if facts.resize and (spec.get("volumeClaimUpdateStrategy") or {}).get("type") == ON_POD_ROLLING_UPDATE:
        yield from claim_change_errors(spec, former, facts.expandable)


def annotation_warnings(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about annotations that have no effect. [AS-140]"""
    value = (metadata.get("annotations") or {}).get(names.REPAIR_ORDERED_READY)
    if value is None:
        return
    at = Path("metadata").child("annotations").key(names.REPAIR_ORDERED_READY)
    if value not in ("true", "false"):
        words = 'must be "true" or "false"; it is treated as "false"'
        yield str(invalid(at, value, words))
    elif value == "true" and spec.get("podManagementPolicy") == PARALLEL:
        yield f"{at}: has no effect, because with podManagementPolicy {PARALLEL} no Pod waits for another"
    elif value == "true" and (spec.get("updateStrategy") or {}).get("type") == ON_DELETE:
        yield f"{at}: has no effect, because with updateStrategy.type {ON_DELETE} nothing is updated"


def warnings(spec: Mapping[str, Any], former: Mapping[str, Any] | None) -> Iterator[str]:
    """Yield warnings about likely mistakes and settings that have no effect."""
    if (limit := spec.get("revisionHistoryLimit") or 0) < 0:
        yield f"{invalid(SPEC.child('revisionHistoryLimit'), limit, NOT_NEGATIVE)}; it is treated as 0"
    rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
    grace = (rolling.get("inPlaceUpdateStrategy") or {}).get("gracePeriodSeconds") or 0
    if grace < 0:
        at = _ROLLING.child("inPlaceUpdateStrategy", "gracePeriodSeconds")
        yield f"{invalid(at, grace, NOT_NEGATIVE)}; it is treated as 0"
    yield from repeated_claims(spec)
    for path, hook in hooks(spec):
        if holds_nothing(hook):
            yield f"{path}: {HOLDS_NOTHING}"
        yield from map(str, hook_errors(hook, path))
    policy = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    reserved = spec.get("reserveOrdinals") or []
    newly_reserved = reserved and reserved != ((former or {}).get("reserveOrdinals") or [])
    if newly_reserved and policy.get("whenScaled") == DELETE and spec.get("volumeClaimTemplates"):
        # [AS-150]
        yield (
            f"{SPEC.child('reserveOrdinals')}: with persistentVolumeClaimRetentionPolicy.whenScaled {DELETE} the "
            "claims of a Pod whose ordinal is reserved are deleted with the Pod"
        )
