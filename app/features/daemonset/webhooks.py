"""The webhooks of DaemonSets, and Go's view of their spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.gocore import LABEL_SELECTOR
from app.api.gojson import GoType, GoTypeError, normalized, pointer
from app.api.gopod import POD_TEMPLATE
from app.api.schema import go_struct
from app.api.webhooks import (
    completed,
    former_spec,
    is_leaving,
    judged,
    mutating_webhook,
    validating_webhook,
    version_to_judge,
)
from app.features.daemonset.kind import DAEMON_SET, with_defaults
from app.features.daemonset.types import DaemonSetSpec, DaemonSetV1Alpha1Spec
from app.features.daemonset.validation import spec_errors, warnings
from app.kube.admission import Allowed, Decision, Denied, Handler, Review
from app.kube.fielderrors import FieldError, aggregate
from app.kube.patches import same
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import TemplateLookups, judge_template
from app.workloads.validation import SPEC, metadata_errors

# The spec of a DaemonSet as Go reads and prints it, in both versions.
#
# OpenKruise's webhook stores what its Go types print; we store the same, but keep fields we do not know.

#: What the models leave schemaless.
_NAMED: Final[Mapping[str, GoType]] = {"selector": pointer(LABEL_SELECTOR), "template": POD_TEMPLATE}
#: API version → its spec.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(DaemonSetSpec, _NAMED),
    names.V1ALPHA1: go_struct(DaemonSetV1Alpha1Spec, _NAMED),
}


# The two webhooks of Advanced DaemonSet: fill in what is left out, refuse what cannot work (DS-4 … DS-15).

MUTATE: Final = mutating_webhook(DAEMON_SET, "Fills in the defaults of an Advanced DaemonSet")
VALIDATE: Final = validating_webhook(DAEMON_SET, "Refuses Advanced DaemonSets that cannot work", MAY_CHECK_TEMPLATES)
WEBHOOKS: Final = (MUTATE, VALIDATE)
_TEMPLATE: Final = SPEC.child("template")


def handlers(lookups: TemplateLookups) -> tuple[Handler, ...]:
    """The declarations with the functions that answer for them."""
    return (Handler(MUTATE, mutate), Handler(VALIDATE, partial(validate, lookups)))


def mutate(review: Review) -> Decision:
    """DS-4 … DS-7."""
    return completed(review, DAEMON_SET, SPECS, with_defaults, rule="DS-4")


async def validate(lookups: TemplateLookups, review: Review) -> Decision:
    """DS-8 … DS-15; all mistakes are reported together."""
    given = judged(review.object)
    version = version_to_judge(DAEMON_SET, given)
    if isinstance(version, Denied):
        return version
    metadata, former = given.get("metadata") or {}, _former_spec(review)
    try:
        given = {**given, "spec": normalized(SPECS[version.name], given["spec"], "spec")}
    except GoTypeError as error:
        return Denied(str(error), code=400)
    spec = with_defaults(given)["spec"]
    if is_leaving(review):
        return Allowed()
    older = version.name == names.V1ALPHA1
    try:
        found = await _template_errors(lookups, spec, former)
        errors = [*metadata_errors(metadata), *spec_errors(spec, former, found, older=older)]
    except GoTypeError as error:
        return Denied(str(error), code=400)
    if errors:
        return Denied(aggregate(errors), code=422)
    return Allowed(tuple(warnings(spec)))


def _former_spec(review: Review) -> Mapping[str, Any] | None:
    """The stored spec with its defaults, in the version of the request; None if there is none to compare with."""
    return former_spec(DAEMON_SET, SPECS, review, with_defaults)


async def _template_errors(
    lookups: TemplateLookups, spec: Mapping[str, Any], former: Mapping[str, Any] | None
) -> Sequence[FieldError | str]:
    """DS-9. A template that stays was judged when it came."""
    if former is not None and same(spec.get("template"), former.get("template")):
        return ()
    return await judge_template(lookups, spec.get("template") or {}, _TEMPLATE)
