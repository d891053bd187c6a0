"""AdvancedCronJob controller: creates and removes jobs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from app.api.model import is_status_change
from app.features.advancedcronjob.cron import ScheduleError
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.advancedcronjob.plan import (
    MANY,
    OWNER,
    Child,
    State,
    child_of_broadcast_job,
    child_of_image_job,
    child_of_job,
    last_scheduled,
    made_by,
    name_of,
    new_job,
    schedule_of,
    status_of,
    status_patch,
    to_trim,
    what_is_due,
)
from app.features.advancedcronjob.types import FORBID, REPLACE, AdvancedCronJob
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.types import BroadcastJob
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB
from app.features.imagepull.types import ImageListPullJob
from app.framework.feature import ControllerContext, Reconciling
from app.framework.watched import JOBS, Watched
from app.kube.client import Client, get_or_none
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.controller import Result, Watch
from app.kube.errors import UNANSWERED, AlreadyExists, Conflict, KubeError, NotFound, message_of
from app.kube.events import EventRecorder, reference
from app.kube.fielderrors import quote
from app.kube.objects import Job, ObjectMeta, decode_metadata
from app.kube.resources import ObjectKey, Resource
from app.kube.statuses import KnownStatus, newest_status, write_status
from app.kube.store import Change, Store, key_of
from app.pods.predicates import Owner, is_controlled_by, owner_key

# Reconcile: read caches, start jobs, trim the history, write the status. [ACJ-13 … ACJ-23]

logger = logging.getLogger(__name__)

#: Index of jobs by the UID of their AdvancedCronJob.
BY_CRON: Final = "advancedcronjob"
#: Maximum number of seconds between two checks of a schedule, in case the clock is adjusted.
LONGEST_WAIT: Final = 60.0


@dataclass(frozen=True, slots=True)
class Caches:
    """Caches the controller reads."""

    crons: Store[AdvancedCronJob]
    jobs: Store[Job]
    broadcast_jobs: Store[BroadcastJob]
    image_jobs: Store[ImageListPullJob]


@dataclass(slots=True)
class _State:
    """State of one AdvancedCronJob, kept between reconciles. After a restart, it is rebuilt from the caches."""

    uid: str
    #: Scheduled time of the last started job.
    last: datetime | None = None
    #: Scheduled time of a job that may exist although the request to create it got no response.
    unsure: datetime | None = None
    #: A started job that is not in a cache yet.
    unseen: Child | None = None
    #: The last written status.
    written: KnownStatus | None = None
    #: Reason and message of the last event.
    last_event: tuple[str, str] = ("", "")


class AdvancedCronJobReconciler:
    """Starts the jobs of AdvancedCronJobs."""

    def __init__(self, client: Client, caches: Caches, events: EventRecorder) -> None:
        self._client = client
        self._clock = client.clock
        self._caches = caches
        self._events = events
        self._states: dict[ObjectKey, _State] = {}

    def keys_for_child(self, change: Change[Any]) -> Iterable[ObjectKey]:
        """Return the AdvancedCronJob that created the job. [ACJ-20, ACJ-23]"""
        keys: dict[ObjectKey, None] = {}
        for one in (change.old, change.new):
            owner = cron_of(one) if one is not None else None
            if one is None or owner is None:
                continue
            key = ObjectKey(one.metadata.namespace, owner.name)
            state = self._states.get(key)
            if state is not None and state.unseen is not None and state.unseen.uid == one.metadata.uid:
                state.unseen = None
            keys[key] = None
        return keys

    async def __call__(self, key: ObjectKey) -> Result | None:
        """Write the status, delete finished jobs beyond the history limits, and start the next job."""
        cron = self._caches.crons.by_key(key)
        if cron is None:
            self._states.pop(key, None)
            return None
        if cron.deleting:
            return None  # [ACJ-26]
        state = self._states.get(key)
        if state is None or state.uid != cron.metadata.uid:
            state = self._states[key] = _State(cron.metadata.uid)
        children = self._children(cron)
        status = newest_status(cron, state.written).status
        state.last = last_scheduled((state.last, parsed_rfc3339(status.get("lastScheduleTime"))), children)
        await self._report(cron, state, children)
        await self._trim(cron, children)
        if cron.spec.paused or made_by(cron) is None:
            return None
        return await self._start(cron, state, children)

    def _children(self, cron: AdvancedCronJob) -> list[Child]:
        owned, caches = Owner.of(OWNER, cron.metadata).index_key, self._caches
        return [
            *map(child_of_job, caches.jobs.by_index(BY_CRON, owned)),
            *map(child_of_broadcast_job, caches.broadcast_jobs.by_index(BY_CRON, owned)),
            *map(child_of_image_job, caches.image_jobs.by_index(BY_CRON, owned)),
        ]

    async def _start(self, cron: AdvancedCronJob, state: _State, children: Sequence[Child]) -> Result | None:
        await self._find_unsure(cron, state)
        spec, now = cron.spec, self._clock.now()
        since = state.last or parsed_rfc3339(cron.metadata.creation_timestamp) or now
        try:
            schedule = schedule_of(spec.schedule, spec.time_zone)
        except ScheduleError as error:
            # [ACJ-19]
            message = f"unparseable schedule: {quote(spec.schedule)}: {error}"
            self._record_once(cron, state, "UnparseableSchedule", message)
            return None
        due = what_is_due(schedule, since, now, spec.starting_deadline_seconds)
        again = Result(requeue_after=max(0.001, min(due.wait, LONGEST_WAIT))) if due.wait is not None else None
        if due.late is not None:
            message = f"Missed scheduled time to start a job: {rfc3339(due.late)}"
            self._record_once(cron, state, "MissSchedule", message)
        if due.run is None:
            return again
        active = [child for child in children if child.state is State.ACTIVE]
        if spec.concurrency_policy in (FORBID, REPLACE) and (unseen := await self._unseen(cron, state)) is not None:
            active.append(unseen)
        if active and spec.concurrency_policy == FORBID:
            # The end of the active job triggers a reconcile. [ACJ-18]
            message = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self._record_once(cron, state, "JobAlreadyActive", message, "Normal", rfc3339(due.run))
            return again
        if due.many:
            message = (
                f"too many missed start times (> {MANY}); only the latest is started. Set or decrease "
                ".spec.startingDeadlineSeconds or check clock skew"
            )
            self._record_once(cron, state, "TooManyMissedTimes", message, about=rfc3339(due.run))
        if spec.concurrency_policy == REPLACE:
            for child in active:
                await self._delete(cron, child)
        await self._create(cron, state, due.run)
        await self._report(cron, state, children)
        return again

    async def _unseen(self, cron: AdvancedCronJob, state: _State) -> Child | None:
        """Return the started job that is not in a cache yet, or None if it is already gone. A watch that relists never
        reports an object that was created and deleted in between."""
        if (child := state.unseen) is None:
            return None
        namespace = cron.metadata.namespace
        found = await get_or_none(self._client, child.resource, child.name, namespace, decode=decode_metadata)
        state.unseen = child if found is not None and found.metadata.uid == child.uid else None
        return state.unseen

    async def _create(self, cron: AdvancedCronJob, state: _State, run: datetime) -> None:
        """Create the job for a run. An existing job with this name and owner was created for the same run. [ACJ-17,
        ACJ-26]"""
        resource, body = made_by(cron), new_job(cron, run)
        if resource is None or body is None:
            return
        namespace, name = cron.metadata.namespace, body["metadata"]["name"]
        try:
            made = await self._client.create(resource, body, namespace, decode=decode_metadata)
        except AlreadyExists:
            found = await self._client.get(resource, name, namespace, decode=decode_metadata)
            if not is_controlled_by(found.metadata, Owner.of(OWNER, cron.metadata)):
                message = f"Error creating job: {resource.kind} {name} exists and has another owner; delete it"
                self._record_event(cron, "Warning", "FailedCreate", message)
                raise
            self._note_started(cron, state, resource, found.metadata, run)
            return
        except KubeError as error:
            if isinstance(error, UNANSWERED):
                state.unsure = run
            self._record_event(cron, "Warning", "FailedCreate", f"Error creating job: {message_of(error)}")
            raise
        self._note_started(cron, state, resource, made.metadata, run)
        self._record_event(cron, "Normal", "SuccessfulCreate", f"Created job {name}")

    async def _find_unsure(self, cron: AdvancedCronJob, state: _State) -> None:
        """Look up a job whose create request got no response, so that no second job is started alongside it."""
        resource, run = made_by(cron), state.unsure
        if resource is None or run is None:
            return
        namespace, name = cron.metadata.namespace, name_of(cron.name, run)
        found = await get_or_none(self._client, resource, name, namespace, decode=decode_metadata)
        state.unsure = None
        if found is not None and is_controlled_by(found.metadata, Owner.of(OWNER, cron.metadata)):
            self._note_started(cron, state, resource, found.metadata, run)

    def _note_started(
        self, cron: AdvancedCronJob, state: _State, resource: Resource, made: ObjectMeta, run: datetime
    ) -> None:
        state.last = run
        if all(child.uid != made.uid for child in self._children(cron)):
            version = made.resource_version
            state.unseen = Child(resource, made.name, made.uid, version, State.ACTIVE, None, run, deleting=False)

    async def _trim(self, cron: AdvancedCronJob, children: Sequence[Child]) -> None:
        """Delete finished jobs beyond the history limits. Failed deletions are retried in the next reconcile.
        [ACJ-14]"""
        spec = cron.spec
        for child in to_trim(children, spec.successful_jobs_history_limit, spec.failed_jobs_history_limit):
            try:
                await self._delete(cron, child)
            except KubeError as error:
                logger.warning("%s %s/%s: %s", OWNER.kind, cron.metadata.namespace, cron.name, message_of(error))

    async def _delete(self, cron: AdvancedCronJob, child: Child) -> None:
        try:
            await self._client.delete(
                child.resource, child.name, cron.metadata.namespace, propagation_policy="Background", uid=child.uid
            )
        except (NotFound, Conflict):
            return  # gone, or the name belongs to another object
        except KubeError as error:
            self._record_event(cron, "Warning", "FailedDelete", f"Error deleting job {child.name}: {message_of(error)}")
            raise
        self._record_event(cron, "Normal", "SuccessfulDelete", f"Deleted job {child.name}")

    async def _report(self, cron: AdvancedCronJob, state: _State, children: Sequence[Child]) -> None:
        def difference(present: Any) -> dict[str, Any]:
            return status_patch(status_of(cron, children, state.last, present), present)

        known = newest_status(cron, state.written)
        written = await write_status(self._client, OWNER, cron.metadata, known, difference)
        if written is not None:
            state.written = written

    def _record_once(
        self,
        cron: AdvancedCronJob,
        state: _State,
        reason: str,
        message: str,
        type_: Literal["Normal", "Warning"] = "Warning",
        about: str = "",
    ) -> None:
        """Record an event unless it equals the previous one."""
        if state.last_event != (reason, about + message):
            state.last_event = (reason, about + message)
            self._record_event(cron, type_, reason, message)

    def _record_event(
        self, cron: AdvancedCronJob, type_: Literal["Normal", "Warning"], reason: str, message: str
    ) -> None:
        """Record an event. [ACJ-27]"""
        self._events.event(reference(OWNER, cron), type_, reason, message)


def cron_of(job: Any) -> Any:
    """Return the owner reference to the AdvancedCronJob that created a job of any kind, or None."""
    owner = job.metadata.controller
    if owner is None:
        return None
    group = owner.api_version.rpartition("/")[0]
    return owner if (group, owner.kind) == (OWNER.group, OWNER.kind) else None


def cron_keys(job: Any) -> Iterable[str]:
    """Index function of :data:`BY_CRON`."""
    owner = cron_of(job)
    return (owner_key(owner, job.metadata.namespace),) if owner is not None else ()


# Watches of the AdvancedCronJob controller and their event mapping. [ACJ-20]

NAME: Final = "advancedcronjob-controller"
_MADE: Final = {BY_CRON: cron_keys}


CRONS: Final = Watched.kind(ADVANCED_CRON_JOB, AdvancedCronJob)
JOBS_MADE: Final = JOBS.indexed(**_MADE)
BROADCAST_JOBS: Final = Watched.kind(BROADCAST_JOB, BroadcastJob, **_MADE)
IMAGE_JOBS: Final = Watched.kind(IMAGE_LIST_PULL_JOB, ImageListPullJob, **_MADE)
WATCHED: Final = (CRONS, JOBS_MADE, BROADCAST_JOBS, IMAGE_JOBS)


def spec_changes(change: Change[AdvancedCronJob]) -> Iterable[ObjectKey]:
    """Return the object's key unless only its status changed."""
    return () if is_status_change(change) else (key_of(change.object),)


def advancedcronjob_controller(context: ControllerContext) -> Reconciling:
    """Return the AdvancedCronJob controller."""
    caches = Caches(*map(context.stores, WATCHED))  # type: ignore[arg-type]
    reconciler = AdvancedCronJobReconciler(context.client, caches, context.events)
    return Reconciling(
        reconciler,
        [
            Watch(caches.jobs, reconciler.keys_for_child),
            Watch(caches.broadcast_jobs, reconciler.keys_for_child),
            Watch(caches.image_jobs, reconciler.keys_for_child),
            Watch(caches.crons, spec_changes),
        ],
    )
