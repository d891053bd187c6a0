"""Webhooks of WorkloadSpread and the lookups they need."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson

from app.api import names
from app.api.conversion import as_hub
from app.api.gopod import POD
from app.api.webhooks import Judgment, Submitted, former_of, validating, validating_webhook
from app.features.cloneset.kind import CLONE_SET
from app.features.statefulset.kind import STATEFUL_SET
from app.features.workloadspread.kind import WORKLOAD_SPREAD
from app.features.workloadspread.plan.subsets import refuse_too_large
from app.features.workloadspread.plan.targets import Whitelist, parse_whitelist
from app.features.workloadspread.types import TargetReference, WorkloadSpread, WorkloadSpreadSubset
from app.features.workloadspread.validation import TARGET, patch_error, set_errors, unchecked_warnings, warnings
from app.framework.live import LiveObjects
from app.framework.options import gate_is_off
from app.framework.watched import Stores, Watched
from app.kube.admission import STRANGER, Allowed, Denied, Handler, PolicyRule
from app.kube.client import Client, get_or_none
from app.kube.fielderrors import FieldError, internal
from app.kube.jsonvalues import json_size
from app.kube.objects import ConfigMap
from app.kube.patches import PatchError, strategic_merge
from app.kube.resources import DEPLOYMENTS, JOBS, REPLICASETS, STATEFULSETS
from app.kube.store import Store
from app.pods.claims import claim_volumes
from app.pods.custom_workloads import ConfiguredList, GroupKind, WhitelistError
from app.pods.template_check import PERMISSION, template_errors

# Validating webhook. [WS-5 … WS-14, WS-30]

GATE: Final = "WorkloadSpread"
SPREADS: Final = Watched.kind(WORKLOAD_SPREAD, WorkloadSpread)
#: Maximum number of patches tried on the workload's template (one request each), and maximum total size of the merged
#: templates in bytes. Even a small WorkloadSpread can cause large merges, which delay reviews of Pods.
MAX_PATCHES_TRIED: Final = 50
MAX_BYTES_TRIED: Final = 1024 * 1024

VALIDATE: Final = validating_webhook(
    WORKLOAD_SPREAD,
    "Rejects WorkloadSpreads that are invalid or whose patches do not fit the workload",
    PERMISSION,
    PolicyRule(("list",), (names.APPS_GROUP,), (WORKLOAD_SPREAD.plural,)),
    PolicyRule(("get",), ("apps",), ("deployments", "replicasets", "statefulsets")),
    PolicyRule(("get",), ("batch",), ("jobs",)),
    PolicyRule(("get",), (names.APPS_GROUP,), ("clonesets", "statefulsets")),
    PolicyRule(("get",), ("",), ("configmaps",), (names.CONFIGURATION_CONFIG_MAP,), own_namespace=True),
    when=(),
)
WEBHOOKS: Final = (VALIDATE,)


def handlers(lookups: SpreadLookups, *, enabled: bool) -> tuple[Handler, ...]:
    """Return the webhook handlers. ``enabled`` is the state of the feature gate."""
    judging = validating(WORKLOAD_SPREAD, partial(judge, lookups, enabled=enabled), code=400)
    return (Handler(VALIDATE, judging, lookups.is_slow),)


async def judge(lookups: SpreadLookups, given: Submitted, *, enabled: bool) -> Judgment:
    """Validate a WorkloadSpread."""
    if given.is_leaving or (not enabled and given.keeps_spec):
        return Allowed()
    if not enabled:
        return Denied(gate_is_off(GATE), code=403)
    spread, former, namespace = read(given.object), former_of(given.review, read), given.review.namespace
    custom: Collection[GroupKind] = ()
    if spread.spec.target_ref.group_kind not in TARGETS:
        try:
            custom = (await lookups.whitelist()).targets.keys()
        except WhitelistError as error:
            # An invalid whitelist does not affect built-in targets. [WS-16]
            return Denied(str(internal(TARGET, str(error))), code=500)
    v1alpha1 = given.version.name == names.V1ALPHA1
    errors = set_errors(spread, former, await lookups.others(namespace), custom, v1alpha1=v1alpha1)
    if errors:
        return errors
    new, template = new_patches(spread, former), None
    # The errors reveal parts of the workload, and a review by an unknown caller does not prove who the user is.
    most, why = 0, "the caller is not known to be an API server (--client-ca-file)"
    if not STRANGER.get():
        template = await lookups.template(spread.spec.target_ref, namespace) if new else None
        most = most_tried(template)
        why = f"at most {most} patches are checked at once"
    errors = await _patch_errors(lookups, template, new[:most]) if template is not None else []
    return errors or Allowed((*warnings(spread), *unchecked_warnings([index for index, _ in new[most:]], why)))


def read(obj: Mapping[str, Any]) -> WorkloadSpread:
    """Read a WorkloadSpread of either version as the hub model. Raises ConversionError or ValidationError."""
    return WorkloadSpread.model_validate(as_hub(WORKLOAD_SPREAD, obj))


def new_patches(spread: WorkloadSpread, former: WorkloadSpread | None) -> list[tuple[int, WorkloadSpreadSubset]]:
    """Return the subsets with a new patch, and their indexes."""
    # Compared as text: comparing each of hundreds of patches with every stored one would take seconds.
    known = {_text_of(subset) for subset in former.spec.subsets} if former is not None else set()
    return [
        (index, subset)
        for index, subset in enumerate(spread.spec.subsets)
        if subset.patch and _text_of(subset) not in known
    ]


def _text_of(subset: WorkloadSpreadSubset) -> str:
    return json.dumps(subset.patch, sort_keys=True, default=str)


def most_tried(template: Mapping[str, Any] | None) -> int:
    """Return how many patches to try on this template."""
    size = json_size(template) if template is not None else 1
    return max(1, min(MAX_PATCHES_TRIED, MAX_BYTES_TRIED // size))


async def _patch_errors(
    lookups: SpreadLookups, template: Mapping[str, Any], subsets: Sequence[tuple[int, WorkloadSpreadSubset]]
) -> list[FieldError]:
    """Return the errors that occur when patches are applied to the workload's current template. [WS-11]"""
    errors = []
    for index, subset in subsets:
        patch = subset.patch
        try:
            refuse_too_large(template, patch)
            merged = strategic_merge(dict(template), patch, POD) if isinstance(patch, dict) else None
        except PatchError as error:
            texts: Sequence[str] = [f"failed to merge patch: {error}"]
        else:
            texts = await lookups.template_errors(merged) if merged is not None else ["expected an object"]
        if texts:
            errors.append(patch_error(index, subset, texts, lambda patch: orjson.dumps(patch).decode()))
    return errors


