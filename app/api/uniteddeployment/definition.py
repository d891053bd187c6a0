"""UnitedDeployment as a kind: its names, versions and columns."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import AGE, ANY_KEY, Access, KindDefinition, PrinterColumn, Scale, Version, noted
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
#: The status says how many replicas a subset has in another form; the spec loses nothing.
_SUBSETS: Final = (
    *noted("status", "subsetStatuses", ANY_KEY, fields=("replicas", "partition"), count=1000),
    *noted("status", fields=("subsetStatuses",), size=131072, depth=4),
)
_NOTED: Final = (*_SUBSETS, *noted("status", fields=("updatedRevision",)))

UNITED_DEPLOYMENT: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="UnitedDeployment",
    plural="uniteddeployments",
    access=Access("creates workloads in its namespace", view=True, edit=True),
    short_names=("ud",),
    versions=(
        Version(names.V1BETA1, UnitedDeployment, _COLUMNS, scale=_SCALE, canonical=canonical_v1beta1, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            UnitedDeploymentV1Alpha1,
            _COLUMNS,
            scale=_SCALE,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
            notes=_SUBSETS,
        ),
    ),
)
