"""Webhooks of Advanced DaemonSet, and the Go types of the spec."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from app.api import names
from app.api.gojson import GoType
from app.api.gopod import SPEC_TYPES
from app.api.schema import go_struct
from app.api.webhooks import (
    Judgment,
    Submitted,
    completed,
    former_spec,
    mutating_webhook,
    validating,
    validating_webhook,
)
from app.features.daemonset.defaults import with_defaults
from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.types import DaemonSetSpec, DaemonSetV1Alpha1Spec
from app.features.daemonset.validation import spec_errors, warnings
from app.kube.admission import Allowed, Decision, Handler, Review
from app.kube.patches import same
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import TemplateLookups, judge_template
from app.workloads.validation import SPEC, metadata_errors

# Go types of the DaemonSet spec in both versions. OpenKruise's webhook stores the spec as Go marshals it. This webhook
# does the same, but keeps unknown fields.

#: Go type of the spec, by API version.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(DaemonSetSpec, SPEC_TYPES),
    names.V1ALPHA1: go_struct(DaemonSetV1Alpha1Spec, SPEC_TYPES),
}


# The mutating and the validating webhook [DS-4 … DS-15].

MUTATE: Final = mutating_webhook(DAEMON_SET, "Sets the defaults of an Advanced DaemonSet")
VALIDATE: Final = validating_webhook(DAEMON_SET, "Rejects invalid Advanced DaemonSets", MAY_CHECK_TEMPLATES)
WEBHOOKS: Final = (MUTATE, VALIDATE)
_TEMPLATE: Final = SPEC.child("template")


def handlers(lookups: TemplateLookups) -> tuple[Handler, ...]:
    """Return the webhooks with their handler functions."""
    return (Handler(MUTATE, mutate), Handler(VALIDATE, validating(DAEMON_SET, partial(judge, lookups))))


def mutate(review: Review) -> Decision:
    """Set the defaults. [DS-4 … DS-7]"""
    return completed(review, DAEMON_SET, SPECS, with_defaults, rule="DS-4")


async def judge(lookups: TemplateLookups, daemon_set: Submitted) -> Judgment:
    """Validate a DaemonSet. [DS-8 … DS-15]"""
    former = _former_spec(daemon_set.review)
    spec = with_defaults({**daemon_set.object, "spec": daemon_set.go_spec(SPECS)})["spec"]
    if daemon_set.is_leaving:
        return Allowed()
    older = daemon_set.version.name == names.V1ALPHA1
    # An unchanged template is not validated again. [DS-9]
    changed = former is None or not same(spec.get("template"), former.get("template"))
    found = await judge_template(lookups, spec.get("template") or {}, _TEMPLATE) if changed else ()
    errors = [*metadata_errors(daemon_set.metadata), *spec_errors(spec, former, found, older=older)]
    return errors or Allowed(tuple(warnings(spec)))


_former_spec: Final = partial(former_spec, DAEMON_SET, SPECS, with_defaults=with_defaults)
