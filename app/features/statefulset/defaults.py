"""Defaults of an Advanced StatefulSet. Pure functions on the JSON of either version. [AS-5 … AS-14]"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.fields import ON_DELETE, RECREATE, ROLLING_UPDATE
from app.features.statefulset.types import ORDERED_READY, RETAIN
from app.kube.jsonvalues import json_copy

REPLICAS: Final = 1
MAX_UNAVAILABLE: Final = 1
REVISION_HISTORY_LIMIT: Final = 10
_ROLLING: Final = {"partition": 0, "maxUnavailable": MAX_UNAVAILABLE, "podUpdatePolicy": RECREATE, "minReadySeconds": 0}


@dataclass(frozen=True, slots=True)
class ClaimGates:
    """Gates that affect defaults for claims: StatefulSetAutoDeletePVC, StatefulSetAutoResizePVCGate."""

    auto_delete: bool = True
    auto_resize: bool = False


def with_defaults(obj: Mapping[str, Any], gates: ClaimGates) -> dict[str, Any]:
    """Return a copy of the object (JSON of either version) with defaults for its own fields, but not for its
    templates. Idempotent."""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = defaulted.get("spec")
    if not isinstance(spec, dict):
        return defaulted
    _fill(
        spec,
        {
            "podManagementPolicy": ORDERED_READY,
            "replicas": REPLICAS,
            "revisionHistoryLimit": REVISION_HISTORY_LIMIT,
            "updateStrategy": {},
        },
    )
    strategy = spec["updateStrategy"]
    if isinstance(strategy, dict):
        _fill(strategy, {"type": ROLLING_UPDATE})
        if strategy["type"] == ROLLING_UPDATE:
            _fill(strategy, {"rollingUpdate": {}})
            if isinstance(strategy["rollingUpdate"], dict):
                _fill(strategy["rollingUpdate"], _ROLLING)
    if str(defaulted.get("apiVersion")).endswith(f"/{names.V1ALPHA1}"):
        return defaulted  # [AS-13]
    if gates.auto_delete:
        _fill(spec, {"persistentVolumeClaimRetentionPolicy": {}})
        if isinstance(spec["persistentVolumeClaimRetentionPolicy"], dict):
            _fill(spec["persistentVolumeClaimRetentionPolicy"], {"whenDeleted": RETAIN, "whenScaled": RETAIN})
    if gates.auto_resize:
        _fill(spec, {"volumeClaimUpdateStrategy": {}})
        if isinstance(spec["volumeClaimUpdateStrategy"], dict):
            _fill(spec["volumeClaimUpdateStrategy"], {"type": ON_DELETE})
    return defaulted


def _fill(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Set values that are missing. If the default is a string, an empty string counts as missing, as in Go."""
    for key, value in values.items():
        if target.get(key) is None or (target[key] == "" and isinstance(value, str)):
            target[key] = json_copy(value)
