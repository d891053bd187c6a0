"""ImageListPullJob controller: creates an ImagePullJob per image and reports progress. [IMG-70 … IMG-76]"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from app.api import names
from app.api.gojson import go_error
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB, LIST_SPEC
from app.features.imagepull.plan import lists as plan
from app.features.imagepull.plan.jobs import BY_LIST
from app.features.imagepull.reconcile.jobs import JOBS, delete_when_expired
from app.features.imagepull.types import ImageListPullJob, ImagePullJob
from app.kube.client import Client, delete_if_present
from app.kube.concurrency import in_batches
from app.kube.controller import Result
from app.kube.errors import AlreadyExists, Conflict, KubeError
from app.kube.events import INVALID_SPEC, EventRecorder, reference
from app.kube.objects import Metadata, decode_metadata
from app.kube.patches import merge_difference
from app.kube.resources import ObjectKey
from app.kube.statuses import KnownStatus, write_status
from app.kube.store import Change, Store, key_of
from app.pods.predicates import is_controlled_by

logger = logging.getLogger(__name__)

LISTS: Final = IMAGE_LIST_PULL_JOB.resource()


@dataclass(slots=True)
class _State:
    """Values derived from one generation of a list. They are cached because deriving them from a large spec is slow,
    and every job change triggers a reconcile."""

    generation: tuple[str, int]
    #: The error in the spec, or an empty string.
    invalid: str
    hash: str = ""
    #: Job UID → the job's generation, and whether the job is up to date.
    matches: dict[str, tuple[int, bool]] = field(default_factory=dict)


class ImageListPullJobReconciler:
    """Reads the caches and carries out the plan."""

    def __init__(
        self, client: Client, lists: Store[ImageListPullJob], jobs: Store[ImagePullJob], events: EventRecorder
    ) -> None:
        self._client = client
        self._clock = client.clock
        self._lists = lists
        self._jobs = jobs
        self._events = events
        self._states: dict[ObjectKey, _State] = {}

    def keys_for_job(self, change: Change[ImagePullJob]) -> Iterable[ObjectKey]:
        found: dict[ObjectKey, None] = {}
        for job in (change.old, change.new):
            for owner in job.metadata.owner_references if job is not None else ():
                if owner.controller and owner.kind == IMAGE_LIST_PULL_JOB.kind:
                    found[ObjectKey(change.object.metadata.namespace, owner.name)] = None
        return found

    async def __call__(self, key: ObjectKey) -> Result | None:
        job = self._lists.by_key(key)
        if job is None or job.deleting:
            self._states.pop(key, None)
            return None
        state = self._states.get(key)
        if state is None or state.generation != (job.metadata.uid, job.metadata.generation):
            generation = job.metadata.uid, job.metadata.generation
            state = self._states[key] = _State(generation, go_error(LIST_SPEC, job.spec.to_dict(), "spec"))
        if state.invalid:
            # The spec was stored while the webhook was off; the update that fixes it requeues the list.
            self._events.event(reference(LISTS, job), "Warning", INVALID_SPEC, state.invalid)
            return None
        if job.status is not None and job.status.completion_time:
            return await delete_when_expired(self._client, LISTS, job)
        children = self._children(job, state)
        version, error = job.metadata.resource_version, None
        if children.create:
            template = plan.template_of(job)
            state.hash = state.hash or plan.template_hash(template)
            if job.metadata.labels.get(names.CONTROLLER_REVISION_HASH) != state.hash:
                version = await self._label(job, state.hash)
            error = await self._create(job, children.create, template, state.hash)
        # Replacements are created before old jobs are deleted.
        if error is None:
            await self._delete(job, children.delete)
        wanted = plan.status_of(job, children.current, self._clock.now())
        known = KnownStatus(job.status.to_dict() if job.status is not None else {}, version)
        await write_status(self._client, LISTS, job.metadata, known, lambda present: _difference(present, wanted))
        if error is not None:
            raise error
        return None

    def _children(self, job: ImageListPullJob, state: _State) -> plan.Children:
        """Compare the list with its jobs: by hash, or by spec if the hash differs. Unchanged jobs are not compared
        again. [IMG-73]"""
        present = self._jobs.by_index(BY_LIST, plan.owner_of(job).index_key)
        known, state.matches = state.matches, {}
        template: plan.Json | None = None
        for child in present:
            uid, generation = child.metadata.uid, child.metadata.generation
            before = known.get(uid)
            if before is None or before[0] != generation:
                template = plan.template_of(job) if template is None else template
                state.hash = state.hash or plan.template_hash(template)
                labeled = child.metadata.labels.get(names.CONTROLLER_REVISION_HASH) == state.hash
                before = generation, labeled or plan.is_up_to_date(child, template)
            state.matches[uid] = before
        return plan.children_of(job, present, lambda child: state.matches[child.metadata.uid][1])

    async def _label(self, job: ImageListPullJob, hash_: str) -> str:
        """Label the list with the template hash. Return the list's new resource version. [IMG-70]"""
        metadata = job.metadata
        body = {"metadata": {"uid": metadata.uid, "labels": {names.CONTROLLER_REVISION_HASH: hash_}}}
        written: Metadata = await self._client.patch(
            LISTS, metadata.name, body, metadata.namespace, decode=decode_metadata
        )
        return written.metadata.resource_version

    async def _create(
        self, job: ImageListPullJob, images: tuple[str, ...], template: Mapping[str, Any], hash_: str
    ) -> KubeError | None:
        """Create jobs in batches. Stops after the first batch with an error, and returns that error. [IMG-73,
        IMG-74]"""
        made = 0
        error: KubeError | None = None

        async def one(image: str) -> bool:
            body = plan.child_of(job, image, template, hash_)
            try:
                await self._client.create(JOBS, body, job.metadata.namespace, decode=decode_metadata)
            except AlreadyExists:
                there = self._jobs.get(body["metadata"]["name"], job.metadata.namespace)
                if there is None or not is_controlled_by(there.metadata, plan.owner_of(job)):
                    raise  # no event about that job would requeue this list
                return False  # the job is being deleted, which requeues the list
            return True

        async for _, outcome in in_batches(one, images):
            if isinstance(outcome, KubeError):
                error = outcome
            else:
                made += outcome
        if made:
            text = f"Create {made} ImagePullJob"
            self._events.event(reference(LISTS, job), "Normal", "Successful create ImagePullJob", text)
        return error

    async def _delete(self, job: ImageListPullJob, jobs: Iterable[ImagePullJob]) -> None:
        gone = 0
        for one in jobs:
            try:
                gone += await delete_if_present(self._client, JOBS, one.metadata)
            except Conflict:
                logger.debug("ImagePullJob %s was replaced", key_of(one))
        if gone:
            text = f"Delete {gone} ImagePullJob"
            self._events.event(reference(LISTS, job), "Normal", "Successful delete ImagePullJob", text)


def _difference(present: Mapping[str, Any], wanted: Mapping[str, Any]) -> dict[str, Any]:
    # A stale cache must not undo the completion or the start time.
    if present.get("completionTime"):
        return {}
    began = {"startTime": present["startTime"]} if present.get("startTime") else {}
    return merge_difference(present, {**wanted, **began})
