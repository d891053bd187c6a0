"""Validation of CloneSets, with rules that OpenKruise does not have."""

from __future__ import annotations

import re
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
from app.features.cloneset.kind import ROLLING_FIELDS
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
    selector_errors,
    template_errors,
    where_policies_stand,
    without_empties,
)

# What makes a CloneSet wrong (CS-20 … CS-40). Pure; texts, paths and their order are OpenKruise's.
#
# An object is judged in the version it is written in, so that paths lead to what the user typed. Rules that OpenKruise
# does not have are in :mod:`app.features.cloneset.validation`.

_CHANGEABLE: Final = (
    "updates to cloneset spec for fields other than 'replicas', 'template', 'lifecycle', 'scaleStrategy', "
    "'updateStrategy', 'minReadySeconds', 'progressDeadlineSeconds', 'volumeClaimTemplates' and "
    "'revisionHistoryLimit' are forbidden"
)


@dataclass(frozen=True, slots=True)
class Facts:
    """What else decides, looked up before."""

    #: CS-24: what Kubernetes says about the template, with paths in the CloneSet.
    template_errors: Sequence[FieldError | str] = ()
    #: CS-28: why a Pod cannot be named in podsToDelete, by name.
    pods_refused: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rollout:
    """The update strategy as either version says it. ``fields``: those of the roll-out; None: there is none."""

    path: Path
    type_error: FieldError | None
    policy: str
    policy_error: FieldError | None
    policy_field: str
    fields: Mapping[str, Any] | None

    @classmethod
    def of(cls, spec: Mapping[str, Any], *, older: bool) -> Rollout:
        """Of a (defaulted) spec; ``older``: as v1alpha1 writes it."""
        strategy, path = spec.get("updateStrategy") or {}, SPEC.child("updateStrategy")
        return cls._flat(strategy, path) if older else cls._nested(strategy, path)

    @classmethod
    def _flat(cls, strategy: Mapping[str, Any], path: Path) -> Rollout:
        policy = strategy.get("type") or ""
        fields: Mapping[str, Any] | None = {key: strategy[key] for key in ROLLING_FIELDS if key in strategy}
        error = None
        if policy == ON_DELETE:
            # B-2: OpenKruise refuses it in v1alpha1.
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
            words = f"must be '{ROLLING_UPDATE}' or '{ON_DELETE}'{where_policies_stand(kind)}"
            error = invalid(path.child("type"), kind, words)
        at = path.child("rollingUpdate")
        if policy not in ("", *POD_UPDATE_POLICIES):
            words = f"must be '{RECREATE}', '{IN_PLACE_IF_POSSIBLE}' or '{IN_PLACE_ONLY}'"
            policy_error = invalid(at.child("podUpdatePolicy"), policy, words)
        return cls(at, error, policy, policy_error, "podUpdatePolicy", fields)


def spec_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any] | None, facts: Facts, *, older: bool
) -> list[FieldError | str]:
    """Every mistake in a (defaulted) spec, in OpenKruise's order; ``former``: the spec it replaces."""
    rollout = Rollout.of(spec, older=older)
    errors: list[FieldError | str] = []
    if former is not None:
        errors += update_errors(spec, former, rollout)
    if _number(spec, "replicas") < 0:
        errors.append(invalid(SPEC.child("replicas"), spec["replicas"], NOT_NEGATIVE))
    errors += selector_errors(spec, "cloneset")  # CS-22, CS-23
    errors += facts.template_errors
    errors += template_errors(spec, "cloneset")  # CS-25, CS-26
    errors += _pods_to_delete_errors(spec, facts)
    errors += rollout_errors(rollout, _number(spec, "replicas"), older=older)
    if older:
        errors += deadline_errors(spec)
    return errors


def update_errors(spec: Mapping[str, Any], former: Mapping[str, Any], rollout: Rollout) -> list[FieldError]:
    """CS-39, CS-40: the selector stays; what is updated in place only, gets new images only."""
    errors = []
    if not same(without_empties(spec.get("selector") or {}), without_empties(former.get("selector") or {})):
        errors.append(forbidden(SPEC, _CHANGEABLE))
    if rollout.policy == IN_PLACE_ONLY:
        errors += in_place_only_errors(spec, former)
    return errors


def _pods_to_delete_errors(spec: Mapping[str, Any], facts: Facts) -> list[FieldError]:
    """CS-27, CS-28."""
    path = SPEC.child("scaleStrategy", "podsToDelete")
    listed = pods_to_delete(spec)
    twice = list(dict.fromkeys(name for index, name in enumerate(listed) if name in listed[:index]))
    if twice:
        return [invalid(path, GoLiteral(go_string_slice(listed)), f"duplicated items [{' '.join(twice)}]")]
    return [invalid(path, name, facts.pods_refused[name]) for name in listed if name in facts.pods_refused]


def pods_to_delete(spec: Mapping[str, Any]) -> list[str]:
    """``scaleStrategy.podsToDelete``."""
    return list((spec.get("scaleStrategy") or {}).get("podsToDelete") or ())


