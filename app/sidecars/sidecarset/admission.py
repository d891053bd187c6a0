"""The two webhooks of SidecarSet: fill in what is left out, refuse what cannot work (SS-5 … SS-34, SS-108).

Both versions are judged alike: an older one is converted first, and patched in its own terms.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

from pydantic import ValidationError

from app.api import names
from app.api.conversion import ConversionError, as_hub
from app.api.core_validation import LONGEST_GRACE_PERIOD_SECONDS, pod_errors, unknown_fields
from app.api.gojson import GoTypeError, normalized
from app.api.govolumes import VOLUME
from app.api.kind import Version
from app.api.requested import is_leaving, judged, stored_object, unreadable, version_to_default, version_to_judge
from app.api.sidecarset import SIDECAR_SET, SidecarSet
from app.api.sidecarset.defaults import with_defaults
from app.api.sidecarset.gospec import SIDECAR_CONTAINER, SPECS
from app.api.webhooks import mutating_webhook, validating_webhook
from app.kube.admission import (
    Allowed,
    Decision,
    Denied,
    Handler,
    Patched,
    PolicyRule,
    Review,
)
from app.kube.fielderrors import FieldError, aggregate
from app.kube.objects import ControllerRevision
from app.kube.patches import diff, same
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.sidecars.sidecarset import whitelist
from app.sidecars.sidecarset.conflicts import base_of, canary_errors, conflict_errors, update_errors
from app.sidecars.sidecarset.hashing import sidecarset_hashes
from app.sidecars.sidecarset.no_effect import without_effect
from app.sidecars.sidecarset.revision_choice import recorded_revision, revision_choice
from app.sidecars.sidecarset.selection import RecentSets
from app.sidecars.sidecarset.stricter import stricter_errors, warnings
from app.sidecars.sidecarset.validation import SPEC, Facts, asks_for_revision, set_errors

MUTATE: Final = mutating_webhook(
    SIDECAR_SET,
    "Fills in the defaults of a SidecarSet and computes its hashes",
    when=(),
)
VALIDATE: Final = validating_webhook(
    SIDECAR_SET,
    "Refuses SidecarSets that cannot work, alone or beside others",
    PolicyRule(("get", "list", "watch"), (names.APPS_GROUP,), (SIDECAR_SET.plural,)),
    PolicyRule(("get", "list"), ("apps",), ("controllerrevisions",), own_namespace=True),
    PolicyRule(("get",), ("",), ("configmaps",), (names.CONFIGURATION_CONFIG_MAP,), own_namespace=True),
    MAY_CHECK_TEMPLATES,
    when=(),
)
WEBHOOKS: Final = (MUTATE, VALIDATE)


class SidecarSetLookups(Protocol):
    """What validation asks. Whoever has no cluster answers from files; see :mod:`.admission_lookups`."""

    #: The gate SidecarSetPatchPodMetadataDefaultsAllowed.
    defaults_allowed: bool

    def sidecarsets(self) -> Iterable[SidecarSet]:
        """All SidecarSets, as far as known."""
        ...

    async def sidecarset(self, name: str) -> SidecarSet | None:
        """The SidecarSet of this name as it is now, for one that is not known yet."""
        ...

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[SidecarSet]:
        """Those of these SidecarSets that are, now, in a state that injection does not know yet."""
        ...

    async def revision(self, name: str) -> ControllerRevision | None:
        """The ControllerRevision of this name in the manager's namespace."""
        ...

    async def revisions_of(self, set_name: str) -> Iterable[ControllerRevision]:
        """The ControllerRevisions there that are labelled with this set."""
        ...

    async def whitelist(self) -> str | None:
        """The whitelist of patchPodMetadata as the ConfigMap has it; None without one."""
        ...

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str] | None:
        """What an API server says about a Pod template (paths from ``spec.`` on); None where none can be asked."""
        ...


def handlers(lookups: SidecarSetLookups, recent: RecentSets | None = None) -> tuple[Handler, ...]:
    """The declarations with the functions that answer for them; ``recent`` is told what was let through."""
    return (Handler(MUTATE, mutate), Handler(VALIDATE, partial(validate, lookups, recent=recent)))


def mutate(review: Review) -> Decision:
    """Defaults (SS-5 … SS-7), then the hashes of what stands there now (SS-8)."""
    given = judged(review.object)
    version = version_to_default(SIDECAR_SET, given)
    if isinstance(version, Denied):
        return version
    defaulted = with_defaults(given)
    try:
        stored, hashed = _as_stored(defaulted, version), _with_hashes(defaulted)
    except GoTypeError as error:
        return Denied(str(error), code=400)
    if same(given, hashed):
        # Where nothing is missing OpenKruise writes nothing, and so leaves what is empty.
        return Allowed()
    return Patched((*diff(given, stored, rule="SS-5"), *diff(defaulted, hashed, rule="SS-8")))


def _as_stored(defaulted: dict[str, Any], version: Version) -> dict[str, Any]:
    """SS-5: what is empty is left out and quantities are canonical, as OpenKruise stores them. Raises GoTypeError."""
    return {**defaulted, "spec": normalized(SPECS[version.name], defaulted.get("spec"), "spec")}


def _with_hashes(defaulted: Mapping[str, Any]) -> dict[str, Any]:
    spec, metadata = defaulted.get("spec") or {}, defaulted.get("metadata") or {}
    hashes = sidecarset_hashes(spec.get("containers"), spec.get("initContainers"))
    annotations = {
        **(metadata.get("annotations") or {}),
        names.SIDECARSET_HASH: hashes.hash,
        names.SIDECARSET_HASH_WITHOUT_IMAGE: hashes.without_image,
    }
    return {**defaulted, "metadata": {**metadata, "annotations": annotations}}


