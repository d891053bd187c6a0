"""Validation of CloneSets, including rules that OpenKruise does not have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from app.api.fields import (
    IN_PLACE_IF_POSSIBLE,
    IN_PLACE_ONLY,
    ON_DELETE,
    POD_UPDATE_POLICIES,
    RECREATE,
    ROLLING_UPDATE,
    UPDATE_TYPES,
    priority_error,
    scatter_error,
)
from app.features.cloneset.kind import ROLLING_FIELDS, int32
from app.features.cloneset.types import NO_DEADLINE
from app.kube.fielderrors import FieldError, GoLiteral, Path, forbidden, go_string_slice, invalid, quote, required
from app.kube.patches import same
from app.kube.quantities import is_more_than_all
from app.workloads.settings import share
from app.workloads.validation import (
    HOLDS_NOTHING,
    LONGEST_NAME,
    NOT_NEGATIVE,
    SPEC,
    claims_without_spec,
    holds_nothing,
    hook_errors,
    hooks,
    in_place_only_errors,
    policy_hint,
    selector_errors,
    template_errors,
    without_empties,
)

# Errors in a CloneSet [CS-20 … CS-40]. Messages, paths and their order are OpenKruise's. An object is validated in the
# version it is written in, so that paths match what the user wrote. Rules that OpenKruise does not have follow below.
# Pure.

_CHANGEABLE: Final = (
    "updates to cloneset spec for fields other than 'replicas', 'template', 'lifecycle', 'scaleStrategy', "
    "'updateStrategy', 'minReadySeconds', 'progressDeadlineSeconds', 'volumeClaimTemplates' and "
    "'revisionHistoryLimit' are forbidden"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """Lookup results that validation depends on."""

    #: Errors that Kubernetes reports for the template, with paths relative to the CloneSet. [CS-24]
    template_errors: Sequence[FieldError | str] = ()
    #: Reason why a Pod must not be in podsToDelete, by Pod name. [CS-28]
    pods_refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollout:
    """The update strategy in either version. ``fields`` contains the rollout fields; None if there are none."""

    path: Path
    type_error: FieldError | None
    policy: str
    policy_error: FieldError | None
    policy_field: str
    fields: Mapping[str, Any] | None

    @classmethod
    def of(cls, spec: Mapping[str, Any], *, older: bool) -> Rollout:
        """Read the strategy of a (defaulted) spec; ``older`` is true for v1alpha1."""
        strategy, path = spec.get("updateStrategy") or {}, SPEC.child("updateStrategy")
        return cls._flat(strategy, path) if older else cls._nested(strategy, path)

    @classmethod
    def _flat(cls, strategy: Mapping[str, Any], path: Path) -> Rollout:
        policy = strategy.get("type") or ""
        fields: Mapping[str, Any] | None = {key: strategy[key] for key in ROLLING_FIELDS if key in strategy}
        error = None
        if policy == ON_DELETE:
            # OpenKruise rejects OnDelete in v1alpha1.
            fields = fields or None
        elif policy not in POD_UPDATE_POLICIES:
            words = f"must be '{RECREATE}', {IN_PLACE_IF_POSSIBLE} or '{IN_PLACE_ONLY}'"
            error = invalid(path.child("type"), policy, words)
        return cls(path, error, policy, None, "strategy type", fields)

    @classmethod
    def _nested(cls, strategy: Mapping[str, Any], path: Path) -> Rollout:
        kind, fields = strategy.get("type") or "", strategy.get("rollingUpdate")
        error, policy_error, policy = None, None, (fields or {}).get("podUpdatePolicy") or ""
        if kind not in ("", *UPDATE_TYPES):
            words = f"must be '{ROLLING_UPDATE}' or '{ON_DELETE}'{policy_hint(kind)}"
            error = invalid(path.child("type"), kind, words)
        at = path.child("rollingUpdate")
        if policy not in ("", *POD_UPDATE_POLICIES):
            words = f"must be '{RECREATE}', '{IN_PLACE_IF_POSSIBLE}' or '{IN_PLACE_ONLY}'"
            policy_error = invalid(at.child("podUpdatePolicy"), policy, words)
        return cls(at, error, policy, policy_error, "podUpdatePolicy", fields)


def spec_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any] | None, facts: Facts, *, older: bool
) -> list[FieldError | str]:
    """Return all errors in a (defaulted) spec, in OpenKruise's order. ``former`` is the stored spec, or None on
    creation."""
    rollout = Rollout.of(spec, older=older)
    errors: list[FieldError | str] = []
    if former is not None:
        errors += update_errors(spec, former, rollout)
    if _number(spec, "replicas") < 0:
        errors.append(invalid(SPEC.child("replicas"), spec["replicas"], NOT_NEGATIVE))
    errors += selector_errors(spec, "cloneset")  # [CS-22, CS-23]
    errors += facts.template_errors
    errors += template_errors(spec, "cloneset")  # [CS-25, CS-26]
    errors += _pods_to_delete_errors(spec, facts)
    errors += rollout_errors(rollout, _number(spec, "replicas"), older=older)
    if older:
        errors += deadline_errors(spec)
    return errors


def update_errors(spec: Mapping[str, Any], former: Mapping[str, Any], rollout: Rollout) -> list[FieldError]:
    """Return errors in an update: the selector is immutable, and InPlaceOnly allows only new images. [CS-39, CS-40]"""
    errors = []
    if not same(without_empties(spec.get("selector") or {}), without_empties(former.get("selector") or {})):
        errors.append(forbidden(SPEC, _CHANGEABLE))
    if rollout.policy == IN_PLACE_ONLY:
        errors += in_place_only_errors(spec, former)
    return errors


def _pods_to_delete_errors(spec: Mapping[str, Any], facts: Facts) -> list[FieldError]:
    """Return errors in ``scaleStrategy.podsToDelete``. [CS-27, CS-28]"""
    path = SPEC.child("scaleStrategy", "podsToDelete")
    listed = pods_to_delete(spec)
    twice = [name for name, count in Counter(listed).items() if count > 1]
    if twice:
        return [invalid(path, GoLiteral(go_string_slice(listed)), f"duplicated items [{' '.join(twice)}]")]
    return [invalid(path, name, facts.pods_refused[name]) for name in listed if name in facts.pods_refused]


def pods_to_delete(spec: Mapping[str, Any]) -> list[str]:
    """Return ``scaleStrategy.podsToDelete``."""
    return list((spec.get("scaleStrategy") or {}).get("podsToDelete") or ())


def rollout_errors(rollout: Rollout, replicas: int, *, older: bool) -> list[FieldError]:
    """Return errors in the rollout fields. [CS-29 … CS-36, CS-38]"""
    errors = [error for error in (rollout.type_error, rollout.policy_error) if error is not None]
    if rollout.fields is None:
        return errors
    fields, path = rollout.fields, rollout.path
    partition, found = _count(fields, "partition", path, replicas)
    errors += found
    if partition is not None and partition < 0:
        errors.append(invalid(path.child("partition"), partition, NOT_NEGATIVE))
    unavailable, found = _bound(fields, "maxUnavailable", path, replicas)
    errors += found
    surge, found = _bound(fields, "maxSurge", path, replicas)
    errors += found
    if rollout.policy == IN_PLACE_ONLY and surge > 0:
        words = f"can not use maxSurge with {rollout.policy_field} {IN_PLACE_ONLY}"
        errors.append(invalid(path.child("maxSurge"), _shown(fields["maxSurge"]), words))
    if replicas > 0 and unavailable < 1 and surge < 1:
        words = "must be at least 1 if maxSurge is less than 1; otherwise no Pod could be updated"
        errors.append(invalid(path.child("maxUnavailable"), _shown(fields.get("maxUnavailable")), words))
    if reason := priority_error(fields.get("priorityStrategy")):
        errors.append(required(path.child("priorityStrategy"), reason))
    if reason := scatter_error(fields.get("scatterStrategy")):
        errors.append(required(path.child("scatterStrategy"), reason))
    return errors if older else errors + _pre_download_errors(fields.get("inPlaceUpdateStrategy") or {}, path)


def _bound(fields: Mapping[str, Any], name: str, path: Path, replicas: int) -> tuple[int, list[FieldError]]:
    """Return a limit as a number; an unset limit counts as 0. [CS-32]"""
    if fields.get(name) is None:
        return 0, []
    count, errors = _count(fields, name, path, replicas)
    return count or 0, errors


def _count(fields: Mapping[str, Any], name: str, path: Path, replicas: int) -> tuple[int | None, list[FieldError]]:
    """Return the value of a number or percentage field as a number, rounded up. [CS-31]"""
    value = fields.get(name)
    problem = count_problem(value)
    if problem:
        words = f"failed GetScaledValueFromIntOrPercent for {name}: {problem}"
        return None, [invalid(path.child(name), _shown(value), words)]
    return share(value, replicas, round_up=True), []  # type: ignore[arg-type]  # no problem: it has a value


def _shown(value: int | str | None) -> str:
    """Return what Go's ``IntOrString.String()`` returns."""
    return "<nil>" if value is None else str(value)


