"""AdvancedCronJob as a kind: its names, versions, columns and conversions."""

from __future__ import annotations

from typing import Any, Final

from app.api import names
from app.api.advancedcronjob.types import IMAGES, AdvancedCronJob, AdvancedCronJobV1Alpha1
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted


def _same(obj: dict[str, Any]) -> dict[str, Any]:
    return obj


def _without_images(obj: dict[str, Any]) -> dict[str, Any]:
    """ACJ-1: v1alpha1 knows no images to pull; conversion remembers them."""
    spec = obj.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    if isinstance(template, dict) and IMAGES in template:
        # Conversion shares templates: written into is a copy.
        obj["spec"] = {**obj["spec"], "template": {key: part for key, part in template.items() if key != IMAGES}}
    return obj


_COLUMNS: Final = (
    PrinterColumn("SCHEDULE", "string", ".spec.schedule", "When a job is due."),
    PrinterColumn("TYPE", "string", ".status.type", "What is made: Job, BroadcastJob or ImageListPullJob."),
    PrinterColumn(
        "LASTSCHEDULETIME", "date", ".status.lastScheduleTime", "When the last job that was started had been due."
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
        Version(names.V1ALPHA1, AdvancedCronJobV1Alpha1, _COLUMNS, to_hub=_same, from_hub=_without_images),
    ),
)
