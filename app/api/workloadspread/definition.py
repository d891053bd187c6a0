"""WorkloadSpread as a kind: its names, versions and columns."""

from __future__ import annotations

from typing import Final

from app.api import names
from app.api.kind import ANY_KEY, Access, KindDefinition, PrinterColumn, Version, noted
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
_SUBSETS: Final = ("status", "subsetStatuses")
_VERSIONED: Final = ("status", "versionedSubsetStatuses", ANY_KEY)
#: observedGeneration of the conditions of a status; the spec loses nothing.
_NOTED: Final = (
    *noted(*_SUBSETS, ANY_KEY, fields=("conditions",), size=65536, depth=2, count=1000),
    *noted(*_VERSIONED, ANY_KEY, fields=("conditions",), size=65536, depth=2, count=1000),
    # Where names repeat, the list as a whole.
    *noted(*_SUBSETS[:-1], fields=_SUBSETS[-1:], size=131072, depth=4),
    *noted(*_VERSIONED[:-1], fields=_VERSIONED[-1:], size=131072, depth=4, count=100),
)

WORKLOAD_SPREAD: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="WorkloadSpread",
    plural="workloadspreads",
    access=Access("changes new Pods of its namespace, as editing their workload does", view=True, edit=True),
    short_names=("ws",),
    versions=(
        Version(names.V1BETA1, WorkloadSpread, _COLUMNS, canonical=canonical_v1beta1, notes=_NOTED),
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
