"""SidecarSet as a kind: its names, versions, columns and conversions."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted
from app.api.sidecarset.conversion import canonical_v1alpha1, to_v1alpha1, to_v1beta1
from app.api.sidecarset.types import SidecarSet, SidecarSetV1Alpha1

_COLUMNS: Final = (
    PrinterColumn("MATCHED", "integer", ".status.matchedPods", "Pods that match and carry the sidecars."),
    PrinterColumn("UPDATED", "integer", ".status.updatedPods", "Those of them whose sidecars are up to date."),
    PrinterColumn("READY", "integer", ".status.readyPods", "Those of them that are ready."),
    AGE,
)

_LINKED: Final = (
    (("spec", "namespace"), ("spec", "namespaceSelector")),
    (("metadata", "labels", names.SIDECARSET_CUSTOM_VERSION), ("spec", "customVersion")),
)
_LABEL: Final = noted("metadata", "labels", fields=(names.SIDECARSET_CUSTOM_VERSION,))
_NOTED: Final = (
    *_LABEL,
    *noted("spec", fields=("customVersion",)),
    *noted("spec", fields=("imagePullSecrets",), size=65536, depth=2),
)
_NOTED_V1ALPHA1: Final = (
    *_LABEL,
    *noted("spec", fields=("namespace",)),
    *noted("spec", fields=("namespaceSelector",), size=65536, depth=4),
)

SIDECAR_SET: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="SidecarSet",
    plural="sidecarsets",
    access=Access("adds containers to Pods of other namespaces", view=True),
    namespaced=False,
    versions=(
        Version(names.V1BETA1, SidecarSet, _COLUMNS, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            SidecarSetV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
            linked=_LINKED,
            notes=_NOTED_V1ALPHA1,
        ),
    ),
)
