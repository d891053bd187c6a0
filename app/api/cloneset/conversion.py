"""CloneSet between its versions (CS-5 … CS-12).

Each direction may lose something; app.api.conversion notices and remembers it (D-1).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.api import names
from app.api.cloneset.types import (
    IN_PLACE_POLICIES,
    NO_DEADLINE,
    ON_DELETE,
    POD_UPDATE_POLICIES,
    RECREATE,
    ROLLING_UPDATE,
)

_INT32_MAX: Final = NO_DEADLINE
_digits = re.compile(r"[+-]?[0-9]{1,10}").fullmatch
#: Fields of the v1alpha1 strategy that are those of ``rollingUpdate`` in v1beta1.
ROLLING_FIELDS: Final[tuple[str, ...]] = (
    "partition",
    "maxUnavailable",
    "maxSurge",
    "paused",
    "priorityStrategy",
    "scatterStrategy",
    "inPlaceUpdateStrategy",
)


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """CS-6, CS-8 … CS-10."""
    spec = _object(obj, "spec")
    if spec is None:
        return obj
    scale = _object(spec, "scaleStrategy") or {}
    # CS-8: what v1alpha1 leaves out means that claims are used again.
    scale["enablePVCReuse"] = scale.pop("disablePVCReuse", None) is not True
    if _metadata(obj, "labels").get(names.CLONE_SET_EXCLUDE_PREPARING_DELETE) == "true":
        # CS-9
        scale["excludePreparingDelete"] = True
    spec["scaleStrategy"] = scale
    strategy = _object(spec, "updateStrategy") or {}
    spec["updateStrategy"] = _strategy_to_v1beta1(strategy, _pre_download(_metadata(obj, "annotations")))
    return obj


def _strategy_to_v1beta1(flat: dict[str, Any], pre_download: Mapping[str, Any]) -> dict[str, Any]:
    rolling = {field: flat.pop(field) for field in ROLLING_FIELDS if field in flat}
    policy = flat.pop("type", None)
    if policy == ON_DELETE:
        # CS-6, B-1: there is no roll-out to speak of, unless something was said about one.
        return {**flat, "type": ON_DELETE, **({"rollingUpdate": rolling} if rolling else {})}
    if pre_download:
        # CS-10
        rolling["inPlaceUpdateStrategy"] = {**(_object(rolling, "inPlaceUpdateStrategy") or {}), **pre_download}
    rolling["podUpdatePolicy"] = policy if policy in POD_UPDATE_POLICIES else RECREATE
    if policy in IN_PLACE_POLICIES and rolling.get("inPlaceUpdateStrategy") is None:
        # CS-15 would fill it in; so v1alpha1, which does not show it, loses nothing.
        rolling["inPlaceUpdateStrategy"] = {}
    return {**flat, "type": ROLLING_UPDATE, "rollingUpdate": rolling}


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """CS-7, CS-8, CS-11, and a label where v1beta1 has a field (B-1)."""
    spec = _object(obj, "spec")
    if spec is None:
        return obj
    scale = _object(spec, "scaleStrategy") or {}
    if scale.pop("enablePVCReuse", None) is not True:
        scale["disablePVCReuse"] = True
    _show_exclusion(obj, scale.pop("excludePreparingDelete", None) is True)
    spec["scaleStrategy"] = scale
    spec["updateStrategy"] = _strategy_to_v1alpha1(_object(spec, "updateStrategy") or {}, obj)
    return obj


def _strategy_to_v1alpha1(strategy: dict[str, Any], obj: dict[str, Any]) -> dict[str, Any]:
    rolling = _object(strategy, "rollingUpdate") or {}
    strategy.pop("rollingUpdate", None)
    policy = rolling.pop("podUpdatePolicy", None)
    in_place = _object(rolling, "inPlaceUpdateStrategy")
    if in_place is not None:
        for field, (key, _) in _PRE_DOWNLOAD.items():
            if (value := in_place.pop(field, None)) is not None:
                obj.setdefault("metadata", {}).setdefault("annotations", {})[key] = str(value)
        if not _says_something(in_place):
            # CS-14: nothing to say is said by leaving it out.
            del rolling["inPlaceUpdateStrategy"]
    if strategy.get("type") == ON_DELETE:
        policy = ON_DELETE
    elif policy not in POD_UPDATE_POLICIES:
        policy = RECREATE
    return {**strategy, **rolling, "type": policy}


def _show_exclusion(obj: dict[str, Any], excluded: bool) -> None:
    key = names.CLONE_SET_EXCLUDE_PREPARING_DELETE
    labels = _metadata(obj, "labels")
    if excluded:
        obj.setdefault("metadata", {})["labels"] = {**labels, key: "true"}
    elif labels.get(key) == "true":
        del labels[key]
        if not labels:
            del obj["metadata"]["labels"]


def canonical_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Where v1alpha1 has two ways of saying nothing, the one that is read back (CS-11, CS-14)."""
    spec = _object(obj, "spec")
    if spec is None:
        return obj
    if spec.get("scaleStrategy") is None:
        spec["scaleStrategy"] = {}
    scale, strategy = _object(spec, "scaleStrategy"), _object(spec, "updateStrategy")
    if scale is not None and scale.get("disablePVCReuse") is False:
        del scale["disablePVCReuse"]
    if strategy is not None and not _says_something(_object(strategy, "inPlaceUpdateStrategy") or {}):
        strategy.pop("inPlaceUpdateStrategy", None)
    return obj


def _says_something(in_place: Mapping[str, Any]) -> bool:
    return any(value is not None and value != 0 for value in in_place.values())


def _pre_download(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """CS-10: the fields that annotations stand for."""
    found = {field: parse(annotations.get(key)) for field, (key, parse) in _PRE_DOWNLOAD.items()}
    return {field: value for field, value in found.items() if value is not None}


def _int_or_text(text: Any) -> int | str | None:
    number = _int32(text)
    return number if number is not None else (text or None) if isinstance(text, str) else None


def _int32(text: Any) -> int | None:
    # B-16: what is none (a percentage, say) stays in its annotation, where the controller reads it.
    number = int(text) if isinstance(text, str) and _digits(text) else None
    return number if number is not None and -_INT32_MAX <= number <= _INT32_MAX else None


_PRE_DOWNLOAD: Final[Mapping[str, tuple[str, Callable[[Any], int | str | None]]]] = {
    "imagePreDownloadParallelism": (names.PRE_DOWNLOAD_PARALLELISM, _int_or_text),
    "imagePreDownloadTimeoutSeconds": (names.PRE_DOWNLOAD_TIMEOUT_SECONDS, _int32),
    "imagePreDownloadMinUpdatedReadyPods": (names.PRE_DOWNLOAD_MIN_UPDATED_READY_PODS, _int32),
}


def _metadata(obj: Mapping[str, Any], field: str) -> dict[str, Any]:
    return _object(_object(obj, "metadata") or {}, field) or {}


def _object(parent: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    value = parent.get(key)
    return value if isinstance(value, dict) else None