# The operator's whitelist of custom workloads, read from the ConfigMap. [WS-16]


class CustomWorkloads(ConfiguredList[Whitelist]):
    """The whitelist, parsed again whenever the ConfigMap changes."""

    def __init__(self, config_maps: Store[ConfigMap], namespace: str) -> None:
        key = names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY
        super().__init__(config_maps, namespace, key, parse_whitelist)


#: Resources of the built-in targets by group and kind, because two groups may use the same kind name.
TARGETS: Final = {
    (one.group, one.kind): one
    for one in (CLONE_SET.resource(), DEPLOYMENTS, REPLICASETS, STATEFULSETS, STATEFUL_SET.resource(), JOBS)
}


class SpreadLookups:
    """Reads the objects that the webhook needs from the API server, or from files in standalone mode."""

    def __init__(self, client: Client | None, stores: Stores, own_namespace: str) -> None:
        self._client = client
        self._live = LiveObjects(client, stores)
        self._own_namespace = own_namespace
        self.is_slow = self._live.are_large

    async def others(self, namespace: str) -> Sequence[WorkloadSpread]:
        """List the WorkloadSpreads of the namespace. Invalid ones are skipped."""
        return await self._live.list(SPREADS, namespace)

    async def whitelist(self) -> Whitelist:
        """Read the whitelist from the ConfigMap. Raises WhitelistError if it is invalid."""
        key = names.WORKLOAD_SPREAD_CUSTOM_WORKLOAD_WHITELIST_KEY
        return parse_whitelist(await self._live.configured(key, self._own_namespace))

    async def template(self, target: TargetReference, namespace: str) -> Mapping[str, Any] | None:
        """Read the Pod template of the stored workload. Return None without a cluster: files contain no workloads."""
        resource = TARGETS.get(target.group_kind)
        if resource is None or self._client is None:
            return None
        return template_of(await get_or_none(self._client, resource, target.name, namespace) or {})

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str]:
        assert self._client is not None  # noqa: S101  # without a cluster, there is no template to check
        return await template_errors(self._client, self._own_namespace, template, "")


def template_of(workload: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return a workload's Pod template with its volumeClaimTemplates as volumes of the same names. [WS-11]"""
    spec = workload.get("spec") or {}
    template = spec.get("template")
    if not isinstance(template, Mapping):
        return None
    claims = [claim for claim in claim_volumes(spec.get("volumeClaimTemplates")) if claim["name"]]
    pod_spec = template.get("spec") or {}
    replaced = {claim["name"] for claim in claims}
    own = [volume for volume in pod_spec.get("volumes") or () if volume.get("name") not in replaced]
    return {**template, "spec": {**pod_spec, "volumes": [*own, *claims]}} if claims else template
