"""Carrying out the launch barrier: keys into the Pod's ConfigMap, one write per step, and a word where it takes long.

ConfigMaps are not watched: a cluster holds many, and ours change by our own hand. Which keys are there is remembered
per Pod, asked once after a restart, and looked at again now and then while a Pod waits.
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
from app.kube.store import Change, Store, key_of
from app.pods.container_meta import barrier_config_map

logger = logging.getLogger(__name__)

#: Seconds a Pod waits for the same containers before that is told and its ConfigMap is looked at again; then twice as
#: long each time, up to the second figure.
STALL_SECONDS: Final = 30.0
MAX_STALL_SECONDS: Final = 600.0
WAITING_REASON: Final = "LaunchPriorityWaiting"


@dataclass(slots=True)
class _Barrier:
    """What is known of one Pod; all of it can be found out anew."""

    #: The ConfigMap's uid, and the keys that it has; None: not known yet.
    found: tuple[str, set[int]] | None = None
    completed: bool = False
    #: The priority the Pod waits for now, how long that is accepted, and until when.
    awaited: int | None = None
    stall_seconds: float = STALL_SECONDS
    until: float = 0.0


class LaunchBarrierReconciler:
    """Lets the containers of Pods start in their order."""

    def __init__(self, client: Client, pods: Store[Pod], events: EventRecorder) -> None:
        self._client = client
        self._clock = client.clock
        self._pods = pods
        self._events = events
        self._barriers: dict[str, _Barrier] = {}

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """PM-146: the Pod, if it has containers that are not ready and have an order."""
        if change.new is not None and is_held(change.new):
            return (key_of(change.new),)
        self._barriers.pop(change.object.metadata.uid, None)
        return ()

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Take the steps that can be taken now."""
        pod = self._pods.by_key(key)
        if pod is None or not is_held(pod):
            return None
        barrier = self._barriers.setdefault(pod.metadata.uid, _Barrier())
        if barrier.completed:
            return None  # the cache does not show our annotation yet
        step = await self._open(pod, barrier)
        if step.completed:
            # PM-147: nothing is held back any more.
            done = {names.CONTAINER_LAUNCH_PRIORITY_COMPLETED: "true", names.CONTAINER_LAUNCH_PRIORITY_CURRENT: None}
            await self._annotate(pod, done)
            barrier.completed = True
            return None
        return await self._wait(pod, barrier, step)

    async def _open(self, pod: Pod, barrier: _Barrier) -> Step:
        """Make sure that the highest key the Pod needs is there; the step that is left."""
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
        """Create the ConfigMap with its first key, or find it; return its uid and its keys. [PM-147]"""
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
            # The garbage collector would take it, from under the containers that were started by its keys.
            logger.info("Pod %s: replacing the barrier ConfigMap of the Pod before it", key_of(pod))
            try:
                await self._client.delete(CONFIGMAPS, found.metadata.name, namespace, uid=found.metadata.uid)
            except (NotFound, Conflict):
                continue
        made = await self._client.create(CONFIGMAPS, config_map(pod, priority), namespace, decode=decode_metadata)
        return made.metadata.uid, {priority}

    async def _add(self, pod: Pod, uid: str, priority: int) -> tuple[str, set[int]]:
        """Add a key to this very ConfigMap (none is ever removed); return its uid and all its keys. One of another Pod
        of this name must not let that Pod's containers start. [PM-149]"""
        namespace = pod.metadata.namespace
        try:
            found = await self._client.patch(
                CONFIGMAPS,
                barrier_config_map(pod),
                {"metadata": {"uid": uid}, "data": data(priority)},
                namespace,
                decode=decode_config_map,
            )
        except (NotFound, Conflict):
            return await self._create(pod, priority)
        return found.metadata.uid, added_in(found)

    async def _annotate(self, pod: Pod, annotations: Mapping[str, str | None]) -> None:
        """Say how far the Pod is, after the key was added. That wakes the kubelet, which has tried in vain to start
        the next container and would do so again only after 10 to 15 seconds."""
        body = {"metadata": {"uid": pod.metadata.uid, "annotations": annotations}}
        try:
            await self._client.patch(PODS, pod.metadata.name, body, pod.metadata.namespace, decode=decode_metadata)
        except (NotFound, Conflict):
            # The Pod is gone, or another one has its name.
            logger.debug("Pod %s is gone", key_of(pod))

    async def _wait(self, pod: Pod, barrier: _Barrier, step: Step) -> Result:
        """B-14, PM-150: there is no time-out, but who is waited for is told, and the key is made sure of."""
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
