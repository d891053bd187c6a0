"""ContainerRecreateRequest controller: processes requests until they complete."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, Final, TypeAlias

from app.api import names
from app.features.containerrecreate.kind import CONTAINER_RECREATE_REQUEST, REQUESTS
from app.features.containerrecreate.plan import Step, is_of, step
from app.features.containerrecreate.types import ContainerRecreateRequest
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import PODS as WATCHED_PODS
from app.framework.watched import Watched
from app.kube.client import Client, get_or_none, retry_conflicts
from app.kube.concurrency import KeyedLocks
from app.kube.controller import Result, Watch
from app.kube.errors import NotFound
from app.kube.expectations import ResourceVersionExpectations
from app.kube.objects import Metadata, Pod, decode_metadata, decode_pod
from app.kube.resources import PODS, ObjectKey
from app.kube.statuses import patch_pod_status
from app.kube.store import Change, Store, key_of
from app.pods.readiness import NotReadyKey, StatusPatch, has_gate, recreate_request, with_key, without_key

logger = logging.getLogger(__name__)

BY_POD: Final = "pod"
_Change: TypeAlias = Callable[[Client, Pod, NotReadyKey], Awaitable[Metadata | None]]


def by_pod(request: ContainerRecreateRequest) -> list[str]:
    """Index open requests by the UID of their Pod."""
    done = request.deleting or (request.status is not None and request.status.completion_time)
    return [] if done else [request.metadata.labels.get(names.CRR_POD_UID, "")]


class ContainerRecreateRequestReconciler:
    """Reconciles ContainerRecreateRequests."""

    def __init__(self, client: Client, requests: Store[ContainerRecreateRequest], pods: Store[Pod]) -> None:
        self._client = client
        self._clock = client.clock
        self._requests = requests
        self._pods = pods
        #: Our last writes to requests and to the readiness of Pods. The caches must reflect these writes.
        self._written = ResourceVersionExpectations(client.clock)
        self._marked = ResourceVersionExpectations(client.clock)
        #: Locks by Pod UID. They serialize the requests that change a Pod's readiness.
        self._turns = KeyedLocks()

    def keys_for_request(self, change: Change[ContainerRecreateRequest]) -> Iterable[ObjectKey]:
        if change.new is None:
            self._written.forget(change.object.metadata.uid)
        return (key_of(change.object),)

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """Return the requests of a Pod that was added or deleted, or whose containers changed."""
        old, new = change.old, change.new
        if new is None:
            self._marked.forget(change.object.metadata.uid)
        else:
            self._marked.observe(new.metadata)
        if old is not None and new is not None and _same(old, new):
            return ()
        return [key_of(one) for one in self._requests.by_index(BY_POD, change.object.metadata.uid)]

    async def __call__(self, key: ObjectKey) -> Result | None:
        request = self._requests.by_key(key)
        if request is None:
            return None
        if self._written.unsatisfied(request.metadata) is not None:
            return None  # the event of our own write triggers another reconcile
        pod = await self._pod(request)
        due = step(request, pod, self._clock.now())
        try:
            await self._carry_out(request, pod, due)
        except NotFound:
            logger.debug("ContainerRecreateRequest %s is gone", key)
            return None
        return Result(requeue_after=due.requeue_after) if due.requeue_after is not None else None

    async def _pod(self, request: ContainerRecreateRequest) -> Pod | None:
        """Return the Pod. Falls back to the API server if the cache may lag behind the webhook or our own write."""
        namespace, name = request.metadata.namespace, request.spec.pod_name
        pod = self._pods.get(name, namespace)
        if pod is not None and is_of(request, pod) and self._marked.unsatisfied(pod.metadata) is None:
            return pod
        return await get_or_none(self._client, PODS, name, namespace, decode=decode_pod)

    async def _carry_out(self, request: ContainerRecreateRequest, pod: Pod | None, due: Step) -> None:
        metadata = request.metadata
        version = metadata.resource_version
        gated = pod is not None and is_of(request, pod) and has_gate(pod)
        if due.hold and pod is not None and gated:
            # A crash between the two writes leaves only a finalizer, which is removed when the request ends. [CRR-51]
            if names.CRR_UNREADY_ACQUIRED not in metadata.finalizers:
                finalizers = [*metadata.finalizers, names.CRR_UNREADY_ACQUIRED]
                version = await self._patch(request, version, {"finalizers": finalizers})
            await self._mark(request, pod.metadata.uid, add_not_ready_key)
        if due.release:
            if pod is not None and gated and pod.metadata.deletion_timestamp is None:
                await self._mark(request, pod.metadata.uid, remove_not_ready_key)
            left = [one for one in metadata.finalizers if one != names.CRR_UNREADY_ACQUIRED]
            version = await self._patch(request, version, {"finalizers": left or None})
        if due.deactivate:
            version = await self._patch(request, version, {"labels": {names.CRR_ACTIVE: None}})
        if due.status is not None:
            await self._patch(request, version, {}, due.status)
        if due.delete:
            await self._client.delete(
                REQUESTS, metadata.name, metadata.namespace, uid=metadata.uid, decode=decode_metadata
            )

    async def _mark(self, request: ContainerRecreateRequest, uid: str, change: _Change) -> None:
        """Take the Pod out of service or put it back, and remember the resourceVersion that the cache must reach."""
        key = recreate_request(request.metadata.namespace, request.metadata.name)
        async with self._turns.of(uid):
            pod = await self._pod(request)  # another request may have changed it
            if pod is None or pod.metadata.uid != uid:
                return
            written = await change(self._client, pod, key)
            if written is not None:
                self._marked.expect(written.metadata)

    async def _patch(
        self,
        request: ContainerRecreateRequest,
        version: str,
        change: Mapping[str, Any],
        status: Mapping[str, Any] | None = None,
    ) -> str:
        """Patch the request and return its new version. Raises Conflict if it changed since it was read."""
        metadata = request.metadata
        body: dict[str, Any] = {"metadata": {**change, "uid": metadata.uid, "resourceVersion": version}}
        if status is not None:
            body = {"metadata": {"resourceVersion": version}, "status": status}
        written: Metadata = await self._client.patch(
            REQUESTS,
            metadata.name,
            body,
            metadata.namespace,
            subresource="status" if status is not None else "",
            decode=decode_metadata,
        )
        self._written.expect(written.metadata)
        return written.metadata.resource_version


async def add_not_ready_key(client: Client, pod: Pod, key: NotReadyKey) -> Metadata | None:
    """Take the Pod out of service until the key is removed. Returns the written metadata, or None if nothing was
    written. Raises ``Conflict`` after four attempts. [PM-62]"""
    return await _change(client, pod, lambda fresh, now: with_key(fresh, key, now))


async def remove_not_ready_key(client: Client, pod: Pod, key: NotReadyKey) -> Metadata | None:
    """Remove the key that keeps the Pod out of service. Returns and raises like :func:`add_not_ready_key`. [PM-64]"""
    return await _change(client, pod, lambda fresh, now: without_key(fresh, key, now))


async def _change(client: Client, pod: Pod, plan: Callable[[Pod, datetime], StatusPatch | None]) -> Metadata | None:
    """Change the Pod. It is read again after each conflict so that no change is lost. A deleted Pod is not changed.
    [PM-179]"""
    metadata = pod.metadata

    async def change(attempt: int) -> Metadata | None:
        live = await client.get(PODS, metadata.name, metadata.namespace, decode=decode_pod) if attempt else pod
        patch = plan(live, client.clock.now()) if live.metadata.uid == metadata.uid else None
        return await patch_pod_status(client, live, patch) if patch is not None else None

    try:
        return await retry_conflicts(client, change)
    except NotFound:
        return None


def _same(old: Pod, new: Pod) -> bool:
    return (
        (old.metadata.deletion_timestamp is None) == (new.metadata.deletion_timestamp is None)
        and old.status.phase == new.status.phase
        and old.status.container_statuses == new.status.container_statuses
    )


NAME: Final = "containerrecreaterequest-controller"
REQUESTS_BY_POD: Final = Watched.kind(CONTAINER_RECREATE_REQUEST, ContainerRecreateRequest, **{BY_POD: by_pod})
WATCHED: Final = (REQUESTS_BY_POD, WATCHED_PODS)


def containerrecreaterequest_controller(context: ControllerContext) -> Reconciling:
    """Return the ContainerRecreateRequest controller."""
    requests, pods = context.stores(REQUESTS_BY_POD), context.stores(WATCHED_PODS)
    reconciler = ContainerRecreateRequestReconciler(context.client, requests, pods)
    return Reconciling(reconciler, [Watch(pods, reconciler.keys_for_pod), Watch(requests, reconciler.keys_for_request)])
