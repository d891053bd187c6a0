"""Launch barrier controller: adds keys to the Pod's ConfigMap, one write per step, and reports long waits.

ConfigMaps are not watched: a cluster has many, and only this controller changes its own. The keys are remembered per
Pod, read once after a restart, and checked occasionally while a Pod waits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from app.api import names
from app.features.launchpriority.plan import Step, added_in, config_map, data, is_held, is_left_behind, not_ready, plan
from app.kube.client import Client, get_or_none
from app.kube.controller import Result
from app.kube.errors import AlreadyExists, Conflict, NotFound
from app.kube.events import EventRecorder, reference
from app.kube.objects import Pod, decode_config_map, decode_metadata
from app.kube.resources import CONFIGMAPS, PODS, ObjectKey
from app.kube.statuses import patch_pod_metadata
from app.kube.store import Change, Store, key_of
from app.pods.container_meta import barrier_config_map

logger = logging.getLogger(__name__)

#: Seconds a Pod may wait for the same containers before an event is recorded and its ConfigMap is checked again.
#: The time doubles after each event, up to the maximum.
STALL_SECONDS: Final = 30.0
MAX_STALL_SECONDS: Final = 600.0
WAITING_REASON: Final = "LaunchPriorityWaiting"


@dataclass(slots=True)
class _Barrier:
    """State of one Pod, rebuilt after a restart."""

    #: The ConfigMap's UID and keys; None if unknown.
    found: tuple[str, set[int]] | None = None
    completed: bool = False
    #: The priority the Pod waits for, the seconds between two events about the wait, and the time of the next event.
    awaited: int | None = None
    stall_seconds: float = STALL_SECONDS
    until: float = 0.0


class LaunchBarrierReconciler:
    """Lets the containers of Pods start in order."""

    def __init__(self, client: Client, pods: Store[Pod], events: EventRecorder) -> None:
        self._client = client
        self._clock = client.clock
        self._pods = pods
        self._events = events
        self._barriers: dict[str, _Barrier] = {}

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the Pod if it has ordered containers that are not ready. [PM-146]"""
        if change.new is not None and is_held(change.new):
            return (key_of(change.new),)
        self._barriers.pop(change.object.metadata.uid, None)
        return ()

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Take all steps that are possible now."""
        pod = self._pods.by_key(key)
        if pod is None or not is_held(pod):
            return None
        barrier = self._barriers.setdefault(pod.metadata.uid, _Barrier())
        if barrier.completed:
            return None  # the cache does not have our annotation yet
        step = await self._open(pod, barrier)
        if step.completed:
            # No container is waiting. [PM-147]
            done = {names.CONTAINER_LAUNCH_PRIORITY_COMPLETED: "true", names.CONTAINER_LAUNCH_PRIORITY_CURRENT: None}
            await self._annotate(pod, done)
            barrier.completed = True
            return None
        return await self._wait(pod, barrier, step)

    async def _open(self, pod: Pod, barrier: _Barrier) -> Step:
        """Ensure that the highest key the Pod needs exists, and return the remaining step."""
        if barrier.found is None:
            barrier.found = await self._create(pod, max(not_ready(pod).values()))
        step = plan(pod, barrier.found[1])
        if step.add is None:
            return step
        barrier.found = await self._add(pod, barrier.found[0], step.add)
        if not step.completed:
            await self._annotate(pod, {names.CONTAINER_LAUNCH_PRIORITY_CURRENT: str(step.add)})
        return plan(pod, barrier.found[1])

    async def _create(self, pod: Pod, priority: int) -> tuple[str, set[int]]:
        """Create the ConfigMap with its first key, or find it; return its UID and its keys. [PM-147]"""
        namespace = pod.metadata.namespace
        for _ in range(2):
            try:
                made = await self._client.create(
                    CONFIGMAPS, config_map(pod, priority), namespace, decode=decode_metadata
                )
            except AlreadyExists:
                pass
            else:
                return made.metadata.uid, {priority}
            found = await get_or_none(
                self._client, CONFIGMAPS, barrier_config_map(pod), namespace, decode=decode_config_map
            )
            if found is None:
                continue
            if not is_left_behind(found, pod):
                return found.metadata.uid, added_in(found)
            # This ConfigMap would be garbage collected while the new Pod still needs its keys.
            logger.info("Pod %s: replacing the barrier ConfigMap of its predecessor", key_of(pod))
            try:
                await self._client.delete(CONFIGMAPS, found.metadata.name, namespace, uid=found.metadata.uid)
            except (NotFound, Conflict):
                continue
        made = await self._client.create(CONFIGMAPS, config_map(pod, priority), namespace, decode=decode_metadata)
        return made.metadata.uid, {priority}

    async def _add(self, pod: Pod, uid: str, priority: int) -> tuple[str, set[int]]:
        """Add a key to the ConfigMap with this UID and return its UID and all keys. Keys are never removed. Without the
        UID, the key could start containers of another Pod of the same name. [PM-149]"""
        namespace = pod.metadata.namespace
        for _ in range(2):
            try:
                found = await self._client.patch(
                    CONFIGMAPS,
                    barrier_config_map(pod),
                    {"metadata": {"uid": uid}, "data": data(priority)},
                    namespace,
                    decode=decode_config_map,
                )
            except (NotFound, Conflict) as error:
                refused = error
                uid, keys = await self._create(pod, priority)
                if priority in keys:
                    return uid, keys
            else:
                return found.metadata.uid, added_in(found)
        raise refused

    async def _annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Annotate the Pod with its progress after a key was added. The update makes the kubelet start the next
        container at once instead of after 10 to 15 seconds."""
        await patch_pod_metadata(self._client, pod, {"annotations": annotations})

    async def _wait(self, pod: Pod, barrier: _Barrier, step: Step) -> Result:
        """Wait without a timeout. From time to time, record an event about the awaited containers and restore a missing
        key. [PM-150]"""
        now = self._clock.monotonic()
        waiting = step.waiting
        assert waiting is not None  # noqa: S101  # a step that does not complete waits
        if barrier.awaited != waiting.priority:
            barrier.awaited, barrier.stall_seconds, barrier.until = waiting.priority, STALL_SECONDS, now + STALL_SECONDS
        elif now >= barrier.until:
            uid = barrier.found[0] if barrier.found is not None else ""
            barrier.found = await self._add(pod, uid, waiting.priority)
            self._events.event(reference(PODS, pod), "Warning", WAITING_REASON, str(waiting))
            barrier.stall_seconds = min(barrier.stall_seconds * 2, MAX_STALL_SECONDS)
            barrier.until = now + barrier.stall_seconds
        return Result(requeue_after=max(0.001, barrier.until - now))
