"""Validates DaemonSets. Pure; messages, paths and their order are OpenKruise's. [DS-8 … DS-15]

An object is validated in the version it is written in, so that paths match what the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from app.features.daemonset.types import (
    IN_PLACE_IF_POSSIBLE,
    ON_DELETE,
    ROLLING_UPDATE,
    ROLLING_UPDATE_TYPES,
    ROLLING_UPDATE_TYPES_V1ALPHA1,
    SURGING,
    UPDATE_TYPES,
)
from app.kube.fielderrors import (
    FieldError,
    GoLiteral,
    Path,
    forbidden,
    go_int_or_string,
    invalid,
    not_supported,
    quote,
    required,
)
from app.kube.patches import same
from app.kube.selectors import validate_selector
from app.pods.node_fit import placement_errors
from app.workloads.validation import (
    HOLDS_NOTHING,
    NOT_NEGATIVE,
    SPEC,
    holds_nothing,
    selector_errors,
    template_errors,
    template_spec,
    without_empties,
)

_KIND: Final = "daemonset"
_STRATEGY: Final = SPEC.child("updateStrategy")
_ROLLING: Final = _STRATEGY.child("rollingUpdate")
#: OpenKruise reports errors in rollingUpdateType and partition below this path.
_TWICE: Final = _ROLLING.child("rollingUpdate")
_percent = re.compile(r"([0-9]{1,9})%", re.ASCII).fullmatch
_PERCENT_WORDS: Final = (
    "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', regex used for "
    "validation is '[0-9]+%')"
)


def spec_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any] | None, template: Sequence[FieldError | str], *, older: bool
) -> list[FieldError | str]:
    """Return all errors in a defaulted spec, in OpenKruise's order. ``former`` is the spec it replaces; ``template``
    holds the errors that Kubernetes reports for the template; ``older`` is true for v1alpha1."""
    errors: list[FieldError | str] = []
    if former is not None:
        errors += _update_errors(spec, former, older=older)
    unreadable = validate_selector(without_empties(spec.get("selector") or {}), SPEC.child("selector"))
    errors += unreadable or selector_errors(spec, _KIND)
    errors += template
    errors += template_errors(spec, _KIND)  # Kubernetes also reports an unknown policy. [DS-9]
    errors += placement_errors(template_spec(spec), SPEC.child("template", "spec"))
    errors += _number_errors(spec, "minReadySeconds")
    errors += _strategy_errors(spec, older=older)
    errors += _number_errors(spec, "revisionHistoryLimit")
    if (spec.get("lifecycle") or {}).get("inPlaceUpdate") is not None:
        # [DS-14]
        errors.append(forbidden(SPEC.child("lifecycle", "inPlaceUpdate"), "inPlaceUpdate hook is not supported yet"))
    return errors


def _update_errors(spec: Mapping[str, Any], former: Mapping[str, Any], *, older: bool) -> Iterator[FieldError]:
    """Yield an error if the selector changed. [DS-15]"""
    if not same(without_empties(spec.get("selector") or {}), without_empties(former.get("selector") or {})):
        scale = " " if older else "'scaleStrategy', "
        words = (
            f"updates to daemonset spec for fields other than 'BurstReplicas', 'template', 'lifecycle', {scale}"
            "'updateStrategy', 'minReadySeconds', and 'revisionHistoryLimit' are forbidden"
        )
        yield forbidden(SPEC, words)


def _number_errors(spec: Mapping[str, Any], name: str) -> Iterator[FieldError]:
    """Yield an error if the number is negative. [DS-10]"""
    if (spec.get(name) or 0) < 0:
        yield invalid(SPEC.child(name), spec[name], NOT_NEGATIVE)


def _strategy_errors(spec: Mapping[str, Any], *, older: bool) -> Iterator[FieldError]:
    """Yield errors in updateStrategy. [DS-10]"""
    strategy = spec.get("updateStrategy") or {}
    kind, rolling = strategy.get("type") or "", strategy.get("rollingUpdate")
    if kind == ON_DELETE:
        return
    if kind != ROLLING_UPDATE:
        version = "v1alpha1" if older else "v1beta1"
        block = "(nil)" if rolling is None else "{…}"
        shown = f"Type:{quote(kind)}, RollingUpdate:(*{version}.RollingUpdateDaemonSet){block}"
        yield not_supported(_STRATEGY, GoLiteral(f"{version}.DaemonSetUpdateStrategy{{{shown}}}"), UPDATE_TYPES)
    elif rolling is None:
        yield required(_ROLLING)
    else:
        yield from _rolling_errors(rolling, older=older)


def _rolling_errors(rolling: Mapping[str, Any], *, older: bool) -> Iterator[FieldError]:
    """Yield errors in rollingUpdate. [DS-11 … DS-13]"""
    unavailable, surge = rolling.get("maxUnavailable"), rolling.get("maxSurge")
    kind = rolling.get("rollingUpdateType") or ""
    yield from _count_errors(rolling, "maxUnavailable")
    yield from _count_errors(rolling, "maxSurge")
    if is_non_zero(unavailable) and is_non_zero(surge):
        yield invalid(_ROLLING.child("maxSurge"), _shown(surge), "may not be set when maxUnavailable is non-zero")
    elif not is_non_zero(unavailable) and not is_non_zero(surge):
        yield required(_ROLLING.child("maxUnavailable"), "cannot be 0 when maxSurge is 0")
    types = ROLLING_UPDATE_TYPES_V1ALPHA1 if older else ROLLING_UPDATE_TYPES
    if kind not in types:
        yield not_supported(_TWICE.child("type"), kind, types)
    elif kind == IN_PLACE_IF_POSSIBLE and is_non_zero(surge):
        words = f"must be 0 for {IN_PLACE_IF_POSSIBLE} type"
        yield invalid(_ROLLING.child("maxSurge"), _shown(surge), words)
    elif kind == SURGING and is_non_zero(unavailable):
        yield invalid(_ROLLING.child("maxUnavailable"), _shown(unavailable), f"must be 0 for {SURGING} type")
    if (partition := rolling.get("partition")) is not None:
        yield from _value_errors(partition, _TWICE.child("partition"))


def is_non_zero(value: int | str | None) -> bool:
    """Return whether a limit is set to a nonzero value. A string that is not a percentage counts as zero. [DS-11]"""
    if isinstance(value, str):
        match = _percent(value)
        return match is not None and int(match[1]) != 0
    return bool(value)


def _count_errors(rolling: Mapping[str, Any], name: str) -> Iterator[FieldError]:
    """Yield the errors in maxUnavailable or maxSurge. OpenKruise silently ignores an unparsable limit if the
    other one is valid. [DS-11]"""
    value = rolling.get(name)
    other = rolling.get("maxSurge" if name == "maxUnavailable" else "maxUnavailable")
    if value is None or value == 0:
        return
    if is_non_zero(value) or (is_non_zero(other) and not _percent(str(value))):
        yield from _value_errors(value, _ROLLING.child(name))


def _value_errors(value: int | str, path: Path) -> Iterator[FieldError]:
    """Yield an error unless the value is a non-negative number or a percentage up to 100%."""
    if isinstance(value, int):
        if value < 0:
            yield invalid(path, value, NOT_NEGATIVE)
        return
    match = _percent(value)
    if match is None:
        yield invalid(path, _shown(value), _PERCENT_WORDS)
    elif int(match[1]) > 100:
        yield invalid(path, _shown(value), "must not be greater than 100%")


def warnings(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about likely mistakes that OpenKruise admits, and about settings without effect. [DS-84]"""
    burst, path = spec.get("burstReplicas"), SPEC.child("burstReplicas")
    if isinstance(burst, int) and burst < 0:
        yield f"{invalid(path, burst, NOT_NEGATIVE)}; 250 is used instead"
    elif isinstance(burst, str) and not _percent(burst):
        yield f"{invalid(path, burst, _PERCENT_WORDS)}; 250 is used instead"
    elif burst is not None and str(burst) in ("0", "0%"):
        yield f"{path}: with 0, no Pod is ever created or deleted"
    lifecycle = spec.get("lifecycle") or {}
    if lifecycle.get("preNormal") is not None:
        yield f"{SPEC.child('lifecycle', 'preNormal')}: has no effect on Pods of a DaemonSet"
    hook = lifecycle.get("preDelete")
    if isinstance(hook, Mapping) and holds_nothing(hook):
        yield f"{SPEC.child('lifecycle', 'preDelete')}: {HOLDS_NOTHING}"
    strategy = spec.get("updateStrategy") or {}
    selector = (strategy.get("rollingUpdate") or {}).get("selector")
    if selector is not None:
        for error in validate_selector(without_empties(selector), _ROLLING.child("selector")):
            yield f"{error}; the selector is invalid, so no Pod is updated"
    if strategy.get("type") == ON_DELETE and strategy.get("rollingUpdate"):
        yield f"{_ROLLING}: has no effect with updateStrategy.type {ON_DELETE}"
    if template_spec(spec).get("nodeName"):
        at = SPEC.child("template", "spec", "nodeName")
        yield f"{at}: only this node gets a Pod"


def _shown(value: int | str | None) -> object:
    if isinstance(value, int) or value is None:
        return value
    return go_int_or_string(value)
