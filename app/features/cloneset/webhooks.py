"""Webhooks of CloneSet, their lookups, and the Go types of the spec."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final

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
from app.features.cloneset import validation
from app.features.cloneset.defaults import with_defaults
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.types import CloneSetSpec, CloneSetV1Alpha1Spec
from app.features.cloneset.validation import GATE, Facts, pods_to_delete, spec_errors
from app.kube.admission import Allowed, Decision, Handler, PolicyRule, Review
from app.kube.client import Client, get_or_none
from app.kube.fielderrors import FieldError, new_errors, quote
from app.kube.jsonvalues import json_copy
from app.kube.objects import Pod, decode_pod
from app.kube.patches import same
from app.kube.resources import PODS
from app.pods.claims import claim_volumes
from app.pods.predicates import Owner, is_controlled_by
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import TemplateLookups, complete_templates, default_templates, judge_template
from app.workloads.validation import SPEC, metadata_errors

# Go types of the CloneSet spec in both versions, derived from the models. OpenKruise's webhook stores the spec as its
# Go types marshal it: without empty values and with canonical quantities. This webhook does the same, so that it stores
# the same objects and revisions as OpenKruise, but keeps unknown fields.

#: Go type of the spec, by API version.
SPECS: Final[Mapping[str, GoType]] = {
    # enablePVCReuse is always written, because the schema would default it to false. [CS-8]
    names.V1BETA1: go_struct(CloneSetSpec, SPEC_TYPES),
    names.V1ALPHA1: go_struct(CloneSetV1Alpha1Spec, SPEC_TYPES),
}


# The mutating and the validating webhook [CS-13 … CS-43].

MUTATE: Final = mutating_webhook(CLONE_SET, "Sets the defaults of a CloneSet and its templates")
VALIDATE: Final = validating_webhook(
    CLONE_SET, "Rejects invalid CloneSets", PolicyRule(("get",), ("",), ("pods",)), MAY_CHECK_TEMPLATES
)
WEBHOOKS: Final = (MUTATE, VALIDATE)
#: Maximum number of Pods read for one admission review; each Pod takes one request.
MAX_PODS_READ: Final = 100
_TEMPLATE: Final = SPEC.child("template")
_RESOURCE: Final = CLONE_SET.resource()


class CloneSetLookups(TemplateLookups):
    """Data that the webhooks need in addition to the request. Objects are read from the API server for each review."""

    def __init__(
        self, enabled: Callable[[str], bool] = lambda _: False, client: Client | None = None, namespace: str = ""
    ) -> None:
        super().__init__(enabled, client, namespace)
        #: Whether warnings become errors.
        self.strict = enabled(GATE)

    async def pod(self, namespace: str, name: str) -> Pod | None:
        """Return the Pod, or None if it does not exist or there is no client."""
        if self.client is None:
            return None
        return await get_or_none(self.client, PODS, name, namespace, decode=decode_pod)


def handlers(lookups: CloneSetLookups) -> tuple[Handler, ...]:
    """Return the webhooks with their handler functions."""
    judging = validating(CLONE_SET, partial(judge, lookups))
    return (Handler(MUTATE, partial(mutate, lookups)), Handler(VALIDATE, judging))


def mutate(lookups: CloneSetLookups, review: Review) -> Decision:
    """Set the defaults. [CS-13 … CS-19]"""

    def complete(given: Mapping[str, Any]) -> dict[str, Any]:
        defaulted, former = with_defaults(given), _former_spec(review)
        spec = defaulted["spec"]
        if former is not None:
            _keep_claim_reuse(spec, former)
        complete_templates(lookups, spec, former)  # [CS-16, CS-17]
        return defaulted

    return completed(review, CLONE_SET, SPECS, complete, rule="CS-13")


def _keep_claim_reuse(spec: dict[str, Any], former: Mapping[str, Any]) -> None:
    """Keep the stored disablePVCReuse if a v1alpha1 manifest has no scaleStrategy."""
    if spec.get("scaleStrategy") is None and (former.get("scaleStrategy") or {}).get("disablePVCReuse") is True:
        spec["scaleStrategy"] = {"disablePVCReuse": True}


async def judge(lookups: CloneSetLookups, clone_set: Submitted) -> Judgment:
    """Validate a CloneSet. [CS-20 … CS-41]"""
    metadata, former = clone_set.metadata, _former_spec(clone_set.review)
    given = clone_set.go_spec(SPECS)
    spec = with_defaults({**clone_set.object, "spec": given})["spec"]
    if clone_set.is_leaving or _only_cleans_up(given, former):
        # Deletion and cleanup must not fail because of content they do not change. [CS-62]
        return Allowed()
    older = clone_set.version.name == names.V1ALPHA1
    template_errors = await _template_errors(lookups, spec, former)
    refused = await _refused_pods(lookups, clone_set.review, spec, former)
    facts = Facts(template_errors, refused if older else {})
    errors = [*metadata_errors(metadata), *spec_errors(spec, former, facts, older=older)]
    if not errors:
        errors += new_errors(validation.errors(spec, older=older), validation.errors(former or {}, older=older))
    doubts = list(validation.warnings(spec, refused, older=older))
    if lookups.strict and not errors:
        errors += new_errors(doubts, validation.warnings(former or {}, {}, older=older))
    warning = validation.name_warning(str(metadata.get("name") or ""))
    return errors or Allowed((*map(str, doubts), *([warning] if warning else [])))


_former_spec: Final = partial(former_spec, CLONE_SET, SPECS, with_defaults=with_defaults)


def _only_cleans_up(spec: Mapping[str, Any], former: Mapping[str, Any] | None) -> bool:
    """Return whether the change only removes names from ``podsToDelete``, as the controller does when Pods are gone.
    [CS-62]"""
    # Counters detect a name that was listed once and is now listed twice. [CS-27]
    if former is None or not Counter(pods_to_delete(spec)) <= Counter(pods_to_delete(former)):
        return False
    return same(_without_names(spec), _without_names(former))


def _without_names(spec: Mapping[str, Any]) -> dict[str, Any]:
    scale = {key: value for key, value in (spec.get("scaleStrategy") or {}).items() if key != "podsToDelete"}
    return {**spec, "scaleStrategy": scale}


async def _template_errors(
    lookups: CloneSetLookups, spec: Mapping[str, Any], former: Mapping[str, Any] | None
) -> Sequence[FieldError | str]:
    """Return errors in the template. An unchanged template is not validated again. [CS-24]"""
    claims = ("volumeClaimTemplates", "template")
    if former is not None and all(same(spec.get(field), former.get(field)) for field in claims):
        return ()
    return await judge_template(lookups, _with_claim_volumes(spec), _TEMPLATE)


def _with_claim_volumes(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template with one volume per claim prepended, so that volume mounts can refer to the claims.
    [CS-24]"""
    defaulted = json_copy({field: spec.get(field) for field in ("template", "volumeClaimTemplates")})
    default_templates(defaulted)
    template: dict[str, Any] = defaulted["template"]
    volumes = claim_volumes(defaulted["volumeClaimTemplates"])
    if volumes and isinstance(template.get("spec"), dict):
        template["spec"]["volumes"] = [*volumes, *(template["spec"].get("volumes") or ())]
    return template


