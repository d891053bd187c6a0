"""Pods with a launch order, as admission leaves them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

BARRIER = "KRUISE_CONTAINER_BARRIER"
COMPLETED = "apps.kruise.io/container-launch-priority-completed"
CURRENT = "apps.kruise.io/container-launch-priority-current"


def barrier(key: str, config_map: str = "web-0-barrier") -> dict[str, Any]:
    return {"name": BARRIER, "valueFrom": {"configMapKeyRef": {"name": config_map, "key": key}}}


def ordered(
    order: Mapping[str, int | None],
    ready: Iterable[str] = (),
    *,
    metadata: Mapping[str, Any] | None = None,
    status: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Pod shop/web-0 whose containers have these priorities (None: no barrier)."""
    done = set(ready)
    containers = [
        {"name": name, "env": [{"name": "A", "value": "b"}, *([] if p is None else [barrier(f"p_{p}")])]}
        for name, p in order.items()
    ]
    return {
        "metadata": {"name": "web-0", "namespace": "shop", **(metadata or {})},
        "spec": {"containers": containers},
        "status": {
            "phase": "Pending",
            "containerStatuses": [{"name": name, "ready": name in done} for name in order],
            "conditions": [{"type": "ContainersReady", "status": "True" if done >= set(order) else "False"}],
            **(status or {}),
        },
    }
