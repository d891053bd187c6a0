"""Plans an AdvancedCronJob: the runs to start now, and the jobs to keep, replace or remove. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Any, Final

from app.api import model, names
from app.features.advancedcronjob.cron import Every, Schedule, ScheduleError, latest_until, load_zone, parse
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.advancedcronjob.types import AdvancedCronJob
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.broadcastjob.types import BroadcastJob
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB
from app.features.imagepull.types import ImageListPullJob
from app.kube.clock import parsed_rfc3339, rfc3339
from app.kube.objects import Job, ObjectMeta
from app.kube.resources import JOBS, Resource
from app.pods.predicates import controller_reference

# Runs to start. [ACJ-15, ACJ-16, ACJ-22]

#: Warn if more runs than this were missed.
MANY: Final = 100
#: Maximum effective deadline in seconds: about 300 years.
_LONGEST: Final = 10**10


@dataclass(frozen=True, slots=True)
class Due:
    """Result of evaluating a schedule. ``run`` is the scheduled time of the job to start now, if any."""

    run: datetime | None
    #: Seconds until the next scheduled time; None if there is none.
    wait: float | None
    #: Whether more than MANY runs were missed.
    many: bool = False
    #: The latest scheduled time, if its starting deadline has passed.
    late: datetime | None = None
    #: The next scheduled time, if any.
    following: datetime | None = None


def schedule_of(text: str, zone: str | None) -> Schedule:
    """Parse a schedule. A zone in the text takes precedence; a zone that can no longer be loaded counts as UTC. Raises
    ScheduleError. [ACJ-12]"""
    if zone and "TZ" not in text:
        try:
            load_zone(zone)
        except ScheduleError:
            zone = ""
        return parse(text, zone)
    return parse(text)


def what_is_due(schedule: Schedule, since: datetime, now: datetime, deadline: int | None) -> Due:
    """Evaluate a schedule. ``since`` is the time of the last run or the object's creation; ``deadline`` is the maximum
    delay of a run in seconds. ``@every`` schedules always count from ``since``, regardless of the deadline."""
    run = latest_until(schedule, since, now)
    steady = isinstance(schedule, Every)
    following = schedule.next(run or (since if steady else now))
    wait = (following - now.astimezone(UTC)).total_seconds() if following is not None else None
    if run is None:
        return Due(None, wait, following=following)
    earliest = since if deadline is None else max(since, _before(now, deadline))
    if run <= earliest:
        return Due(None, wait, late=run, following=following)
    return Due(run, wait, many=_are_many(schedule, since, earliest, run), following=following)


def _before(now: datetime, seconds: int) -> datetime:
    return now - timedelta(seconds=min(max(seconds, 0), _LONGEST))


def _are_many(schedule: Schedule, since: datetime, earliest: datetime, run: datetime) -> bool:
    """Return whether more than :data:`MANY` scheduled times are in (earliest, run]."""
    if isinstance(schedule, Every):
        return run - max(earliest, since.replace(microsecond=0)) > MANY * schedule.delay
    at: datetime | None = earliest
    for _ in range(MANY + 1):
        at = schedule.next(at) if at is not None else None
        if at is None or at > run:
            return False
    return True


# Existing jobs, the finished jobs to delete, and the next job. [ACJ-6 … ACJ-8, ACJ-14]

OWNER: Final = ADVANCED_CRON_JOB.resource()
BROADCAST_JOBS: Final = BROADCAST_JOB.resource()
IMAGE_LIST_PULL_JOBS: Final = IMAGE_LIST_PULL_JOB.resource()
_NEVER: Final = datetime.min.replace(tzinfo=UTC)


class State(StrEnum):
    """State of a job. [ACJ-7]"""

    ACTIVE = "active"
    SUCCESSFUL = "successful"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Child:
    """A job created by an AdvancedCronJob."""

    resource: Resource
    name: str
    uid: str
    version: str
    state: State
    started: datetime | None
    scheduled: datetime | None
    deleting: bool


def child_of_job(job: Job) -> Child:
    """Return the Child for a Job."""
    state = _by_conditions((one.type, one.status) for one in job.status.conditions)
    return _child(JOBS, job.metadata, state, job.status.start_time)


def child_of_broadcast_job(job: BroadcastJob) -> Child:
    """Return the Child for a BroadcastJob."""
    conditions = (job.status.conditions if job.status is not None else None) or ()
    started = parsed_rfc3339(job.status.start_time) if job.status is not None else None
    return _child(BROADCAST_JOBS, job.metadata, _by_conditions((one.type, one.status) for one in conditions), started)


def child_of_image_job(job: ImageListPullJob) -> Child:
    """Return the Child for an ImageListPullJob."""
    status = job.status
    if status is None or not status.completion_time:
        state = State.ACTIVE
    else:
        state = State.SUCCESSFUL if status.succeeded == status.desired else State.FAILED
    started = parsed_rfc3339(status.start_time) if status is not None else None
    return _child(IMAGE_LIST_PULL_JOBS, job.metadata, state, started)


def _child(
    resource: Resource, metadata: ObjectMeta | model.ObjectMeta, state: State, started: datetime | None
) -> Child:
    scheduled = parsed_rfc3339(metadata.annotations.get(names.SCHEDULED_AT))
    deleting = bool(metadata.deletion_timestamp)
    return Child(resource, metadata.name, metadata.uid, metadata.resource_version, state, started, scheduled, deleting)


def _by_conditions(conditions: Iterable[tuple[str, str]]) -> State:
    ended = {"Complete": State.SUCCESSFUL, "Failed": State.FAILED}
    return next((ended[type_] for type_, status in conditions if status == "True" and type_ in ended), State.ACTIVE)


def last_scheduled(known: Iterable[datetime | None], children: Iterable[Child]) -> datetime | None:
    """Return the latest scheduled time. The ``known`` times keep it from moving backwards when jobs are deleted.
    [ACJ-21]"""
    times = [*known, *(child.scheduled for child in children)]
    return max((time for time in times if time is not None), default=None)


def to_trim(children: Sequence[Child], successful: int | None, failed: int | None) -> list[Child]:
    """Return the finished jobs beyond the history limits, oldest first. [ACJ-14]"""
    found: list[Child] = []
    for state, limit in ((State.SUCCESSFUL, successful), (State.FAILED, failed)):
        if limit is None:
            continue
        ended = [child for child in children if child.state is state and not child.deleting]
        ended.sort(key=lambda child: (child.started or _NEVER, child.name))
        found += ended[: max(0, len(ended) - max(limit, 0))]
    return found


def made_by(cron: AdvancedCronJob) -> Resource | None:
    """Return the resource of the jobs that the AdvancedCronJob creates, or None without a template. [ACJ-8]"""
    template = cron.spec.template
    if template.job_template is not None:
        return JOBS
    if template.image_list_pull_job_template is not None:
        return IMAGE_LIST_PULL_JOBS
    return BROADCAST_JOBS if template.broadcast_job_template is not None else None


def new_job(cron: AdvancedCronJob, scheduled: datetime) -> dict[str, Any] | None:
    """Return the job for a scheduled time, or None without a template. [ACJ-6]"""
    resource, template = made_by(cron), cron.spec.template
    if resource is None:
        return None
    given: Mapping[str, Any]
    if resource is JOBS:
        given = template.job_template or {}
    else:
        part = template.broadcast_job_template if resource is BROADCAST_JOBS else template.image_list_pull_job_template
        given = part.to_dict() if part is not None else {}
    metadata = given.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    owner = cron.metadata
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": {
            "name": name_of(cron.name, scheduled),
            "namespace": owner.namespace,
            "labels": dict(metadata.get("labels") or {}),
            "annotations": {**(metadata.get("annotations") or {}), names.SCHEDULED_AT: rfc3339(scheduled)},
            "ownerReferences": [controller_reference(OWNER.api_version, OWNER.kind, owner.name, owner.uid)],
        },
        "spec": given.get("spec") or {},
    }


def name_of(name: str, scheduled: datetime) -> str:
    """Return the job's name, which is unique per scheduled time so that no run starts twice. [ACJ-6]"""
    return f"{name}-{int(scheduled.timestamp())}"


