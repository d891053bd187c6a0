"""Defaults of a CloneSet. Pure functions on the JSON of either version. [CS-13 … CS-18]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.fields import IN_PLACE_POLICIES, ON_DELETE, RECREATE, ROLLING_UPDATE
from app.features.cloneset.kind import ROLLING_FIELDS
from app.kube.jsonvalues import fill, json_copy, part

REPLICAS: Final = 1
REVISION_HISTORY_LIMIT: Final = 10
PARTITION: Final = 0
MAX_UNAVAILABLE: Final = "20%"
MAX_SURGE: Final = 0


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the CloneSet (JSON of either version) with defaults for its own fields, but not for its
    templates.

    Idempotent. Values of the wrong type are left for validation to report.
    """
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = part(defaulted, "spec")
    if spec is None:
        return defaulted
    fill(spec, {"replicas": REPLICAS, "revisionHistoryLimit": REVISION_HISTORY_LIMIT})
    strategy = part(spec, "updateStrategy")
    if strategy is not None:
        if str(defaulted.get("apiVersion")).endswith(f"/{names.V1ALPHA1}"):
            _default_flat_strategy(strategy, spec["replicas"])
        else:
            _default_strategy(strategy)
    return defaulted


def _default_flat_strategy(strategy: dict[str, Any], replicas: Any) -> None:
    """Fill the defaults of a v1alpha1 strategy. OpenKruise rejects OnDelete in v1alpha1; here it is allowed, and gets
    the defaults that make it valid in v1beta1. [CS-14, CS-31, CS-34]"""
    if not strategy.get("type"):
        strategy["type"] = RECREATE
    if strategy["type"] != ON_DELETE:
        _default_rolling(strategy, strategy["type"])
    elif any(strategy.get(field) is not None for field in ROLLING_FIELDS):
        fill(strategy, {"partition": PARTITION})
        if replicas and strategy.get("maxSurge") is None:
            fill(strategy, {"maxUnavailable": MAX_UNAVAILABLE})


def _default_strategy(strategy: dict[str, Any]) -> None:
    """Fill the defaults of a v1beta1 strategy. [CS-15]"""
    if not strategy.get("type"):
        strategy["type"] = ROLLING_UPDATE
    if strategy["type"] != ROLLING_UPDATE:
        return
    rolling = part(strategy, "rollingUpdate")
    if rolling is not None:
        if not rolling.get("podUpdatePolicy"):
            rolling["podUpdatePolicy"] = RECREATE
        _default_rolling(rolling, rolling["podUpdatePolicy"])


def _default_rolling(rolling: dict[str, Any], policy: Any) -> None:
    fill(rolling, {"partition": PARTITION, "maxUnavailable": MAX_UNAVAILABLE, "maxSurge": MAX_SURGE})
    if policy in IN_PLACE_POLICIES:
        fill(rolling, {"inPlaceUpdateStrategy": {}})