def rollout_errors(rollout: Rollout, replicas: int, *, older: bool) -> list[FieldError]:
    """CS-29 … CS-36, CS-38."""
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
        words = "should not be less than 1 where maxSurge is less than 1 too: no Pod could ever be updated"
        errors.append(invalid(path.child("maxUnavailable"), _shown(fields.get("maxUnavailable")), words))
    if reason := priority_error(fields.get("priorityStrategy")):
        errors.append(required(path.child("priorityStrategy"), reason))
    if reason := scatter_error(fields.get("scatterStrategy")):
        errors.append(required(path.child("scatterStrategy"), reason))
    return errors if older else errors + _pre_download_errors(fields.get("inPlaceUpdateStrategy") or {}, path)


def _bound(fields: Mapping[str, Any], name: str, path: Path, replicas: int) -> tuple[int, list[FieldError]]:
    """CS-32: unset counts as 0."""
    if fields.get(name) is None:
        return 0, []
    count, errors = _count(fields, name, path, replicas)
    return count or 0, errors


def _count(fields: Mapping[str, Any], name: str, path: Path, replicas: int) -> tuple[int | None, list[FieldError]]:
    """CS-31: a number, or a percentage that is rounded up."""
    value = fields.get(name)
    problem = count_problem(value)
    if problem:
        words = f"failed GetScaledValueFromIntOrPercent for {name}: {problem}"
        return None, [invalid(path.child(name), _shown(value), words)]
    return share(value, replicas, round_up=True), []  # type: ignore[arg-type]  # no problem: it has a value


def _shown(value: int | str | None) -> str:
    """As Go's ``IntOrString.String()`` has it, in quotes whatever it is."""
    return "<nil>" if value is None else str(value)


def count_problem(value: int | str | None) -> str:
    """Why ``value`` is neither a number nor a percentage; "" if it is one."""
    if value is None:
        return "nil value for IntOrString"
    if share(value, 0, round_up=True) is not None:
        return ""
    text = str(value)
    if not text.endswith("%"):
        return "invalid type: string is not a percentage"
    return f"invalid value {quote(text)}: strconv.ParseFloat: parsing {quote(text[:-1])}: invalid syntax"


def deadline_errors(spec: Mapping[str, Any]) -> list[FieldError]:
    """CS-37."""
    deadline, path = spec.get("progressDeadlineSeconds"), SPEC.child("progressDeadlineSeconds")
    if deadline is None or deadline == NO_DEADLINE:
        return []
    errors = [invalid(path, deadline, NOT_NEGATIVE)] if deadline < 0 else []
    if deadline <= _number(spec, "minReadySeconds"):
        errors.append(invalid(path, deadline, "must be greater than minReadySeconds"))
    return errors


def _pre_download_errors(in_place: Mapping[str, Any], path: Path) -> list[FieldError]:
    """CS-38."""
    at = path.child("inPlaceUpdateStrategy")
    parallelism = in_place.get("imagePreDownloadParallelism")
    errors = []
    if isinstance(parallelism, str) and not re.fullmatch(r"\+?[0-9]{1,9}", parallelism):
        errors.append(invalid(at.child("imagePreDownloadParallelism"), parallelism, "must be a number, not below 0"))
    for name in ("Parallelism", "TimeoutSeconds", "MinUpdatedReadyPods"):
        value = in_place.get(f"imagePreDownload{name}")
        if isinstance(value, int) and value < 0:
            errors.append(invalid(at.child(f"imagePreDownload{name}"), value, NOT_NEGATIVE))
    return errors


def _number(spec: Mapping[str, Any], name: str) -> int:
    return spec.get(name) or 0


# What OpenKruise admits and we refuse, or admit with a warning (B-2, B-3, CS-31, CS-41). Pure.
#
# Refused is what has no meaning at all. What only means something else than it says is admitted, because manifests of
# people who move over hold it: they are told, and the gate CloneSetStrictValidation turns the warnings into refusals.

GATE: Final = "CloneSetStrictValidation"


def errors(spec: Mapping[str, Any], *, older: bool) -> Iterator[FieldError]:
    """Counts below nothing where nothing is the least, and a limit that would stop all scaling."""
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
    """What surely was not meant so. ``pods_refused``: why Pods cannot be named in podsToDelete, by name."""
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
        words = "is more than 100%: it keeps all Pods at the old revision, as 100% does"
        yield invalid(path.child("partition"), fields["partition"], words)
    for path, hook in hooks(spec):
        if holds_nothing(hook):
            yield required(path, HOLDS_NOTHING)
        yield from hook_errors(hook, path)
    if not older:
        # B-2: refused in v1alpha1.
        yield from deadline_errors(spec)
        at = SPEC.child("scaleStrategy", "podsToDelete")
        yield from (invalid(at, name, pods_refused[name]) for name in pods_to_delete(spec) if name in pods_refused)


def name_warning(name: str) -> str:
    """CS-143: whether Pods could carry the revision's name as a label; "" if so."""
    if len(name) <= LONGEST_NAME:
        return ""
    error = invalid(
        Path("metadata").child("name"),
        name,
        f"with a revision's hash it is too long for the label controller-revision-hash of the Pods, which the API "
        f"server will refuse; use at most {LONGEST_NAME} characters, or the gate CloneSetShortHash",
    )
    return str(error)


def _scale_limit(spec: Mapping[str, Any]) -> Any:
    return (spec.get("scaleStrategy") or {}).get("maxUnavailable")


def _is_negative(value: Any) -> bool:
    text = str(value)
    return value is not None and text.startswith("-") and text.strip("-+0.%") != ""
