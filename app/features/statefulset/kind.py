"""Kind definition of StatefulSet: versions, conversion, columns and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.fields import ON_DELETE, RECREATE, ROLLING_UPDATE
from app.api.kind import AGE, TEMPLATE_COLUMNS, Access, KindDefinition, PrinterColumn, Scale, Version, noted
from app.features.statefulset.types import ORDERED_READY, RETAIN, StatefulSet, StatefulSetV1Alpha1
from app.kube.jsonvalues import json_copy, part

# Conversion of Advanced StatefulSets between versions [AS-1 … AS-4]. Fields that v1alpha1 lacks are dropped;
# app.api.conversion records them in an annotation [AS-137].

#: Fields that v1alpha1 lacks.
SPEC_FIELDS: Final = (
    "volumeClaimUpdateStrategy",
    "reserveOrdinals",
    "lifecycle",
    "scaleStrategy",
    "persistentVolumeClaimRetentionPolicy",
    "ordinals",
)
STATUS_FIELDS: Final = ("updatedReadyReplicas", "updatedAvailableReplicas", "volumeClaims")


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert a v1alpha1 object to v1beta1. All v1alpha1 fields exist there; volumeClaimUpdateStrategy, which Go
    marshals even if it is empty, is added. [AS-1]"""
    spec = obj.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("volumeClaimUpdateStrategy", {})
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert a v1beta1 object to v1alpha1. [AS-1, AS-2]"""
    for key, fields in (("spec", SPEC_FIELDS), ("status", STATUS_FIELDS)):
        found = obj.get(key)
        if isinstance(found, dict):
            for field in fields:
                found.pop(field, None)
    return obj


_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".spec.replicas", "Desired number of Pods."),
    PrinterColumn("CURRENT", "integer", ".status.replicas", "Number of Pods."),
    PrinterColumn("UPDATED", "integer", ".status.updatedReplicas", "Number of Pods at the update revision."),
    PrinterColumn("READY", "integer", ".status.readyReplicas", "Number of ready Pods."),
    AGE,
    *TEMPLATE_COLUMNS,
)
_SCALE: Final = Scale(label_selector=".status.labelSelector")
_NOTED: Final = (
    *noted(
        "spec",
        fields=("lifecycle", "scaleStrategy", "persistentVolumeClaimRetentionPolicy", "ordinals"),
        size=65536,
        depth=4,
    ),
    *noted("spec", "volumeClaimUpdateStrategy", fields=("type",)),
    *noted("spec", fields=("reserveOrdinals",), size=131072, depth=1),
    *noted("status", fields=("updatedReadyReplicas", "updatedAvailableReplicas")),
    *noted("status", fields=("volumeClaims",), size=65536, depth=2),
)

STATEFUL_SET: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="StatefulSet",
    plural="statefulsets",
    access=Access("creates Pods in its namespace, as a native StatefulSet does", view=True, edit=True),
    short_names=("sts", "asts"),
    versions=(
        Version(names.V1BETA1, StatefulSet, _COLUMNS, scale=_SCALE, notes=_NOTED),
        Version(names.V1ALPHA1, StatefulSetV1Alpha1, _COLUMNS, scale=_SCALE, to_hub=to_v1beta1, from_hub=to_v1alpha1),
    ),
)

# Defaults of the fields of both versions. [AS-5 … AS-14]

REPLICAS: Final = 1
MAX_UNAVAILABLE: Final = 1
REVISION_HISTORY_LIMIT: Final = 10
_SPEC: Final = {
    "podManagementPolicy": ORDERED_READY,
    "replicas": REPLICAS,
    "revisionHistoryLimit": REVISION_HISTORY_LIMIT,
}
_ROLLING: Final = {"partition": 0, "maxUnavailable": MAX_UNAVAILABLE, "podUpdatePolicy": RECREATE, "minReadySeconds": 0}


@dataclass(frozen=True, slots=True)
class ClaimGates:
    """Gates that affect defaults for claims: StatefulSetAutoDeletePVC, StatefulSetAutoResizePVCGate."""

    auto_delete: bool = True
    auto_resize: bool = False


def with_defaults(obj: Mapping[str, Any], gates: ClaimGates) -> dict[str, Any]:
    """Return a copy of the object (JSON of either version) with defaults for its own fields, but not its templates.
    Idempotent."""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = defaulted.get("spec")
    if not isinstance(spec, dict):
        return defaulted
    _fill(spec, _SPEC)
    strategy = part(spec, "updateStrategy")
    if strategy is not None:
        _fill(strategy, {"type": ROLLING_UPDATE})
        rolling = part(strategy, "rollingUpdate") if strategy["type"] == ROLLING_UPDATE else None
        if rolling is not None:
            _fill(rolling, _ROLLING)
    if str(defaulted.get("apiVersion")).endswith(f"/{names.V1ALPHA1}"):
        return defaulted  # [AS-13]
    if gates.auto_delete and (retention := part(spec, "persistentVolumeClaimRetentionPolicy")) is not None:
        _fill(retention, {"whenDeleted": RETAIN, "whenScaled": RETAIN})
    if gates.auto_resize and (update := part(spec, "volumeClaimUpdateStrategy")) is not None:
        _fill(update, {"type": ON_DELETE})
    return defaulted


def _fill(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set values that are missing. Where the default is a string, an empty one counts as missing, as in Go."""
    for key, value in values.items():
        if target.get(key) is None or (target[key] == "" and isinstance(value, str)):
            target[key] = value
