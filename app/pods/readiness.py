"""Compute the condition ``KruisePodReady``: when to set it, and how not-ready keys change it. Pure.

The condition's message lists the keys that keep the Pod not ready [PM-61]. The functions return the body of a strategic
merge patch of the Pod's status. The patch carries uid and resourceVersion, so it applies only to the Pod version it was
computed from. [PM-40, PM-41, PM-60 … PM-66]
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

import msgspec

from app.api.gojson import dumps_go
from app.api.names import (
    APPS_GROUP,
    IN_PLACE_UPDATE_GRACE,
    IN_PLACE_UPDATE_READY,
    IN_PLACE_UPDATE_STATE,
    KRUISE_POD_READY,
)
from app.kube.clock import rfc3339
from app.kube.objects import Pod

StatusPatch: TypeAlias = Mapping[str, Any]

READY: Final = "Ready"
CONTAINERS_READY: Final = "ContainersReady"
GATES_NOT_READY: Final = "ReadinessGatesNotReady"


class InitialMetadata(Protocol):
    """Returns the metadata that a workload writes to a new Pod when it sets the Pod's first conditions. Every workload
    kind provides such a function, and all are called."""

    def __call__(self, pod: Pod, now: datetime, /) -> Mapping[str, Any] | None:
        """Return the members of ``metadata``; empty for a Pod of another workload kind, None to postpone the write."""
        ...


class NotReadyKey(msgspec.Struct, frozen=True, order=True, rename="camel"):
    """A user agent that keeps a Pod not ready, and its key. Keys sort in the order used in messages."""

    user_agent: str = ""
    key: str = ""


_decode_message = msgspec.json.Decoder(tuple[NotReadyKey, ...]).decode

# The keys that controllers use. [PM-66]
PRE_DELETE_HOOK: Final = NotReadyKey("Lifecycle", "preDeleteHook")
PRE_UPDATE_HOOK: Final = NotReadyKey("Lifecycle", "preUpdateHook")


def recreate_request(namespace: str, name: str) -> NotReadyKey:
    """Return the key of a ContainerRecreateRequest. [PM-66]"""
    return NotReadyKey("ContainerRecreateRequest", f"{namespace}/{name}")


def not_ready_keys(message: str) -> tuple[NotReadyKey, ...]:
    """Return the keys in a condition's message; an unparsable message has none. [PM-65]"""
    try:
        return _decode_message(message.encode())
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()


def message_of(keys: Iterable[NotReadyKey]) -> str:
    """Return the message that lists these keys. [PM-61]"""
    return dumps_go([{"userAgent": key.user_agent, "key": key.key} for key in sorted(keys)])


def has_gate(pod: Pod, type_: str = KRUISE_POD_READY) -> bool:
    """Return whether the Pod's readiness depends on the condition of this type."""
    return any(gate.condition_type == type_ for gate in pod.spec.readiness_gates)


def initial_conditions(pod: Pod) -> tuple[str, ...]:
    """Return our conditions that the Pod's readiness gates require and that are not set yet; none for terminating Pods.

    These are KruisePodReady [PM-60] and, on Pods of our workloads that were never updated in place, InPlaceUpdateReady
    [PM-45]; on other Pods, the Pod's controller sets InPlaceUpdateReady. Both are set in one write as soon as the Pod
    exists, so that the kubelet's first readiness report already includes them.
    """
    if pod.metadata.deletion_timestamp is not None:
        return ()
    annotations, controller = pod.metadata.annotations, pod.metadata.controller
    untouched = IN_PLACE_UPDATE_STATE not in annotations and IN_PLACE_UPDATE_GRACE not in annotations
    ours = controller is not None and controller.group == APPS_GROUP
    wanted = (KRUISE_POD_READY, IN_PLACE_UPDATE_READY) if ours and untouched else (KRUISE_POD_READY,)
    return tuple(type_ for type_ in wanted if pod.condition(type_) is None and has_gate(pod, type_))


