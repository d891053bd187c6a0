"""What a UnitedDeployment means where it says nothing (UD-4 … UD-6). Pure functions on the JSON of either version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.core_defaults import completed_template, default_claim_template, objects
from app.api.gojson import normalized
from app.api.gopod import POD_TEMPLATE
from app.api.jsonvalue import json_copy
from app.api.uniteddeployment.types import (
    ADVANCED_STATEFUL_SET,
    CLONE_SET,
    DEPLOYMENT,
    MANUAL,
    STATEFUL_SET,
    TEMPLATES,
)

REPLICAS: Final = 1
REVISION_HISTORY_LIMIT: Final = 10
#: Structs of a workload's spec that Go prints though they are empty.
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

    ``default_templates``: whether Pod and claim templates of a StatefulSet template get theirs. [UD-5] ``former``: the
    stored object, whose Pod template stays if nothing but defaults differ. Values of another type than the schema has
    are left for validation to name.
    """
    defaulted: dict[str, Any] = json_copy({key: value for key, value in obj.items() if key != "status"})
    spec = _part(defaulted, "spec")
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
    _default_least(_part(spec, "topology"))
    if default_templates:
        stored = _part(_stateful_set(_part(former, "spec")), "template")
        _default_stateful_set(_stateful_set(spec), stored, host_ports=host_ports)
    return defaulted


def as_printed(obj: dict[str, Any]) -> dict[str, Any]:
    """The object as OpenKruise stores it: with the parts that Go prints though nobody gave them. Raises GoTypeError."""
    spec = _part(obj, "spec")
    topology = _part(spec, "topology")
    if topology is not None:
        _filled(topology, "scheduleStrategy")
        if topology.get("subsets") == []:
            del topology["subsets"]
        for subset in objects(topology.get("subsets")):
            _filled(subset, "nodeSelectorTerm")
    for name in TEMPLATES:
        workload = _part(_part(_part(spec, "template"), name), "spec")
        if workload is None:
            continue
        for field in _ALWAYS_PRINTED[name]:
            _filled(workload, field)
        scale = _part(workload, "scaleStrategy")
        if scale is not None and str(obj.get("apiVersion")).endswith(f"/{names.V1BETA1}"):
            scale.setdefault("enablePVCReuse", False)
        if isinstance(workload.get("template"), dict):
            workload["template"] = normalized(POD_TEMPLATE, workload["template"], f"spec.template.{name}.spec.template")
    return obj


def _default_least(topology: dict[str, Any] | None) -> None:
    """UD-6."""
    subsets = list(objects(topology.get("subsets"))) if topology is not None else []
    given = [
        field for one in subsets for field in ("replicas", "minReplicas", "maxReplicas") if one.get(field) is not None
    ]
    if given and "replicas" not in given:
        for one in subsets:
            if one.get("minReplicas") is None:
                one["minReplicas"] = 0


def _stateful_set(spec: dict[str, Any] | None) -> dict[str, Any] | None:
    return _part(_part(_part(spec, "template"), STATEFUL_SET), "spec")


def _default_stateful_set(spec: dict[str, Any] | None, former: dict[str, Any] | None, *, host_ports: bool) -> None:
    """UD-5."""
    if spec is None:
        return
    template = _part(spec, "template")
    if template is not None:
        spec["template"] = completed_template(template, former, host_ports=host_ports)
    for claim in objects(spec.get("volumeClaimTemplates")):
        default_claim_template(claim)


def _part(obj: Any, name: str) -> dict[str, Any] | None:
    part = obj.get(name) if isinstance(obj, dict) else None
    return part if isinstance(part, dict) else None


def _filled(obj: dict[str, Any], name: str) -> dict[str, Any] | None:
    """The part, made where it is missing; None for one of another type."""
    if obj.get(name) is None:
        obj[name] = {}
    return _part(obj, name)
