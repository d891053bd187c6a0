"""Lifecycle hooks, which let users hold a Pod when it enters service, is updated in place, or is deleted. Pure.

A hook names labels and finalizers. While a Pod has one of them, the operation that the hook guards waits [PM-70]. A
label records the state of a Pod; this module returns the next state and the strategic merge patch that writes it.
[PM-55, PM-67 … PM-77]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

from app.api.names import LIFECYCLE_STATE, LIFECYCLE_TIMESTAMP
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.pods.readiness import PRE_DELETE_HOOK, PRE_UPDATE_HOOK, NotReadyKey, StatusPatch, with_keys_changed


class LifecycleState(StrEnum):
    """Lifecycle state of a Pod; the value of its label."""

    PREPARING_NORMAL = "PreparingNormal"
    NORMAL = "Normal"
    PREPARING_UPDATE = "PreparingUpdate"
    UPDATING = "Updating"
    UPDATED = "Updated"
    PREPARING_DELETE = "PreparingDelete"


@dataclass(frozen=True, slots=True)
class Hook:
    """Labels and finalizers that hold a Pod back, and whether they also take it out of service."""

    labels: Mapping[str, str] = field(default_factory=dict)
    finalizers: tuple[str, ...] = ()
    mark_not_ready: bool = False
    #: The finalizers as a set: a hook may have 100,000, and each Pod of a workload is compared with them.
    held_by: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "held_by", frozenset(self.finalizers))

    @classmethod
    def of(cls, hook: Mapping[str, Any] | None) -> Hook | None:
        """Parse a LifecycleHook in its JSON form; None stays None."""
        if hook is None:
            return None
        return cls(
            dict(hook.get("labelsHandler") or {}),
            tuple(hook.get("finalizersHandler") or ()),
            bool(hook.get("markPodNotReady")),
        )


@dataclass(frozen=True, slots=True)
class Lifecycle:
    """The hooks of a workload."""

    pre_normal: Hook | None = None
    in_place_update: Hook | None = None
    pre_delete: Hook | None = None

    @classmethod
    def of(cls, lifecycle: Mapping[str, Any] | None) -> Lifecycle | None:
        """Parse a Lifecycle in its JSON form; None stays None."""
        if lifecycle is None:
            return None
        return cls(*(Hook.of(lifecycle.get(name)) for name in ("preNormal", "inPlaceUpdate", "preDelete")))


NO_LIFECYCLE: Final = Lifecycle()


class UpdateAction(StrEnum):
    """What an in-place update may do to a Pod, depending on the Pod's lifecycle state."""

    START = "start"
    #: The hook holds the Pod: move it to PreparingUpdate and wait.
    PREPARE = "prepare"
    #: The Pod is in PreparingUpdate and still held.
    WAIT = "wait"
    #: Another revision arrived while the Pod was Updated: restore the hook's labels and finalizers first. [PM-73]
    REARM = "rearm"
    #: The Pod is Updated, with no hook to restore: the next refresh moves it to Normal first.
    LATER = "later"
    #: The state allows no update.
    REFUSE = "refuse"


def is_hooked(hook: Hook | None, pod: Pod) -> bool:
    """Return whether any label or finalizer of the hook is on the Pod. [PM-70]"""
    if hook is None:
        return False
    return not hook.held_by.isdisjoint(pod.metadata.finalizers) or any(
        hook.labels.get(key) == value for key, value in pod.metadata.labels.items()
    )


def is_all_hooked(hook: Hook | None, pod: Pod) -> bool:
    """Return whether all labels and finalizers of the hook are on the Pod; True if the hook has none. [PM-70]"""
    return hook is not None and _is_whole(hook, pod.metadata.labels, pod.metadata.finalizers)


def first_state(lifecycle: Lifecycle | None, template: Mapping[str, Any]) -> LifecycleState:
    """Return the state of a new Pod created from the template. A Pod created with all labels and finalizers of its
    preNormal hook does not wait for the hook. [PM-68]"""
    hook, given = lifecycle.pre_normal if lifecycle is not None else None, template.get("metadata") or {}
    if hook is None or _is_whole(hook, given.get("labels") or {}, given.get("finalizers") or ()):
        return LifecycleState.NORMAL
    return LifecycleState.PREPARING_NORMAL


def _is_whole(hook: Hook, labels: Mapping[str, str], finalizers: Collection[str]) -> bool:
    return hook.held_by.issubset(finalizers) and hook.labels.items() <= labels.items()


def state_of(pod: Pod) -> str:
    """Return the value of the lifecycle state label, or ''."""
    return pod.metadata.labels.get(LIFECYCLE_STATE, "")


