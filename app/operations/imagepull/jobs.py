"""The ImagePullJob controller: brings a job's image into NodeImages, a few at once, and counts (IMG-40 … IMG-57)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from app.api import names
from app.api.imagepull import IMAGE_PULL_JOB, ImageListPullJob, ImagePullJob
from app.kube.client import Client
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.concurrently import settled
from app.kube.controller import Result
from app.kube.errors import Conflict, KubeError, NotFound
from app.kube.events import EventRecorder, reference
from app.kube.expectations import is_at_least
from app.kube.images import FamiliarImage
from app.kube.objects import Metadata, Node, OwnerReference, Pod, decode_metadata
from app.kube.patches import merge_difference
from app.kube.resources import ObjectKey
from app.kube.selectors import Selector, SelectorError
from app.kube.statuses import KnownStatus, write_status
from app.kube.store import Change, Store, key_of
from app.operations.imagepull.cache import NodeImages
from app.operations.imagepull.indexes import BY_IMAGE, BY_POD_SELECTOR, BY_SECRET, image_of
from app.operations.imagepull.objects import BY_JOB, NodeImage
from app.operations.imagepull.plan import jobs as plan
from app.operations.imagepull.plan.changes import changed_images, has_other_tag, tag_changed
from app.operations.imagepull.plan.jobs import is_active
from app.operations.imagepull.plan.lists import BY_LIST, by_list, is_unfinished
from app.operations.imagepull.plan.nodeimages import awaited, has_node_image, is_ready
from app.operations.imagepull.plan.nodes import Named, NodeRule, by_pods, is_scheduled
from app.operations.imagepull.plan.tags import Request, Spread, add_tag, drop_job
from app.operations.imagepull.secrets import PullSecret, PullSecrets
from app.operations.imagepull.waiting import WaitingJobs
from app.pods.update_order import UpdateOrder
from app.slices import BY_NAMESPACE

logger = logging.getLogger(__name__)

JOBS: Final = IMAGE_PULL_JOB.resource()
#: NodeImages written at once.
MAX_CONCURRENT_WRITES: Final = 8
#: Reports of nodes are counted together for so many seconds.
COALESCE_SECONDS: Final = 0.2
#: A job that found a node filled by others meanwhile looks again so soon.
FILLED_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class Caches:
    """What the controller reads."""

    jobs: Store[ImagePullJob]
    nodes: Store[Node]
    node_images: Store[NodeImage]
    pods: Store[Pod]
    secrets: Store[PullSecret]
    lists: Store[ImageListPullJob]


class ImagePullJobReconciler:
    """The shell: reads caches, carries out the plan."""

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
        orders: Sequence[UpdateOrder] = (),
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
        self._secrets = PullSecrets(client, caches.secrets, secrets_namespace)
        #: By uid: the selector as compiled for a generation.
        self._rules: dict[str, tuple[int, NodeRule | None]] = {}
        self._waiting = WaitingJobs(rng)
        #: By uid: the status as last written, until the cache shows it.
        self._statuses: dict[str, KnownStatus] = {}

    # ---- what a change concerns

    def keys_for_job(self, change: Change[ImagePullJob]) -> Iterable[ObjectKey]:
        """The job itself."""
        if change.new is None:
            uid = change.object.metadata.uid
            self._rules.pop(uid, None)
            self._statuses.pop(uid, None)
            self._waiting.remove(key_of(change.object))
        return (key_of(change.object),)

    def keys_for_list(self, change: Change[ImageListPullJob]) -> Iterable[ObjectKey]:
        """IMG-104: the jobs of a list that has ended, or is gone, go in their time."""
        if change.new is not None and is_unfinished(change.new):
            return ()
        return [key_of(job) for job in self._caches.jobs.by_index(BY_LIST, change.object.metadata.uid)]

    def keys_for_node_image(self, change: Change[NodeImage]) -> Iterable[ObjectKey]:
        """IMG-40: jobs that get or lose the node, and those whose image changed there; IMG-111: jobs that wait for
        room."""
        old, new = change.old, change.new
        if new is None:
            self._waiting.forget_node(change.object.metadata.name)
        if old is None or new is None or old.deleting != new.deleting:
            return [key_of(job) for job in self._caches.jobs.list() if is_active(job) and self._may(job, change.object)]
        found: dict[ObjectKey, None] = {}
        if old.metadata.labels != new.metadata.labels:
            for job in self._caches.jobs.list():
                if is_active(job) and self._may(job, old) != self._may(job, new):
                    found[key_of(job)] = None
        for image in changed_images(old, new):
            for job in self._caches.jobs.by_index(BY_IMAGE, image):
                if self._may(job, new) and _concerns(job, image, old, new):
                    found[key_of(job)] = None
        return found | dict.fromkeys(self._waiting.woken(old, new, lambda key: self._may_key(key, new)))

    def keys_for_node(self, change: Change[Node]) -> Iterable[ObjectKey]:
        """IMG-109: jobs that wait for the NodeImage of a node that became ready, or is gone."""
        old, new = change.old, change.new
        if _ready(old) == _ready(new) or self._node_images.get(change.object.metadata.name) is not None:
            return ()
        return [key_of(job) for job in self._caches.jobs.list() if is_active(job) and self._may(job, change.object)]

    def keys_for_pod(self, change: Change[Pod]) -> Iterable[ObjectKey]:
        """IMG-41: jobs that choose nodes by Pods."""
        old, new = change.old, change.new
        if old is not None and new is not None and _same_place(old, new):
            return ()
        jobs = self._caches.jobs.by_index(BY_POD_SELECTOR, change.object.metadata.namespace)
        found: dict[ObjectKey, None] = {}
        for job in jobs:
            rule = self._rule(job)
            selector = rule.pods if rule is not None else None
            placed = (pod for pod in (old, new) if pod is not None and pod.spec.node_name)
            if selector is not None and any(selector.matches(pod.metadata.labels) for pod in placed):
                found[key_of(job)] = None
        return found

    def keys_for_secret(self, change: Change[PullSecret]) -> Iterable[ObjectKey]:
        """IMG-42: jobs that use the Secret; that it is deleted concerns nobody."""
        if change.new is None:
            return ()
        return [key_of(job) for job in self._caches.jobs.by_index(BY_SECRET, str(key_of(change.new)))]

    def coalesce_delay(self, change: Change[Any], key: ObjectKey) -> float:  # noqa: ARG002
        """How long a reconcile is put off that a node or a Pod asks for."""
        return COALESCE_SECONDS

    def _rule(self, job: ImagePullJob) -> NodeRule | None:
        metadata = job.metadata
        known = self._rules.get(metadata.uid)
        if known is not None and known[0] == metadata.generation:
            return known[1]
        try:
            rule: NodeRule | None = NodeRule.of(job.spec)
        except SelectorError as error:
            logger.warning("ImagePullJob %s is left alone: %s", key_of(job), error)
            rule = None
        self._rules[metadata.uid] = (metadata.generation, rule)
        return rule

    def _may(self, job: ImagePullJob, node: Named) -> bool:
        rule = self._rule(job)
        return rule is not None and rule.may_match(node)

    def _may_key(self, key: ObjectKey, node: Named) -> bool:
        job = self._caches.jobs.by_key(key)
        return job is not None and self._may(job, node)

    # ---- one reconcile

    async def __call__(self, key: ObjectKey) -> Result | None:
        """IMG-45."""
        job = self._caches.jobs.by_key(key)
        if job is None:
            return None
        if not is_active(job):
            self._waiting.remove(key)
            return await self._end(job)
        rule, image = self._rule(job), image_of(job)
        known = self._known(job)
        if rule is None or image is None or known.status.get("completionTime"):
            return None  # what was just written is on its way
        known = await self._protect(job, known)
        secrets = await self._claim(job)
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
        waits = [step.wait, self._room_wait(key, job, step.without_room), FILLED_SECONDS if filled else None]
        found = [one for one in waits if one is not None]
        return Result(requeue_after=min(found)) if found else None

    def _has_room(self, node: str, job: ImagePullJob, image: FamiliarImage) -> bool:
        """IMG-111, by the cache."""
        node_image = self._node_images.get(node)
        return node_image is None or self._waiting.has_room(node_image, job, image)

    def _room_wait(self, key: ObjectKey, job: ImagePullJob, nodes: Sequence[str]) -> float | None:
        """IMG-111: when a job is tried again for which these nodes have no room; the first time an event says so."""
        if not nodes:
            self._waiting.remove(key)
            return None
        if self._waiting.add(key):
            self._events.event(reference(JOBS, job), "Warning", "NoRoomOnNode", plan.no_room_message(job, nodes))
        return self._waiting.retry_seconds()

    def _awaited(self, rule: NodeRule, pods: Iterable[Pod], known: KnownStatus) -> dict[str, float]:
        """IMG-109."""
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
        """IMG-105: nodes whose Pods the job's owner updates first come first."""
        owner = next((one for one in job.metadata.owner_references if one.controller), None)
        if owner is None:
            return nodes
        reference = OwnerReference(owner.api_version, owner.kind, owner.name, owner.uid)
        wanted = [pod for pod in pods if is_scheduled(pod) and selector.matches(pod.metadata.labels)]
        for order in self._orders:
            if (found := order(reference, wanted)) is not None:
                return by_pods(nodes, found)
        return nodes

    async def _end(self, job: ImagePullJob) -> Result | None:
        """IMG-46, IMG-47."""
        metadata, key, known = job.metadata, key_of(job), self._known(job)
        if known.version != metadata.resource_version:
            return None  # what was just written is on its way
        if names.DELETION_PROTECTION in metadata.finalizers:
            await self._secrets.release(key, job.spec.pull_secrets or ())
            others = [one for one in metadata.finalizers if one != names.DELETION_PROTECTION]
            if version := await self._set_finalizers(job, others):
                self._statuses[metadata.uid] = KnownStatus(known.status, version)
        made_by = self._list_of(job)
        if job.deleting or (made_by is not None and is_unfinished(made_by)):
            return None  # its end brings us here again
        left = plan.seconds_kept(job, self._clock.now())
        if left is None:
            return None
        if left > 0:
            return Result(requeue_after=left)
        try:
            await self._client.delete(
                JOBS, key.name, key.namespace, uid=metadata.uid, propagation_policy="Background", decode=decode_metadata
            )
        except NotFound:
            logger.debug("ImagePullJob %s is gone already", key)
        return None

    def _list_of(self, job: ImagePullJob) -> ImageListPullJob | None:
        """IMG-104: the list that made the job, as far as the cache shows it."""
        uids, namespace = by_list(job), job.metadata.namespace
        names_ = (owner.name for owner in job.metadata.owner_references if owner.uid in uids)
        found = (self._caches.lists.get(name, namespace) for name in names_)
        return next((one for one in found if one is not None and one.metadata.uid in uids), None)

    async def _protect(self, job: ImagePullJob, known: KnownStatus) -> KnownStatus:
        """IMG-48; OpenKruise marks jobs without pull secrets too."""
        metadata = job.metadata
        if names.DELETION_PROTECTION in metadata.finalizers or metadata.uid in self._statuses:
            return known
        version = await self._set_finalizers(job, [*metadata.finalizers, names.DELETION_PROTECTION])
        found = self._statuses[metadata.uid] = KnownStatus(known.status, version or known.version)
        return found

    async def _set_finalizers(self, job: ImagePullJob, finalizers: list[str]) -> str:
        """The version that the job then has; empty if it is gone."""
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

    async def _claim(self, job: ImagePullJob) -> list[dict[str, str]]:
        wanted = job.spec.pull_secrets or ()
        if not wanted:
            return []
        try:
            found, missing = await self._secrets.claim(key_of(job), wanted)
        except KubeError as error:
            self._events.event(reference(JOBS, job), "Warning", "FailedSyncPullSecrets", str(error))
            raise
        if missing:
            shown = ", ".join(missing)
            text = f"no Secret of a registry with this name, pulling without it: {shown}"
            self._events.event(reference(JOBS, job), "Warning", "PullSecretNotFound", text)
        return found

    async def _leave_other_tags(self, job: ImagePullJob, image: FamiliarImage) -> None:
        """IMG-106: the job had another image before."""
        uid = job.metadata.uid
        nodes = [
            one.metadata.name
            for cached in self._caches.node_images.by_index(BY_JOB, uid)
            if (one := self._node_images.get(cached.metadata.name)) is not None and has_other_tag(one, image, uid)
        ]
        await self._change(nodes, lambda node_image: drop_job(node_image, uid, image))

    async def _ask(self, request: Request, nodes: Iterable[str]) -> bool:
        """Whether a node has no room though the cache said so: somebody else took it."""
        now, spread = rfc3339(self._clock.now()), Spread(self._base_ttl, self._rng.random())
        filled = False

        def edit(node_image: dict[str, Any]) -> None:
            nonlocal filled
            # IMG-111: other workers ask for other jobs of the namespace meanwhile.
            if self._waiting.has_room(self._node_images.of_live(node_image), request.job, request.image):
                add_tag(node_image, request, spread, now)
            else:
                filled = True

        await self._change(nodes, edit)
        return filled

    async def _change(self, nodes: Iterable[str], edit: Any) -> None:
        """Write NodeImages, a few at once; the first error is raised when all are through."""
        changes = (self._node_images.change(name, edit) for name in nodes)
        errors = [one for one in await settled(changes, MAX_CONCURRENT_WRITES) if isinstance(one, BaseException)]
        for error in errors:
            if not isinstance(error, Conflict):
                raise error
        if errors:
            raise errors[0]

    # ---- status

    def _known(self, job: ImagePullJob) -> KnownStatus:
        metadata = job.metadata
        known = self._statuses.get(metadata.uid)
        if known is not None and not is_at_least(metadata.resource_version, known.version):
            return known
        self._statuses.pop(metadata.uid, None)
        return KnownStatus(job.status.to_dict() if job.status is not None else {}, metadata.resource_version)

    async def _report(self, job: ImagePullJob, known: KnownStatus, wanted: Mapping[str, Any]) -> None:
        """IMG-57: written only where it differs."""

        def difference(present: Mapping[str, Any]) -> dict[str, Any]:
            # What a watch has not brought yet must not be undone: an end stays.
            return {} if present.get("completionTime") else merge_difference(present, wanted)

        written = await write_status(self._client, JOBS, job.metadata, known, difference)
        if written is not None:
            self._statuses[job.metadata.uid] = written


def _concerns(job: ImagePullJob, name: str, old: NodeImage, new: NodeImage) -> bool:
    """IMG-40."""
    image = image_of(job)
    return image is not None and tag_changed(FamiliarImage(name, image.tag), old, new)


def _ready(node: Node | None) -> bool:
    return node is not None and has_node_image(node) and is_ready(node)


def _same_place(old: Pod, new: Pod) -> bool:
    return (
        old.metadata.labels == new.metadata.labels
        and old.spec.node_name == new.spec.node_name
        and is_scheduled(old) == is_scheduled(new)
    )
