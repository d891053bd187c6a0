"""Kind definition of AdvancedCronJob: versions, conversion, columns and defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted, unchanged
from app.features.advancedcronjob.types import ALLOW, IMAGES, REPLACE, AdvancedCronJob, AdvancedCronJobV1Alpha1
from app.features.imagepull.defaults import job_with_defaults
from app.kube.jsonvalues import fill, json_copy


def _without_images(obj: dict[str, Any]) -> dict[str, Any]:
    """Remove ImageListPullJob templates, which v1alpha1 lacks; conversion preserves them in an annotation. [ACJ-1]"""
    spec = obj.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if isinstance(template, dict) and IMAGES in template:
        # Conversion shares templates, so modify a copy.
        obj["spec"] = {**obj["spec"], "template": {key: part for key, part in template.items() if key != IMAGES}}
    return obj


_COLUMNS: Final = (
    PrinterColumn("SCHEDULE", "string", ".spec.schedule", "Schedule of the jobs."),
    PrinterColumn("TYPE", "string", ".status.type", "Kind of the created jobs: Job, BroadcastJob or ImageListPullJob."),
    PrinterColumn(
        "LASTSCHEDULETIME", "date", ".status.lastScheduleTime", "Scheduled time of the last job that was started."
    ),
    AGE,
)
_NOTED: Final = noted("spec", "template", fields=(IMAGES,), size=131072, depth=16)

ADVANCED_CRON_JOB: Final = KindDefinition(
    group=names.APPS_GROUP,
    kind="AdvancedCronJob",
    plural="advancedcronjobs",
    access=Access("creates Jobs in its namespace, as a CronJob does", view=True, edit=True),
    short_names=("acj",),
    versions=(
        Version(names.V1BETA1, AdvancedCronJob, _COLUMNS, notes=_NOTED),
        Version(names.V1ALPHA1, AdvancedCronJobV1Alpha1, _COLUMNS, to_hub=unchanged, from_hub=_without_images),
    ),
)

SUCCESSFUL_JOBS: Final = 3
FAILED_JOBS: Final = 1


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the AdvancedCronJob (JSON of either version) with its own fields defaulted. Idempotent.
    [ACJ-2]"""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = defaulted.get("spec")
    if not isinstance(spec, dict):
        return defaulted
    template = spec.get("template")
    images = template.get(IMAGES) if isinstance(template, dict) else None
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = ALLOW if images is None else REPLACE
    limits = {"successfulJobsHistoryLimit": SUCCESSFUL_JOBS, "failedJobsHistoryLimit": FAILED_JOBS}
    fill(spec, {"paused": False, **limits})
    if isinstance(images, dict) and isinstance(images.get("spec"), dict):
        completion = images["spec"].get("completionPolicy") or {}
        if isinstance(completion, dict) and not completion.get("type"):
            images["spec"] = job_with_defaults(images)["spec"]
    return defaulted
