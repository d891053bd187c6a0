"""HorizontalPodAutoscalers in two versions: ``autoscaling/v1`` knows the share of CPU alone. Pure.

What v1 has no field for it carries in annotations, so that who writes v1 loses nothing.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import orjson

Json: TypeAlias = dict[str, Any]

_PREFIX: Final = "autoscaling.alpha.kubernetes.io/"
_METRICS: Final = f"{_PREFIX}metrics"
_BEHAVIOR: Final = f"{_PREFIX}behavior"


def simple(scaler: Json) -> Json:
    """A v2 autoscaler as v1."""
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
    """A v1 autoscaler as v2."""
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
