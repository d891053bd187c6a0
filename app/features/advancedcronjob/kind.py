"""The definition of AdvancedCronJob, and its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.core.defaults import completed_template
from app.api.kind import AGE, Access, KindDefinition, PrinterColumn, Version, noted
from app.features.advancedcronjob.types import (
    ALLOW,
    BROADCAST,
    IMAGES,
    JOB,
    REPLACE,
    AdvancedCronJob,
    AdvancedCronJobV1Alpha1,
)
from app.features.imagepull.kind import job_with_defaults
from app.kube.jsonvalues import json_copy


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


# What an AdvancedCronJob means where it says nothing (ACJ-2). Pure functions on the JSON of either version.

SUCCESSFUL_JOBS: Final = 3
FAILED_JOBS: Final = 1


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """The AdvancedCronJob (JSON) with the defaults of its own fields, as a copy. Doing it twice changes nothing."""
    defaulted: dict[str, Any] = json_copy(dict(obj))
    spec = defaulted.get("spec")
    if not isinstance(spec, dict):
        return defaulted
    template = spec.get("template")
    images = template.get(IMAGES) if isinstance(template, dict) else None
    if not spec.get("concurrencyPolicy"):
        spec["concurrencyPolicy"] = ALLOW if images is None else REPLACE
    for field, value in (
        ("paused", False),
        ("successfulJobsHistoryLimit", SUCCESSFUL_JOBS),
        ("failedJobsHistoryLimit", FAILED_JOBS),
    ):
        if spec.get(field) is None:
            spec[field] = value
    if isinstance(images, dict) and isinstance(images.get("spec"), dict):
        completion = images["spec"].get("completionPolicy") or {}
        if isinstance(completion, dict) and not completion.get("type"):
            images["spec"] = job_with_defaults(images)["spec"]
    return defaulted


def default_template(
    spec: dict[str, Any], former: Mapping[str, Any] | None = None, *, host_ports: bool = False
) -> None:
    """Fill in the defaults of the Pod template. ``former``: the stored spec, whose template stays if nothing but
    defaults differ."""
    for field in (JOB, BROADCAST):
        inner = ((spec.get("template") or {}).get(field) or {}).get("spec") or {}
        if isinstance(inner.get("template"), dict):
            stored = pod_template(former) if former is not None else None
            inner["template"] = completed_template(inner["template"], stored, host_ports=host_ports)
            return


def pod_template(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Pod template within; None where there is none."""
    found = spec.get("template") or {}
    for field in (JOB, BROADCAST):
        inner = ((found.get(field) or {}).get("spec") or {}).get("template")
        if isinstance(inner, dict):
            return inner
    return None
