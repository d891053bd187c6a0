"""The scale subresource: what ``autoscaling/v1 Scale`` says of an object, and what it changes. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from app.kube.selectors import SelectorError, to_query
from app.sandbox.apiserver.fieldsets import has
from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.managing import Managed

Json: TypeAlias = dict[str, Any]
Place: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where a kind keeps its replicas, wanted and there, and its selector."""

    wanted: Place = ("spec", "replicas")
    present: Place = ("status", "replicas")
    selector: Place = ("spec", "selector")


BUILT_IN: Final = ScalePaths()


def paths_of(resource: ResourceType) -> ScalePaths:
    """The places for a resource that has a scale."""
    return resource.custom.scale if resource.custom is not None and resource.custom.scale else BUILT_IN


def value_at(obj: Mapping[str, Any], place: Place) -> Any:
    """What stands there; None where nothing does."""
    found: Any = obj
    for key in place:
        found = found.get(key) if isinstance(found, Mapping) else None
    return found


def scale_of(obj: Mapping[str, Any], paths: ScalePaths) -> Json:
    """The Scale of an object."""
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
        selector = {"matchLabels": selector}  # a ReplicationController's
    try:
        return to_query(selector)
    except SelectorError:
        return ""


def scaled(obj: Json, scale: Mapping[str, Any], paths: ScalePaths) -> Json:
    """The object with the replicas a Scale asks for, and its resourceVersion if it names one. ``obj`` is changed."""
    target = obj
    for key in paths.wanted[:-1]:
        target = target.setdefault(key, {})
    target[paths.wanted[-1]] = (scale.get("spec") or {}).get("replicas") or 0
    version = (scale.get("metadata") or {}).get("resourceVersion")
    if version:
        obj["metadata"]["resourceVersion"] = version
    return obj


def scale_managed(managed: Managed | None, paths: ScalePaths) -> Managed | None:
    """Who manages the replicas, as a Scale says it."""
    path = tuple(f"f:{name}" for name in paths.wanted)
    found = [
        replace(one, api_version="autoscaling/v1", fields={"f:spec": {"f:replicas": {}}})
        for one in (managed.managers if managed is not None else ())
        if has(one.fields or {}, path)
    ]
    return Managed(found) if found else None
