"""What OpenKruise admits and we refuse, or admit with a warning (B-2, B-3, CS-31, CS-41). Pure.

Refused is what has no meaning at all. What only means something else than it says is admitted, because manifests of
people who move over hold it: they are told, and the gate CloneSetStrictValidation turns the warnings into refusals.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from app.kube.fielderrors import FieldError, Path, invalid, required
from app.kube.intorpercent import is_more_than_all
from app.workloads.cloneset.validation import (
    Rollout,
    count_problem,
    deadline_errors,
    pods_to_delete,
)
from app.workloads.engine.claim_validation import claims_without_spec
from app.workloads.engine.validation import (
    HOLDS_NOTHING,
    LONGEST_NAME,
    NOT_NEGATIVE,
    SPEC,
    holds_nothing,
    hook_errors,
    hooks,
)

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
