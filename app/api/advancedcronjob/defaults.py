"""What an AdvancedCronJob means where it says nothing (ACJ-2). Pure functions on the JSON of either version."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.advancedcronjob.types import ALLOW, BROADCAST, IMAGES, JOB, REPLACE
from app.api.core_defaults import default_pod_template
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


def default_template(spec: dict[str, Any]) -> None:
    """Fill in what Kubernetes would fill into the Pod template, in place."""
    template = pod_template(spec)
    if template is not None:
        default_pod_template(template)


def pod_template(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """The Pod template within; None where there is none."""
    found = spec.get("template") or {}
    for field in (JOB, BROADCAST):
        inner = ((found.get(field) or {}).get("spec") or {}).get("template")
        if isinstance(inner, dict):
            return inner
    return None
