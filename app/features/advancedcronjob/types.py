"""API types of AdvancedCronJob. v1beta1 is the hub; v1alpha1 has no template of ImageListPullJobs."""

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
"""The template fields in order of precedence. [ACJ-8]"""


class TemplateMetadata(ApiModel):
    """TemplateMetadata is the metadata added to each job."""

    labels: dict[str, str] | None = None
    """labels are the labels of the job."""
    annotations: dict[str, str] | None = None
    """annotations are the annotations of the job."""


class BroadcastJobTemplate(ApiModel):
    """BroadcastJobTemplate is the template of a BroadcastJob."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """metadata holds the labels and annotations of the job."""
    spec: BroadcastJobSpec | None = None
    """spec is the spec of the job."""


class ImageListPullJobTemplate(ApiModel):
    """ImageListPullJobTemplate is the template of an ImageListPullJob."""

    metadata: TemplateMetadata = Field(default_factory=TemplateMetadata)
    """metadata holds the labels and annotations of the job."""
    spec: ImageListPullJobSpec | None = None
    """spec is the spec of the job."""


class CronJobTemplateV1Alpha1(ApiModel):
    """CronJobTemplate is the template of the job to create. Exactly one field must be set."""

    job_template: RawObject | None = None
    """jobTemplate is the template of a Kubernetes Job."""
    broadcast_job_template: BroadcastJobTemplate | None = None
    """broadcastJobTemplate is the template of a BroadcastJob."""


class CronJobTemplate(CronJobTemplateV1Alpha1):
    """CronJobTemplate is the template of the job to create. Exactly one field must be set."""

    image_list_pull_job_template: ImageListPullJobTemplate | None = None
    """imageListPullJobTemplate is the template of an ImageListPullJob."""


class _Spec(ApiModel):
    schedule: str
    """schedule is a cron expression of five fields (minute, hour, day of the month, month, day of the week), one
    of @hourly, @daily, @weekly, @monthly and @yearly, or @every with a duration such as 90m."""
    time_zone: str | None = None
    """timeZone is the IANA name of the schedule's time zone, such as Europe/Berlin. Defaults to UTC."""
    starting_deadline_seconds: Int64 | None = None
    """startingDeadlineSeconds is the maximum delay in seconds after which a missed job is no longer started.
    Defaults to no limit."""
    concurrency_policy: Annotated[str, enum(ALLOW, FORBID, REPLACE)] = ""
    """concurrencyPolicy specifies what happens if an earlier job is still running. Allow (the default) runs both,
    Forbid waits until it ends, Replace (the default for ImageListPullJobs) deletes it."""
    paused: bool | None = None
    """paused stops starting jobs until it is set to false."""
    successful_jobs_history_limit: Int32 | None = None
    """successfulJobsHistoryLimit is the number of succeeded jobs to keep. Defaults to 3."""
    failed_jobs_history_limit: Int32 | None = None
    """failedJobsHistoryLimit is the number of failed jobs to keep. Defaults to 1."""


class AdvancedCronJobSpec(_Spec):
    """AdvancedCronJobSpec defines the schedule and the job to create."""

    template: CronJobTemplate
    """template is the template of the job to create."""


class AdvancedCronJobV1Alpha1Spec(_Spec):
    """AdvancedCronJobSpec defines the schedule and the job to create."""

    template: CronJobTemplateV1Alpha1
    """template is the template of the job to create."""


class ActiveJob(ApiModel):
    """ActiveJob refers to a job that has not ended."""

    schema_keywords: ClassVar[dict[str, Any]] = {MAP_TYPE: "atomic"}

    api_version: str = ""
    """apiVersion is the group and version of the job."""
    kind: str = ""
    """kind is the kind of the job."""
    namespace: str = ""
    """namespace is the namespace of the job."""
    name: str = ""
    """name is the name of the job."""
    uid: str = ""
    """uid is the UID of the job."""
    resource_version: str = ""
    """resourceVersion is the job's version when it was first observed."""
    field_path: str = ""
    """fieldPath is always empty, because the reference is to the whole job."""


class AdvancedCronJobStatus(ApiModel):
    """AdvancedCronJobStatus is the observed state of an AdvancedCronJob."""

    type: str = ""
    """type is the kind of the created jobs: Job, BroadcastJob or ImageListPullJob."""
    active: list[ActiveJob] | None = None
    """active lists the jobs that have not ended."""
    last_schedule_time: Time = ""
    """lastScheduleTime is the scheduled time of the last job that was started."""


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
