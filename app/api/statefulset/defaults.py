"""What an Advanced StatefulSet means where it says nothing (AS-5 … AS-14). Pure functions on the JSON of a version."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.core_defaults import completed_template, default_claim_template, objects
from app.api.in_place import ON_DELETE, RECREATE, ROLLING_UPDATE
from app.api.jsonvalue import json_copy
from app.api.statefulset.types import ORDERED_READY, RETAIN

REPLICAS: Final = 1
REVISION_HISTORY_LIMIT: Final = 10
_ROLLING: Final = {"partition": 0, "maxUnavailable": 1, "podUpdatePolicy": RECREATE, "minReadySeconds": 0}


@dataclass(frozen=True, slots=True)
class ClaimGates:
    """The gates that decide what is said of claims: StatefulSetAutoDeletePVC, StatefulSetAutoResizePVCGate."""

    auto_delete: bool = True
    auto_resize: bool = False


def with_defaults(obj: Mapping[str, Any], gates: ClaimGates) -> dict[str, Any]:
    """The object (JSON of either version) with the defaults of its own fields, as a copy. Twice changes nothing."""
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
        return defaulted  # AS-13
    if gates.auto_delete:
        _fill(spec, {"persistentVolumeClaimRetentionPolicy": {}})
        if isinstance(spec["persistentVolumeClaimRetentionPolicy"], dict):
            _fill(spec["persistentVolumeClaimRetentionPolicy"], {"whenDeleted": RETAIN, "whenScaled": RETAIN})
    if gates.auto_resize:
        _fill(spec, {"volumeClaimUpdateStrategy": {}})
        if isinstance(spec["volumeClaimUpdateStrategy"], dict):
            _fill(spec["volumeClaimUpdateStrategy"], {"type": ON_DELETE})
    return defaulted


def default_templates(
    spec: dict[str, Any], former: Mapping[str, Any] | None = None, *, host_ports: bool = False
) -> None:
    """Fill the defaults of the Pod template and the claim templates into ``spec``. [AS-14]

    ``former``: the stored spec, whose template stays if nothing but defaults differ.
    """
    template = spec.get("template")
    if isinstance(template, dict):
        spec["template"] = completed_template(template, (former or {}).get("template"), host_ports=host_ports)
    for claim in objects(spec.get("volumeClaimTemplates")):
        default_claim_template(claim)


def _fill(target: dict[str, Any], values: Mapping[str, Any]) -> None:
    """Nothing and the empty text are the same, as in Go."""
    for key, value in values.items():
        if target.get(key) is None or target[key] == "":
            target[key] = json_copy(value)