async def _refused_pods(
    lookups: CloneSetLookups, review: Review, spec: Mapping[str, Any], former: Mapping[str, Any] | None
) -> Mapping[str, str]:
    """Return, by Pod name, why Pods newly added to ``podsToDelete`` must not be listed. Only the first MAX_PODS_READ
    names are checked; the controller ignores Pods that do not belong to the CloneSet. [CS-28]"""
    known = set(pods_to_delete(former)) if former is not None else set()
    metadata = (review.object or {}).get("metadata") or {}
    identity = (str(metadata.get("name") or ""), review.namespace, str(metadata.get("uid") or ""))
    owner = Owner(_RESOURCE.api_version, _RESOURCE.kind, *identity)
    new = (name for name in dict.fromkeys(pods_to_delete(spec)) if name not in known)
    refused = {}
    for name in islice(new, MAX_PODS_READ):
        if problem := await _pod_problem(lookups, name, owner):
            refused[name] = problem
    return refused


async def _pod_problem(lookups: CloneSetLookups, name: str, owner: Owner) -> str:
    pod = await lookups.pod(owner.namespace, name) if name else None
    if pod is None:
        return f"find pod {name} failed: Pod {quote(name)} not found"
    if pod.metadata.deletion_timestamp is not None:
        return f"find pod {name} already terminating"
    return "" if is_controlled_by(pod.metadata, owner) else f"find pod {name} owner is not this CloneSet"
