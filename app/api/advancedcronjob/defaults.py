"""What an AdvancedCronJob means where it says nothing (ACJ-2). Pure functions on the JSON of either version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.advancedcronjob.types import ALLOW, BROADCAST, IMAGES, JOB, REPLACE
from app.api.core_defaults import completed_template
from app.api.imagepull.defaults import job_with_defaults
from app.api.jsonvalue import json_copy

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
