"""Converts objects between versions: autoscalers, events and custom resources."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import orjson

from app.sandbox.apiserver.kinds import ResourceType
from app.sandbox.apiserver.storage import Core, Entry
from app.sandbox.apiserver.watching import Convert

# HorizontalPodAutoscalers: ``autoscaling/v1`` supports only CPU utilization. Annotations preserve everything else.

Json: TypeAlias = dict[str, Any]

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_METRICS: Final = f"{_PREFIX}metrics"
_BEHAVIOR: Final = f"{_PREFIX}behavior"


def simple(scaler: Json) -> Json:
    """Convert an autoscaler from v2 to v1."""
    spec, status = dict(scaler.get("spec") or {}), dict(scaler.get("status") or {})
    metrics = spec.pop("metrics", None) or []
    cpu = next((one for one in metrics if _is_cpu(one)), None)
    if cpu is not None:
        spec["targetCPUUtilizationPercentage"] = cpu["resource"]["target"]["averageUtilization"]
    kept: dict[str, Any] = {_METRICS: [one for one in metrics if one is not cpu], _BEHAVIOR: spec.pop("behavior", None)}
    current = status.pop("currentMetrics", None) or []
    for one in current:
        resource = one.get("resource") or {}
        if resource.get("name") == "cpu" and "averageUtilization" in (resource.get("current") or {}):
            status["currentCPUUtilizationPercentage"] = resource["current"]["averageUtilization"]
    shown = {"currentReplicas": 0, "desiredReplicas": 0, **status}
    shown.pop("conditions", None)
    annotations = {key: orjson.dumps(value).decode() for key, value in kept.items() if value}
    return _as("autoscaling/v1", scaler, spec, shown, annotations)


def full(scaler: Json) -> Json:
    """Convert an autoscaler from v1 to v2."""
    spec, status = dict(scaler.get("spec") or {}), dict(scaler.get("status") or {})
    annotations = scaler["metadata"].get("annotations") or {}
    metrics = orjson.loads(annotations.get(_METRICS, "[]"))
    share = spec.pop("targetCPUUtilizationPercentage", None)
    if share is not None:
        metrics.insert(0, _cpu("target", {"type": "Utilization", "averageUtilization": share}))
    if metrics:
        spec["metrics"] = metrics
    if _BEHAVIOR in annotations:
        spec["behavior"] = orjson.loads(annotations[_BEHAVIOR])
    current = status.pop("currentCPUUtilizationPercentage", None)
    status.setdefault("desiredReplicas", 0)
    status["currentMetrics"] = None if current is None else [_cpu("current", {"averageUtilization": current})]
    return _as("autoscaling/v2", scaler, spec, status, {})


def _cpu(name: str, value: Json) -> Json:
    return {"type": "Resource", "resource": {"name": "cpu", name: value}}


def _is_cpu(metric: Json) -> bool:
    resource = metric.get("resource") or {}
    return resource.get("name") == "cpu" and "averageUtilization" in (resource.get("target") or {})


def _as(api_version: str, scaler: Json, spec: Json, status: Json, annotations: dict[str, str]) -> Json:
    metadata = dict(scaler["metadata"])
    others = {
        key: text for key, text in (metadata.pop("annotations", None) or {}).items() if not key.startswith(_PREFIX)
    }
    if found := {**others, **annotations}:
        metadata["annotations"] = found
    return {
        "kind": scaler.get("kind", ""),
        "apiVersion": api_version,
        "metadata": metadata,
        "spec": spec,
        "status": status,
    }


#: Fields of v1 that events.k8s.io/v1 renames.
_NAMES: Final[Mapping[str, str]] = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}


def new_event(event: Json) -> Json:
    """Convert an Event from v1 to ``events.k8s.io/v1``."""
    empty: Json = {"deprecatedSource": {}, "deprecatedFirstTimestamp": None, "deprecatedLastTimestamp": None}
    found = _renamed(event, _NAMES, "events.k8s.io/v1")
    return {**found, **{name: value for name, value in empty.items() if name not in found}}


def core_event(event: Json) -> Json:
    """Convert an Event from ``events.k8s.io/v1`` to v1."""
    return _renamed(event, {new: old for old, new in _NAMES.items()}, "v1")


def _renamed(event: Json, names: Mapping[str, str], api_version: str) -> Json:
    found = {names.get(key, key): value for key, value in event.items()}
    return {"kind": "Event", "apiVersion": api_version, "metadata": event["metadata"]} | {
        key: value for key, value in found.items() if key not in ("kind", "apiVersion", "metadata")
    }


#: Calls a webhook to convert objects of a resource to an apiVersion.
Converter: TypeAlias = Callable[[ResourceType, Sequence[Json], str], Awaitable[list[Json]]]


class Versions:
    """Converts objects between the stored and the requested version."""

    def __init__(self, core: Core) -> None:
        self._core = core
        #: None if webhooks cannot be called.
        self.webhook: Converter | None = None

    async def shown(self, resource: ResourceType, entries: Sequence[Entry]) -> Sequence[Entry]:
        """Return the entries, converted to the version of ``resource``."""
        wanted = resource.api_version
        missing = [
            entry
            for entry in entries
            if entry.api_version != wanted and (entry.converted is None or wanted not in entry.converted)
        ]
        if missing:
            objects = await self.convert(resource, [entry.obj for entry in missing], wanted)
            for entry, obj in zip(missing, objects, strict=True):
                shown = Entry(entry.key, obj, entry.revision, entry.managed)
                entry.converted = {**(entry.converted or {}), wanted: shown}
        return [
            entry if entry.api_version == wanted else (entry.converted or {}).get(wanted, entry) for entry in entries
        ]

    async def stored(self, resource: ResourceType, obj: Json) -> Json:
        """Return an object of ``resource``, converted to the storage version."""
        if resource.api_version == resource.stored_api_version:
            return obj
        return (await self.convert(resource, [obj], resource.stored_api_version))[0]

    def watched(self, resource: ResourceType) -> Convert | None:
        """Return the conversion for a watch on ``resource``, or None if it watches the storage version."""
        collection = self._core.collection(resource)
        alike = resource.api_version == resource.stored_api_version
        if alike and all(entry.api_version == resource.api_version for entry in collection.objects.values()):
            return None

        async def convert(entries: Sequence[Entry]) -> Sequence[Entry]:
            return await self.shown(resource, entries)

        return convert

    async def convert(self, resource: ResourceType, objects: Sequence[Json], wanted: str) -> list[Json]:
        """Convert objects to the requested version. A webhook can change only labels and annotations in the
        metadata."""
        if resource.key == "events":
            view = new_event if wanted == "events.k8s.io/v1" else core_event
            return [view(obj) for obj in objects]
        if resource.qualified == "horizontalpodautoscalers.autoscaling":
            show = full if wanted == "autoscaling/v2" else simple
            return [obj if obj.get("apiVersion", resource.api_version) == wanted else show(obj) for obj in objects]
        if resource.custom is None or resource.custom.conversion is None or self.webhook is None:
            return [{**obj, "apiVersion": wanted} for obj in objects]
        differing = [obj for obj in objects if obj.get("apiVersion", resource.api_version) != wanted]
        converted = iter(await self.webhook(resource, differing, wanted) if differing else [])
        return [
            _merged_metadata(obj, next(converted)) if obj.get("apiVersion", resource.api_version) != wanted else obj
            for obj in objects
        ]


def _merged_metadata(old: Mapping[str, Any], new: Json) -> Json:
    """Return the old metadata with the new labels and annotations; a conversion may change nothing else."""
    metadata = dict(old.get("metadata") or {})
    for part in ("labels", "annotations"):
        metadata.pop(part, None)
        if found := (new.get("metadata") or {}).get(part):
            metadata[part] = found
    return {**new, "metadata": metadata}
