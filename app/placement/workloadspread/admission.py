"""The validating webhook of WorkloadSpread (WS-5 … WS-14, WS-30)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import orjson
from pydantic import ValidationError

from app.api import names
from app.api.conversion import ConversionError, as_hub
from app.api.podmerge import POD
from app.api.requested import former_of, is_leaving, unreadable, version_to_judge
from app.api.webhooks import validating_webhook
from app.api.workloadspread import WORKLOAD_SPREAD, TargetReference, WorkloadSpread
from app.api.workloadspread.validation import patch_error, set_errors, warnings
from app.kube.admission import Allowed, Decision, Denied, Handler, PolicyRule, Review
from app.kube.fielderrors import FieldError, aggregate
from app.kube.patches import PatchError, same
from app.kube.strategic import strategic_merge
from app.placement.workloadspread.plan.whitelist import Whitelist
from app.pods.template_check import PERMISSION
from app.slices.options import gate_is_off

GATE: Final = "WorkloadSpread"
#: Patches that are tried on the workload's template at most; each is a request.
MAX_PATCHES_TRIED: Final = 50

VALIDATE: Final = validating_webhook(
    WORKLOAD_SPREAD,
    "Refuses WorkloadSpreads with subsets that make no sense together, or that no Pod can be put into",
    PERMISSION,
    PolicyRule(("list",), (names.APPS_GROUP,), (WORKLOAD_SPREAD.plural,)),
    PolicyRule(("get",), ("apps",), ("deployments", "replicasets", "statefulsets")),
    PolicyRule(("get",), ("batch",), ("jobs",)),
    PolicyRule(("get",), (names.APPS_GROUP,), ("clonesets", "statefulsets")),
    PolicyRule(("get",), ("",), ("configmaps",), (names.CONFIGURATION_CONFIG_MAP,), own_namespace=True),
    when=(),
)
WEBHOOKS: Final = (VALIDATE,)


class SpreadLookups(Protocol):
    """What validation asks."""

    async def others(self, namespace: str) -> Sequence[WorkloadSpread]:
        """The WorkloadSpreads of the namespace."""
        ...

    async def whitelist(self) -> Whitelist:
        """The operator's list of further kinds."""
        ...

    async def template(self, target: TargetReference, namespace: str) -> Mapping[str, Any] | None:
        """The Pod template of the workload, its claims as volumes; None where there is none, or nobody can know."""
        ...

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str]:
        """What is wrong with a Pod template."""
        ...


def handlers(lookups: SpreadLookups, *, enabled: bool) -> tuple[Handler, ...]:
    """The declaration with the function that answers for it; ``enabled``: the gate."""
    return (Handler(VALIDATE, partial(validate, lookups, enabled=enabled)),)


async def validate(lookups: SpreadLookups, review: Review, *, enabled: bool) -> Decision:
    """All mistakes are reported together."""
    given = review.object or {}
    version = version_to_judge(WORKLOAD_SPREAD, given)
    if isinstance(version, Denied):
        return version
    if is_leaving(review):
        # What still has to happen (a finalizer leaving) must not fail on content that no longer matters.
        return Allowed()
    if not enabled:
        if review.old_object is not None and same(review.old_object.get("spec"), given.get("spec")):
            return Allowed()
        return Denied(gate_is_off(GATE), code=403)
    try:
        spread = read(given)
    except (ConversionError, ValidationError) as error:
        return Denied(str(error) if isinstance(error, ConversionError) else unreadable(error), code=400)
    former = former_of(review, read)
    errors = set_errors(
        spread,
        former,
        await lookups.others(review.namespace),
        (await lookups.whitelist()).targets.keys(),
        v1alpha1=version.name == names.V1ALPHA1,
    )
    if not errors:
        errors = await _patch_errors(lookups, spread, former, review.namespace)
    return Denied(aggregate(errors), code=400) if errors else Allowed(warnings(spread))


def read(obj: Mapping[str, Any]) -> WorkloadSpread:
    """The WorkloadSpread of either version as its hub model. Raises ConversionError or ValidationError."""
    return WorkloadSpread.model_validate(as_hub(WORKLOAD_SPREAD, obj))


async def _patch_errors(
    lookups: SpreadLookups, spread: WorkloadSpread, former: WorkloadSpread | None, namespace: str
) -> list[FieldError]:
    """WS-11: patches that are new, on the workload's template as it is now."""
    known = [subset.patch for subset in former.spec.subsets] if former is not None else []
    new = [
        (index, subset)
        for index, subset in enumerate(spread.spec.subsets)
        if subset.patch and not any(same(subset.patch, one) for one in known[:MAX_PATCHES_TRIED])
    ][:MAX_PATCHES_TRIED]
    template = await lookups.template(spread.spec.target_ref, namespace) if new else None
    if template is None:
        return []
    errors = []
    for index, subset in new:
        patch = subset.patch
        try:
            merged = strategic_merge(dict(template), patch, POD) if isinstance(patch, dict) else None
        except PatchError as error:
            texts: Sequence[str] = [f"failed to merge patch: {error}"]
        else:
            texts = await lookups.template_errors(merged) if merged is not None else ["expected an object"]
        if texts:
            errors.append(patch_error(index, subset, texts, lambda patch: orjson.dumps(patch).decode()))
    return errors
