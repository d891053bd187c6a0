"""Condition SidecarSetUpgradable of a Pod: which of its sets can update it in place (SS-105). Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final

import msgspec

from app.api.gojson import dumps_go
from app.api.names import SIDECARSET_UPGRADABLE_CONDITION
from app.kube.clock import rfc3339
from app.kube.objects import Pod

ALL_UPGRADABLE: Final = "AllSidecarsetUpgradable"
NOT_UPGRADABLE: Final = "UpdateImmutableField"

_MESSAGE = msgspec.json.Decoder(dict[str, bool])


def _condition_message(pod: Pod) -> dict[str, bool]:
    """Set → whether it can update the Pod, as the condition says; empty where it says nothing that can be read."""
    found = pod.condition(SIDECARSET_UPGRADABLE_CONDITION)
    if found is None:
        return {}
    try:
        return _MESSAGE.decode(found.message or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}


def condition_for(pod: Pod, set_name: str) -> bool | None:
    """What the condition says of one set; None for nothing."""
    return _condition_message(pod).get(set_name)


def condition_patch(pod: Pod, set_name: str, upgradable: bool, now: datetime) -> dict[str, Any]:
    """The strategic merge patch of the Pod's status that says so; what other sets said stays."""
    said = {**_condition_message(pod), set_name: upgradable}
    status = "True" if all(said.values()) else "False"
    condition: dict[str, Any] = {
        "type": SIDECARSET_UPGRADABLE_CONDITION,
        "status": status,
        "reason": ALL_UPGRADABLE if status == "True" else NOT_UPGRADABLE,
        "message": dumps_go(said, sort_keys=True),
    }
    before = pod.condition(SIDECARSET_UPGRADABLE_CONDITION)
    if before is None or before.status != status:
        condition["lastTransitionTime"] = rfc3339(now)
    metadata = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {"metadata": metadata, "status": {"conditions": [condition]}}
