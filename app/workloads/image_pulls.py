"""Pre-pulls images for in-place updates, as decided by ``predownload``. [PM-160 … PM-168, CS-138, CS-139]

Pre-pulling is best effort: failures are logged and recorded as events, and the rollout continues.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Final

from app.api import names
from app.kube.client import Client
from app.kube.errors import UNANSWERED, AlreadyExists, Conflict, KubeError, NotFound, message_of
from app.kube.objects import decode_metadata
from app.kube.quantities import IntOrPercentError
from app.kube.resources import Resource
from app.pods.inplace.eligibility import Blocked
from app.pods.predicates import is_controlled_by
from app.pods.revisions import Revision, recorded_template, short_hash
from app.workloads.history import History
from app.workloads.predownload import (
    TIMEOUT_SECONDS,
    Decision,
    Puller,
    Rollout,
    changed_images,
    decide,
    min_updated_ready,
    outcome_label,
    parallelism,
    pull_job,
)
from app.workloads.settings import UpdatePolicy
from app.workloads.state import AnySnapshot
from app.workloads.writer import Writer

logger = logging.getLogger(__name__)

IMAGE_PULL_JOBS: Final = Resource(names.APPS_GROUP, names.V1BETA1, "imagepulljobs", "ImagePullJob")
_SERVED: Final = f"{names.APPS_GROUP}/{names.V1BETA1}"


@dataclass(frozen=True, slots=True)
class RolloutCounts:
    """State of a rollout. ``max_unavailable`` is rounded down; ``updated``, which only DaemonSets use, counts Pods
    whether or not they are ready."""

    replicas: int
    partition: int
    max_unavailable: int
    updated_ready: int
    updated: int = 0


class ImagePuller:
    """Creates and deletes ImagePullJobs. The decision is made once per update revision and stored in a label on it.

    Subclasses may override :meth:`decision` and :meth:`images`. With ``warns``, failures emit Warning events.
    """

    warns: ClassVar[bool] = False

    def __init__(self, client: Client, writer: Writer, history: History) -> None:
        self._client = client
        self._writer = writer
        self._history = history

    async def reconcile(self, snapshot: AnySnapshot, counts: RolloutCounts) -> None:
        update, state, ordered = snapshot.revisions.update, snapshot.state, snapshot.revisions.ordered
        decision = self.decision(snapshot, counts)
        done = (update.name, decision)
        if state.pulls == done or decision in (Decision.NOTHING, Decision.WAIT):
            return
        try:
            if decision is Decision.CLEAN_UP:
                if any(names.PRE_DOWNLOAD_CREATED in revision.labels for revision in ordered):
                    await self._clean_up(snapshot)
            elif decision is Decision.IGNORE or await self._create(snapshot):
                await self._history.label(snapshot.resolved.content, update, outcome_label(decision))
        except KubeError as error:
            logger.warning("%s: pre-pulling images: %s", snapshot.owner, error)
            state.side_task_left = True
            return
        state.pulls = done

    def decision(self, snapshot: AnySnapshot, counts: RolloutCounts) -> Decision:
        """Return what to do about the update revision. [CS-139, PM-162]"""
        return decide(rollout_of(snapshot, counts))

    def images(self, snapshot: AnySnapshot, template: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the images to pull, by container name. ``template`` is the update revision's Pod template. [PM-167]"""
        old = recorded_template(snapshot.revisions.current)
        return changed_images(old, template) if old is not None else {}

    async def _create(self, snapshot: AnySnapshot) -> bool:
        """Create one job per changed image. Return False if the cluster does not serve ImagePullJobs. A rejected
        request is not retried. If requests get no response, the first error is raised once all have been sent.
        [CS-138, PM-167]"""
        workload, update = snapshot.workload, snapshot.revisions.update
        new = recorded_template(update)
        if new is None:
            return True
        puller = puller_of(snapshot, update, new)
        unanswered: KubeError | None = None
        for container, image in self.images(snapshot, new).items():
            job = pull_job(puller, container, image)
            name = job["metadata"]["name"]
            try:
                await self._client.create(IMAGE_PULL_JOBS, job, snapshot.owner.namespace, decode=decode_metadata)
            except AlreadyExists:
                continue
            except NotFound:
                text = f"failed to create ImagePullJob {name}: this cluster does not serve ImagePullJobs of {_SERVED}"
                self._writer.event(workload, "FailedCreateImagePullJob", text, warning=self.warns)
                logger.warning("%s: %s", snapshot.owner, text)
                return False
            except KubeError as error:
                text = f"failed to create ImagePullJob {name}: {message_of(error)}"
                self._writer.event(workload, "FailedCreateImagePullJob", text, warning=self.warns)
                if isinstance(error, UNANSWERED):
                    unanswered = unanswered or error
            else:
                self._writer.event(workload, "CreatedImagePullJob", f"created ImagePullJob {name} for image: {image}")
        if unanswered is not None:
            raise unanswered
        return True

    async def _clean_up(self, snapshot: AnySnapshot) -> None:
        """Delete the jobs once the rollout is over. [CS-139]"""
        namespace = snapshot.owner.namespace
        try:
            jobs = (await self._client.list(IMAGE_PULL_JOBS, namespace, decode=decode_metadata)).items
        except NotFound:
            return
        for job in jobs:
            if not is_controlled_by(job.metadata, snapshot.owner):
                continue
            try:
                await self._client.delete(IMAGE_PULL_JOBS, job.metadata.name, namespace, uid=job.metadata.uid)
            except (NotFound, Conflict):
                logger.debug("ImagePullJob %s/%s was already deleted", namespace, job.metadata.name)


