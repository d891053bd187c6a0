"""The webhooks of SidecarSets and the lookups they need."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import orjson
from pydantic import ValidationError

from app.api import names
from app.api.conversion import ConversionError, as_hub
from app.api.core.containers import LONGEST_GRACE_PERIOD_SECONDS
from app.api.core.pods import pod_errors, unknown_fields
from app.api.gocore import VOLUME
from app.api.gojson import GoTypeError, normalized
from app.api.webhooks import (
    Judgment,
    Submitted,
    mutating_webhook,
    stored_object,
    validating,
    validating_webhook,
    version_to_default,
)
from app.features.sidecarset import validation
from app.features.sidecarset.conflicts import (
    base_of,
    canary_errors,
    conflict_errors,
    stricter_errors,
    update_errors,
    warnings,
    without_effect,
)
from app.features.sidecarset.defaults import with_defaults
from app.features.sidecarset.hashes import sidecarset_hashes
from app.features.sidecarset.history import RECORDED_SET
from app.features.sidecarset.injection.prepared import recorded_revision, revision_choice
from app.features.sidecarset.injection.selection import RecentSets
from app.features.sidecarset.kind import SIDECAR_CONTAINER, SIDECAR_SET, SPECS, read_sidecar_set
from app.features.sidecarset.pod_admission import RECORDED_REVISIONS, SIDECAR_SETS, NewerSets, read_revisions
from app.features.sidecarset.types import SidecarSet
from app.features.sidecarset.validation import SPEC, Facts, asks_for_revision, set_errors
from app.framework.live import LiveObjects
from app.framework.watched import Stores
from app.kube.admission import Allowed, Decision, Denied, Handler, Patched, PolicyRule, Review
from app.kube.client import Client
from app.kube.fielderrors import FieldError
from app.kube.jsonvalues import without_managed_fields
from app.kube.objects import ControllerRevision
from app.kube.patches import diff, same
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import template_errors

# The two webhooks of SidecarSet: set defaults, and reject invalid sets [SS-5 … SS-34, SS-108]. Both versions are
# handled alike: a v1alpha1 object is converted first, and patched in v1alpha1.

MUTATE: Final = mutating_webhook(
    SIDECAR_SET,
    "Sets the defaults of a SidecarSet and computes its hashes",
    when=(),
)
VALIDATE: Final = validating_webhook(
    SIDECAR_SET,
    "Rejects SidecarSets that are invalid, by themselves or in combination with others",
    PolicyRule(("get", "list", "watch"), (names.APPS_GROUP,), (SIDECAR_SET.plural,)),
    PolicyRule(("get", "list"), ("apps",), ("controllerrevisions",), own_namespace=True),
    PolicyRule(("get",), ("",), ("configmaps",), (names.CONFIGURATION_CONFIG_MAP,), own_namespace=True),
    MAY_CHECK_TEMPLATES,
    when=(),
)
WEBHOOKS: Final = (MUTATE, VALIDATE)


def handlers(lookups: SidecarSetLookups, recent: RecentSets | None = None) -> tuple[Handler, ...]:
    """Return the webhook declarations with their handlers. ``recent`` records the admitted sets."""
    judging = validating(SIDECAR_SET, partial(judge, lookups, recent=recent))
    return (Handler(MUTATE, mutate), Handler(VALIDATE, judging))


def mutate(review: Review) -> Decision:
    """Set the defaults [SS-5 … SS-7], then the hashes of the defaulted containers [SS-8]."""
    given = without_managed_fields(review.object)
    version = version_to_default(SIDECAR_SET, given)
    if isinstance(version, Denied):
        return version
    defaulted = with_defaults(given)
    try:
        # OpenKruise omits empty fields and writes canonical quantities. [SS-5]
        stored = {**defaulted, "spec": normalized(SPECS[version.name], defaulted.get("spec"), "spec")}
        hashed = _with_hashes(defaulted)
    except GoTypeError as error:
        return Denied(str(error), code=400)
    if same(given, hashed):
        # If no default is missing, OpenKruise writes nothing, and so keeps empty fields.
        return Allowed()
    return Patched((*diff(given, stored, rule="SS-5"), *diff(defaulted, hashed, rule="SS-8")))


def _with_hashes(defaulted: Mapping[str, Any]) -> dict[str, Any]:
    spec, metadata = defaulted.get("spec") or {}, defaulted.get("metadata") or {}
    hashes = sidecarset_hashes(spec.get("containers"), spec.get("initContainers"))
    annotations = {
        **(metadata.get("annotations") or {}),
        names.SIDECARSET_HASH: hashes.hash,
        names.SIDECARSET_HASH_WITHOUT_IMAGE: hashes.without_image,
    }
    return {**defaulted, "metadata": {**metadata, "annotations": annotations}}


async def judge(lookups: SidecarSetLookups, given: Submitted, *, recent: RecentSets | None) -> Judgment:
    """Validate a SidecarSet. [SS-16 … SS-34]"""
    sidecar_set = read({**given.object, "spec": given.go_spec(SPECS)})
    if given.is_leaving:
        return Allowed()
    older = _former(given.review)
    others = await _others(lookups, sidecar_set, recent.unseen() if recent is not None else [])
    errors = set_errors(sidecar_set, await _facts(lookups, sidecar_set, older))
    if older is not None:
        errors += update_errors(sidecar_set, older)
    errors += canary_errors(sidecar_set, older, {other.name: other for other in others}.get)
    errors += stricter_errors(sidecar_set, older)
    if not errors:
        # Compare with other sets only if the set itself is valid. [SS-30]
        errors += conflict_errors(sidecar_set, others)
    if errors:
        return errors
    if recent is not None and not given.review.dry_run:
        metadata = sidecar_set.metadata
        recent.admitted(metadata.name, metadata.uid, metadata.generation)
    return Allowed((*_warnings(given.object), *warnings(sidecar_set), *without_effect(sidecar_set, older)))


async def _others(lookups: SidecarSetLookups, sidecar_set: SidecarSet, unseen: Sequence[str]) -> Collection[SidecarSet]:
    """Return all known sets, and recently created ones that may conflict with this one or are its base."""
    known = {other.name: other for other in lookups.sidecarsets()}
    if unseen := [name for name in unseen if name != sidecar_set.name]:
        known |= {newer.name: newer for newer in await lookups.newer_sidecarsets(unseen)}
    base = base_of(sidecar_set)
    if base and base != sidecar_set.name and base not in known and (found := await lookups.sidecarset(base)):
        known[base] = found
    return known.values()


def read(obj: Mapping[str, Any]) -> SidecarSet:
    """Return a SidecarSet of either version as its hub model, with defaults.

    Raises ConversionError, or pydantic's ValidationError.
    """
    return SidecarSet.model_validate(with_defaults(as_hub(SIDECAR_SET, obj)))


def _former(review: Review) -> SidecarSet | None:
    old = stored_object(SIDECAR_SET, SPECS, review)
    try:
        return read(old) if old is not None else None
    except (ConversionError, ValidationError):
        # A stored object that cannot be parsed must not prevent its correction.
        return None


async def _facts(lookups: SidecarSetLookups, sidecar_set: SidecarSet, older: SidecarSet | None) -> Facts:
    spec = sidecar_set.spec
    keys = {key for patch in spec.patch_pod_metadata or () for key in patch.annotations or {}}
    asked = asks_for_revision(sidecar_set, older)
    return Facts(
        template_errors=await _template_errors(lookups, sidecar_set) if spec.all_containers else (),
        revision_asked=asked,
        revision=await _revision(lookups, sidecar_set) if asked else None,
        metadata_refusal=validation.refusal(
            await lookups.whitelist() if keys else None,
            sidecar_set.metadata.labels,
            keys,
            defaults_allowed=lookups.defaults_allowed,
        ),
    )


async def _revision(lookups: SidecarSetLookups, sidecar_set: SidecarSet) -> ControllerRevision | None:
    wanted = sidecar_set.spec.injection_strategy.revision
    if wanted is not None and wanted.revision_name:
        return await lookups.revision(wanted.revision_name)
    choice = revision_choice(wanted.to_dict() if wanted is not None else None, {})
    if choice is None:
        return None
    return recorded_revision(sidecar_set.name, choice, await lookups.revisions_of(sidecar_set.name))


async def _template_errors(lookups: SidecarSetLookups, sidecar_set: SidecarSet) -> Sequence[FieldError | str]:
    """Validate containers, init containers and volumes as one Pod template. [SS-21]"""
    spec = sidecar_set.spec
    containers = [container.core for container in spec.containers or ()]
    init_containers = [container.core for container in spec.init_containers or ()]
    volumes = spec.volumes or []
    pod: dict[str, Any] = {"containers": containers, "terminationGracePeriodSeconds": LONGEST_GRACE_PERIOD_SECONDS}
    if init_containers:
        pod["initContainers"] = init_containers
    if volumes:
        pod["volumes"] = volumes
    found = await lookups.template_errors({"spec": pod})
    if found is None:
        return pod_errors(containers, init_containers, volumes, SPEC)
    # A set with only init containers is valid, because its Pods have containers of their own.
    return [line for line in found if not line.startswith("spec.containers: Required value")]


#: Lists whose unknown fields get a warning.
_CHECKED: Final = {"initContainers": SIDECAR_CONTAINER, "containers": SIDECAR_CONTAINER, "volumes": VOLUME}


def _warnings(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return warnings about settings that are admitted but probably unintended."""
    spec = given.get("spec") or {}
    found = [
        f'unknown field "{field}"'
        for name, type_ in _CHECKED.items()
        for index, one in enumerate(spec.get(name) or ())
        for field in unknown_fields(type_, one, f"spec.{name}[{index}]")
    ]
    if spec.get("namespace") and spec.get("namespaceSelector"):
        # [SS-1]
        found.append("spec.namespaceSelector is ignored, because spec.namespace is set")
    return tuple(found)


