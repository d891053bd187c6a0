"""ImagePullJob controller: adds the image to NodeImages, a few at a time, and reports progress. [IMG-40 … IMG-57]"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from app.api import names
from app.features.imagepull.cache import NodeImages, WaitingJobs, image_of
from app.features.imagepull.kind import IMAGE_PULL_JOB
from app.features.imagepull.objects import BY_JOB
from app.features.imagepull.plan import jobs as plan
from app.features.imagepull.plan.jobs import is_active
from app.features.imagepull.plan.lists import owner_of
from app.features.imagepull.plan.nodes import NodeRule, awaited, by_pods, has_other_tag, is_scheduled
from app.features.imagepull.plan.tags import Request, Spread, add_tag, drop_job
from app.features.imagepull.reconcile.mappers import Caches, JobMapper
from app.features.imagepull.secrets import Claimed, NoCopyError, PullSecrets, told
from app.features.imagepull.types import ImageListPullJob, ImagePullJob
from app.framework.watched import BY_NAMESPACE
from app.kube.client import Client, delete_if_present, get_or_none
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.concurrency import settled
from app.kube.controller import Result
from app.kube.errors import Conflict, Forbidden, KubeError, NotFound
from app.kube.events import EventRecorder, reference
from app.kube.images import FamiliarImage
from app.kube.objects import Metadata, OwnerReference, Pod, decode_metadata
from app.kube.patches import merge_difference
from app.kube.resources import ObjectKey, Resource
from app.kube.selectors import Selector
from app.kube.statuses import KnownStatus, newest_status, write_status
from app.kube.store import Change, key_of
from app.pods.predicates import is_controlled_by
from app.pods.sorting import UpdateOrder

JOBS: Final = IMAGE_PULL_JOB.resource()
#: Maximum number of concurrent NodeImage writes.
MAX_CONCURRENT_WRITES: Final = 8
#: Seconds after which a job is requeued if other jobs have filled a NodeImage in the meantime.
FILLED_SECONDS: Final = 1.0


async def delete_when_expired(
    client: Client, resource: Resource, job: ImagePullJob | ImageListPullJob
) -> Result | None:
    """Delete a completed job after its TTL. [IMG-47, IMG-71]"""
    left = plan.seconds_kept(job, client.clock.now())
    if left is None:
        return None
    if left > 0:
        return Result(requeue_after=left)
    await delete_if_present(client, resource, job.metadata)
    return None


class ImagePullJobReconciler:
    """Reads the caches and carries out the plan."""

    def __init__(
        self,
        client: Client,
        caches: Caches,
        events: EventRecorder,
        rng: Random,
        *,
        secrets_namespace: str,
        base_ttl: int,
        creation_delay: float,
        orders: Sequence[UpdateOrder],
        share: int,
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._caches = caches
        self._events = events
        self._rng = rng
        self._base_ttl = base_ttl
        self._creation_delay = creation_delay
        self._orders = orders
        self._node_images = NodeImages(client, caches.node_images)
        self._secrets = PullSecrets(client, caches.copies, secrets_namespace)
        self._waiting = WaitingJobs(rng, share)
        self.job_mapper = JobMapper(caches, self._node_images, self._waiting)
        #: Last written status by UID, until the cache has it.
        self._statuses: dict[str, KnownStatus] = {}

    def keys_for_job(self, change: Change[ImagePullJob]) -> Iterable[ObjectKey]:
        if change.new is None:
            self.job_mapper.forget(change.object)
            self._secrets.forget(key_of(change.object))
            self._statuses.pop(change.object.metadata.uid, None)
        return (key_of(change.object),)

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Reconcile one ImagePullJob. [IMG-45]"""
        job = self._caches.jobs.by_key(key)
        if job is None:
            await self._gone(key)
            return None
        if not is_active(job):
            self._waiting.remove(key)
            return await self._end(job)
        rule, image = self.job_mapper.rule(job), image_of(job)
        known = self._known(job)
        if rule is None or image is None or known.status.get("completionTime"):
            return None  # the cache lags behind the last write
        known = await self._protect(job, known)
        claimed = await self._claim(job, known)
        secrets = claimed.references
        pods = self._caches.pods.by_index(BY_NAMESPACE, key.namespace) if rule.pods is not None else ()
        nodes = [self._node_images.get(name) for name in rule.nodes(self._node_images.all(), pods)]
        progress = plan.progress_of(job, image, [one for one in nodes if one is not None], secrets)
        progress = replace(progress, awaited=self._awaited(rule, pods, known))
        if rule.pods is not None and len(progress.not_synced) > 1:
            progress = replace(progress, not_synced=self._in_order(job, rule.pods, pods, progress.not_synced))
        started = known.status.get("startTime")
        step = plan.step(job, progress, self._clock.now(), started, lambda node: self._has_room(node, job, image))
        request = Request(image, job, secrets)
        await self._leave_other_tags(job, image)
        filled = await self._ask(request, step.next_nodes)
        await self._report(job, known, step.status)
        if step.ended and not progress.desired:
            self._events.event(reference(JOBS, job), "Warning", "NoNodeSelected", plan.NO_NODES)
        room_wait = self._room_wait(key, job, step.without_room)
        waits = [step.wait, room_wait, FILLED_SECONDS if filled else None, None if step.ended else claimed.wait]
        found = [one for one in waits if one is not None]
        return Result(requeue_after=min(found)) if found else None

    def _has_room(self, node: str, job: ImagePullJob, image: FamiliarImage) -> bool:
        """Return whether the NodeImage has room, according to the cache. [IMG-111]"""
        node_image = self._node_images.get(node)
        return node_image is None or self._waiting.has_room(node_image, job, image)

    def _room_wait(self, key: ObjectKey, job: ImagePullJob, nodes: Sequence[str]) -> float | None:
        """Return the seconds until a job waiting for room is retried. Records an event the first time. [IMG-111]"""
        if not nodes:
            self._waiting.remove(key)
            return None
        if self._waiting.add(key):
            self._events.event(reference(JOBS, job), "Warning", "NoRoomOnNode", plan.no_room_message(job, nodes))
        return self._waiting.retry_seconds()

    def _awaited(self, rule: NodeRule, pods: Iterable[Pod], known: KnownStatus) -> dict[str, float]:
        """Return the selected nodes without a NodeImage, with the seconds the job still waits for each. [IMG-109]"""
        now = self._clock.now()
        started = parsed_rfc3339(known.status.get("startTime")) or now
        waits: dict[str, float] = {}
        coming = []
        for node in self._caches.nodes.list():
            if self._node_images.get(node.metadata.name) is None:
                left = awaited(node, self._creation_delay, started, now)
                if left is not None:
                    waits[node.metadata.name] = left
                    coming.append(node)
        return {name: waits[name] for name in rule.nodes(coming, pods)}

    def _in_order(
        self, job: ImagePullJob, selector: Selector, pods: Iterable[Pod], nodes: Sequence[str]
    ) -> Sequence[str]:
        """Return the nodes in the order in which the job's owner updates their Pods. [IMG-105]"""
        owner = job.metadata.controller
        if owner is None:
            return nodes
        reference = OwnerReference(owner.api_version, owner.kind, owner.name, owner.uid)
        wanted = [pod for pod in pods if is_scheduled(pod) and selector.matches(pod.metadata.labels)]
        for order in self._orders:
            if (found := order(reference, wanted)) is not None:
                return by_pods(nodes, found)
        return nodes

    async def _end(self, job: ImagePullJob) -> Result | None:
        """Release the pull secrets of a finished job and delete it after its TTL. [IMG-46, IMG-47]"""
        metadata, key, known = job.metadata, key_of(job), self._known(job)
        if known.version != metadata.resource_version:
            return None  # the cache lags behind the last write
        if names.DELETION_PROTECTION in metadata.finalizers:
            await self._secrets.release(key, job.spec.pull_secrets or ())
            others = [one for one in metadata.finalizers if one != names.DELETION_PROTECTION]
            if version := await self._set_finalizers(job, others):
                self._statuses[metadata.uid] = KnownStatus(known.status, version)
        made_by = self._list_of(job)
        if job.deleting or (made_by is not None and is_active(made_by)):
            return None  # completion of the list requeues the job
        return await delete_when_expired(self._client, JOBS, job)

    async def _gone(self, key: ObjectKey) -> None:
        """Release the pull secret copies of a deleted job whose finalizer was removed by hand. [IMG-65]"""
        self._secrets.forget(key)
        if not self._secrets.has_copies(key):
            return
        try:
            live: Metadata | None = await get_or_none(
                self._client, JOBS, key.name, key.namespace, decode=decode_metadata
            )
        except Forbidden:
            return  # the manager has no access to the job's namespace
        if live is None:
            await self._secrets.release(key, ())

    def _list_of(self, job: ImagePullJob) -> ImageListPullJob | None:
        """Return the list that owns the job, if it is in the cache. [IMG-104]"""
        owner, namespace = job.metadata.controller, job.metadata.namespace
        found = self._caches.lists.get(owner.name, namespace) if owner is not None else None
        return found if found is not None and is_controlled_by(job.metadata, owner_of(found)) else None

    async def _protect(self, job: ImagePullJob, known: KnownStatus) -> KnownStatus:
        """Add the finalizer, as in OpenKruise also to jobs without pull secrets. [IMG-48]"""
        metadata = job.metadata
        if names.DELETION_PROTECTION in metadata.finalizers or metadata.uid in self._statuses:
            return known
        version = await self._set_finalizers(job, [*metadata.finalizers, names.DELETION_PROTECTION])
        found = self._statuses[metadata.uid] = KnownStatus(known.status, version or known.version)
        return found

    async def _set_finalizers(self, job: ImagePullJob, finalizers: list[str]) -> str:
        """Set the finalizers. Return the new resource version, or '' if the job is gone."""
        metadata = job.metadata
        known = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
        body = {"metadata": {**known, "finalizers": finalizers or None}}
        try:
            written: Metadata = await self._client.patch(
                JOBS, metadata.name, body, metadata.namespace, decode=decode_metadata
            )
        except NotFound:
            return ""
        return written.metadata.resource_version

    async def _claim(self, job: ImagePullJob, known: KnownStatus) -> Claimed:
        """Copy the job's pull secrets and report problems as events. [IMG-64, IMG-113]"""
        now = self._clock.now()
        started = parsed_rfc3339(known.status.get("startTime")) or now
        try:
            claimed = await self._secrets.claim(
                key_of(job), job.spec.pull_secrets or (), (now - started).total_seconds()
            )
        except Conflict:
            raise  # another job updated the shared copy
        except KubeError as error:
            self._events.event(reference(JOBS, job), "Warning", "FailedSyncPullSecrets", str(error))
            if isinstance(error, NoCopyError):
                await self._report(job, known, {"desired": 0, **known.status, "message": str(error)})
            raise
        for reason, text in told(job.metadata.namespace, claimed) if claimed.is_news else ():
            self._events.event(reference(JOBS, job), "Warning", reason, text)
        return claimed

    async def _leave_other_tags(self, job: ImagePullJob, image: FamiliarImage) -> None:
        """Remove the job from the tags of its previous image. [IMG-106]"""
        uid = job.metadata.uid
        nodes = [
            one.metadata.name
            for cached in self._caches.node_images.by_index(BY_JOB, uid)
            if (one := self._node_images.get(cached.metadata.name)) is not None and has_other_tag(one, image, uid)
        ]
        await self._change(nodes, lambda node_image: drop_job(node_image, uid, image))

    async def _ask(self, request: Request, nodes: Iterable[str]) -> bool:
        """Request the image on these nodes. Return whether a NodeImage turned out to be full."""
        now, spread = rfc3339(self._clock.now()), Spread(self._base_ttl, self._rng.random())
        filled = False

        def edit(node_image: dict[str, Any]) -> None:
            nonlocal filled
            # Other workers may add images of the same namespace concurrently. [IMG-111]
            if self._waiting.has_room(self._node_images.of_live(node_image), request.job, request.image):
                add_tag(node_image, request, spread, now)
            else:
                filled = True

        await self._change(nodes, edit)
        return filled

    async def _change(self, nodes: Iterable[str], edit: Any) -> None:
        """Write NodeImages concurrently. The first error is raised once all writes have finished."""
        changes = (self._node_images.change(name, edit) for name in nodes)
        errors = [one for one in await settled(changes, MAX_CONCURRENT_WRITES) if isinstance(one, BaseException)]
        for error in errors:
            if not isinstance(error, Conflict):
                raise error
        if errors:
            raise errors[0]

    def _known(self, job: ImagePullJob) -> KnownStatus:
        written = self._statuses.get(job.metadata.uid)
        known = newest_status(job, written)
        if known is not written:
            self._statuses.pop(job.metadata.uid, None)
        return known

    async def _report(self, job: ImagePullJob, known: KnownStatus, wanted: Mapping[str, Any]) -> None:
        """Write the status if it changed. [IMG-57]"""

        def difference(present: Mapping[str, Any]) -> dict[str, Any]:
            # A stale cache must not undo the completion.
            return {} if present.get("completionTime") else merge_difference(present, wanted)

        written = await write_status(self._client, JOBS, job.metadata, known, difference)
        if written is not None:
            self._statuses[job.metadata.uid] = written
