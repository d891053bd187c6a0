"""Mutating and validating webhooks of BroadcastJob. [BJ-2, BJ-3, BJ-25]"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from app.api.core.defaults import completed_template
from app.api.gojson import GoTypeError, normalized
from app.api.gopod import POD_TEMPLATE
from app.api.webhooks import (
    completed,
    is_leaving,
    judged,
    mutating_webhook,
    stored_object,
    validating_webhook,
    version_to_judge,
)
from app.features.broadcastjob.kind import BROADCAST_JOB, SPECS, with_defaults
from app.features.broadcastjob.validation import name_errors, spec_errors, warnings
from app.kube.admission import Allowed, Decision, Denied, Handler, Review
from app.kube.fielderrors import Path, aggregate
from app.kube.patches import same
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import TemplateLookups, judge_template

MUTATE: Final = mutating_webhook(BROADCAST_JOB, "Sets the defaults of a BroadcastJob and of its Pod template")
VALIDATE: Final = validating_webhook(BROADCAST_JOB, "Rejects invalid BroadcastJobs", MAY_CHECK_TEMPLATES)
WEBHOOKS: Final = (MUTATE, VALIDATE)
_TEMPLATE: Final = Path("spec.template")


def handlers(lookups: TemplateLookups) -> tuple[Handler, ...]:
    """Return the webhook declarations with their handlers."""
    return (Handler(MUTATE, partial(mutate, lookups)), Handler(VALIDATE, partial(validate, lookups)))


def mutate(lookups: TemplateLookups, review: Review) -> Decision:
    """Set defaults. [BJ-2]"""

    def complete(given: Mapping[str, Any]) -> dict[str, Any]:
        defaulted = with_defaults(given)
        spec = defaulted.get("spec") or {}
        former = _former(review)
        if not lookups.no_template_defaults and _template_changed(spec, former):
            stored = (former or {}).get("template")
            spec["template"] = completed_template(spec["template"], stored, host_ports=lookups.default_host_ports)
        return defaulted

    return completed(review, BROADCAST_JOB, SPECS, complete, rule="BJ-2")


def _template_changed(spec: Mapping[str, Any], former: Mapping[str, Any] | None) -> bool:
    if not isinstance(spec.get("template"), dict):
        return False
    new = normalized(POD_TEMPLATE, spec["template"], "spec.template")
    return former is None or not same(new, former.get("template") or {})


async def validate(lookups: TemplateLookups, review: Review) -> Decision:
    """Validate and report all errors together. [BJ-3]"""
    given = judged(review.object)
    version = version_to_judge(BROADCAST_JOB, given)
    if isinstance(version, Denied):
        return version
    try:
        spec = normalized(SPECS[version.name], given["spec"], "spec")
        if is_leaving(review):
            return Allowed()
        # An unchanged template is not validated again.
        changed = _template_changed(spec, _former(review))
        found = await judge_template(lookups, spec["template"], _TEMPLATE) if changed else ()
    except GoTypeError as error:
        return Denied(str(error), code=400)
    errors = [*name_errors(given.get("metadata") or {}), *spec_errors(spec, found)]
    if errors:
        return Denied(aggregate(errors), code=422)
    return Allowed(tuple(warnings(spec)))


def _former(review: Review) -> Mapping[str, Any] | None:
    """Return the stored spec in the version of the request, or None if there is none."""
    old = stored_object(BROADCAST_JOB, SPECS, review)
    return old["spec"] if old is not None else None
