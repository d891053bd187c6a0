"""Webhooks of Advanced StatefulSet, and the Go types of the spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from app.api import names
from app.api.gojson import GoType, normalized
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
from app.features.statefulset.defaults import ClaimGates, with_defaults
from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.plan.claims import STORAGE_CLASSES, decode_storage_class, expandable
from app.features.statefulset.types import StatefulSetSpec, StatefulSetV1Alpha1Spec
from app.features.statefulset.validation import Facts, annotation_warnings, name_errors, spec_errors, warnings
from app.kube.admission import Allowed, Decision, Denied, Handler, Operation, PolicyRule, Review
from app.kube.client import Client
from app.kube.jsonvalues import as_object
from app.pods.template_check import TemplateLookups, complete_templates

# Go types of the Advanced StatefulSet spec in both versions. OpenKruise's webhook stores the spec as its Go types
# marshal it. This webhook does the same, but keeps unknown fields.

#: Go type of the spec, by API version.
SPECS: Final[Mapping[str, GoType]] = {
    names.V1BETA1: go_struct(StatefulSetSpec, SPEC_TYPES),
    names.V1ALPHA1: go_struct(StatefulSetV1Alpha1Spec, SPEC_TYPES),
}


# The mutating and the validating webhook [AS-3 … AS-32].

MUTATE: Final = mutating_webhook(STATEFUL_SET, "Sets the defaults of an Advanced StatefulSet and its templates")
VALIDATE: Final = validating_webhook(
    STATEFUL_SET,
    "Rejects invalid Advanced StatefulSets",
    PolicyRule(("list",), ("storage.k8s.io",), ("storageclasses",)),
)
WEBHOOKS: Final = (MUTATE, VALIDATE)
_PARTITION_IS_TEXT: Final = (
    "json: cannot unmarshal string into Go struct field "
    "RollingUpdateStatefulSetStrategy.spec.updateStrategy.rollingUpdate.partition of type int32"
)


class Lookups(TemplateLookups):
    """Data that the webhooks need in addition to the request."""

    def __init__(self, enabled: Callable[[str], bool], client: Client | None = None) -> None:
        super().__init__(enabled, client)
        self.vertical_scaling = enabled("InPlaceWorkloadVerticalScaling")
        self.claims = ClaimGates(enabled("StatefulSetAutoDeletePVC"), enabled("StatefulSetAutoResizePVCGate"))

    async def expandable(self) -> Mapping[str, bool | None]:
        """Return whether each storage class allows volume expansion, by name ("" for the default class). The map is
        empty without a client."""
        if self.client is None:
            return {}
        return expandable((await self.client.list(STORAGE_CLASSES, decode=decode_storage_class)).items)


def handlers(lookups: Lookups) -> tuple[Handler, ...]:
    """Return the webhooks with their handler functions."""
    judging = validating(STATEFUL_SET, partial(judge, lookups))
    return (Handler(MUTATE, partial(mutate, lookups)), Handler(VALIDATE, judging))


def mutate(lookups: Lookups, review: Review) -> Decision:
    """Set the defaults; change nothing if none is missing. [AS-3 … AS-14]"""
    rolling = as_object(as_object(as_object(review.object).get("spec")).get("updateStrategy")).get("rollingUpdate")
    if isinstance(as_object(rolling).get("partition"), str):
        # This is a likely mistake, because CloneSets accept percentages.
        return Denied(_PARTITION_IS_TEXT, code=400)

    def complete(given: Mapping[str, Any]) -> dict[str, Any]:
        defaulted = with_defaults(given, lookups.claims)
        spec = defaulted.setdefault("spec", {})
        complete_templates(lookups, spec, _former_spec(lookups, review))
        return defaulted

    return completed(review, STATEFUL_SET, SPECS, complete, rule="AS-5")


async def judge(lookups: Lookups, stateful_set: Submitted) -> Judgment:
    """Validate a StatefulSet. [AS-15 … AS-32]"""
    given, version, review = stateful_set.object, stateful_set.version, stateful_set.review
    metadata, former = stateful_set.metadata, _former_spec(lookups, review)
    # Leave out fields of the other version, which are present and unvalidated until the API server prunes them.
    known = version.schema["properties"]["spec"]["properties"]
    judged_spec = {key: value for key, value in given["spec"].items() if key in known}
    given = {**given, "spec": normalized(SPECS[version.name], judged_spec, "spec")}
    spec = with_defaults(given, lookups.claims)["spec"]
    if stateful_set.is_leaving:
        return Allowed()
    new = review.operation == Operation.CREATE
    facts = Facts(resize=lookups.claims.auto_resize, vertical_scaling=lookups.vertical_scaling)
    if former is not None and facts.resize and _claims(spec) != _claims(former):
        facts = replace(facts, expandable=await lookups.expandable())
    errors = [*name_errors(metadata, new=new), *spec_errors(spec, former, facts)]
    if errors:
        return errors
    known = {*annotation_warnings((review.old_object or {}).get("metadata") or {}, former or {})}
    new_ones = [text for text in annotation_warnings(metadata, spec) if text not in known]
    return Allowed((*warnings(spec, former), *new_ones))


def _claims(spec: Mapping[str, Any]) -> Sequence[Any]:
    found: Sequence[Any] = spec.get("volumeClaimTemplates") or []
    return found


def _former_spec(lookups: Lookups, review: Review) -> Mapping[str, Any] | None:
    """Return the stored spec with its defaults, in the version of the request, or None if there is none."""
    return former_spec(STATEFUL_SET, SPECS, review, lambda old: with_defaults(old, lookups.claims))