def status_of(
    cron: AdvancedCronJob, children: Sequence[Child], last: datetime | None, present: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the status. Existing entries in ``active`` are kept unchanged. [ACJ-13]"""
    resource = made_by(cron)
    known = {one.get("uid"): one for one in present.get("active") or () if isinstance(one, dict)}
    active = [
        known.get(child.uid)
        or {
            "apiVersion": child.resource.api_version,
            "kind": child.resource.kind,
            "name": child.name,
            "namespace": cron.metadata.namespace,
            "resourceVersion": child.version,
            "uid": child.uid,
        }
        for child in sorted(children, key=lambda child: child.name)
        if child.state is State.ACTIVE
    ]
    last = last_scheduled((last, parsed_rfc3339(present.get("lastScheduleTime"))), ())
    status: dict[str, Any] = {}
    if resource is not None:
        status["type"] = resource.kind
    if active:
        status["active"] = active
    if last is not None:
        status["lastScheduleTime"] = rfc3339(last)
    return status


def status_patch(wanted: Mapping[str, Any], present: Mapping[str, Any]) -> dict[str, Any]:
    """Return the merge patch that turns the present status into the desired one; empty if they are equal."""
    patch = {key: value for key, value in wanted.items() if present.get(key) != value}
    gone = {key: None for key in ("type", "active") if key in present and key not in wanted}
    return {**patch, **gone}
