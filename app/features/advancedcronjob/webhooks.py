"""AdvancedCronJob webhooks, and the Go types of its spec. [ACJ-2 … ACJ-5]"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.gocore import always, optional
from app.api.gojson import GoType, normalized, pointer, struct
from app.api.gopod import METADATA, POD_TEMPLATE
from app.api.schema import go_struct
from app.api.webhooks import (
    Judgment,
    Submitted,
    completed,
    mutating_webhook,
    stored_object,
    validating,
    validating_webhook,
)
from app.features.advancedcronjob.defaults import default_template, pod_template, with_defaults
from app.features.advancedcronjob.kind import ADVANCED_CRON_JOB
from app.features.advancedcronjob.types import (
    BROADCAST,
    IMAGES,
    JOB,
    AdvancedCronJobSpec,
    AdvancedCronJobV1Alpha1Spec,
    TemplateMetadata,
)
from app.features.advancedcronjob.validation import name_errors, pod_template_path, spec_errors, warnings
from app.features.broadcastjob.kind import SPEC as BROADCAST_JOB_SPEC
from app.features.imagepull.kind import LIST_SPEC
from app.kube.admission import Allowed, Decision, Handler, Review
from app.kube.patches import same
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import TemplateLookups, judge_template

_METADATA: Final = optional("metadata", go_struct(TemplateMetadata, {}))
#: Fields of a Job that are not listed here are kept unchanged.
_JOB: Final = struct(optional("metadata", METADATA), optional("spec", struct(always("template", POD_TEMPLATE))))
_OLDER: Final = (
    optional(JOB, pointer(_JOB)),
    optional(BROADCAST, pointer(struct(_METADATA, optional("spec", BROADCAST_JOB_SPEC)))),
)
_NEWER: Final = (*_OLDER, optional(IMAGES, pointer(struct(_METADATA, optional("spec", LIST_SPEC)))))
#: Go type of the spec, by API version.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(AdvancedCronJobSpec, {"template": struct(*_NEWER)}),
    names.V1ALPHA1: go_struct(AdvancedCronJobV1Alpha1Spec, {"template": struct(*_OLDER)}),
}


#: Returns the current time.
Now = Callable[[], datetime]

MUTATE: Final = mutating_webhook(ADVANCED_CRON_JOB, "Sets the defaults of an AdvancedCronJob and of its template")
VALIDATE: Final = validating_webhook(ADVANCED_CRON_JOB, "Rejects invalid AdvancedCronJobs", MAY_CHECK_TEMPLATES)
WEBHOOKS: Final = (MUTATE, VALIDATE)


def handlers(lookups: TemplateLookups, now: Now) -> tuple[Handler, ...]:
    """Return the webhook declarations with their handlers."""
    judging = validating(ADVANCED_CRON_JOB, partial(judge, lookups, now))
    return (Handler(MUTATE, partial(mutate, lookups)), Handler(VALIDATE, judging))


def mutate(lookups: TemplateLookups, review: Review) -> Decision:
    """Set defaults. [ACJ-2]"""

    def complete(given: Mapping[str, Any]) -> dict[str, Any]:
        defaulted = with_defaults(given)
        spec = defaulted.get("spec") or {}
        former = _former(review)
        if not lookups.no_template_defaults and _template_changed(spec, former):
            default_template(spec, former, host_ports=lookups.default_host_ports)
        return defaulted

    return completed(review, ADVANCED_CRON_JOB, SPECS, complete, rule="ACJ-2")


def _template_changed(spec: Mapping[str, Any], former: Mapping[str, Any] | None) -> bool:
    template = pod_template(spec)
    if template is None:
        return False
    old = pod_template(former) if former is not None else None
    path = str(pod_template_path(spec))
    return old is None or not same(normalized(POD_TEMPLATE, template, path), normalized(POD_TEMPLATE, old, path))


async def judge(lookups: TemplateLookups, now: Now, job: Submitted) -> Judgment:
    """Validate an AdvancedCronJob. [ACJ-3 … ACJ-5]"""
    spec = with_defaults({**job.object, "spec": job.go_spec(SPECS)})["spec"]
    if job.is_leaving:
        return Allowed()
    former = _former(job.review)
    changed = _template_changed(spec, former)
    template, path = pod_template(spec) or {}, pod_template_path(spec)
    found = await judge_template(lookups, template, path) if changed else ()
    errors = spec_errors(spec, former, found, now())
    errors += name_errors(job.metadata, spec, created=former is None)
    return errors or Allowed(tuple(warnings(spec)))


def _former(review: Review) -> Mapping[str, Any] | None:
    """Return the defaulted stored spec in the version of the request, or None if there is none."""
    old = stored_object(ADVANCED_CRON_JOB, SPECS, review)
    return with_defaults(old)["spec"] if old is not None else None
