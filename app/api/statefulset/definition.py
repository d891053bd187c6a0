"""Advanced StatefulSet as a kind: its names, versions, columns and conversions."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Scale, Version, noted
from app.api.statefulset.conversion import to_v1alpha1, to_v1beta1
from app.api.statefulset.types import StatefulSet, StatefulSetV1Alpha1

_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".spec.replicas", "Pods there should be."),
    PrinterColumn("CURRENT", "integer", ".status.replicas", "Pods there are."),
    PrinterColumn("UPDATED", "integer", ".status.updatedReplicas", "Pods at the update revision."),
    PrinterColumn("READY", "integer", ".status.readyReplicas", "Pods that are ready."),
    AGE,
    PrinterColumn(
        "CONTAINERS", "string", ".spec.template.spec.containers[*].name", "The template's containers.", priority=1
    ),
    PrinterColumn(
        "IMAGES", "string", ".spec.template.spec.containers[*].image", "The images of these containers.", priority=1
    ),
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
        Version(
            names.V1ALPHA1,
            StatefulSetV1Alpha1,
            _COLUMNS,
            scale=_SCALE,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
        ),
    ),
)
