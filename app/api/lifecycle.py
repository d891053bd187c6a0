"""Lifecycle hooks of Pods, as every workload that has them writes them."""

from __future__ import annotations

from app.api.model import ApiModel


class LifecycleHook(ApiModel):
    """Who wants to be asked before something happens to a Pod: whoever holds one of its finalizers or labels."""

    labels_handler: dict[str, str] | None = None
    """Labels that hold the Pod while it has them with these values."""
    finalizers_handler: list[str] | None = None
    """Finalizers that hold the Pod while it has them."""
    mark_pod_not_ready: bool = False
    """Takes the Pod out of service while it is held: it becomes not ready, by its readiness gate KruisePodReady."""


class Lifecycle(ApiModel):
    """Hooks at the turning points of a Pod's life."""

    pre_delete: LifecycleHook | None = None
    """Before the Pod is deleted."""
    in_place_update: LifecycleHook | None = None
    """Before the Pod is updated in place, and after it."""
    pre_normal: LifecycleHook | None = None
    """After the Pod was created, before it counts as available: it is held until it has all labels and finalizers."""
