"""Validates AdvancedCronJobs. Pure; messages, paths and their order are OpenKruise's. [ACJ-3 … ACJ-5, ACJ-24,
ACJ-26]"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from app.api.structural import validate
from app.features.advancedcronjob.cron import Schedule, ScheduleError, load_zone, parse
from app.features.advancedcronjob.types import ALLOW, BROADCAST, IMAGES, JOB, TEMPLATES
from app.features.broadcastjob import validation as broadcast
from app.features.broadcastjob.kind import BROADCAST_JOB
from app.features.imagepull.defaults import TIMEOUT_SECONDS
from app.features.imagepull.kind import IMAGE_LIST_PULL_JOB
from app.features.imagepull.types import ALWAYS
from app.features.imagepull.validation import list_job_errors
from app.kube.fielderrors import ErrorType, FieldError, Path, forbidden, invalid, not_supported
from app.kube.patches import same

#: Length of the suffix of job names. The whole name must fit into a label value. [ACJ-24]
SUFFIX: Final = len("-1646305200")
LONGEST_NAME: Final = 63 - SUFFIX
LONGEST_PULL: Final = 86_400
_SPEC: Final = Path("spec")
_TEMPLATE: Final = _SPEC.child("template")
_NUMBERS: Final = ("startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
SCHEMAS: Final[Mapping[str, Any]] = {
    IMAGES: IMAGE_LIST_PULL_JOB.hub.schema["properties"]["spec"],
    BROADCAST: BROADCAST_JOB.hub.schema["properties"]["spec"],
    JOB: None,
}
_EDITABLE: Final = ("schedule", "concurrencyPolicy", "paused", "timeZone", *_NUMBERS)
_WORDS: Final = "either JobTemplate or BroadcastJobTemplate or ImageListPullJobTemplate should be provided"


def name_errors(metadata: Mapping[str, Any], spec: Mapping[str, Any], *, created: bool) -> list[FieldError]:
    """Return the errors in the name. A name that is too long for jobs is rejected only on creation. [ACJ-3, ACJ-24]"""
    errors = broadcast.name_errors(metadata)
    name = metadata.get("name") or ""
    # The name of an ImageListPullJob is not used in labels.
    labeled = not (spec.get("template") or {}).get(IMAGES)
    if not errors and created and labeled and len(name) > LONGEST_NAME:
        detail = f"must be no more than {LONGEST_NAME} characters, because job names end with the scheduled time"
        errors.append(invalid("metadata.name", name, detail))
    return errors


def spec_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any] | None, template: Sequence[FieldError | str], now: datetime
) -> list[FieldError | str]:
    """Return all errors in a defaulted spec, in OpenKruise's order. ``former`` is the spec it replaces; ``template``
    holds the errors that Kubernetes reports for the Pod template. The schedule must fire after ``now``."""
    errors: list[FieldError | str] = []
    errors += _schedule_errors(spec, former, now)
    errors += _template_errors(spec, former, template)
    for field in _NUMBERS:
        if (spec.get(field) or 0) < 0:
            errors.append(invalid(_SPEC.child(field), spec[field], "must be greater than or equal to 0"))
    errors += _zone_errors(spec)
    if former is not None:
        errors += _update_errors(spec, former)
    return errors


def _schedule_errors(spec: Mapping[str, Any], former: Mapping[str, Any] | None, now: datetime) -> Iterator[FieldError]:
    """Validate the schedule. It must fire at least once in the future. [ACJ-3, ACJ-9, ACJ-26]"""
    text, path = spec.get("schedule") or "", _SPEC.child("schedule")
    if not text:
        yield invalid(path, text, "schedule cannot be empty, please provide valid cron schedule.")
    try:
        schedule: Schedule = parse(text)
    except ScheduleError as error:
        yield invalid(path, text, str(error))
    else:
        if (former is None or former.get("schedule") != text) and schedule.next(now) is None:
            yield invalid(path, text, "does not fire within the next five years")
    if "TZ" in text and spec.get("timeZone") is not None:
        yield invalid(path, text, "cannot use both timeZone field and TZ or CRON_TZ in schedule")


def _zone_errors(spec: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate the time zone. [ACJ-3]"""
    zone, path = spec.get("timeZone"), _SPEC.child("timeZone")
    if zone is None:
        return
    if not zone:
        yield invalid(path, zone, "timeZone must be nil or non-empty string")
        return
    if zone.lower() == "local":
        detail = "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        yield invalid(path, zone, detail)
        return
    try:
        load_zone(zone)
    except ScheduleError as error:
        yield invalid(path, zone, str(error))