class SidecarSetLookups:
    """Looks up the objects that validation needs: SidecarSets in a cache, all others on the API server. In standalone
    mode, all objects come from files."""

    def __init__(
        self,
        client: Client | None,
        stores: Stores,
        own_namespace: str,
        newer: NewerSets | None = None,
        *,
        defaults_allowed: bool = False,
    ) -> None:
        """``newer`` is None in standalone mode, where all sets are known. ``own_namespace`` is the manager's."""
        self.defaults_allowed = defaults_allowed
        self._client = client
        self._stores = stores
        self._live = LiveObjects(client, stores)
        self._namespace = own_namespace
        self._newer = newer

    def sidecarsets(self) -> Iterable[SidecarSet]:
        return self._stores(SIDECAR_SETS).list()

    async def sidecarset(self, name: str) -> SidecarSet | None:
        return await self._live.get(SIDECAR_SETS, name)

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[SidecarSet]:
        found = await self._newer(set_names) if self._newer is not None else ()
        return [read_sidecar_set(orjson.dumps(one)) for one in found]

    async def revision(self, name: str) -> ControllerRevision | None:
        """Read a revision by name, whichever set it belongs to."""
        return await self._live.get(RECORDED_REVISIONS, name, self._namespace)

    async def revisions_of(self, set_name: str) -> Iterable[ControllerRevision]:
        if self._client is None:
            return self._stores(RECORDED_REVISIONS).by_index(RECORDED_SET, set_name)
        return await read_revisions(self._client, self._namespace, set_name)

    async def whitelist(self) -> str | None:
        """Read the whitelist at each use, as OpenKruise does, so that a change takes effect immediately."""
        return await self._live.configured(names.PATCH_POD_METADATA_WHITELIST_KEY, self._namespace)

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str] | None:
        """Return the errors that a dry run in the manager's namespace finds; None without an API server."""
        return await template_errors(self._client, self._namespace, template, "") if self._client is not None else None
