"""Kind definition of StatefulSet: versions, conversion and columns."""

from __future__ import annotations

from typing import Any, Final

from app.api import names
from app.api.kind import AGE, TEMPLATE_COLUMNS, Access, KindDefinition, PrinterColumn, Scale, Version, noted
from app.features.statefulset.types import StatefulSet, StatefulSetV1Alpha1

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
    """Convert a v1alpha1 object to v1beta1, which has all v1alpha1 fields. Add volumeClaimUpdateStrategy, which Go
    marshals even if it is empty. [AS-1]"""
    spec = obj.get("spec")
    if isinstance(spec, dict):
        spec.setdefault("volumeClaimUpdateStrategy", {})
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert a v1beta1 object to v1alpha1. [AS-1, AS-2]"""
    for part, fields in (("spec", SPEC_FIELDS), ("status", STATUS_FIELDS)):
        found = obj.get(part)
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
