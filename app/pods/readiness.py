"""Condition ``KruisePodReady`` decided: when it is set, and what a key that wants the Pod not ready does to it. Pure.

The condition's message is the list of those who want the Pod not ready (PM-61). What comes out is the body of a
strategic merge patch of the Pod's status. It carries uid and resourceVersion, so that it changes the Pod that was
looked at or nothing. Rules PM-40, PM-41, PM-60 … PM-66.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, NamedTuple, Protocol, TypeAlias

import msgspec

from app.api.gojson import dumps_go
from app.api.names import IN_PLACE_UPDATE_GRACE, IN_PLACE_UPDATE_READY, IN_PLACE_UPDATE_STATE, KRUISE_POD_READY
from app.kube.clock import rfc3339
from app.kube.objects import Pod

StatusPatch: TypeAlias = Mapping[str, Any]

READY: Final = "Ready"
CONTAINERS_READY: Final = "ContainersReady"
GATES_NOT_READY: Final = "ReadinessGatesNotReady"


class InitialMetadata(Protocol):
    """What a workload writes on a new Pod's metadata together with its first conditions; any number may have a say."""

    def __call__(self, pod: Pod, now: datetime, /) -> Mapping[str, Any] | None:
        """The members of ``metadata``; nothing for a Pod of somebody else. None: the write is to wait."""
        ...


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
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return ()
    return tuple(NotReadyKey(entry.user_agent, entry.key) for entry in entries)


def message_of(keys: Iterable[NotReadyKey]) -> str:
    """PM-61: the message that holds these keys."""
    return dumps_go([{"userAgent": key.user_agent, "key": key.key} for key in sorted(keys)])


def has_gate(pod: Pod, type_: str = KRUISE_POD_READY) -> bool:
    """Whether the Pod's readiness depends on the condition of this type."""
    return any(gate.condition_type == type_ for gate in pod.spec.readiness_gates)


def initial_conditions(pod: Pod) -> tuple[str, ...]:
    """The conditions of ours that the Pod waits for and nobody has set yet; Pods on their way out are left alone.

    KruisePodReady (PM-60), and InPlaceUpdateReady of a Pod that was never updated in place (PM-45): both in one write,
    as soon as the Pod is there, so that the kubelet's first report of readiness already counts them.
    """
    if pod.metadata.deletion_timestamp is not None:
        return ()
    annotations = pod.metadata.annotations
    untouched = IN_PLACE_UPDATE_STATE not in annotations and IN_PLACE_UPDATE_GRACE not in annotations
    wanted = (KRUISE_POD_READY, IN_PLACE_UPDATE_READY) if untouched else (KRUISE_POD_READY,)
    return tuple(type_ for type_ in wanted if pod.condition(type_) is None and has_gate(pod, type_))


def needs_condition(pod: Pod) -> bool:
    """PM-60: whether the Pod waits for a first condition."""
    return bool(initial_conditions(pod))


def initial_condition(pod: Pod, now: datetime) -> StatusPatch:
    """PM-60: the conditions the Pod waits for are True, and nothing else changes."""
    moment = rfc3339(now)
    return status_patch(
        pod, *({"type": type_, "status": "True", "lastTransitionTime": moment} for type_ in initial_conditions(pod))
    )


def with_key(pod: Pod, key: NotReadyKey, now: datetime) -> StatusPatch | None:
    """PM-62: the Pod is not ready for this reason too. None where that is so already, or the gate is missing."""
    return with_keys_changed(pod, (key,), (), now)


def without_key(pod: Pod, key: NotReadyKey, now: datetime) -> StatusPatch | None:
    """PM-64: this reason is gone; without any other the condition is True. The kubelet raises Ready by itself."""
    return with_keys_changed(pod, (), (key,), now)


def with_keys_changed(
    pod: Pod, add: Collection[NotReadyKey], remove: Collection[NotReadyKey], now: datetime
) -> StatusPatch | None:
    """PM-62, PM-64: some reasons come, others go, in one write. None where nothing changes or the gate is missing."""
    present = pod.condition(KRUISE_POD_READY)
    if not has_gate(pod) or (present is None and not add):
        return None
    held = frozenset(not_ready_keys(present.message)) if present is not None else frozenset()
    wanted = held.difference(remove).union(add)
    # A key that stands in a condition that is True holds nobody: it is written again.
    if wanted == held and not (add and present is not None and present.status == "True"):
        return None
    # PM-63: False from the start, never an empty status.
    condition = _condition(wanted, now)
    ready = ready_after(pod, KRUISE_POD_READY, condition["status"], now) if add else None
    return status_patch(pod, condition, *((ready,) if ready is not None else ()))


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


def status_patch(pod: Pod, *conditions: Mapping[str, Any]) -> StatusPatch:
    """The body of a strategic merge patch that sets conditions of the Pod that was looked at, or fails."""
    seen = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    return {"metadata": seen, "status": {"conditions": list(conditions)}}
