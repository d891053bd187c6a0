"""DaemonSet between its versions (DS-1 … DS-3).

Each direction may lose something; app.api.conversion notices and remembers it (D-1).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.api import names
from app.api.daemonset.types import STANDARD, SURGING


def to_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """DS-1."""
    spec, status = _object(obj, "spec"), _object(obj, "status")
    if status is not None and "daemonSetHash" in status:
        status["updateRevision"] = status.pop("daemonSetHash")
    if spec is None:
        return obj
    rolling = _object(_object(spec, "updateStrategy") or {}, "rollingUpdate")
    if rolling is not None and rolling.get("rollingUpdateType") == SURGING:
        rolling["rollingUpdateType"] = STANDARD
    if _annotations(obj).get(names.PROGRESSIVE_CREATE_POD) == "true":
        spec["scaleStrategy"] = {"partitionedScaling": True}
    return obj


def to_v1alpha1(obj: dict[str, Any]) -> dict[str, Any]:
    """DS-2."""
    spec, status = _object(obj, "spec"), _object(obj, "status")
    if status is not None and "updateRevision" in status:
        status["daemonSetHash"] = status.pop("updateRevision")
    if spec is None:
        return obj
    scale, annotations = spec.pop("scaleStrategy", None), _annotations(obj)
    if isinstance(scale, dict) and scale.get("partitionedScaling") is True:
        obj.setdefault("metadata", {})["annotations"] = {**annotations, names.PROGRESSIVE_CREATE_POD: "true"}
    elif annotations.get(names.PROGRESSIVE_CREATE_POD) == "true":
        # What the field says no longer must not come back with the next write in this version.
        del annotations[names.PROGRESSIVE_CREATE_POD]
        if not annotations:
            del obj["metadata"]["annotations"]
    return obj


def canonical_v1beta1(obj: dict[str, Any]) -> dict[str, Any]:
    """One way of saying that Pods are not held back: by silence."""
    spec = _object(obj, "spec")
    scale = _object(spec, "scaleStrategy") if spec is not None else None
    if spec is not None and scale is not None and scale.get("partitionedScaling") is False:
        del scale["partitionedScaling"]
    return obj


def _annotations(obj: Mapping[str, Any]) -> dict[str, Any]:
    return _object(_object(obj, "metadata") or {}, "annotations") or {}


def _object(parent: Mapping[str, Any], key: str) -> dict[str, Any] | None:
    value = parent.get(key)
    return value if isinstance(value, dict) else None
