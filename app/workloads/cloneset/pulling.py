"""New images pulled ahead of an update in place (CS-59, CS-138 … CS-141): what :mod:`app.pods.predownload` decides,
carried out.

It only ever helps: whatever goes wrong is told and logged, and the roll-out goes on without.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any, Final

from app.api import names
from app.api.cloneset import CloneSet, InPlaceUpdateStrategy
from app.kube.client import Client
from app.kube.errors import AlreadyExists, KubeError, NotFound, message_of
from app.kube.intorpercent import IntOrPercentError
from app.kube.objects import decode_metadata
from app.kube.resources import Resource
from app.pods.inplace import Blocked
from app.pods.predownload import (
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
from app.pods.revisions import Revision, short_hash
from app.pods.templates import recorded_template
from app.workloads.cloneset.history import History
from app.workloads.cloneset.limits import DEFAULT_MAX_UNAVAILABLE, share
from app.workloads.cloneset.plan import RolloutState
from app.workloads.cloneset.resolved import ResolvedSpec
from app.workloads.cloneset.settings import UpdatePolicy
from app.workloads.cloneset.state import CloneSetState
from app.workloads.cloneset.writer import Writer

logger = logging.getLogger(__name__)

IMAGE_PULL_JOBS: Final = Resource(names.APPS_GROUP, names.V1BETA1, "imagepulljobs", "ImagePullJob")


class ImagePuller:
    """Makes ImagePullJobs and takes them away. Decided once per update revision, remembered on it by a label."""

    def __init__(self, client: Client, writer: Writer, history: History) -> None:
        self._client = client
        self._writer = writer
        self._history = history

    async def look(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        rollout: RolloutState,
        current: Revision,
        ordered: Sequence[Revision],
    ) -> None:
        """What is due for the update revision, which is the last of ``ordered``."""
        update = ordered[-1]
        decision = decide(rollout_of(state, resolved, rollout, current, ordered))
        done = (update.name, decision)
        if state.pulls == done or decision in (Decision.NOTHING, Decision.WAIT):
            return
        try:
            if decision is Decision.CLEAN_UP:
                if any(names.PRE_DOWNLOAD_CREATED in revision.labels for revision in ordered):
                    await self._clean_up(owner)
            elif decision is Decision.IGNORE or await self._create(owner, resolved, current, update):
                await self._history.label(owner, update, outcome_label(decision))
        except KubeError as error:
            logger.warning("CloneSet %s: pulling images ahead: %s", state.key, error)
            return
        state.pulls = done

    async def _create(self, owner: CloneSet, resolved: ResolvedSpec, current: Revision, update: Revision) -> bool:
        """CS-141: one job per changed image. False: this cluster knows no such jobs (CS-138)."""
        old, new = recorded_template(current), recorded_template(update)
        if old is None or new is None:
            return True
        puller = puller_of(owner, resolved, update, new)
        for container, image in changed_images(old, new).items():
            job = pull_job(puller, container, image)
            name = job["metadata"]["name"]
            try:
                await self._client.create(IMAGE_PULL_JOBS, job, owner.metadata.namespace, decode=decode_metadata)
            except AlreadyExists:
                continue
            except NotFound:
                text = f"failed to create ImagePullJob {name}: this cluster does not serve ImagePullJobs of {_SERVED}"
                self._writer.event(owner, "FailedCreateImagePullJob", text)
                logger.warning("CloneSet %s/%s: %s", owner.metadata.namespace, owner.name, text)
                return False
            except KubeError as error:
                text = f"failed to create ImagePullJob {name}: {message_of(error)}"
                self._writer.event(owner, "FailedCreateImagePullJob", text)
            else:
                self._writer.event(owner, "CreatedImagePullJob", f"created ImagePullJob {name} for image: {image}")
        return True

    async def _clean_up(self, owner: CloneSet) -> None:
        """CS-139: the roll-out is over."""
        namespace = owner.metadata.namespace
        try:
            jobs = (await self._client.list(IMAGE_PULL_JOBS, namespace, decode=decode_metadata)).items
        except NotFound:
            return
        for job in jobs:
            controller = job.metadata.controller
            if controller is None or controller.uid != owner.metadata.uid:
                continue
            try:
                await self._client.delete(IMAGE_PULL_JOBS, job.metadata.name, namespace, uid=job.metadata.uid)
            except NotFound:
                logger.debug("ImagePullJob %s/%s is gone already", namespace, job.metadata.name)


_SERVED: Final = f"{names.APPS_GROUP}/{names.V1BETA1}"


def rollout_of(
    state: CloneSetState, resolved: ResolvedSpec, rollout: RolloutState, current: Revision, ordered: Sequence[Revision]
) -> Rollout:
    """CS-139, CS-140: what the decision asks. ``ordered``: all revisions, the update revision last."""
    update, rolling, replicas = ordered[-1], resolved.settings.rolling_update, rollout.limits.replicas
    in_place_policy = rolling is not None and rolling.policy is not UpdatePolicy.RECREATE
    possible = in_place_policy and current.name != update.name
    wanted = rolling.max_unavailable if rolling is not None else None
    at_once = share(DEFAULT_MAX_UNAVAILABLE if wanted is None else wanted, replicas, round_up=False)
    return Rollout(
        current=current.name,
        update=update.name,
        labels=update.labels,
        in_place_policy=in_place_policy,
        in_place_possible=possible
        and not isinstance(state.spec_between(short_hash(current.name), update, ordered, resolved), Blocked),
        replicas=replicas,
        partition=rollout.limits.partition,
        max_unavailable=at_once or 0,
        updated_ready=rollout.counts.updated_ready,
        min_updated_ready=_min_updated_ready(resolved, replicas) if current.name != update.name else 0,
    )


def _min_updated_ready(resolved: ResolvedSpec, replicas: int) -> int:
    """PM-161, B-16: the field, or what it cannot hold and the annotation says, such as a percentage."""
    strategy = _strategy(resolved)
    value = strategy.image_pre_download_min_updated_ready_pods if strategy is not None else None
    if value is not None:
        return value
    text = resolved.content.annotations.get(names.PRE_DOWNLOAD_MIN_UPDATED_READY_PODS)
    try:
        return min_updated_ready(text, replicas)
    except IntOrPercentError as error:
        logger.info(
            "CloneSet %s/%s: %s: %s",
            resolved.owner.namespace,
            resolved.owner.name,
            names.PRE_DOWNLOAD_MIN_UPDATED_READY_PODS,
            error,
        )
        return 0


def puller_of(owner: CloneSet, resolved: ResolvedSpec, update: Revision, template: Mapping[str, Any]) -> Puller:
    """CS-141: what all jobs of a roll-out have in common. ``template``: that of the update revision."""
    strategy = _strategy(resolved)
    at_once, seconds = 1, TIMEOUT_SECONDS
    if strategy is not None:
        seconds = strategy.image_pre_download_timeout_seconds or TIMEOUT_SECONDS
        try:
            at_once = parallelism(strategy.image_pre_download_parallelism)
        except IntOrPercentError as error:
            logger.warning(
                "CloneSet %s/%s: imagePreDownloadParallelism: %s", resolved.owner.namespace, owner.name, error
            )
    return Puller(
        namespace=owner.metadata.namespace,
        owner=resolved.owner.reference,
        selector=resolved.spec.get("selector") or {},
        template=template,
        revision=update.name,
        revision_hash=update.labels.get(names.CONTROLLER_HASH, short_hash(update.name)),
        parallelism=at_once,
        timeout_seconds=seconds,
    )


def _strategy(resolved: ResolvedSpec) -> InPlaceUpdateStrategy | None:
    return resolved.strategy.in_place_update_strategy if resolved.strategy is not None else None