def needs_condition(pod: Pod) -> bool:
    """Return whether one of the initial conditions is missing. [PM-60]"""
    return bool(initial_conditions(pod))


def initial_condition(pod: Pod, now: datetime) -> StatusPatch:
    """Return the patch that sets the missing conditions to True and changes nothing else. [PM-60]"""
    moment = rfc3339(now)
    return status_patch(
        pod, *({"type": type_, "status": "True", "lastTransitionTime": moment} for type_ in initial_conditions(pod))
    )


def with_key(pod: Pod, key: NotReadyKey, now: datetime) -> StatusPatch | None:
    """Return the patch that adds a not-ready key; None if the Pod has the key or lacks the readiness gate. [PM-62]"""
    return with_keys_changed(pod, (key,), (), now)


def without_key(pod: Pod, key: NotReadyKey, now: datetime) -> StatusPatch | None:
    """Return the patch that removes a not-ready key; if no other key is left, the condition becomes True. The kubelet
    sets Ready itself. [PM-64]"""
    return with_keys_changed(pod, (), (key,), now)


def with_keys_changed(
    pod: Pod, add: Collection[NotReadyKey], remove: Collection[NotReadyKey], now: datetime
) -> StatusPatch | None:
    """Return the patch that adds and removes not-ready keys in one write; None if nothing changes or the gate is
    missing. [PM-62, PM-64]"""
    present = pod.condition(KRUISE_POD_READY)
    if not has_gate(pod) or (present is None and not add):
        return None
    held = frozenset(not_ready_keys(present.message)) if present is not None else frozenset()
    wanted = held.difference(remove).union(add)
    # A key in a condition with status True has no effect, so it is written again.
    if wanted == held and not (add and present is not None and present.status == "True"):
        return None
    # A new condition is False from the start; its status is never empty. [PM-63]
    condition = _condition(wanted, now)
    ready = ready_after(pod, KRUISE_POD_READY, condition["status"], now) if add else None
    return status_patch(pod, condition, *((ready,) if ready is not None else ()))


def ready_after(pod: Pod, gate: str, status: str, now: datetime) -> Mapping[str, Any] | None:
    """Return the condition Ready after readiness gate ``gate`` gets ``status``, or None if it does not change. [PM-41]

    The kubelet would set it moments later; until then, the Pod would receive traffic. Unlike OpenKruise, this also sets
    lastTransitionTime.
    """
    ready = pod.condition(READY)
    containers = pod.condition(CONTAINERS_READY)
    if ready is None or containers is None or containers.status != "True":
        return None
    messages = []
    conditions = {condition.type: condition for condition in reversed(pod.status.conditions)}
    for wanted in pod.spec.readiness_gates:
        found = conditions.get(wanted.condition_type)
        present = status if wanted.condition_type == gate else found.status if found is not None else None
        if present is None:
            messages.append(f'corresponding condition of pod readiness gate "{wanted.condition_type}" does not exist.')
        elif present != "True":
            messages.append(f'the status of pod readiness gate "{wanted.condition_type}" is not "True", but {present}')
    # The condition is replaced only if its status differs. [PM-40]
    if ready.status == ("False" if messages else "True"):
        return None
    return {
        "type": READY,
        "status": "False" if messages else "True",
        "reason": GATES_NOT_READY if messages else None,
        "message": ", ".join(messages) or None,
        "lastTransitionTime": rfc3339(now),
    }


def _condition(keys: Iterable[NotReadyKey], now: datetime) -> dict[str, Any]:
    wanted = tuple(keys)
    return {
        "type": KRUISE_POD_READY,
        "status": "False" if wanted else "True",
        "message": message_of(wanted),
        "lastTransitionTime": rfc3339(now),
    }


def status_patch(pod: Pod, *conditions: Mapping[str, Any]) -> StatusPatch:
    """Return a strategic merge patch that sets conditions on the observed Pod version; a newer version conflicts."""
    seen = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {"metadata": seen, "status": {"conditions": list(conditions)}}
