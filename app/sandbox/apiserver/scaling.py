"""The scale subresource: reads ``autoscaling/v1 Scale`` from an object and applies it to the object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from app.kube.fielderrors import FieldError, invalid
from app.kube.selector_query import SelectorError
from app.kube.selectors import to_query
from app.sandbox.apiserver.fieldsets import has
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.managing import Managed

Json: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, ...]

_MAX_REPLICAS: Final = 2**31


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Paths of the desired replicas, current replicas and selector in a kind."""

    wanted: Place = ("spec", "replicas")
    present: Place = ("status", "replicas")
    selector: Place = ("spec", "selector")


BUILT_IN: Final = ScalePaths()


def paths_of(resource: ResourceType) -> ScalePaths:
    """Return the scale paths of a resource that has the subresource."""
    return resource.custom.scale if resource.custom is not None and resource.custom.scale else BUILT_IN


def value_at(obj: Mapping[str, Any], place: Place) -> Any:
    """Return the value at a path, or None."""
    found: Any = obj
    for key in place:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def scale_of(obj: Mapping[str, Any], paths: ScalePaths) -> Json:
    """Return the Scale of an object."""
    metadata = obj["metadata"]
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    replicas = value_at(obj, paths.wanted) or 0
    status: Json = {"replicas": value_at(obj, paths.present) or 0}
    if selector := _selector_text(value_at(obj, paths.selector) if paths.selector else None):
        status["selector"] = selector
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": replicas} if replicas else {},
        "status": status,
    }


def _selector_text(selector: Any) -> str:
    if isinstance(selector, str):
        return selector
    if not isinstance(selector, dict):
        return ""
    if selector and all(isinstance(value, str) for value in selector.values()):
        selector = {"matchLabels": selector}  # ReplicationController
    try:
        return to_query(selector)
    except SelectorError:
        return ""


def scaled(obj: Json, scale: Mapping[str, Any], paths: ScalePaths) -> Json:
    """Set the object's replicas, and its resourceVersion if given, from a Scale. Changes and returns ``obj``."""
    target = obj
    for key in paths.wanted[:-1]:
        target = target.setdefault(key, {})
    target[paths.wanted[-1]] = (scale.get("spec") or {}).get("replicas") or 0
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        obj["metadata"]["resourceVersion"] = version
    return obj


def scale_managed(managed: Managed | None, paths: ScalePaths) -> Managed | None:
    """Return the managers of the object's replicas as managers of the Scale's replicas."""
    path = tuple(f"f:{name}" for name in paths.wanted)
    found = [
        replace(one, api_version="autoscaling/v1", fields={"f:spec": {"f:replicas": {}}})
        for one in (managed.managers if managed is not None else ())
        if has(one.fields or {}, path)
    ]
    return Managed(found) if found else None


def replica_errors(obj: Mapping[str, Any], paths: ScalePaths) -> list[FieldError]:
    """Validate the replicas of a scalable custom resource.

    Source: apiextensions-apiserver/pkg/registry/customresource/validator.go.
    """
    found: list[FieldError] = []
    for place in (paths.wanted, paths.present):
        path = f".{'.'.join(place)}"
        value, why = _number_at(obj, place)
        if why:
            found.append(invalid(path, 0, why))
        elif value < 0:
            found.append(invalid(path, value, "should be a non-negative integer"))
        elif value >= _MAX_REPLICAS:
            found.append(invalid(path, value, f"should be less than or equal to {_MAX_REPLICAS - 1}"))
    return found


def _number_at(obj: Mapping[str, Any], place: Place) -> tuple[int, str]:
    """Return the number at a path (0 if missing), or an error message."""
    found: Any = obj
    for index, key in enumerate(place):
        if found is None:
            return 0, ""
        if not isinstance(found, Mapping):
            path = ".".join(place[: index + 1])
            why = f"{_shown(found)} is of the type {_go_type(found)}, expected map[string]interface{{}}"
            return 0, f".{path} accessor error: {why}"
        if key not in found:
            return 0, ""
        found = found[key]
    if isinstance(found, int) and not isinstance(found, bool) and -(2**63) <= found < 2**63:
        return found, ""
    return 0, f".{'.'.join(place)} accessor error: {_shown(found)} is of the type {_go_type(found)}, expected int64"


def _go_type(value: Any) -> str:
    match value:
        case bool():
            return "bool"
        case str():
            return "string"
        case list():
            return "[]interface {}"
        case None:
            return "<nil>"
        case Mapping():
            return "map[string]interface {}"
        case int() if -(2**63) <= value < 2**63:
            return "int64"
    return "float64"


def _shown(value: Any) -> str:
    """Return a value formatted like Go's %v."""
    match value:
        case bool():
            return str(value).lower()
        case None:
            return "<nil>"
        case list():
            return f"[{' '.join(_shown(item) for item in value)}]"
        case Mapping():
            return f"map[{' '.join(f'{key}:{_shown(item)}' for key, item in sorted(value.items()))}]"
        case int() | float() if _go_type(value) == "float64":
            return repr(float(value))
    return str(value)