def rollout_of(snapshot: AnySnapshot, counts: RolloutCounts) -> Rollout:
    """Return the input to the decision. [CS-139, PM-162]"""
    revisions, settings = snapshot.revisions, snapshot.resolved.settings
    current, update = revisions.current, revisions.update
    in_place_policy = settings.update_policy is not None and settings.update_policy != UpdatePolicy.RECREATE
    possible = in_place_policy and current.name != update.name
    between = snapshot.state.in_place.spec_between
    return Rollout(
        current=current.name,
        update=update.name,
        labels=update.labels,
        in_place_policy=in_place_policy,
        in_place_possible=possible
        and not isinstance(between(short_hash(current.name), update, revisions.ordered, settings), Blocked),
        replicas=counts.replicas,
        partition=counts.partition,
        max_unavailable=counts.max_unavailable,
        updated_ready=counts.updated_ready,
        min_updated_ready=min_updated_ready_of(snapshot, counts.replicas) if current.name != update.name else 0,
    )


def min_updated_ready_of(snapshot: AnySnapshot, replicas: int) -> int:
    """Return how many updated Pods must be ready before images are pre-pulled: the value of the field or, if that is
    unset, of the annotation, which may also hold a percentage. [PM-161]"""
    value: int | None = snapshot.resolved.image_pulls.min_updated_ready
    if value is not None:
        return value
    text = snapshot.resolved.content.annotations.get(names.PRE_DOWNLOAD_MIN_UPDATED_READY_PODS)
    try:
        return min_updated_ready(text, replicas)
    except IntOrPercentError as error:
        logger.info("%s: %s: %s", snapshot.owner, names.PRE_DOWNLOAD_MIN_UPDATED_READY_PODS, error)
        return 0


def puller_of(snapshot: AnySnapshot, update: Revision, template: Mapping[str, Any]) -> Puller:
    """Return the fields shared by all jobs of a rollout. ``template`` is the update revision's Pod template.
    [PM-167]"""
    wanted, at_once = snapshot.resolved.image_pulls, 1
    try:
        at_once = parallelism(wanted.parallelism)
    except IntOrPercentError as error:
        logger.warning("%s: imagePreDownloadParallelism: %s", snapshot.owner, error)
    return Puller(
        namespace=snapshot.owner.namespace,
        owner=snapshot.owner.reference,
        selector=snapshot.resolved.spec.get("selector") or {},
        template=template,
        revision=update.name,
        revision_hash=update.labels.get(names.CONTROLLER_HASH, short_hash(update.name)),
        parallelism=at_once,
        timeout_seconds=wanted.timeout_seconds or TIMEOUT_SECONDS,
    )
