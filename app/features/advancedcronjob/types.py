"""API types of AdvancedCronJob. v1beta1 is the hub; v1alpha1 has no template for ImageListPullJobs."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from app.api.fields import ObjectReference
from app.api.model import ApiModel, KubeObject
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
"""The template fields in order of precedence. [ACJ-8]"""


class TemplateMetadata(ApiModel):
    """TemplateMetadata is the metadata added to each job."""

    labels: dict[str, str] | None = None
    """Labels of the job."""
    annotations: dict[str, str] | None = None
    """Annotations of the job."""


class BroadcastJobTemplate(ApiModel):
    """BroadcastJobTemplate is the template of a BroadcastJob."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of the job."""
    spec: BroadcastJobSpec | None = None
    """Spec of the job."""


class ImageListPullJobTemplate(ApiModel):
    """ImageListPullJobTemplate is the template of an ImageListPullJob."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """Labels and annotations of the job."""
    spec: ImageListPullJobSpec | None = None
    """Spec of the job."""


class CronJobTemplateV1Alpha1(ApiModel):
    """CronJobTemplate is the template of the job to create. Exactly one field must be set."""

    job_template: RawObject | None = None
    """Template of a Kubernetes Job."""
    broadcast_job_template: BroadcastJobTemplate | None = None
    """Template of a BroadcastJob."""


class CronJobTemplate(CronJobTemplateV1Alpha1):
    """CronJobTemplate is the template of the job to create. Exactly one field must be set."""

    image_list_pull_job_template: ImageListPullJobTemplate | None = None
    """Template of an ImageListPullJob."""


class _Spec(ApiModel):
    schedule: str
    """Cron expression of five fields, one of @hourly, @daily, @weekly, @monthly and @yearly, or @every with a duration
    such as 90m."""
    time_zone: str | None = None
    """IANA name of the schedule's time zone, such as Europe/Berlin. Defaults to UTC."""
    starting_deadline_seconds: Int64 | None = None
    """Seconds after its scheduled time within which a job must start; otherwise it is skipped. Defaults to no limit."""
    concurrency_policy: Annotated[str, enum(ALLOW, FORBID, REPLACE)] = ""
    """What happens if an earlier job is still running. Allow (the default) runs both, Forbid waits until the earlier
    job ends, and Replace (the default for ImageListPullJobs) deletes it."""
    paused: bool | None = None
    """While true, no more jobs are started."""
    successful_jobs_history_limit: Int32 | None = None
    """Number of succeeded jobs to keep. Defaults to 3."""
    failed_jobs_history_limit: Int32 | None = None
    """Number of failed jobs to keep. Defaults to 1."""


class AdvancedCronJobSpec(_Spec):
    """AdvancedCronJobSpec defines the schedule and the job to create."""

    template: CronJobTemplate
    """Template of the job to create."""


class AdvancedCronJobV1Alpha1Spec(_Spec):
    """AdvancedCronJobSpec defines the schedule and the job to create."""

    template: CronJobTemplateV1Alpha1
    """Template of the job to create."""


class AdvancedCronJobStatus(ApiModel):
    """AdvancedCronJobStatus is the observed state of an AdvancedCronJob."""

    type: str = ""
    """Kind of the created jobs: Job, BroadcastJob or ImageListPullJob."""
    active: list[ObjectReference] | None = None
    """Jobs that have not ended."""
    last_schedule_time: Time = ""
    """Scheduled time of the last job that was started."""


class AdvancedCronJob(KubeObject):
    """AdvancedCronJob creates a Job, BroadcastJob or ImageListPullJob on a repeating schedule."""

    spec: AdvancedCronJobSpec
    """Desired state of the AdvancedCronJob."""
    status: AdvancedCronJobStatus | None = None
    """Observed state of the AdvancedCronJob."""


class AdvancedCronJobV1Alpha1(KubeObject):
    """AdvancedCronJob creates a Job or BroadcastJob on a repeating schedule."""

    spec: AdvancedCronJobV1Alpha1Spec
    """Desired state of the AdvancedCronJob."""
    status: AdvancedCronJobStatus | None = None
    """Observed state of the AdvancedCronJob."""
