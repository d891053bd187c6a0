"""Ending one container as the kubelet does: tell, run its hook, give it time (KD-50 … KD-52)."""

from __future__ import annotations

import logging
from typing import Final

import msgspec

from app.daemon.actions import HookError, Network, run_hook
from app.daemon.cri import ContainerDetails, CriError, NoSuchContainer, Runtime
from app.daemon.objects import ContainerPort, Handler
from app.kube.clock import Clock
from app.kube.events import EventRecorder
from app.kube.gotext import quote
from app.kube.objects import ObjectReference
from app.kube.resources import PODS

logger = logging.getLogger(__name__)

#: KD-50: where neither the request nor the Pod says how long.
DEFAULT_GRACE: Final = 30
SHORTEST_GRACE: Final = 2
#: A runtime is never asked to wait longer than a day.
LONGEST_GRACE: Final = 86400
#: KD-14: what the kubelet records on every container.
PRE_STOP: Final = "io.kubernetes.container.preStopHandler"
PORTS: Final = "io.kubernetes.container.ports"
_decode_hook: Final = msgspec.json.Decoder(Handler).decode
_decode_ports: Final = msgspec.json.Decoder(tuple[ContainerPort, ...]).decode


def grace_left(grace: int, elapsed: float) -> int:
    """KD-50: what of the grace period the hook leaves for the container, in whole seconds."""
    return max(SHORTEST_GRACE, min(grace, LONGEST_GRACE) - int(elapsed))


def recorded_hook(details: ContainerDetails) -> Handler | None:
    """Return the preStop hook that the kubelet recorded with the container; None if it is missing or unreadable."""
    text = details.annotations.get(PRE_STOP, "")
    try:
        return _decode_hook(text) if text else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def _recorded_ports(details: ContainerDetails) -> tuple[ContainerPort, ...]:
    text = details.annotations.get(PORTS, "")
    try:
        return _decode_ports(text) if text else ()
    except (msgspec.MsgspecError, RecursionError):
        return ()


def container_reference(namespace: str, name: str, uid: str, container: str) -> ObjectReference:
    """How events name a container of a Pod."""
    return ObjectReference(
        api_version=PODS.api_version,
        kind=PODS.kind,
        namespace=namespace,
        name=name,
        uid=uid,
        field_path=f"spec.containers{{{container}}}",
    )


def hook_failed(hook: Handler, regarding: ObjectReference, error: Exception) -> str:
    """KD-51: that a hook failed, as the kubelet tells it of hooks that it runs."""
    if hook.exec is not None:
        kind, shown = "Exec", f"[{' '.join(hook.exec.command)}]"
    elif hook.http_get is not None:
        kind, shown = "HTTP", hook.http_get.path
    else:
        return f"Cannot run handler: {error}"
    container = regarding.field_path.partition("{")[2].removesuffix("}")
    pod = f"{regarding.name}_{regarding.namespace}({regarding.uid})"
    said = error.output if isinstance(error, HookError) else ""
    return (
        f"{kind} lifecycle hook ({shown}) for Container {quote(container)} in Pod {quote(pod)} failed - "
        f"error: {error}, message: {quote(said)}"
    )


class Stopper:
    """Ends containers and tells their Pods."""

    def __init__(self, clock: Clock, recorder: EventRecorder, network: Network) -> None:
        self._clock = clock
        self._recorder = recorder
        self._network = network

    async def stop(
        self,
        runtime: Runtime,
        details: ContainerDetails,
        regarding: ObjectReference,
        message: str,
        *,
        grace: int | None,
        pod_ip: str = "",
    ) -> None:
        """End the container; that it is gone already is as good. Raises ``CriError``.

        Its hook is the one the runtime has on record: a request is written by tenants, and hooks reach the node's
        network. [CRR-68]
        """
        container_id, hook = details.id, recorded_hook(details)
        self._recorder.event(regarding, "Normal", "Killing", message)
        grace = DEFAULT_GRACE if grace is None else grace
        began = self._clock.monotonic()
        if hook is not None and grace > 0:
            await self._run_hook(runtime, details, regarding, hook, pod_ip, grace)
        try:
            await runtime.stop(container_id, grace_left(grace, self._clock.monotonic() - began))
        except NoSuchContainer:
            logger.info("container %s had ended already", container_id)

    async def _run_hook(
        self,
        runtime: Runtime,
        details: ContainerDetails,
        regarding: ObjectReference,
        hook: Handler,
        pod_ip: str,
        grace: int,
    ) -> None:
        """KD-51: at most as long as the grace period; that it fails is told, and changes nothing."""
        try:
            ports = _recorded_ports(details)
            running = run_hook(runtime, details.id, hook, ports, pod_ip, self._clock, self._network)
            await self._clock.wait_for(running, grace)
        except TimeoutError:
            why = f"preStop hook not completed in grace period of {grace} s"
        except (HookError, CriError) as error:
            why = hook_failed(hook, regarding, error)
        else:
            return
        self._recorder.event(regarding, "Warning", "FailedPreStopHook", why)
