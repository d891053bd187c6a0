"""PodUnavailableBudget as a kind: its names, versions, columns and conversions."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import Access, KindDefinition, PrinterColumn, Version, noted
from app.api.podunavailablebudget.conversion import canonical_v1alpha1, to_v1alpha1, to_v1beta1
from app.api.podunavailablebudget.types import PodUnavailableBudget, PodUnavailableBudgetV1Alpha1

_COLUMNS: Final = (
    PrinterColumn("Allowed", "integer", ".status.unavailableAllowed", "Pods that may become unavailable now."),
    PrinterColumn("Current", "integer", ".status.currentAvailable", "Pods that are available."),
    PrinterColumn("Desired", "integer", ".status.desiredAvailable", "Pods that have to stay available."),
    PrinterColumn("Total", "integer", ".status.totalReplicas", "Pods there are meant to be."),
)
_ANNOTATIONS: Final = noted(
    "metadata", "annotations", fields=(names.PUB_PROTECT_OPERATIONS, names.PUB_PROTECT_TOTAL_REPLICAS)
)
_NOTED: Final = (
    *_ANNOTATIONS,
    *noted("spec", fields=("protectOperations", "protectTotalReplicas"), depth=1),
    *noted("spec", fields=("ignoredPodSelector",), size=65536, depth=4),
    *noted("status", fields=("observedGeneration",)),
)

POD_UNAVAILABLE_BUDGET: Final = KindDefinition(
    group=names.POLICY_GROUP,
    kind="PodUnavailableBudget",
    plural="podunavailablebudgets",
    access=Access("limits disruptions in its namespace, as a PodDisruptionBudget does", view=True, edit=True),
    short_names=("pub",),
    versions=(
        Version(names.V1BETA1, PodUnavailableBudget, _COLUMNS, notes=_NOTED),
        Version(
            names.V1ALPHA1,
            PodUnavailableBudgetV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
            notes=_ANNOTATIONS,
        ),
    ),
)
