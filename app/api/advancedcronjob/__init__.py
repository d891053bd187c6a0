"""AdvancedCronJob: a Job, BroadcastJob or ImageListPullJob on a schedule. Fields, defaults, conversion, validation."""

from app.api.advancedcronjob.definition import ADVANCED_CRON_JOB
from app.api.advancedcronjob.types import AdvancedCronJob, AdvancedCronJobSpec, AdvancedCronJobStatus

__all__ = ["ADVANCED_CRON_JOB", "AdvancedCronJob", "AdvancedCronJobSpec", "AdvancedCronJobStatus"]