async def validate(lookups: SidecarSetLookups, review: Review, *, recent: RecentSets | None = None) -> Decision:
    """Every rule of SS-16 … SS-34; all mistakes are reported together."""
    given = judged(review.object)
    version = version_to_judge(SIDECAR_SET, given)
    if isinstance(version, Denied):
        return version
    try:
        sidecar_set = read({**given, "spec": normalized(SPECS[version.name], given.get("spec") or {}, "spec")})
    except GoTypeError as error:
        return Denied(str(error), code=400)
    except (ConversionError, ValidationError) as error:
        return Denied(str(error) if isinstance(error, ConversionError) else unreadable(error), code=400)
    if is_leaving(review):
        # What still has to happen (a finalizer leaving) must not fail on content that no longer matters.
        return Allowed()
    older = _former(review)
    others = await _others(lookups, sidecar_set, recent.unseen() if recent is not None else [])
    errors = set_errors(sidecar_set, await _facts(lookups, sidecar_set, older))
    if older is not None:
        errors += update_errors(sidecar_set, older)
    errors += canary_errors(sidecar_set, older, {other.name: other for other in others}.get)
    errors += stricter_errors(sidecar_set, older)
    if not errors:
        # SS-30: beside others only what is right by itself.
        errors += conflict_errors(sidecar_set, others)
    if errors:
        return Denied(aggregate(errors), code=422)
    if recent is not None and not review.dry_run:
        metadata = sidecar_set.metadata
        recent.admitted(metadata.name, metadata.uid, metadata.generation)
    return Allowed((*_warnings(given), *warnings(sidecar_set), *without_effect(sidecar_set, older)))


async def _others(lookups: SidecarSetLookups, sidecar_set: SidecarSet, unseen: Sequence[str]) -> Collection[SidecarSet]:
    """All sets known, and those created a moment ago that may clash with this one, or are its base."""
    known = {other.name: other for other in lookups.sidecarsets()}
    if unseen := [name for name in unseen if name != sidecar_set.name]:
        known |= {newer.name: newer for newer in await lookups.newer_sidecarsets(unseen)}
    base = base_of(sidecar_set)
    if base and base != sidecar_set.name and base not in known and (found := await lookups.sidecarset(base)):
        known[base] = found
    return known.values()


def read(obj: Mapping[str, Any]) -> SidecarSet:
    """The SidecarSet of either version as its hub model, defaults filled in.

    Raises ConversionError, or pydantic's ValidationError.
    """
    return SidecarSet.model_validate(with_defaults(as_hub(SIDECAR_SET, obj)))


def _former(review: Review) -> SidecarSet | None:
    old = stored_object(SIDECAR_SET, SPECS, review)
    try:
        return read(old) if old is not None else None
    except (ConversionError, ValidationError):
        # What is stored cannot be read: then it must not stand in the way of something better.
        return None


async def _facts(lookups: SidecarSetLookups, sidecar_set: SidecarSet, older: SidecarSet | None) -> Facts:
    spec = sidecar_set.spec
    keys = {key for patch in spec.patch_pod_metadata or () for key in patch.annotations or {}}
    asked = asks_for_revision(sidecar_set, older)
    return Facts(
        template_errors=await _template_errors(lookups, sidecar_set) if spec.all_containers else (),
        revision_asked=asked,
        revision=await _revision(lookups, sidecar_set) if asked else None,
        metadata_refusal=whitelist.refusal(
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
    """SS-21: containers, init containers and volumes as one Pod template."""
    spec = sidecar_set.spec
    containers = [container.core for container in spec.containers or ()]
    init_containers = [container.core for container in spec.init_containers or ()]
    volumes = spec.volumes or []
    found = await lookups.template_errors(_fake_template(containers, init_containers, volumes))
    if found is None:
        return pod_errors(containers, init_containers, volumes, SPEC)
    # A set of init containers alone is fine; the Pods it is for bring containers.
    return [line for line in found if not line.startswith("spec.containers: Required value")]


def _fake_template(
    containers: list[dict[str, Any]], init_containers: list[dict[str, Any]], volumes: list[dict[str, Any]]
) -> dict[str, Any]:
    spec: dict[str, Any] = {"containers": containers, "terminationGracePeriodSeconds": LONGEST_GRACE_PERIOD_SECONDS}
    if init_containers:
        spec["initContainers"] = init_containers
    if volumes:
        spec["volumes"] = volumes
    return {"spec": spec}


def _warnings(given: Mapping[str, Any]) -> tuple[str, ...]:
    """What is admitted, but surely not meant."""
    spec = given.get("spec") or {}
    found = [
        f'unknown field "{field}"'
        for kind in ("initContainers", "containers")
        for index, container in enumerate(spec.get(kind) or ())
        for field in unknown_fields(SIDECAR_CONTAINER, container, f"spec.{kind}[{index}]")
    ]
    found += [
        f'unknown field "{field}"'
        for index, volume in enumerate(spec.get("volumes") or ())
        for field in unknown_fields(VOLUME, volume, f"spec.volumes[{index}]")
    ]
    if spec.get("namespace") and spec.get("namespaceSelector"):
        # SS-1
        found.append("spec.namespaceSelector is ignored, because spec.namespace is set")
    return tuple(found)
