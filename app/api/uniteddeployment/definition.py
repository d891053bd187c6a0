"""UnitedDeployment as a kind: its names, versions and columns."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Scale, Version
from app.api.uniteddeployment.conversion import canonical_v1alpha1, canonical_v1beta1, to_v1alpha1, to_v1beta1
from app.api.uniteddeployment.types import UnitedDeployment, UnitedDeploymentV1Alpha1

_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".spec.replicas", "Pods there should be."),
    PrinterColumn("CURRENT", "integer", ".status.replicas", "Pods there are."),
    PrinterColumn("UPDATED", "integer", ".status.updatedReplicas", "Pods at the updated revision."),
    PrinterColumn("READY", "integer", ".status.readyReplicas", "Pods that are ready."),
    AGE,
)
_SCALE: Final = Scale(label_selector=".status.labelSelector")

UNITED_DEPLOYMENT: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="UnitedDeployment",
    plural="uniteddeployments",
    access=Access("creates workloads in its namespace", view=True, edit=True),
    short_names=("ud",),
    versions=(
        Version(names.V1BETA1, UnitedDeployment, _COLUMNS, scale=_SCALE, canonical=canonical_v1beta1),
        Version(
            names.V1ALPHA1,
            UnitedDeploymentV1Alpha1,
            _COLUMNS,
            scale=_SCALE,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
        ),
    ),
)
