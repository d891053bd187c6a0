"""Sidecar terminator controller: stops the sidecars of Pods whose main containers have ended."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

from app.api import names
from app.features.containerrecreate.kind import REQUESTS, decode_request
from app.features.containerrecreate.types import ContainerRecreateRequest
from app.features.sidecarterminator.plan import (
    TERMINATED_MESSAGE,
    JobPod,
    Step,
    decode_job_pod,
    has_sidecars,
    may_be_due,
    plan,
    recreate_request,
)
from app.kube.client import Client, PatchType, delete_if_present, get_or_none, retry_conflicts
from app.kube.clock import rfc3339
from app.kube.controller import Result
from app.kube.errors import AlreadyExists, NotFound
from app.kube.events import EventRecorder, reference
from app.kube.objects import Pod, decode_metadata, decode_node
from app.kube.resources import NODES, PODS, ObjectKey
from app.kube.store import Change, Store, key_of
from app.pods.node_agents import is_virtual

logger = logging.getLogger(__name__)

REASON: Final = "SidecarTerminator"
#: Seconds until sidecars that still run are checked again, and an unprocessed request is recreated.
CHECK_SECONDS: Final = 75.0


class SidecarTerminatorReconciler:
    """Reconciles Pods with sidecars."""

    def __init__(self, client: Client, pods: Store[Pod], events: EventRecorder) -> None:
        self._client = client
        self._clock = client.clock
        self._pods = pods
        self._events = events
        #: UIDs of Pods without sidecars; a Pod's sidecars never change.
        self._without: set[str] = set()
        #: The sidecars reported as unreachable, by the Pod's UID.
        self._last_events: dict[str, tuple[str, ...]] = {}

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the Pod if it may need action. [SS-112]"""
        uid = change.object.metadata.uid
        if change.new is None:
            self._without.discard(uid)
            self._last_events.pop(uid, None)
            return ()
        return (key_of(change.new),) if uid not in self._without and may_be_due(change.new) else ()

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Reconcile one Pod. The Pod is read from the API server, because the cache does not keep the env of
        containers."""
        cached = self._pods.by_key(key)
        if cached is None or cached.metadata.uid in self._without or not may_be_due(cached):
            return None
        try:
            return await retry_conflicts(self._client, lambda _: self._terminate(key, cached.metadata.uid))
        except NotFound:
            logger.debug("Pod %s is gone", key)
            return None

    async def _terminate(self, key: ObjectKey, uid: str) -> Result | None:
        pod = await self._client.get(PODS, key.name, key.namespace, decode=decode_job_pod)
        if pod.metadata.uid != uid:
            return None
        if not has_sidecars(pod):
            self._without.add(uid)
            return None
        step = plan(pod, virtual=await self._is_on_virtual_node(pod))
        self._record_unreachable(pod, step)
        if step.images:
            await self._set_images(pod, step)
        if step.phase:
            await self._set_phase(pod, step.phase)
        if step.stop:
            await self._stop(pod, step)
            return Result(requeue_after=CHECK_SECONDS)
        return None

    async def _is_on_virtual_node(self, pod: JobPod) -> bool:
        node = await get_or_none(self._client, NODES, pod.spec.node_name, decode=decode_node)
        return node is not None and is_virtual(node)  # if the node is gone, the Pod will be deleted

    async def _set_images(self, pod: JobPod, step: Step) -> None:
        """Set the images that stop the sidecars. [SS-114]"""
        containers = [{"name": name, "image": image} for name, image in step.images.items()]
        body = {"metadata": {"uid": pod.metadata.uid}, "spec": {"containers": containers}}
        await self._patch(pod, body)
        self._record_events(pod, tuple(step.images), "in-place update")

    async def _set_phase(self, pod: JobPod, phase: str) -> None:
        """Set the Pod's phase. Raises Conflict if the Pod has changed, because the kubelet may have set the phase.
        [SS-115]"""
        condition = {
            "type": names.SIDECAR_TERMINATED_CONDITION,
            "status": "True",
            "lastTransitionTime": rfc3339(self._clock.now()),
            "message": TERMINATED_MESSAGE,
        }
        metadata = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
        await self._patch(pod, {"metadata": metadata, "status": {"phase": phase, "conditions": [condition]}}, "status")

    async def _patch(self, pod: JobPod, body: dict[str, Any], subresource: str = "") -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        await self._client.patch(
            PODS, name, body, namespace, kind=PatchType.STRATEGIC, subresource=subresource, decode=decode_metadata
        )

    async def _stop(self, pod: JobPod, step: Step) -> None:
        """Create one request per step. An unprocessed request is deleted and recreated later. [SS-113]"""
        namespace = pod.metadata.namespace
        for _ in range(2):
            try:
                await self._client.create(REQUESTS, recreate_request(pod, step), namespace, decode=decode_metadata)
            except AlreadyExists:
                found = await get_or_none(self._client, REQUESTS, step.request, namespace, decode=decode_request)
                if found is None:
                    continue  # deleted in between: create it again
                if _is_unanswered(found):
                    logger.info("Pod %s: request %s ended unprocessed", key_of(pod), step.request)
                    await delete_if_present(self._client, REQUESTS, found.metadata)
            else:
                self._record_events(pod, step.stop, "crr")
            return

    def _record_events(self, pod: JobPod, containers: tuple[str, ...], how: str) -> None:
        message = f"Kruise SidecarTerminator is trying to terminate sidecar [{' '.join(containers)}] using {how}"
        self._events.event(reference(PODS, pod), "Normal", REASON, message)

    def _record_unreachable(self, pod: JobPod, step: Step) -> None:
        """Record an event, once per Pod and set of containers. [SS-114]"""
        if not step.unreachable or self._last_events.get(pod.metadata.uid) == step.unreachable:
            return
        self._last_events[pod.metadata.uid] = step.unreachable
        message = (
            f"cannot terminate sidecar [{' '.join(step.unreachable)}]: set env "
            f'{names.ENV_TERMINATE_SIDECAR}="true" for ordinary nodes, {names.ENV_TERMINATE_SIDECAR_WITH_IMAGE} for '
            "virtual nodes"
        )
        self._events.event(reference(PODS, pod), "Warning", REASON, message)


def _is_unanswered(request: ContainerRecreateRequest) -> bool:
    """Return whether the request ended before its node started to process it."""
    status = request.status
    return status is not None and bool(status.completion_time) and not status.container_recreate_states
