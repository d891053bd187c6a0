"""Carrying out what the readiness plan says: the condition of new Pods, and keys added and removed by controllers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from app.kube.client import Client, PatchType, get_or_none
from app.kube.clock import CONFLICT_ATTEMPTS, conflict_wait
from app.kube.controller import Result
from app.kube.errors import Conflict, NotFound
from app.kube.expectations import ResourceVersionExpectations
from app.kube.objects import Metadata, Pod, decode_metadata, decode_pod
from app.kube.resources import PODS, ObjectKey
from app.kube.store import Change, Store, key_of
from app.pods.readiness import (
    InitialMetadata,
    NotReadyKey,
    StatusPatch,
    initial_condition,
    needs_condition,
    with_key,
    without_key,
)

#: Seconds after which a Pod is looked at again whose newer version should have come by the watch.
RECHECK_DELAY = 1.0
#: Seconds the kubelet is given to report a Pod that it has just been given.
KUBELET_FIRST = 0.5


class PodReadinessReconciler:
    """Sets the condition of Pods that have the readiness gate and no condition yet."""

    def __init__(self, client: Client, pods: Store[Pod], workloads: Sequence[InitialMetadata] = ()) -> None:
        self._client = client
        self._workloads = workloads
        self._clock = client.clock
        self._pods = pods
        self._written = ResourceVersionExpectations(client.clock)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """PM-60: the Pod, if it waits for the condition."""
        if change.new is None:
            self._written.forget(change.object.metadata.uid)
            return ()
        if needs_condition(change.new):
            waits = self._initial_metadata(change.new, self._clock.now()) is None
            return () if waits else (key_of(change.new),)
        self._written.observe(change.new.metadata)
        return ()

    def delay(self, change: Change[Pod], _key: ObjectKey) -> float:
        """The kubelet reports a Pod the moment it gets it. Who writes then makes the API server do one of both writes
        twice; a moment later is early enough for its report that the containers are ready."""
        pod = change.new
        return KUBELET_FIRST if pod is not None and pod.spec.node_name and pod.status.start_time is None else 0.0

    def _initial_metadata(self, pod: Pod, now: datetime) -> Mapping[str, Any] | None:
        """What the workload that the Pod belongs to says."""
        for workload in self._workloads:
            found = workload(pod, now)
            if found is None or found:
                return found
        return {}

    async def __call__(self, key: ObjectKey) -> Result | None:
        """One patch, before the containers can be ready: the kubelet's report of that then counts the condition."""
        pod = self._pods.by_key(key)
        if pod is None or not needs_condition(pod) or self._written.unsatisfied(pod.metadata) is not None:
            return None
        now = self._clock.now()
        more = self._initial_metadata(pod, now)
        if more is None:
            return None
        patch = initial_condition(pod, now)
        if more:
            patch = {**patch, "metadata": {**patch["metadata"], **more}}
        try:
            written = await _patch_status(self._client, pod, patch)
        except NotFound:
            return None
        except Conflict:
            # Somebody was faster; he may have set the condition. The newer Pod is on its way and brings us here again.
            return Result(requeue_after=RECHECK_DELAY)
        self._written.expect(written.metadata)
        return None


async def add_not_ready_key(client: Client, pod: Pod, key: NotReadyKey) -> Metadata | None:
    """PM-62: take the Pod out of service until the key is removed. What was written, if anything was. Raises
    ``Conflict`` after four tries."""
    return await _change(client, pod, lambda fresh, now: with_key(fresh, key, now))


async def remove_not_ready_key(client: Client, pod: Pod, key: NotReadyKey) -> Metadata | None:
    """PM-64: this key no longer holds the Pod back. Like :func:`add_not_ready_key`."""
    return await _change(client, pod, lambda fresh, now: without_key(fresh, key, now))


async def _change(client: Client, pod: Pod, plan: Callable[[Pod, datetime], StatusPatch | None]) -> Metadata | None:
    """PM-179: with a fresh look after each conflict, so that no wish is lost; a Pod that is gone needs nothing."""
    uid = pod.metadata.uid
    for attempt in range(CONFLICT_ATTEMPTS):
        patch = plan(pod, client.clock.now())
        if patch is None:
            return None
        try:
            return await _patch_status(client, pod, patch)
        except NotFound:
            return None
        except Conflict:
            if attempt == CONFLICT_ATTEMPTS - 1:
                raise
            await client.clock.sleep(conflict_wait(attempt))
        live = await get_or_none(client, PODS, pod.metadata.name, pod.metadata.namespace, decode=decode_pod)
        if live is None or live.metadata.uid != uid:
            return None
        pod = live
    return None


async def _patch_status(client: Client, pod: Pod, patch: StatusPatch) -> Metadata:
    return await client.patch(
        PODS,
        pod.metadata.name,
        patch,
        pod.metadata.namespace,
        kind=PatchType.STRATEGIC,
        subresource="status",
        decode=decode_metadata,
    )
