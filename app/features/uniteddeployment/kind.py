"""Kind definition of UnitedDeployment: versions, conversion and columns."""

from __future__ import annotations

from typing import Any, Final

from app.api import names
from app.api.fields import POD_UPDATE_POLICIES, RECREATE, ROLLING_UPDATE
from app.api.kind import AGE, ANY_KEY, Access, KindDefinition, PrinterColumn, Scale, Version, noted
from app.features.cloneset.kind import ROLLING_FIELDS
from app.features.uniteddeployment.types import CLONE_SET, UnitedDeployment, UnitedDeploymentV1Alpha1
from app.kube.jsonvalues import object_at

# Conversion of UnitedDeployments between versions. The status is structured differently, and CloneSet templates have a
# different update strategy. [UD-3]


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert a v1alpha1 object to v1beta1."""
    _nest_strategy(obj)
    status = object_at(obj, "status")
    if status is None:
        return obj
    replicas, update = status.pop("subsetReplicas", None), status.pop("updateStatus", None)
    update = update if isinstance(update, dict) else {}
    if update.get("updatedRevision"):
        status["updatedRevision"] = update["updatedRevision"]
    entries = status.get("subsetStatuses")
    listed = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    by_name = {one["name"]: one for one in reversed(listed) if isinstance(one.get("name"), str)}
    for field, values in (("replicas", replicas), ("partition", update.get("currentPartitions"))):
        for name, value in values.items() if isinstance(values, dict) else ():
            entry = by_name.get(name)
            if entry is None:
                listed.append(entry := {"name": name})
                by_name[name] = entry
            entry[field] = value
    if listed:
        status["subsetStatuses"] = listed
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Convert a v1beta1 object to v1alpha1."""
    scale = object_at(_clone_set_spec(obj), "scaleStrategy")
    if scale is not None and scale.get("enablePVCReuse") is False:
        del scale["enablePVCReuse"]
    status = object_at(obj, "status")
    if status is None:
        return obj
    entries = status.get("subsetStatuses")
    listed = [one for one in entries if isinstance(one, dict)] if isinstance(entries, list) else []
    named = [one for one in listed if isinstance(one.get("name"), str) and one["name"]]
    updated = status.pop("updatedRevision", "")
    if named:
        status["subsetReplicas"] = {one["name"]: one.get("replicas") or 0 for one in named}
    if updated or named:
        update: dict[str, Any] = {"updatedRevision": updated or ""}
        if named:
            update["currentPartitions"] = {one["name"]: one.get("partition") or 0 for one in named}
        status["updateStatus"] = update
    return obj


def canonical_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the v1beta1 object with the defaults that every conversion writes."""
    _nest_strategy(obj)
    return obj


def canonical_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the v1alpha1 object after a round trip through v1beta1."""
    return to_v1alpha1(to_v1beta1(obj))


def _nest_strategy(obj: dict[str, Any]) -> None:
    """Replace the flat v1alpha1 strategy of a CloneSet template with a v1beta1 strategy."""
    spec = _clone_set_spec(obj)
    if spec is None:
        return
    scale = object_at(spec, "scaleStrategy")
    if scale is not None and "enablePVCReuse" not in scale:
        scale["enablePVCReuse"] = False
    strategy = object_at(spec, "updateStrategy")
    if strategy is None:
        return
    flat = {name: strategy.pop(name) for name in ROLLING_FIELDS if name in strategy}
    policy = strategy.get("type")
    if not flat and policy not in POD_UPDATE_POLICIES:
        return
    if policy in POD_UPDATE_POLICIES or (not policy and flat):
        strategy["type"] = ROLLING_UPDATE
        flat["podUpdatePolicy"] = policy or RECREATE
    if strategy.get("type") == ROLLING_UPDATE:
        strategy["rollingUpdate"] = {**(object_at(strategy, "rollingUpdate") or {}), **flat}


def _clone_set_spec(obj: dict[str, Any]) -> dict[str, Any] | None:
    """Replace the CloneSet template's spec, which is shared with the input, with a copy, and return the copy."""
    place: Any = obj.get("spec")
    for name in ("template", CLONE_SET, "spec"):
        part = object_at(place, name)
        if part is None:
            return None
        place[name] = part = {
            key: dict(value) if key in ("scaleStrategy", "updateStrategy") and isinstance(value, dict) else value
            for key, value in part.items()
        }
        place = part
    return place if isinstance(place, dict) else None


_COLUMNS: Final = (
    PrinterColumn("DESIRED", "integer", ".spec.replicas", "Desired number of Pods."),
    PrinterColumn("CURRENT", "integer", ".status.replicas", "Number of Pods."),
    PrinterColumn("UPDATED", "integer", ".status.updatedReplicas", "Number of Pods at the updated revision."),
    PrinterColumn("READY", "integer", ".status.readyReplicas", "Number of ready Pods."),
    AGE,
)
_SCALE: Final = Scale(label_selector=".status.labelSelector")
#: Status fields that v1alpha1 represents differently. The spec converts without loss.
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
