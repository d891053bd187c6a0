"""Kind definition of WorkloadSpread: versions, conversion and columns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from app.api import names
from app.api.kind import ANY_KEY, Access, KindDefinition, PrinterColumn, Version, noted
from app.features.workloadspread.types import WorkloadSpread, WorkloadSpreadV1Alpha1
from app.kube.jsonvalues import objects, rename

# Conversion. In v1alpha1, two subset fields have other names, and fewer condition fields are required. [WS-4]

#: Names of the subset fields in v1alpha1 and v1beta1.
NAMES: Final = (
    ("requiredNodeSelectorTerm", "requiredNodeSelector"),
    ("preferredNodeSelectorTerms", "preferredNodeSelector"),
)
#: Defaults of condition fields that are required in v1beta1 but not in v1alpha1.
_UNKNOWN_REASON: Final = "Unknown"
_NO_TIME: Final = "1970-01-01T00:00:00Z"


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert from v1alpha1 to the hub."""
    for subset in _subsets(obj):
        for old, new in NAMES:
            rename(subset, old, new)
    return _completed(canonical(obj))


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert from the hub to v1alpha1."""
    for subset in _subsets(obj):
        for old, new in NAMES:
            rename(subset, new, old)
    for condition in _conditions(obj):
        condition.pop("observedGeneration", None)
    return canonical(obj)


def canonical(obj: dict[str, Any]) -> dict[str, Any]:
    """Set a missing scheduleStrategy to {}, as every conversion does."""
    spec = obj.get("spec")
    if isinstance(spec, dict) and spec.get("scheduleStrategy") is None:
        spec["scheduleStrategy"] = {}
    return obj


def canonical_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a v1alpha1 object with the condition fields that v1beta1 requires."""
    return _completed(canonical(obj))


def canonical_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a v1beta1 object with the default strategy, and without a zero observedGeneration in conditions."""
    for condition in _conditions(obj):
        if condition.get("observedGeneration") == 0:
            del condition["observedGeneration"]
    return canonical(obj)


def _completed(obj: dict[str, Any]) -> dict[str, Any]:
    for condition in _conditions(obj):
        condition["reason"] = condition.get("reason") or _UNKNOWN_REASON
        condition["message"] = condition.get("message") or ""
        condition["lastTransitionTime"] = condition.get("lastTransitionTime") or _NO_TIME
    return obj


def _subsets(obj: dict[str, Any]) -> Iterator[dict[str, Any]]:
    spec = obj.get("spec")
    return objects(spec.get("subsets") if isinstance(spec, dict) else None)


def _conditions(obj: dict[str, Any]) -> Iterator[dict[str, Any]]:
    status = obj.get("status")
    if not isinstance(status, dict):
        return
    versioned = status.get("versionedSubsetStatuses")
    lists = [status.get("subsetStatuses"), *(versioned.values() if isinstance(versioned, dict) else ())]
    for subsets in lists:
        for subset in objects(subsets):
            yield from objects(subset.get("conditions"))


_COLUMNS: Final = (
    PrinterColumn("WorkloadName", "string", ".spec.targetRef.name", "Name of the workload."),
    PrinterColumn("WorkloadKind", "string", ".spec.targetRef.kind", "Kind of the workload."),
    # JSONPath cannot compare values, so the column shows the strategy instead of true or false. [WS-2]
    PrinterColumn("Adaptive", "string", ".spec.scheduleStrategy.type", "Strategy type; empty means Fixed."),
    PrinterColumn("Age", "date", ".metadata.creationTimestamp", "Time since the object was created."),
)
_SUBSETS: Final = ("status", "subsetStatuses")
_VERSIONED: Final = ("status", "versionedSubsetStatuses", ANY_KEY)
#: Conversion notes that preserve observedGeneration of status conditions; the spec converts without loss.
_NOTED: Final = (
    *noted(*_SUBSETS, ANY_KEY, fields=("conditions",), size=65536, depth=2, count=1000),
    *noted(*_VERSIONED, ANY_KEY, fields=("conditions",), size=65536, depth=2, count=1000),
    # If subset names repeat, the whole list is preserved.
    *noted(*_SUBSETS[:-1], fields=_SUBSETS[-1:], size=131072, depth=4),
    *noted(*_VERSIONED[:-1], fields=_VERSIONED[-1:], size=131072, depth=4, count=100),
)

WORKLOAD_SPREAD: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="WorkloadSpread",
    plural="workloadspreads",
    access=Access("changes new Pods in its namespace, as editing their workload does", view=True, edit=True),
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