def count_problem(value: int | str | None) -> str:
    """Return why ``value`` is neither a number nor a percentage, or "" if it is one."""
    if value is None:
        return "nil value for IntOrString"
    if share(value, 0, round_up=True) is not None:
        return ""
    text = str(value)
    if not text.endswith("%"):
        return "invalid type: string is not a percentage"
    return f"invalid value {quote(text)}: strconv.ParseFloat: parsing {quote(text[:-1])}: invalid syntax"


def deadline_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """Return errors in progressDeadlineSeconds. [CS-37]"""
    deadline, path = spec.get("progressDeadlineSeconds"), SPEC.child("progressDeadlineSeconds")
    if deadline is None or deadline == NO_DEADLINE:
        return []
    errors = [invalid(path, deadline, NOT_NEGATIVE)] if deadline < 0 else []
    if deadline <= _number(spec, "minReadySeconds"):
        errors.append(invalid(path, deadline, "must be greater than minReadySeconds"))
    return errors


def _pre_download_errors(in_place: Mapping[str, Any], path: Path) -> list[FieldError]:
    """Return errors in the image pre-download fields. [CS-38]"""
    at = path.child("inPlaceUpdateStrategy")
    parallelism = in_place.get("imagePreDownloadParallelism")
    errors = []
    if isinstance(parallelism, str) and ((number := int32(parallelism)) is None or number < 0):
        errors.append(invalid(at.child("imagePreDownloadParallelism"), parallelism, "must be a non-negative number"))
    for name in ("Parallelism", "TimeoutSeconds", "MinUpdatedReadyPods"):
        value = in_place.get(f"imagePreDownload{name}")
        if isinstance(value, int) and value < 0:
            errors.append(invalid(at.child(f"imagePreDownload{name}"), value, NOT_NEGATIVE))
    return errors


