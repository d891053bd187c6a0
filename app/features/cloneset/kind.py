"""Kind definition of CloneSet: versions, conversion and columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from app.api import names
from app.api.fields import IN_PLACE_POLICIES, ON_DELETE, POD_UPDATE_POLICIES, RECREATE, ROLLING_UPDATE
from app.api.kind import AGE, TEMPLATE_COLUMNS, Access, KindDefinition, PrinterColumn, Scale, Version, noted
from app.features.cloneset.types import NO_DEADLINE, CloneSet, CloneSetV1Alpha1
from app.kube.jsonvalues import object_at

# Conversion of CloneSets between versions [CS-5 … CS-12]. Each direction may lose fields; app.api.conversion records
# them in an annotation.

_INT32_MAX: Final = NO_DEADLINE
_digits = re.compile(r"[+-]?[0-9]{1,10}").fullmatch
#: v1alpha1 strategy fields that v1beta1 nests in ``rollingUpdate``.
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
    """Convert a v1alpha1 object to v1beta1. [CS-6, CS-8 … CS-10]"""
    spec = object_at(obj, "spec")
    if spec is None:
        return obj
    scale = object_at(spec, "scaleStrategy") or {}
    # In v1alpha1, claims are reused unless that is disabled. [CS-8]
    scale["enablePVCReuse"] = scale.pop("disablePVCReuse", None) is not True
    if _metadata(obj, "labels").get(names.CLONE_SET_EXCLUDE_PREPARING_DELETE) == "true":
        # [CS-9]
        scale["excludePreparingDelete"] = True
    spec["scaleStrategy"] = scale
    strategy = object_at(spec, "updateStrategy") or {}
    _drop_pre_download(strategy)
    spec["updateStrategy"] = _strategy_to_v1beta1(strategy, _pre_download(_metadata(obj, "annotations")))
    return obj


def _strategy_to_v1beta1(flat: dict[str, Any], pre_download: Mapping[str, Any]) -> dict[str, Any]:
    rolling = {field: flat.pop(field) for field in ROLLING_FIELDS if field in flat}
    policy = flat.pop("type", None)
    if policy == ON_DELETE:
        # Without rollout fields there is no rollingUpdate block. [CS-6]
        return {**flat, "type": ON_DELETE, **({"rollingUpdate": rolling} if rolling else {})}
    if pre_download:
        # [CS-10]
        rolling["inPlaceUpdateStrategy"] = {**(object_at(rolling, "inPlaceUpdateStrategy") or {}), **pre_download}
    rolling["podUpdatePolicy"] = policy if policy in POD_UPDATE_POLICIES else RECREATE
    if policy in IN_PLACE_POLICIES and rolling.get("inPlaceUpdateStrategy") is None:
        # Defaulting would add the empty strategy too; adding it here keeps the round trip through v1alpha1 lossless.
        # [CS-15]
        rolling["inPlaceUpdateStrategy"] = {}
    return {**flat, "type": ROLLING_UPDATE, "rollingUpdate": rolling}


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert a v1beta1 object to v1alpha1. excludePreparingDelete, which v1alpha1 lacks, becomes a label. [CS-7, CS-8,
    CS-11]"""
    spec = object_at(obj, "spec")
    if spec is None:
        return obj
    scale = object_at(spec, "scaleStrategy") or {}
    if scale.pop("enablePVCReuse", None) is not True:
        scale["disablePVCReuse"] = True
    _show_exclusion(obj, scale.pop("excludePreparingDelete", None) is True)
    spec["scaleStrategy"] = scale
    spec["updateStrategy"] = _strategy_to_v1alpha1(object_at(spec, "updateStrategy") or {}, obj)
    return obj


def _strategy_to_v1alpha1(strategy: dict[str, Any], obj: dict[str, Any]) -> dict[str, Any]:
    rolling = object_at(strategy, "rollingUpdate") or {}
    strategy.pop("rollingUpdate", None)
    policy = rolling.pop("podUpdatePolicy", None)
    in_place = object_at(rolling, "inPlaceUpdateStrategy")
    if in_place is not None:
        for field, (key, _) in _PRE_DOWNLOAD.items():
            if (value := in_place.pop(field, None)) is not None:
                obj.setdefault("metadata", {}).setdefault("annotations", {})[key] = str(value)
        if not _says_something(in_place):
            # An empty block is omitted. [CS-14]
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
    """Return a v1alpha1 object as it is after a round trip through v1beta1: v1alpha1 can express some defaults in two
    ways. [CS-11, CS-14]"""
    spec = object_at(obj, "spec")
    if spec is None:
        return obj
    if spec.get("scaleStrategy") is None:
        spec["scaleStrategy"] = {}
    scale, strategy = object_at(spec, "scaleStrategy"), object_at(spec, "updateStrategy")
    if scale is not None and scale.get("disablePVCReuse") is False:
        del scale["disablePVCReuse"]
    if strategy is not None:
        _drop_pre_download(strategy)
        if not _says_something(object_at(strategy, "inPlaceUpdateStrategy") or {}):
            strategy.pop("inPlaceUpdateStrategy", None)
    return obj


