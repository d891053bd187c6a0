"""Defaults of a DaemonSet. Pure functions on the JSON of either version. [DS-4 … DS-7]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.features.daemonset.types import ROLLING_UPDATE, STANDARD, SURGING
from app.kube.jsonvalues import fill, json_copy, part

BURST_REPLICAS: Final = 250
REVISION_HISTORY_LIMIT: Final = 10


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the DaemonSet (JSON of either version) with defaults for its own fields, but not for its
    template. [DS-7]

    Idempotent. Values of the wrong type are left for validation to report.
    """
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = part(defaulted, "spec")
    if spec is None:
        return defaulted
    fill(spec, {"burstReplicas": BURST_REPLICAS, "revisionHistoryLimit": REVISION_HISTORY_LIMIT})
    strategy = part(spec, "updateStrategy")
    if strategy is None:
        return defaulted
    if not strategy.get("type"):
        strategy["type"] = ROLLING_UPDATE
    rolls = strategy["type"] == ROLLING_UPDATE
    rolling = part(strategy, "rollingUpdate") if rolls else strategy.get("rollingUpdate")
    if not isinstance(rolling, dict):
        return defaulted  # [DS-6]
    if str(defaulted.get("apiVersion")).endswith(f"/{names.V1ALPHA1}") and rolling.get("rollingUpdateType") == SURGING:
        # [DS-5]
        if rolls:
            fill(rolling, {"maxSurge": 1, "maxUnavailable": 0})
        rolling["rollingUpdateType"] = STANDARD
    if rolls:
        _default_rolling(rolling)
    return defaulted


def _default_rolling(rolling: dict[str, Any]) -> None:
    if not rolling.get("rollingUpdateType"):
        rolling["rollingUpdateType"] = STANDARD
    if rolling.get("maxUnavailable") is None and rolling.get("maxSurge") is None:
        rolling.update(maxUnavailable=1, maxSurge=0)