def next_state(
    pod: Pod, lifecycle: Lifecycle | None, *, at_update_revision: bool, update_complete: bool, needs_node: bool = True
) -> LifecycleState | None:
    """Return the state a refresh moves the Pod to, or None if it stays. [PM-74 … PM-77]

    ``update_complete`` is determined by PM-54. With ``needs_node``, a Pod without a preNormal hook becomes Normal only
    after it is scheduled.
    """
    hooks = lifecycle or NO_LIFECYCLE
    match state_of(pod):
        case LifecycleState.PREPARING_NORMAL:
            if hooks.pre_normal is not None:
                passed = is_all_hooked(hooks.pre_normal, pod)
            else:
                passed = bool(pod.spec.node_name) or not needs_node
            return LifecycleState.NORMAL if passed else None
        case LifecycleState.PREPARING_UPDATE if at_update_revision:
            return _done(pod, lifecycle)
        case LifecycleState.UPDATING if update_complete:
            return _done(pod, lifecycle)
        case LifecycleState.UPDATED if hooks.in_place_update is None or is_all_hooked(hooks.in_place_update, pod):
            return LifecycleState.NORMAL
    return None


def _done(pod: Pod, lifecycle: Lifecycle | None) -> LifecycleState:
    if lifecycle is not None and not is_all_hooked(lifecycle.in_place_update, pod):
        return LifecycleState.UPDATED
    return LifecycleState.NORMAL


def update_action(pod: Pod, hook: Hook | None) -> UpdateAction:
    """Return what an in-place update may do to the Pod, given the inPlaceUpdate hook (table before PM-55)."""
    match state_of(pod):
        case "" | LifecycleState.PREPARING_NORMAL | LifecycleState.NORMAL:
            return UpdateAction.PREPARE if is_hooked(hook, pod) else UpdateAction.START
        case LifecycleState.PREPARING_UPDATE:
            return UpdateAction.WAIT if is_hooked(hook, pod) else UpdateAction.START
        case LifecycleState.UPDATING:
            return UpdateAction.START
        case LifecycleState.UPDATED:
            return UpdateAction.LATER if hook is None else UpdateAction.REARM
    return UpdateAction.REFUSE


def state_members(state: LifecycleState, now: datetime) -> tuple[dict[str, str], dict[str, str]]:
    """Return the label and the annotation that record a state. They are always written together."""
    return {LIFECYCLE_STATE: str(state)}, {LIFECYCLE_TIMESTAMP: rfc3339(now)}


def state_patch(pod: Pod, state: LifecycleState, now: datetime, rearm: Hook | None = None) -> dict[str, Any] | None:
    """Return the strategic merge patch that moves the Pod to ``state``; None if it is in that state. [PM-71]

    ``rearm`` is the hook whose labels and finalizers are restored in the same write. [PM-73]
    """
    if state_of(pod) == state:
        return None
    labels, annotations = state_members(state, now)
    metadata: dict[str, Any] = {"uid": pod.metadata.uid, "labels": labels, "annotations": annotations}
    if rearm is not None:
        metadata["labels"] = {**rearm.labels, **labels}
        present = set(pod.metadata.finalizers)
        missing = [name for name in rearm.finalizers if name not in present]
        if missing:
            metadata["finalizers"] = missing
    return {"metadata": metadata}


def readiness_patch(pod: Pod, state: LifecycleState, lifecycle: Lifecycle | None, now: datetime) -> StatusPatch | None:
    """Return the patch of condition KruisePodReady on entering ``state``; None if it does not change. [PM-72]

    Write it before the label, and even if the label is already set, so that a failed write is retried.
    """
    add, remove = _key_changes(state, lifecycle or NO_LIFECYCLE)
    return with_keys_changed(pod, add, remove, now)


_Keys = tuple[NotReadyKey, ...]


def _key_changes(state: LifecycleState, hooks: Lifecycle) -> tuple[_Keys, _Keys]:
    match state:
        case LifecycleState.PREPARING_DELETE:
            # A scale-in that interrupts an update removes the update's not-ready key, which would otherwise remain
            # forever. [PM-59a]
            marked = hooks.pre_delete is not None and hooks.pre_delete.mark_not_ready
            return ((PRE_DELETE_HOOK,) if marked else ()), (PRE_UPDATE_HOOK,)
        case LifecycleState.PREPARING_UPDATE:
            marked = hooks.in_place_update is not None and hooks.in_place_update.mark_not_ready
            return ((PRE_UPDATE_HOOK,) if marked else ()), ()
        case LifecycleState.UPDATED:
            return (), (PRE_UPDATE_HOOK,)
        case LifecycleState.NORMAL:
            # A Pod that returns directly to Normal, from either hook, would otherwise stay not ready. The keys are the
            # controller's own, so they are removed even if the hook no longer sets markPodNotReady.
            return (), (PRE_UPDATE_HOOK, PRE_DELETE_HOOK)
    return (), ()


def may_cancel_deletion(lifecycle: Lifecycle | None) -> bool:
    """Return whether a Pod may return from PreparingDelete; False if a hook takes Pods out of service. [PM-67]"""
    hooks = lifecycle or NO_LIFECYCLE
    return not any(hook is not None and hook.mark_not_ready for hook in (hooks.pre_delete, hooks.in_place_update))
