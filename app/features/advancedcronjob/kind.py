"""Kind definition of AdvancedCronJob: versions, conversion and columns."""

from __future__ import annotations

from typing import Any, Final

from app.api import names
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted, unchanged
from app.features.advancedcronjob.types import IMAGES, AdvancedCronJob, AdvancedCronJobV1Alpha1


def _without_images(obj: dict[str, Any]) -> dict[str, Any]:
    """Remove ImageListPullJob templates, which v1alpha1 lacks; conversion preserves them in an annotation. [ACJ-1]"""
    spec = obj.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if isinstance(template, dict) and IMAGES in template:
        # The converted object shares its template with the original, so modify a copy.
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
