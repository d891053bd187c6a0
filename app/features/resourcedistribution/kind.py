"""Kind definition of ResourceDistribution: versions, conversion and columns."""

from __future__ import annotations

from typing import Any, Final

from app.api import names
from app.api.kind import Access, KindDefinition, PrinterColumn, Version
from app.features.resourcedistribution.types import ResourceDistribution, ResourceDistributionV1Alpha1
from app.kube.jsonvalues import json_copy, object_at, rename

# Conversion between versions renames two fields and loses nothing. [RD-1]

_SELECTOR: Final = ("namespaceLabelSelector", "namespaceSelector")
_NAMESPACES: Final = ("failedNamespace", "failedNamespaces")
_LISTS: Final = ("excludedNamespaces", "includedNamespaces")


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert from v1alpha1 to the hub."""
    return _converted(obj, 0, 1)


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert from the hub to v1alpha1."""
    return _converted(obj, 1, 0)


def canonical_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a v1alpha1 object with all target fields present, as after a conversion."""
    return _written_out(obj, _SELECTOR[0])


def canonical_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Return a v1beta1 object with all target fields present, as after a conversion."""
    return _written_out(obj, _SELECTOR[1])


def _converted(obj: dict[str, Any], source: int, target: int) -> dict[str, Any]:
    targets = object_at(object_at(obj, "spec"), "targets")
    if targets is not None:
        rename(targets, _SELECTOR[source], _SELECTOR[target])
    status = object_at(obj, "status")
    conditions = status.get("conditions") if status is not None else None
    for condition in conditions if isinstance(conditions, list) else ():
        if isinstance(condition, dict):
            rename(condition, _NAMESPACES[source], _NAMESPACES[target])
    return _written_out(obj, _SELECTOR[target])


def _written_out(obj: dict[str, Any], selector: str) -> dict[str, Any]:
    """Remove empty lists of names; add missing namespace lists and a missing selector as empty objects. [RD-1]"""
    targets = object_at(object_at(obj, "spec"), "targets")
    if targets is None:
        return obj
    for name in (*_LISTS, selector):
        if targets.get(name) is None:
            targets[name] = {}
    for name in _LISTS:
        names = targets[name]
        if isinstance(names, dict) and "list" in names and not names["list"]:
            targets[name] = {key: json_copy(value) for key, value in names.items() if key != "list"}
    if targets.get("allNamespaces") is False:
        del targets["allNamespaces"]
    return obj


_COLUMNS: Final = (
    PrinterColumn("TOTAL", "integer", ".status.desired", "Number of target namespaces."),
    PrinterColumn("SUCCEED", "integer", ".status.succeeded", "Number of namespaces with an up-to-date copy."),
    PrinterColumn("FAILED", "integer", ".status.failed", "Number of namespaces without an up-to-date copy."),
)

RESOURCE_DISTRIBUTION: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="ResourceDistribution",
    plural="resourcedistributions",
    access=Access("holds the content of Secrets and writes it to other namespaces"),
    namespaced=False,
    short_names=("distributor",),
    versions=(
        Version(names.V1BETA1, ResourceDistribution, _COLUMNS, canonical=canonical_v1beta1),
        Version(
            names.V1ALPHA1,
            ResourceDistributionV1Alpha1,
            _COLUMNS,
            to_hub=to_v1beta1,
            from_hub=to_v1alpha1,
            canonical=canonical_v1alpha1,
        ),
    ),
)
