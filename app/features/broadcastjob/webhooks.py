"""Mutating and validating webhooks of BroadcastJob. [BJ-2, BJ-3, BJ-25]"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from app.api.webhooks import (
    Judgment,
    Submitted,
    completed,
    mutating_webhook,
    stored_object,
    validating,
    validating_webhook,
)
from app.features.broadcastjob.defaults import with_defaults
from app.features.broadcastjob.kind import BROADCAST_JOB, SPECS
from app.features.broadcastjob.validation import name_errors, spec_errors, warnings
from app.kube.admission import Allowed, Decision, Handler, Review
from app.kube.fielderrors import Path
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import TemplateLookups, complete_templates, judge_template, template_changed

MUTATE: Final = mutating_webhook(BROADCAST_JOB, "Sets the defaults of a BroadcastJob and of its Pod template")
VALIDATE: Final = validating_webhook(BROADCAST_JOB, "Rejects invalid BroadcastJobs", MAY_CHECK_TEMPLATES)
WEBHOOKS: Final = (MUTATE, VALIDATE)
_TEMPLATE: Final = Path("spec.template")


def handlers(lookups: TemplateLookups) -> tuple[Handler, ...]:
    """Return the webhook declarations with their handlers."""
    judging = validating(BROADCAST_JOB, partial(judge, lookups))
    return (Handler(MUTATE, partial(mutate, lookups)), Handler(VALIDATE, judging))


def mutate(lookups: TemplateLookups, review: Review) -> Decision:
    """Set defaults. [BJ-2]"""

    def complete(given: Mapping[str, Any]) -> dict[str, Any]:
        defaulted = with_defaults(given)
        complete_templates(lookups, defaulted.get("spec") or {}, _former(review))
        return defaulted

    return completed(review, BROADCAST_JOB, SPECS, complete, rule="BJ-2")


async def judge(lookups: TemplateLookups, job: Submitted) -> Judgment:
    """Validate a BroadcastJob. [BJ-3]"""
    spec = job.go_spec(SPECS)
    if job.is_leaving:
        return Allowed()
    # An unchanged template is not validated again.
    changed = isinstance(spec.get("template"), dict) and template_changed(spec, _former(job.review))
    found = await judge_template(lookups, spec["template"], _TEMPLATE) if changed else ()
    return [*name_errors(job.metadata), *spec_errors(spec, found)] or Allowed(tuple(warnings(spec)))


def _former(review: Review) -> Mapping[str, Any] | None:
    """Return the stored spec in the version of the request, or None if there is none."""
    old = stored_object(BROADCAST_JOB, SPECS, review)
    return old["spec"] if old is not None else None
