"""UnitedDeployment kind: its versions, conversion, columns and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.core.defaults import completed_template, default_claim_template
from app.api.fields import POD_UPDATE_POLICIES, RECREATE, ROLLING_UPDATE
from app.api.gojson import normalized
from app.api.gopod import POD_TEMPLATE
from app.api.kind import AGE, ANY_KEY, Access, KindDefinition, PrinterColumn, Scale, Version, noted
from app.features.cloneset.kind import ROLLING_FIELDS
from app.features.uniteddeployment.types import (
    ADVANCED_STATEFUL_SET,
    CLONE_SET,
    DEPLOYMENT,
    MANUAL,
    STATEFUL_SET,
    TEMPLATES,
    UnitedDeployment,
    UnitedDeploymentV1Alpha1,
)
from app.kube.jsonvalues import json_copy, object_at, objects

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
    """Copy the spec of a CloneSet template in place, because templates are shared with the input, and return it."""
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
#: The status holds the replicas of subsets in a different form; the spec loses nothing.
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


# Defaults of a UnitedDeployment. Pure functions on the JSON of either version. [UD-4 … UD-6]

REPLICAS: Final = 1
REVISION_HISTORY_LIMIT: Final = 10
#: Structs of a workload's spec that Go marshals even if they are empty.
_ALWAYS_PRINTED: Final[Mapping[str, tuple[str, ...]]] = {
    STATEFUL_SET: ("updateStrategy",),
    ADVANCED_STATEFUL_SET: ("updateStrategy", "volumeClaimUpdateStrategy"),
    CLONE_SET: ("scaleStrategy", "updateStrategy"),
    DEPLOYMENT: ("strategy",),
}


def with_defaults(
    obj: Mapping[str, Any],
    *,
    default_templates: bool = True,
    former: Mapping[str, Any] | None = None,
    host_ports: bool = False,
) -> dict[str, Any]:
    """Return a copy of the UnitedDeployment with its defaults and without a status. [UD-4]

    ``default_templates``: whether to default the Pod and claim templates of a StatefulSet template. [UD-5] ``former``
    is the stored object; its Pod template is kept if the two differ only in defaults. Values of the wrong type are left
    for validation to report.
    """
    defaulted: dict[str, Any] = json_copy({key: value for key, value in obj.items() if key != "status"})
    spec = object_at(defaulted, "spec")
    if spec is None:
        return defaulted
    if spec.get("replicas") is None:
        spec["replicas"] = REPLICAS
    if spec.get("revisionHistoryLimit") is None:
        spec["revisionHistoryLimit"] = REVISION_HISTORY_LIMIT
    strategy = _filled(spec, "updateStrategy")
    if strategy is not None:
        strategy["type"] = strategy.get("type") or MANUAL
        if strategy["type"] == MANUAL:
            _filled(strategy, "manualUpdate")
    _default_least(object_at(spec, "topology"))
    if default_templates:
        stored = object_at(_stateful_set(object_at(former, "spec")), "template")
        _default_stateful_set(_stateful_set(spec), stored, host_ports=host_ports)
    return defaulted


def as_printed(obj: dict[str, Any]) -> dict[str, Any]:
    """Return the object as OpenKruise stores it, including unset fields that Go marshals. Raises GoTypeError."""
    spec = object_at(obj, "spec")
    topology = object_at(spec, "topology")
    if topology is not None:
        _filled(topology, "scheduleStrategy")
        if topology.get("subsets") == []:
            del topology["subsets"]
        for subset in objects(topology.get("subsets")):
            _filled(subset, "nodeSelectorTerm")
    for name in TEMPLATES:
        workload = object_at(object_at(object_at(spec, "template"), name), "spec")
        if workload is None:
            continue
        for field in _ALWAYS_PRINTED[name]:
            _filled(workload, field)
        scale = object_at(workload, "scaleStrategy")
        if scale is not None and str(obj.get("apiVersion")).endswith(f"/{names.V1BETA1}"):
            scale.setdefault("enablePVCReuse", False)
        if isinstance(workload.get("template"), dict):
            workload["template"] = normalized(POD_TEMPLATE, workload["template"], f"spec.template.{name}.spec.template")
    return obj


def _default_least(topology: dict[str, Any] | None) -> None:
    """Set the default of minReplicas. [UD-6]"""
    subsets = list(objects(topology.get("subsets"))) if topology is not None else []
    given = [
        field for one in subsets for field in ("replicas", "minReplicas", "maxReplicas") if one.get(field) is not None
    ]
    if given and "replicas" not in given:
        for one in subsets:
            if one.get("minReplicas") is None:
                one["minReplicas"] = 0


def _stateful_set(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    return object_at(object_at(object_at(spec, "template"), STATEFUL_SET), "spec")


def _default_stateful_set(spec: dict[str, Any] | None, former: dict[str, Any] | None, *, host_ports: bool) -> None:
    """Set the defaults of a StatefulSet template. [UD-5]"""
    if spec is None:
        return
    template = object_at(spec, "template")
    if template is not None:
        spec["template"] = completed_template(template, former, host_ports=host_ports)
    for claim in objects(spec.get("volumeClaimTemplates")):
        default_claim_template(claim)


def _filled(obj: dict[str, Any], name: str) -> dict[str, Any] | None:
    """Return the field, created if it is missing; None if it has the wrong type."""
    if obj.get(name) is None:
        obj[name] = {}
    return object_at(obj, name)
