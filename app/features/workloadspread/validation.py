"""Validation of WorkloadSpreads. [WS-6 … WS-14]

Pure: the other WorkloadSpreads of the namespace and the workload's Pod template are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from app.api import names
from app.api.core.pods import node_selector_term_errors, preferred_term_errors, toleration_errors, unknown_fields
from app.api.gopod import POD_TEMPLATE
from app.features.workloadspread.kind import NAMES
from app.features.workloadspread.plan.status import critical_seconds
from app.features.workloadspread.types import ADAPTIVE, FIXED, TargetReference, WorkloadSpread, WorkloadSpreadSubset
from app.kube.fielderrors import FieldError, GoLiteral, Path, go_int_or_string, invalid, quote, required, too_many
from app.kube.quantities import IntOrPercentError, is_percent, scaled
from app.kube.selectors import validate_selector

SPEC: Final = Path("spec")
TARGET: Final = SPEC.child("targetRef")
SUBSETS: Final = SPEC.child("subsets")
#: API groups of the built-in target kinds. [WS-7]
GROUPS_BY_KIND: Final[Mapping[str, tuple[str, ...]]] = {
    "CloneSet": (names.APPS_GROUP,),
    "Deployment": ("apps",),
    "ReplicaSet": ("apps",),
    "Job": ("batch",),
    "StatefulSet": ("apps", names.APPS_GROUP),
}
#: Seconds within which a Pod must be able to try all subsets before the first one is retried. [WS-13]
ALL_SUBSETS_WITHIN: Final = 295
#: Maximum number of subsets. Each new Pod is compared with all of them.
MAX_SUBSETS: Final = 256
#: Maximum number of replicas paths. All of them are read for each new Pod.
MAX_PATHS: Final = 256
#: Maximum of an int32.
_NO_LIMIT: Final = 2**31 - 1
_ALL_PERCENT: Final = 100


def set_errors(
    spread: WorkloadSpread,
    former: WorkloadSpread | None,
    others: Iterable[WorkloadSpread],
    custom: Collection[tuple[str, str]],
    *,
    v1alpha1: bool = False,
) -> list[FieldError]:
    """Return all errors except those in patches, which depend on the workload's template.

    ``others`` are the WorkloadSpreads of the namespace, possibly including this one. ``custom`` holds the (group, kind)
    of each additional target kind. ``v1alpha1`` selects that version's field names.
    """
    return [
        *target_errors(spread.spec.target_ref, custom),
        *subset_errors(spread, v1alpha1=v1alpha1),
        *strategy_errors(spread),
        *filter_errors(spread),
        *conflict_errors(spread, others),
        *_change_errors(spread, former),
    ]


def target_errors(target: TargetReference, custom: Collection[tuple[str, str]]) -> list[FieldError]:
    """Return the errors in targetRef. [WS-6, WS-7]"""
    if not (target.api_version and target.kind and target.name):
        return [invalid(TARGET, target.as_go(), "empty TargetReference is not valid for WorkloadSpread.")]
    group = target.group
    known = GROUPS_BY_KIND.get(target.kind)
    if (known is not None and group in known) or (group, target.kind) in custom:
        return []
    if known is not None:
        return [invalid(TARGET, target.as_go(), f"TargetReference is not valid for {target.kind}.")]
    return [invalid(TARGET, target.as_go(), "TargetReference's GroupKind is not permitted.")]


def subset_errors(spread: WorkloadSpread, *, v1alpha1: bool) -> list[FieldError]:
    """Return the errors in subsets. Like OpenKruise, stop at the first invalid maxReplicas. [WS-9, WS-10, WS-12]"""
    subsets = spread.spec.subsets
    if not subsets:
        return [required(SUBSETS, "subsets number must >= 1 in WorkloadSpread")]
    if len(subsets) > MAX_SUBSETS:
        return [too_many(SUBSETS, len(subsets), MAX_SUBSETS)]
    errors: list[FieldError] = []
    seen: set[str] = set()
    total, percent = 0, None
    for index, subset in enumerate(subsets):
        at = SUBSETS.index(index)
        if not subset.name:
            errors.append(required(at.child("name")))
        elif subset.name in seen:
            errors.append(invalid(at.child("name"), subset.name, f"duplicated subset name {subset.name}"))
        seen.add(subset.name)
        errors += _placing_errors(subset, at, v1alpha1=v1alpha1)
        if subset.max_replicas is None:
            continue
        found = _number_error(spread, subset, at.child("maxReplicas"), percent, total)
        if found is not None:
            return [*errors, found]
        percent = isinstance(subset.max_replicas, str)
        total += scaled(subset.max_replicas, _ALL_PERCENT, round_up=True)
    if percent and total < _ALL_PERCENT and subsets[-1].max_replicas is not None:
        detail = "the sum of maxReplicas may be less than 100% only if the last subset has no maxReplicas"
        errors.append(invalid(SUBSETS.index(0).child("maxReplicas"), go_int_or_string(subsets[0].max_replicas), detail))
    return errors


def _placing_errors(subset: WorkloadSpreadSubset, at: Path, *, v1alpha1: bool) -> list[FieldError]:
    (old_term, term), (old_terms, terms) = NAMES
    errors: list[FieldError] = []
    if subset.required_node_selector is not None:
        errors += node_selector_term_errors(subset.required_node_selector, at.child(old_term if v1alpha1 else term))
    preferred = at.child(old_terms if v1alpha1 else terms)
    errors += preferred_term_errors(subset.preferred_node_selector or (), preferred)
    return [*errors, *toleration_errors(subset.tolerations or (), at.child("tolerations"))]


def _number_error(
    spread: WorkloadSpread, subset: WorkloadSpreadSubset, at: Path, percent: bool | None, total: int
) -> FieldError | None:
    value = subset.max_replicas
    given = go_int_or_string(value)
    if percent is not None and percent is not isinstance(value, str):
        return invalid(at, given, "maxReplicas of all subsets must have the same type: either numbers or percentages")
    if isinstance(value, str) and spread.spec.target_ref.kind == "StatefulSet":
        return invalid(at, given, "maxReplicas must be a number for a StatefulSet: its Pods are assigned by ordinal")
    try:
        number = scaled(value, _ALL_PERCENT, round_up=True)
    except IntOrPercentError:
        number = -1
    if number < 0 or (isinstance(value, str) and not is_percent(value)):
        return invalid(at, given, "maxReplicas is not valid for subset")
    if not isinstance(value, str) and number > _NO_LIMIT:
        return invalid(at, given, f"maxReplicas must not exceed {_NO_LIMIT}")
    if isinstance(value, str) and total + number > _ALL_PERCENT:
        return invalid(at, given, "the sum of maxReplicas of all subsets must not exceed 100%")
    return None


def strategy_errors(spread: WorkloadSpread) -> list[FieldError]:
    """Return the errors in scheduleStrategy. [WS-13]"""
    at, strategy, subsets = SPEC.child("scheduleStrategy"), spread.strategy, spread.spec.subsets
    if strategy.type not in ("", FIXED, ADAPTIVE):
        return [invalid(at.child("type"), strategy.type, "ScheduleStrategy's type is not valid")]
    if strategy.adaptive is None:
        return []
    if strategy.type != ADAPTIVE:
        detail = "the scheduleStrategy's type must be adaptive when using adaptive scheduleStrategy"
        return [invalid(at.child("type"), strategy.type, detail)]
    errors = []
    if len(subsets) > 1 and subsets[-1].max_replicas is not None:
        detail = "the last subset's maxReplicas must be nil when using adaptive scheduleStrategy"
        errors.append(invalid(at.child("adaptive"), go_int_or_string(subsets[-1].max_replicas), detail))
    seconds = strategy.adaptive.reschedule_critical_seconds
    # A Pod must be able to try all subsets before the first one is retried. [WS-13, WS-69]
    most = ALL_SUBSETS_WITHIN // (len(subsets) - 1) if len(subsets) > 1 else _NO_LIMIT
    if seconds is not None and not 0 <= seconds <= most:
        detail = f"rescheduleCriticalSeconds < 0 or rescheduleCriticalSeconds > {most} is not permitted"
        errors.append(invalid(at.child("adaptive", "rescheduleCriticalSeconds"), seconds, detail))
    return errors


def filter_errors(spread: WorkloadSpread) -> list[FieldError]:
    """Return the errors in targetFilter. [WS-14]"""
    filtered, at = spread.spec.target_filter, SPEC.child("targetFilter")
    if filtered is None:
        return []
    errors = validate_selector(filtered.selector, at.child("selector"))
    if (count := len(filtered.replicas_path_list or ())) > MAX_PATHS:
        errors.append(too_many(at.child("replicasPathList"), count, MAX_PATHS))
    return errors


def conflict_errors(spread: WorkloadSpread, others: Iterable[WorkloadSpread]) -> list[FieldError]:
    """Return an error if another WorkloadSpread has the same target. [WS-14]"""
    target = spread.spec.target_ref
    for other in others:
        if other.name == spread.name or other.deleting or other.spec.target_ref.identity != target.identity:
            continue
        detail = f"ws.spec.targetRef is in conflict with other WorkloadSpread {other.name}: change or delete that one"
        return [invalid(TARGET, target.as_go(), detail)]
    return []


def _change_errors(spread: WorkloadSpread, former: WorkloadSpread | None) -> list[FieldError]:
    """Return an error if targetRef changed. [WS-14]"""
    target = spread.spec.target_ref
    if former is None or former.spec.target_ref.identity == target.identity:
        return []
    return [invalid(TARGET, target.as_go(), "change TargetReference is not permitted for WorkloadSpread")]


def warnings(spread: WorkloadSpread) -> tuple[str, ...]:
    """Return warnings about settings that are accepted but have no effect."""
    found: list[str] = []
    for index, subset in enumerate(spread.spec.subsets):
        patch, at = subset.patch, str(SUBSETS.index(index).child("patch"))
        if patch is not None and not isinstance(patch, Mapping):
            found.append(f"{at}: expected an object; the patch cannot be applied to any Pod")
        elif patch:
            found += _patch_warnings(patch, at)
        if subset.max_replicas is None and index + 1 < len(spread.spec.subsets) and not critical_seconds(spread):
            later = ", ".join(one.name for one in spread.spec.subsets[index + 1 :])
            found.append(
                f"{SUBSETS.index(index)}: has no maxReplicas, so it takes all Pods and leaves none for {later}"
            )
            break
    return tuple(found[:_MOST_WARNINGS])


_MOST_WARNINGS: Final = 20


def _patch_warnings(patch: Mapping[str, Any], at: str) -> list[str]:
    known = {key: value for key, value in patch.items() if key in ("metadata", "spec")}
    other = [f"{at}.{key}" for key in patch if key not in ("metadata", "spec", "$patch", "$retainKeys")]
    unknown = unknown_fields(POD_TEMPLATE, _without_directives(known), at)
    return [f"{path}: unknown field of a Pod; it is ignored" for path in [*other, *unknown]]


def _without_directives(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_directives(item) for key, item in value.items() if not key.startswith("$")}
    return [_without_directives(item) for item in value] if isinstance(value, list) else value


def unchecked_warnings(indexes: Sequence[int], why: str) -> tuple[str, ...]:
    """Return warnings about patches that are stored without being checked against the workload's template. [WS-11]"""
    paths = [SUBSETS.index(index).child("patch") for index in indexes[:_MOST_WARNINGS]]
    return tuple(f"{path}: not checked against the workload: {why}" for path in paths)


def patch_error(
    index: int, subset: WorkloadSpreadSubset, texts: Sequence[str], shown: Callable[[Any], str]
) -> FieldError:
    """Return the error for a patch that makes the Pod template invalid. [WS-11]"""
    return invalid(SUBSETS.index(index).child("patch"), GoLiteral(quote(shown(subset.patch))), "; ".join(texts))
