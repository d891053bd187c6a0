"""UnitedDeployment between its versions (UD-3). The status has another form, and CloneSets in it another strategy."""

from __future__ import annotations

from typing import Any

from app.api.cloneset.conversion import ROLLING_FIELDS
from app.api.cloneset.types import POD_UPDATE_POLICIES, RECREATE, ROLLING_UPDATE
from app.api.uniteddeployment.types import CLONE_SET


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """From v1alpha1 to the hub."""
    _nest_strategy(obj)
    status = _part(obj, "status")
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
    """From the hub to v1alpha1."""
    scale = _part(_clone_set_spec(obj), "scaleStrategy")
    if scale is not None and scale.get("enablePVCReuse") is False:
        del scale["enablePVCReuse"]
    status = _part(obj, "status")
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
    """The hub with the defaults written out that every conversion writes."""
    _nest_strategy(obj)
    return obj


def canonical_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """v1alpha1 as it comes back from the hub."""
    return to_v1alpha1(to_v1beta1(obj))


def _nest_strategy(obj: dict[str, Any]) -> None:
    """A CloneSet template that v1alpha1 wrote with a flat strategy gets that of v1beta1."""
    spec = _clone_set_spec(obj)
    if spec is None:
        return
    scale = _part(spec, "scaleStrategy")
    if scale is not None and "enablePVCReuse" not in scale:
        scale["enablePVCReuse"] = False
    strategy = _part(spec, "updateStrategy")
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
        strategy["rollingUpdate"] = {**(_part(strategy, "rollingUpdate") or {}), **flat}


def _clone_set_spec(obj: dict[str, Any]) -> dict[str, Any] | None:
    """The spec of a CloneSet template, as a copy in its place: templates are shared with what is converted."""
    place: Any = obj.get("spec")
    for name in ("template", CLONE_SET, "spec"):
        part = _part(place, name)
        if part is None:
            return None
        place[name] = part = {
            key: dict(value) if key in ("scaleStrategy", "updateStrategy") and isinstance(value, dict) else value
            for key, value in part.items()
        }
        place = part
    return place if isinstance(place, dict) else None


def _part(obj: Any, name: str) -> dict[str, Any] | None:
    part = obj.get(name) if isinstance(obj, dict) else None
    return part if isinstance(part, dict) else None
