"""What a CloneSet means where it says nothing (CS-13 … CS-18). Pure functions on the JSON of either version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.cloneset.conversion import ROLLING_FIELDS
from app.api.cloneset.types import IN_PLACE_POLICIES, ON_DELETE, RECREATE, ROLLING_UPDATE
from app.api.core_defaults import completed_template, default_claim_template, objects
from app.api.jsonvalue import fill, json_copy, part

REPLICAS: Final = 1
REVISION_HISTORY_LIMIT: Final = 10
PARTITION: Final = 0
MAX_UNAVAILABLE: Final = "20%"
MAX_SURGE: Final = 0


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The CloneSet (JSON of either version) with the defaults of its own fields, as a copy.

    Doing it twice changes nothing. What has another type than the schema says is left alone, for validation to name.
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
    """CS-14. OpenKruise refuses OnDelete in v1alpha1; it gets what makes it legal in v1beta1 too (CS-31, CS-34)."""
    if not strategy.get("type"):
        strategy["type"] = RECREATE
    if strategy["type"] != ON_DELETE:
        _default_rolling(strategy, strategy["type"])
    elif any(strategy.get(field) is not None for field in ROLLING_FIELDS):
        fill(strategy, {"partition": PARTITION})
        if replicas and strategy.get("maxSurge") is None:
            fill(strategy, {"maxUnavailable": MAX_UNAVAILABLE})


def _default_strategy(strategy: dict[str, Any]) -> None:
    """CS-15."""
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


def default_templates(
    spec: dict[str, Any], former: Mapping[str, Any] | None = None, *, host_ports: bool = False
) -> None:
    """Fill the defaults of the Pod template and the claim templates into ``spec``. [CS-16, CS-17]

    ``former``: the stored spec, whose template stays if nothing but defaults differ.
    """
    template = part(spec, "template")
    if template is not None:
        spec["template"] = completed_template(template, (former or {}).get("template"), host_ports=host_ports)
    for claim in objects(spec.get("volumeClaimTemplates")):
        default_claim_template(claim)
