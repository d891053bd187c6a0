"""Condition ``KruisePodReady`` decided: when it is set, and what a key that wants the Pod not ready does to it. Pure.

The condition's message is the list of those who want the Pod not ready (PM-61). What comes out is the body of a
strategic merge patch of the Pod's status. It carries uid and resourceVersion, so that it changes the Pod that was
looked at or nothing. Rules PM-40, PM-41, PM-60 … PM-66.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, TypeAlias

import msgspec

from app.api.gojson import dumps_go
from app.api.names import KRUISE_POD_READY
from app.kube.clock import rfc3339
from app.kube.objects import Pod

StatusPatch: TypeAlias = Mapping[str, Any]

READY: Final = "Ready"
CONTAINERS_READY: Final = "ContainersReady"
GATES_NOT_READY: Final = "ReadinessGatesNotReady"


class NotReadyKey(NamedTuple):
    """Who wants a Pod not ready, and what for. Sorted as messages are."""

    user_agent: str
    key: str


class _Entry(msgspec.Struct, frozen=True, rename="camel"):
    user_agent: str = ""
    key: str = ""


_decode_message = msgspec.json.Decoder(list[_Entry]).decode

# PM-66: the keys that controllers use.
PRE_DELETE_HOOK: Final = NotReadyKey("Lifecycle", "preDeleteHook")
PRE_UPDATE_HOOK: Final = NotReadyKey("Lifecycle", "preUpdateHook")


def recreate_request(namespace: str, name: str) -> NotReadyKey:
    """PM-66: the key of a ContainerRecreateRequest."""
    return NotReadyKey("ContainerRecreateRequest", f"{namespace}/{name}")


def not_ready_keys(message: str) -> tuple[NotReadyKey, ...]:
    """The keys in a condition's message; one that cannot be read holds none (PM-65)."""
    try:
        entries = _decode_message(message.encode())
    except (msgspec.MsgspecError, UnicodeError):
        return ()
    return tuple(NotReadyKey(entry.user_agent, entry.key) for entry in entries)


def message_of(keys: Iterable[NotReadyKey]) -> str:
    """PM-61: the message that holds these keys."""
    return dumps_go([{"userAgent": key.user_agent, "key": key.key} for key in sorted(keys)])


def has_gate(pod: Pod) -> bool:
    """Whether the Pod's readiness depends on the condition."""
    return any(gate.condition_type == KRUISE_POD_READY for gate in pod.spec.readiness_gates)


def needs_condition(pod: Pod) -> bool:
    """PM-60: the Pod waits for a condition nobody has set yet; Pods on their way out are left alone."""
    return pod.metadata.deletion_timestamp is None and has_gate(pod) and pod.condition(KRUISE_POD_READY) is None


def first_condition(pod: Pod, now: datetime) -> StatusPatch:
    """PM-60: the condition is True, and nothing else changes."""
    return _patch(pod, {"type": KRUISE_POD_READY, "status": "True", "lastTransitionTime": rfc3339(now)})


def with_key(pod: Pod, key: NotReadyKey, now: datetime) -> StatusPatch | None:
    """PM-62: the Pod is not ready for this reason too. None where that is so already, or the gate is missing."""
    if not has_gate(pod):
        return None
    present = pod.condition(KRUISE_POD_READY)
    keys = not_ready_keys(present.message) if present is not None else ()
    if present is not None and present.status != "True" and key in keys:
        return None
    # PM-63: False from the start, never an empty status.
    condition = _condition({*keys, key}, now)
    ready = ready_after(pod, KRUISE_POD_READY, condition["status"], now)
    return _patch(pod, condition, *((ready,) if ready is not None else ()))


def without_key(pod: Pod, key: NotReadyKey, now: datetime) -> StatusPatch | None:
    """PM-64: this reason is gone; without any other the condition is True. The kubelet raises Ready by itself."""
    present = pod.condition(KRUISE_POD_READY)
    if not has_gate(pod) or present is None:
        return None
    keys = set(not_ready_keys(present.message))
    return _patch(pod, _condition(keys - {key}, now)) if key in keys else None


def ready_after(pod: Pod, gate: str, status: str, now: datetime) -> Mapping[str, Any] | None:
    """PM-41: the condition Ready when the readiness gate ``gate`` gets ``status``, or None if it stays as it is.

    The kubelet would come to the same some moments later; until then the Pod would get traffic. Differs from OpenKruise
    in lastTransitionTime, which it leaves empty (B-8).
    """
    ready = pod.condition(READY)
    containers = pod.condition(CONTAINERS_READY)
    if ready is None or containers is None or containers.status != "True":
        return None
    messages = []
    for wanted in pod.spec.readiness_gates:
        found = pod.condition(wanted.condition_type)
        present = status if wanted.condition_type == gate else found.status if found is not None else None
        if present is None:
            messages.append(f'corresponding condition of pod readiness gate "{wanted.condition_type}" does not exist.')
        elif present != "True":
            messages.append(
                f'the status of pod readiness gate "{wanted.condition_type}" is not "True", but {present}',
            )
    # PM-40: the entry is replaced only if its status differs.
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


def _patch(pod: Pod, *conditions: Mapping[str, Any]) -> StatusPatch:
    seen = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {"metadata": seen, "status": {"conditions": list(conditions)}}
