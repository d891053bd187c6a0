"""What a DaemonSet means where it says nothing (DS-4 … DS-7). Pure functions on the JSON of either version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.daemonset.types import ROLLING_UPDATE, STANDARD, SURGING
from app.api.jsonvalue import fill, json_copy, part

BURST_REPLICAS: Final = 250
REVISION_HISTORY_LIMIT: Final = 10


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The DaemonSet (JSON of either version) with the defaults of its own fields, as a copy; the template stays as it
    is (DS-7).

    Doing it twice changes nothing. What has another type than the schema says is left alone, for validation to name.
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
        return defaulted  # DS-6
    if str(defaulted.get("apiVersion")).endswith(f"/{names.V1ALPHA1}") and rolling.get("rollingUpdateType") == SURGING:
        # DS-5
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
