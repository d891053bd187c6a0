"""The mutating and the validating webhook of UnitedDeployment. [UD-4 … UD-24]"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from app.api.conversion import as_hub
from app.api.gojson import GoTypeError
from app.api.webhooks import (
    Judgment,
    Submitted,
    former_of,
    mutating_webhook,
    validating,
    validating_webhook,
    version_to_default,
)
from app.features.uniteddeployment.defaults import as_printed, with_defaults
from app.features.uniteddeployment.kind import UNITED_DEPLOYMENT
from app.features.uniteddeployment.types import UnitedDeployment, template_of
from app.features.uniteddeployment.validation import (
    TEMPLATE,
    creation_errors,
    patch_errors,
    spec_errors,
    update_errors,
    warnings,
)
from app.kube.admission import Allowed, Decision, Denied, Handler, Operation, Patched, Review
from app.kube.fielderrors import FieldError, required
from app.kube.jsonvalues import json_copy
from app.kube.patches import diff, same
from app.pods.claims import claim_volumes
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import TemplateLookups, judge_template

SHORT_HASH_GATE: Final = "CloneSetShortHash"

MUTATE: Final = mutating_webhook(
    UNITED_DEPLOYMENT,
    "Sets the defaults of a UnitedDeployment",
    when=(),
)
VALIDATE: Final = validating_webhook(
    UNITED_DEPLOYMENT,
    "Rejects UnitedDeployments with invalid subsets or templates",
    MAY_CHECK_TEMPLATES,
    when=(),
)
WEBHOOKS: Final = (MUTATE, VALIDATE)


def handlers(lookups: TemplateLookups, *, short_hash: bool = False) -> tuple[Handler, ...]:
    """Return the webhooks with their handler functions. ``short_hash`` is the gate CloneSetShortHash."""
    judging = validating(UNITED_DEPLOYMENT, partial(judge, lookups, short_hash=short_hash))
    return (Handler(MUTATE, partial(mutate, lookups)), Handler(VALIDATE, judging))


def mutate(lookups: TemplateLookups, review: Review) -> Decision:
    """Set the defaults. [UD-4 … UD-6, UD-22]"""
    given = review.object or {}
    version = version_to_default(UNITED_DEPLOYMENT, given)
    if isinstance(version, Denied):
        return version
    try:
        defaulted = with_defaults(
            given,
            default_templates=not lookups.no_template_defaults and _template_changed(review),
            former=review.old_object if review.operation == Operation.UPDATE else None,
            host_ports=lookups.default_host_ports,
        )
        stored = as_printed(defaulted)
    except GoTypeError as error:
        return Denied(str(error), code=400)
    before = {key: value for key, value in given.items() if key != "status"}
    operations = tuple(diff(before, stored, rule="UD-4"))
    return Patched(operations) if operations else Allowed()


def _template_changed(review: Review) -> bool:
    """Return whether to set the template's defaults. On update, set them only if the template changed. [UD-5]"""
    if review.operation != Operation.UPDATE or review.old_object is None:
        return True
    specs = (one.get("spec") for one in (review.object or {}, review.old_object))
    now, then = (spec.get("template") if isinstance(spec, dict) else None for spec in specs)
    return not same(now, then)


async def judge(lookups: TemplateLookups, given: Submitted, *, short_hash: bool) -> Judgment:
    """Validate a UnitedDeployment. [UD-7 … UD-18]"""
    united = read(given.object)
    if united.deleting:
        # Removing a finalizer must not fail because of content that no longer matters.
        return Allowed()
    former = former_of(given.review, read)
    template_errors = await _template_errors(lookups, united, former)
    errors = spec_errors(united.spec, former.spec if former is not None else None, template_errors)
    errors += patch_errors(united, former)
    if former is not None:
        errors += update_errors(united, former)
    if given.review.operation == Operation.CREATE:
        errors += creation_errors(united, short_hash=short_hash)
    return errors or Allowed(warnings(united.spec))


def read(obj: Mapping[str, Any]) -> UnitedDeployment:
    """Return the hub model of a UnitedDeployment of either version. Raises ConversionError or ValidationError."""
    return UnitedDeployment.model_validate(as_hub(UNITED_DEPLOYMENT, obj))


async def _template_errors(
    lookups: TemplateLookups, united: UnitedDeployment, former: UnitedDeployment | None
) -> Sequence[FieldError | str]:
    """Return errors in the Pod template. An unchanged template is not validated again. [UD-10]"""
    found = template_of(united.spec)
    if found is None or (former is not None and same(found[1], (template_of(former.spec) or ("", None))[1])):
        return ()
    name, workload = found
    path = TEMPLATE.child(name, "spec", "template")
    template = json_copy((workload.get("spec") or {}).get("template") or {})
    if not isinstance(template, dict) or not isinstance(template.get("spec"), dict | None):
        return [required(path.child("spec"))]
    if volumes := claim_volumes((workload.get("spec") or {}).get("volumeClaimTemplates")):
        pod = template.get("spec") or {}
        template["spec"] = {**pod, "volumes": [*volumes, *(pod.get("volumes") or ())]}
    return await judge_template(lookups, template, path)
