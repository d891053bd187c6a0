"""WorkloadSpread as a kind: its names, versions and columns."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import Access, KindDefinition, PrinterColumn, Version
from app.api.workloadspread.conversion import canonical_v1alpha1, canonical_v1beta1, to_v1alpha1, to_v1beta1
from app.api.workloadspread.types import WorkloadSpread, WorkloadSpreadV1Alpha1

_COLUMNS: Final = (
    PrinterColumn("WorkloadName", "string", ".spec.targetRef.name", "The workload whose Pods are spread."),
    PrinterColumn("WorkloadKind", "string", ".spec.targetRef.kind", "Its kind."),
    # WS-2: a JSONPath cannot compare; the strategy itself says more than an empty column.
    PrinterColumn("Adaptive", "string", ".spec.scheduleStrategy.type", "The strategy; Fixed where it is empty."),
    PrinterColumn(
        "Age", "date", ".metadata.creationTimestamp", "When the object was created, as the time that has passed since."
    ),
)

WORKLOAD_SPREAD: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="WorkloadSpread",
    plural="workloadspreads",
    access=Access("changes new Pods of its namespace, as editing their workload does", view=True, edit=True),
    short_names=("ws",),
    versions=(
        Version(names.V1BETA1, WorkloadSpread, _COLUMNS, canonical=canonical_v1beta1),
        Version(
            names.V1ALPHA1,
            WorkloadSpreadV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
        ),
    ),
)
