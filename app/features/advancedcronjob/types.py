"""The fields of AdvancedCronJob: what users write and what kubectl explains. v1beta1 is the hub; v1alpha1 has no
template of ImageListPullJobs."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

from pydantic import Field

from app.api.model import MAP_TYPE, ApiModel, KubeObject
from app.api.schema import Int32, Int64, RawObject, Time, enum
from app.features.broadcastjob.types import BroadcastJobSpec
from app.features.imagepull.types import ImageListPullJobSpec

ALLOW: Final = "Allow"
FORBID: Final = "Forbid"
REPLACE: Final = "Replace"

JOB: Final = "jobTemplate"
IMAGES: Final = "imageListPullJobTemplate"
BROADCAST: Final = "broadcastJobTemplate"
TEMPLATES: Final = (JOB, IMAGES, BROADCAST)
"""ACJ-8: the templates, in the order in which they count."""


class TemplateMetadata(ApiModel):
    """What each job gets beside its name."""

    labels: dict[str, str] | None = None
    """Labels of the job."""
    annotations: dict[str, str] | None = None
    """Annotations of the job."""


class BroadcastJobTemplate(ApiModel):
    """What each BroadcastJob is made from."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of the job."""
    spec: BroadcastJobSpec | None = None
    """The spec of the job."""


class ImageListPullJobTemplate(ApiModel):
    """What each ImageListPullJob is made from."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of the job."""
    spec: ImageListPullJobSpec | None = None
    """The spec of the job."""


class CronJobTemplateV1Alpha1(ApiModel):
    """What is made when the time has come: exactly one of these."""

    job_template: RawObject | None = None
    """A Job of Kubernetes: metadata and spec of one."""
    broadcast_job_template: BroadcastJobTemplate | None = None
    """A BroadcastJob."""


class CronJobTemplate(CronJobTemplateV1Alpha1):
    """What is made when the time has come: exactly one of these."""

    image_list_pull_job_template: ImageListPullJobTemplate | None = None
    """An ImageListPullJob."""


class _Spec(ApiModel):
    schedule: str
    """When, in five fields: minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly,
    @monthly, @yearly, or @every with a duration such as 90m."""
    time_zone: str | None = None
    """The time zone of the schedule by its IANA name, such as Europe/Berlin; UTC by default."""
    starting_deadline_seconds: Int64 | None = None
    """How late a job may still be started, in seconds; however late by default."""
    concurrency_policy: Annotated[str, enum(ALLOW, FORBID, REPLACE)] = ""
    """What happens if an earlier job still runs: Allow (the default) starts another one beside it, Forbid waits for its
    end, Replace (the default with images to pull) deletes it."""
    paused: bool | None = None
    """Starts no jobs until it is set to false again."""
    successful_jobs_history_limit: Int32 | None = None
    """How many jobs that succeeded are kept; 3 by default."""
    failed_jobs_history_limit: Int32 | None = None
    """How many jobs that failed are kept; 1 by default."""


class AdvancedCronJobSpec(_Spec):
    """When, and what."""

    template: CronJobTemplate
    """What is made when the time has come."""


class AdvancedCronJobV1Alpha1Spec(_Spec):
    """When, and what."""

    template: CronJobTemplateV1Alpha1
    """What is made when the time has come."""


class ActiveJob(ApiModel):
    """A job that has not ended."""

    schema_keywords: ClassVar[dict[str, Any]] = {MAP_TYPE: "atomic"}

    api_version: str = ""
    """Its group and version."""
    kind: str = ""
    """Its kind."""
    namespace: str = ""
    """Its namespace."""
    name: str = ""
    """Its name."""
    uid: str = ""
    """Its uid."""
    resource_version: str = ""
    """Its version when it was first seen."""
    field_path: str = ""
    """Nothing: the whole job is meant."""


class AdvancedCronJobStatus(ApiModel):
    """What runs, and when something last was due."""

    type: str = ""
    """What is made: Job, BroadcastJob or ImageListPullJob."""
    active: list[ActiveJob] | None = None
    """The jobs that have not ended."""
    last_schedule_time: Time = ""
    """When the last job that was started had been due."""


class AdvancedCronJob(KubeObject):
    """AdvancedCronJob starts a Job, BroadcastJob or ImageListPullJob again and again, on a schedule."""

    spec: AdvancedCronJobSpec
    """What is wanted."""
    status: AdvancedCronJobStatus | None = None
    """What is."""


class AdvancedCronJobV1Alpha1(KubeObject):
    """AdvancedCronJob starts a Job or BroadcastJob again and again, on a schedule."""

    spec: AdvancedCronJobV1Alpha1Spec
    """What is wanted."""
    status: AdvancedCronJobStatus | None = None
    """What is."""
