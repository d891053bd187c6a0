"""Defaults of a ContainerRecreateRequest, and the fields that depend on its Pod. Pure. [CRR-4]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from app.api import names
from app.features.containerrecreate.types import FAIL
from app.kube.jsonvalues import json_copy, objects


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the request (JSON of either version) with its strategy and failure policy defaulted."""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = defaulted.get("spec")
    if isinstance(spec, dict):
        strategy = spec.get("strategy")
        if strategy is None:
            strategy = spec["strategy"] = {}
        if isinstance(strategy, dict) and strategy.get("failurePolicy") in (None, ""):
            strategy["failurePolicy"] = FAIL
    return defaulted


def with_pod(obj: Mapping[str, Any], pod: Mapping[str, Any], *, virtual_node: bool) -> dict[str, Any]:
    """Return a copy of the request with the fields taken from its Pod. The request must have passed
    ``validation.pod_errors``. [CRR-4, CRR-5]"""
    filled = with_defaults(obj)
    spec, pod_spec = filled["spec"], pod.get("spec") or {}
    labels = {
        **(filled.setdefault("metadata", {}).get("labels") or {}),
        names.CRR_ACTIVE: "true",
        names.CRR_NODE_NAME: str(pod_spec.get("nodeName") or ""),
        names.CRR_POD_UID: str((pod.get("metadata") or {}).get("uid") or ""),
    }
    if virtual_node:
        labels["type"] = "virtual-kubelet"
    filled["metadata"]["labels"] = labels
    strategy, grace = spec["strategy"], pod_spec.get("terminationGracePeriodSeconds")
    if strategy.get("terminationGracePeriodSeconds") is None and grace is not None:
        strategy["terminationGracePeriodSeconds"] = grace
    containers = {
        container["name"]: container
        for container in objects([*(pod_spec.get("initContainers") or ()), *(pod_spec.get("containers") or ())])
    }
    statuses = {status.get("name"): status for status in objects((pod.get("status") or {}).get("containerStatuses"))}
    for wanted in spec["containers"]:
        _fill(wanted, containers[wanted["name"]], statuses[wanted["name"]])
    return filled


def _fill(wanted: dict[str, Any], container: Mapping[str, Any], status: Mapping[str, Any]) -> None:
    hook = (container.get("lifecycle") or {}).get("preStop")
    if isinstance(hook, dict):
        # Includes sleep, which OpenKruise turns into an empty hook that fails. [CRR-61]
        wanted["preStop"] = {key: hook[key] for key in ("exec", "httpGet", "tcpSocket", "sleep") if key in hook}
        if "httpGet" in hook and container.get("ports"):
            wanted["ports"] = container["ports"]
    wanted["statusContext"] = {
        "containerID": status["containerID"],
        "restartCount": status.get("restartCount") or 0,
    }
