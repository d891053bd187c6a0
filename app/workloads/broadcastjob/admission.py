"""The two webhooks of BroadcastJob: fill in what is left out, refuse what cannot work (BJ-2, BJ-3, BJ-25)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.broadcastjob import BROADCAST_JOB
from app.api.broadcastjob.defaults import with_defaults
from app.api.broadcastjob.gospec import SPECS
from app.api.broadcastjob.validation import name_errors, spec_errors, warnings
from app.api.core_defaults import default_pod_template
from app.api.gojson import GoTypeError, normalized
from app.api.gopod import POD_TEMPLATE
from app.api.requested import is_leaving, judged, stored_object, version_to_default, version_to_judge
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    Handler,
    MatchCondition,
    Operation,
    Patched,
    Review,
    Rule,
    Webhook,
)
from app.kube.fielderrors import Path, aggregate
from app.kube.patches import diff, same
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.workloads.engine.job_templates import TemplateLookups, judge_template

_RULE: Final = Rule(
    (Operation.CREATE, Operation.UPDATE),
    (names.APPS_GROUP,),
    (names.V1ALPHA1, names.V1BETA1),
    (BROADCAST_JOB.plural,),
)
#: D-11: what changes metadata alone is nothing to default or judge.
_CHANGED: Final = (MatchCondition("spec-changed", "request.operation != 'UPDATE' || object.spec != oldObject.spec"),)
MUTATE: Final = Webhook(
    name="mbroadcastjob.kb.io",
    path="/mutate-apps-kruise-io-broadcastjob",
    mutating=True,
    rules=(_RULE,),
    match_conditions=_CHANGED,
    summary="Fills in the defaults of a BroadcastJob and of its Pod template",
)
VALIDATE: Final = Webhook(
    name="vbroadcastjob.kb.io",
    path="/validate-apps-kruise-io-broadcastjob",
    mutating=False,
    rules=(_RULE,),
    match_conditions=_CHANGED,
    summary="Refuses BroadcastJobs that cannot work",
    permissions=(MAY_CHECK_TEMPLATES,),
)
WEBHOOKS: Final = (MUTATE, VALIDATE)
_TEMPLATE: Final = Path("spec.template")


def handlers(lookups: TemplateLookups) -> tuple[Handler, ...]:
    """The declarations with the functions that answer for them."""
    return (Handler(MUTATE, partial(mutate, lookups)), Handler(VALIDATE, partial(validate, lookups)))


def mutate(lookups: TemplateLookups, review: Review) -> Decision:
    """BJ-2."""
    given = judged(review.object)
    version = version_to_default(BROADCAST_JOB, given)
    if isinstance(version, Denied):
        return version
    go_spec, defaulted = SPECS[version.name], with_defaults(given)
    spec = defaulted.get("spec") or {}
    try:
        before = normalized(go_spec, given.get("spec") or {}, "spec")
        if not lookups.no_template_defaults and _template_changed(spec, _former(review)):
            default_pod_template(spec["template"])
        stored = normalized(go_spec, spec, "spec")
    except GoTypeError as error:
        return Denied(str(error), code=400)
    if same(before, stored):
        return Allowed()
    return Patched(tuple(diff(given, {**defaulted, "spec": stored}, rule="BJ-2")))


def _template_changed(spec: Mapping[str, Any], former: Mapping[str, Any] | None) -> bool:
    if not isinstance(spec.get("template"), dict):
        return False
    new = normalized(POD_TEMPLATE, spec["template"], "spec.template")
    return former is None or not same(new, former.get("template") or {})


async def validate(lookups: TemplateLookups, review: Review) -> Decision:
    """BJ-3; all mistakes are reported together."""
    given = judged(review.object)
    version = version_to_judge(BROADCAST_JOB, given)
    if isinstance(version, Denied):
        return version
    try:
        spec = normalized(SPECS[version.name], given["spec"], "spec")
        if is_leaving(review):
            return Allowed()
        # A template that stays was judged when it came.
        changed = _template_changed(spec, _former(review))
        found = await judge_template(lookups, spec["template"], _TEMPLATE) if changed else ()
    except GoTypeError as error:
        return Denied(str(error), code=400)
    errors = [*name_errors(given.get("metadata") or {}), *spec_errors(spec, found)]
    if errors:
        return Denied(aggregate(errors), code=422)
    return Allowed(tuple(warnings(spec)))


def _former(review: Review) -> Mapping[str, Any] | None:
    """The stored spec in the version of the request; None if there is none to compare with."""
    old = stored_object(BROADCAST_JOB, SPECS, review)
    return old["spec"] if old is not None else None