def _drop_pre_download(strategy: Mapping[str, Any]) -> None:
    """Remove the image pre-download fields, which have no effect in a v1alpha1 strategy. [CS-10]"""
    in_place = object_at(strategy, "inPlaceUpdateStrategy") or {}
    for field in _PRE_DOWNLOAD:
        in_place.pop(field, None)


def _says_something(in_place: Mapping[str, Any]) -> bool:
    return any(value is not None and value != 0 for value in in_place.values())


def _pre_download(annotations: Mapping[str, Any]) -> dict[str, Any]:
    """Return the image pre-download fields that the annotations represent. [CS-10]"""
    found = {field: parse(annotations.get(key)) for field, (key, parse) in _PRE_DOWNLOAD.items()}
    return {field: value for field, value in found.items() if value is not None}


def _int_or_text(text: Any) -> int | str | None:
    number = int32(text)
    return number if number is not None else (text or None) if isinstance(text, str) else None


def int32(text: Any) -> int | None:
    """Return the text as a number, or None if it is not a number or does not fit into 32 bits."""
    # A value that is not a number (such as a percentage) stays in its annotation, where the controller reads it.
    number = int(text) if isinstance(text, str) and _digits(text) else None
    return number if number is not None and -_INT32_MAX <= number <= _INT32_MAX else None


_PRE_DOWNLOAD: Final[Mapping[str, tuple[str, Callable[[Any], int | str | None]]]] = {
    "imagePreDownloadParallelism": (names.PRE_DOWNLOAD_PARALLELISM, _int_or_text),
    "imagePreDownloadTimeoutSeconds": (names.PRE_DOWNLOAD_TIMEOUT_SECONDS, int32),
    "imagePreDownloadMinUpdatedReadyPods": (names.PRE_DOWNLOAD_MIN_UPDATED_READY_PODS, int32),
}


def _metadata(obj: Mapping[str, Any], field: str) -> dict[str, Any]:
    return object_at(object_at(obj, "metadata") or {}, field) or {}


_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".spec.replicas", "Desired number of Pods."),
    PrinterColumn("UPDATED", "integer", ".status.updatedReplicas", "Number of Pods at the update revision."),
    PrinterColumn("UPDATED_READY", "integer", ".status.updatedReadyReplicas", "Ready Pods at the update revision."),
    PrinterColumn(
        "UPDATED_AVAILABLE", "integer", ".status.updatedAvailableReplicas", "Available Pods at the update revision."
    ),
    PrinterColumn("READY", "integer", ".status.readyReplicas", "Number of ready Pods."),
    PrinterColumn("TOTAL", "integer", ".status.replicas", "Number of Pods."),
    AGE,
    *TEMPLATE_COLUMNS,
    PrinterColumn("SELECTOR", "string", ".status.labelSelector", "Label selector of the Pods.", priority=1),
)
_SCALE: Final = Scale(label_selector=".status.labelSelector")
_STRATEGY: Final = ("spec", "updateStrategy")
_ROLLING: Final = (*_STRATEGY, "rollingUpdate")
_NOTED_PRE_DOWNLOAD: Final = (
    names.PRE_DOWNLOAD_PARALLELISM,
    names.PRE_DOWNLOAD_TIMEOUT_SECONDS,
    names.PRE_DOWNLOAD_MIN_UPDATED_READY_PODS,
)
_NOTED_ANNOTATIONS: Final = noted("metadata", "annotations", fields=_NOTED_PRE_DOWNLOAD)
_NOTED: Final = (
    *_NOTED_ANNOTATIONS,
    *noted("metadata", "labels", fields=(names.CLONE_SET_EXCLUDE_PREPARING_DELETE,)),
    *noted("spec", "scaleStrategy", fields=("enablePVCReuse", "excludePreparingDelete")),
    *noted(*_STRATEGY, fields=("type",)),
    *noted(*_ROLLING, fields=("podUpdatePolicy",)),
    *noted(
        *_ROLLING,
        "inPlaceUpdateStrategy",
        fields=(
            "gracePeriodSeconds",
            "imagePreDownloadParallelism",
            "imagePreDownloadTimeoutSeconds",
            "imagePreDownloadMinUpdatedReadyPods",
        ),
    ),
)

CLONE_SET: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="CloneSet",
    plural="clonesets",
    access=Access("creates Pods in its namespace, as a Deployment does", view=True, edit=True),
    short_names=("clone",),
    versions=(
        Version(names.V1BETA1, CloneSet, _COLUMNS, scale=_SCALE, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            CloneSetV1Alpha1,
            _COLUMNS,
            scale=_SCALE,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
            notes=(*_NOTED_ANNOTATIONS, *noted(*_STRATEGY, fields=("type",))),
        ),
    ),
)
