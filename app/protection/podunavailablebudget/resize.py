"""What an update of a Pod is to a budget: nothing, an update, or a resize that restarts nothing (PUB-62, PUB-66). Pure.

Pods are the raw JSON of a review, which may hold anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from app.api import names
from app.api.podunavailablebudget import ProtectedOperation
from app.kube.patches import same
from app.protection.podunavailablebudget.podstate import unavailable_labels

_RESIZABLE: Final = frozenset({"cpu", "memory"})
_NOTHING: Final[Mapping[str, Any]] = {}


def update_operation(old: Mapping[str, Any], new: Mapping[str, Any]) -> ProtectedOperation | None:
    """PUB-62, PUB-66: what the update is judged as; None where nothing changes that could hurt."""
    marked = not unavailable_labels(_labels(old)) and bool(unavailable_labels(_labels(new)))
    before, after = _object(old.get("spec")), _object(new.get("spec"))
    if same(before, after):
        return ProtectedOperation.UPDATE if marked else None
    if marked or not _only_resized(old, new, before, after):
        return ProtectedOperation.UPDATE
    return ProtectedOperation.RESIZE


def _only_resized(
    old: Mapping[str, Any], new: Mapping[str, Any], before: Mapping[str, Any], after: Mapping[str, Any]
) -> bool:
    if _is_static(old) or _is_static(new):
        return False
    if not same(_without_resources(before), _without_resources(after)) or _qos(before) != _qos(after):
        return False
    pairs = zip(_objects(before.get("containers")), _objects(after.get("containers")), strict=True)
    return all(_restarts_nothing(one, other) for one, other in pairs)


def _without_resources(spec: Mapping[str, Any]) -> dict[str, Any]:
    containers = [
        {key: value for key, value in container.items() if key != "resources"}
        for container in _objects(spec.get("containers"))
    ]
    return {**spec, "containers": containers}


def _restarts_nothing(old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    before, after = _object(old.get("resources")), _object(new.get("resources"))
    if not same(_rest(before), _rest(after)):
        return False
    changed = {
        name
        for field in ("limits", "requests")
        for name in _object(before.get(field)).keys() | _object(after.get(field)).keys()
        if _object(before.get(field)).get(name) != _object(after.get(field)).get(name)
    }
    restarting = {
        policy.get("resourceName")
        for policy in _objects(new.get("resizePolicy"))
        if policy.get("restartPolicy") not in (None, "", "NotRequired")
    }
    return changed <= _RESIZABLE and changed.isdisjoint(restarting)


def _rest(resources: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in resources.items() if key not in ("limits", "requests")}


def _is_static(pod: Mapping[str, Any]) -> bool:
    annotations = _object(_object(pod.get("metadata")).get("annotations"))
    return names.MIRROR_POD in annotations or annotations.get("kubernetes.io/config.source", "api") != "api"


def _qos(spec: Mapping[str, Any]) -> str:
    """The quality of service class, by cpu and memory of all containers."""
    anything, guaranteed = False, True
    for container in (*_objects(spec.get("containers")), *_objects(spec.get("initContainers"))):
        resources = _object(container.get("resources"))
        limits, requests = _object(resources.get("limits")), _object(resources.get("requests"))
        for name in _RESIZABLE:
            limit, request = limits.get(name), requests.get(name)
            anything = anything or limit is not None or request is not None
            guaranteed = guaranteed and limit is not None and request in (None, limit)
    if not anything:
        return "BestEffort"
    return "Guaranteed" if guaranteed else "Burstable"


def _labels(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return _object(_object(pod.get("metadata")).get("labels"))


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else _NOTHING


def _objects(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, Iterable) else []
