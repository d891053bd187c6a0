"""Defaults of an AdvancedCronJob. Pure functions on the JSON of either version. [ACJ-2]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api.core.defaults import completed_template
from app.features.advancedcronjob.types import ALLOW, BROADCAST, IMAGES, JOB, REPLACE
from app.features.imagepull.defaults import job_with_defaults
from app.kube.jsonvalues import json_copy

SUCCESSFUL_JOBS: Final = 3
FAILED_JOBS: Final = 1


def with_defaults(obj: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of the AdvancedCronJob (JSON) with its own fields defaulted. Idempotent."""
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
    """Default the Pod template, or keep the one in ``former`` if the two differ only in defaults."""
    for field in (JOB, BROADCAST):
        inner = ((spec.get("template") or {}).get(field) or {}).get("spec") or {}
        if isinstance(inner.get("template"), dict):
            stored = pod_template(former) if former is not None else None
            inner["template"] = completed_template(inner["template"], stored, host_ports=host_ports)
            return


def pod_template(spec: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the Pod template, or None if there is none."""
    found = spec.get("template") or {}
    for field in (JOB, BROADCAST):
        inner = ((found.get(field) or {}).get("spec") or {}).get("template")
        if isinstance(inner, dict):
            return inner
    return None