def _template_errors(
    spec: Mapping[str, Any], former: Mapping[str, Any] | None, found: Sequence[FieldError | str]
) -> Iterator[FieldError | str]:
    """Require exactly one valid template. An unchanged template is not validated again. [ACJ-3, ACJ-4]"""
    template = spec.get("template") or {}
    given = [name for name in TEMPLATES if template.get(name) is not None]
    if not given:
        yield forbidden(_TEMPLATE, f"spec must have one template, {_WORDS}")
        return
    if len(given) > 1:
        yield forbidden(_TEMPLATE, f"spec can have only one template, {_WORDS}")
        return
    (name,) = given
    if not isinstance(template[name], Mapping):
        yield from validate({"type": "object"}, template[name], _TEMPLATE.child(name))
        return
    inner, path = template[name].get("spec") or {}, _TEMPLATE.child(name, "spec")
    # AdvancedCronJob's schema does not cover the contents of templates; the schema of the created kind does.
    schema = SCHEMAS[name]
    mistyped = [one for one in validate(schema, inner, path) if one.type is ErrorType.TYPE_INVALID] if schema else []
    if mistyped:
        yield from mistyped
    elif name == IMAGES:
        yield from _image_errors(spec, inner, path)
    elif former is not None and same(template, former.get("template") or {}):
        return
    elif name == BROADCAST:
        yield from broadcast.spec_errors(inner, found, path)
    else:
        yield from broadcast.restart_policy_errors(inner.get("template") or {}, path.child("template"))
        yield from found


def _image_errors(spec: Mapping[str, Any], inner: Mapping[str, Any], path: Path) -> Iterator[FieldError]:
    """Validate an ImageListPullJob template. [ACJ-4]"""
    if spec.get("concurrencyPolicy") == ALLOW:
        yield not_supported(_SPEC.child("concurrencyPolicy"), ALLOW, ("Replace", "Forbid"))
    for error in list_job_errors(inner):
        yield dataclasses.replace(error, field=f"{path}{error.field.removeprefix('spec')}")
    policy, at = inner.get("completionPolicy") or {}, path.child("completionPolicy")
    if policy.get("type") == "Never":
        yield not_supported(at.child("type"), "Never", (ALWAYS,))
    deadline = policy.get("activeDeadlineSeconds")
    timeout = (inner.get("pullPolicy") or {}).get("timeoutSeconds")
    timeout = TIMEOUT_SECONDS if timeout is None else timeout
    if deadline is not None and deadline > LONGEST_PULL:
        yield invalid(at.child("activeDeadlineSeconds"), deadline, f"must be no more than {LONGEST_PULL}")
    elif deadline is not None and deadline < timeout:
        detail = f"must be no less than pullPolicy.timeoutSeconds ({timeout})"
        yield invalid(at.child("activeDeadlineSeconds"), deadline, detail)
    if policy.get("ttlSecondsAfterFinished") is not None:
        yield forbidden(at.child("ttlSecondsAfterFinished"), "the history limits determine how long jobs are kept")


def _update_errors(spec: Mapping[str, Any], former: Mapping[str, Any]) -> Iterator[FieldError]:
    """Validate an update. [ACJ-5]"""
    editable = set(_EDITABLE)
    new, old = ({key: value for key, value in one.items() if key not in editable} for one in (spec, former))
    if (former.get("template") or {}).get(IMAGES) is not None:
        for one in (new, old):
            one["template"] = {key: value for key, value in (one.get("template") or {}).items() if key != IMAGES}
    if not same(new, old):
        fields = "'imageListPullJobTemplate', 'schedule', 'concurrencyPolicy', 'successfulJobsHistoryLimit', "
        more = "'failedJobsHistoryLimit', 'startingDeadlineSeconds', 'timeZone' and 'paused' are forbidden"
        yield forbidden(_SPEC, f"updates to advancedcronjob spec for fields other than {fields}{more}")


def warnings(spec: Mapping[str, Any]) -> Iterator[str]:
    """Yield warnings about settings that are accepted but have no effect or an unexpected effect."""
    deadline = spec.get("startingDeadlineSeconds")
    if deadline is not None and 0 <= deadline < 10:
        # Built-in CronJobs have the same limitation. [ACJ-15]
        yield (
            f"spec.startingDeadlineSeconds: {deadline} may be too short for any job to be started in time; use 10 or "
            "more"
        )
    template = spec.get("template") or {}
    inner = (template.get(BROADCAST) or {}).get("spec")
    if inner:
        yield from broadcast.warnings(inner, _TEMPLATE.child(BROADCAST, "spec"))


def pod_template_path(spec: Mapping[str, Any]) -> Path:
    """Return the path of the Pod template."""
    name = JOB if (spec.get("template") or {}).get(JOB) is not None else BROADCAST
    return _TEMPLATE.child(name, "spec", "template")