def _number(spec: Mapping[str, Any], name: str) -> int:
    return spec.get(name) or 0


# Values that OpenKruise admits [CS-31, CS-41]. Meaningless values are rejected here. Values whose effect differs from
# their apparent meaning only cause a warning, because existing manifests contain them; the gate
# CloneSetStrictValidation turns these warnings into errors. Pure.

GATE: Final = "CloneSetStrictValidation"


def errors(spec: Mapping[str, Any], *, older: bool) -> Iterator[FieldError]:
    """Yield errors for negative counts, and for a limit that would block all scaling."""
    rollout = Rollout.of(spec, older=older)
    for name in ("partition", "maxSurge"):
        value = (rollout.fields or {}).get(name)
        if _is_negative(value):
            yield invalid(rollout.path.child(name), value, NOT_NEGATIVE)
    yield from claims_without_spec(spec)
    limit = _scale_limit(spec)
    if limit is not None and (problem := count_problem(limit)):
        words = f"failed GetScaledValueFromIntOrPercent for maxUnavailable: {problem}"
        yield invalid(SPEC.child("scaleStrategy", "maxUnavailable"), limit, words)


def warnings(spec: Mapping[str, Any], pods_refused: Mapping[str, str], *, older: bool) -> Iterator[FieldError]:
    """Yield warnings about likely mistakes. ``pods_refused`` maps the names of Pods that must not be in podsToDelete
    to the reasons."""
    for name in ("minReadySeconds", "revisionHistoryLimit"):
        if _is_negative(spec.get(name)):
            yield invalid(SPEC.child(name), spec[name], NOT_NEGATIVE)
    if _is_negative(_scale_limit(spec)):
        yield invalid(SPEC.child("scaleStrategy", "maxUnavailable"), _scale_limit(spec), NOT_NEGATIVE)
    rollout = Rollout.of(spec, older=older)
    fields, path = rollout.fields or {}, rollout.path
    if _is_negative(fields.get("maxUnavailable")):
        yield invalid(path.child("maxUnavailable"), fields["maxUnavailable"], NOT_NEGATIVE)
    grace = (fields.get("inPlaceUpdateStrategy") or {}).get("gracePeriodSeconds")
    if _is_negative(grace):
        yield invalid(path.child("inPlaceUpdateStrategy", "gracePeriodSeconds"), grace, NOT_NEGATIVE)
    if is_more_than_all(fields.get("partition")):
        words = "is more than 100%, which has the same effect as 100%: all Pods stay at the old revision"
        yield invalid(path.child("partition"), fields["partition"], words)
    for path, hook in hooks(spec):
        if holds_nothing(hook):
            yield required(path, HOLDS_NOTHING)
        yield from hook_errors(hook, path)
    if not older:
        # These are errors in v1alpha1.
        yield from deadline_errors(spec)
        at = SPEC.child("scaleStrategy", "podsToDelete")
        yield from (invalid(at, name, pods_refused[name]) for name in pods_to_delete(spec) if name in pods_refused)


def name_warning(name: str) -> str:
    """Return a warning if the name of a revision would be too long for a label value, otherwise "". [CS-143]"""
    if len(name) <= LONGEST_NAME:
        return ""
    error = invalid(
        Path("metadata").child("name"),
        name,
        f"with a revision hash it exceeds the length limit of the Pod label controller-revision-hash, and the API "
        f"server will reject the Pods; use at most {LONGEST_NAME} characters or enable the gate CloneSetShortHash",
    )
    return str(error)


def _scale_limit(spec: Mapping[str, Any]) -> Any:
    return (spec.get("scaleStrategy") or {}).get("maxUnavailable")


def _is_negative(value: Any) -> bool:
    text = str(value)
    return value is not None and text.startswith("-") and text.strip("-+0.%") != ""
