"""The webhooks of SidecarSets, and the lookups they and injection need."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import orjson
from pydantic import ValidationError

from app.api import names
from app.api.conversion import ConversionError, as_hub
from app.api.core.containers import LONGEST_GRACE_PERIOD_SECONDS
from app.api.core.pods import pod_errors, unknown_fields
from app.api.gocore import VOLUME
from app.api.gojson import GoTypeError, normalized
from app.api.kind import Version
from app.api.webhooks import (
    is_leaving,
    judged,
    mutating_webhook,
    stored_object,
    unreadable,
    validating_webhook,
    version_to_default,
    version_to_judge,
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
from app.features.sidecarset.history import RECORDED_SET, by_recorded_set
from app.features.sidecarset.injection.prepared import recorded_revision, revision_choice
from app.features.sidecarset.injection.selection import RecentSets
from app.features.sidecarset.kind import (
    SIDECAR_CONTAINER,
    SIDECAR_SET,
    SPECS,
    read_sidecar_set,
    sidecarset_hashes,
    with_defaults,
)
from app.features.sidecarset.types import SidecarSet
from app.features.sidecarset.validation import SPEC, Facts, asks_for_revision, set_errors
from app.kube.admission import Allowed, Decision, Denied, Handler, Patched, PolicyRule, Review
from app.kube.callers import STRANGER
from app.kube.client import Client, get_or_none
from app.kube.concurrency import Coalesced
from app.kube.errors import KubeError
from app.kube.fielderrors import FieldError, aggregate
from app.kube.objects import (
    ConfigMap,
    ControllerRevision,
    Namespace,
    ObjectMeta,
    decode_config_map,
    decode_controller_revision,
    decode_metadata,
    decode_namespace,
)
from app.kube.patches import diff, same
from app.kube.resources import CONFIGMAPS, CONTROLLERREVISIONS, NAMESPACES
from app.kube.store import Store
from app.pods.template_check import PERMISSION as MAY_CHECK_TEMPLATES
from app.pods.template_check import template_errors

# The two webhooks of SidecarSet: fill in what is left out, refuse what cannot work (SS-5 … SS-34, SS-108).
#
# Both versions are judged alike: an older one is converted first, and patched in its own terms.

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


#: Between two lists of the sets, also for strangers, and how long a review waits for what it asks about them.
LIST_INTERVAL: Final = 0.005
STRANGERS_LIST_INTERVAL: Final = 0.02
LIST_SECONDS: Final = 3.0

FindSets = Callable[[], Iterable[SidecarSet]]


class StandaloneLookups:
    """Without a cluster: what files say, and Pod templates are checked structurally."""

    def __init__(
        self,
        sidecarsets: FindSets,
        revisions: Store[ControllerRevision] | None = None,
        configuration: Store[ConfigMap] | None = None,
        *,
        defaults_allowed: bool = False,
    ) -> None:
        self.sidecarsets = sidecarsets
        self.defaults_allowed = defaults_allowed
        self._revisions: Store[ControllerRevision] = (
            revisions if revisions is not None else Store(indexes={RECORDED_SET: by_recorded_set})
        )
        self._configuration: Store[ConfigMap] = configuration if configuration is not None else Store()

    async def sidecarset(self, name: str) -> SidecarSet | None:  # noqa: ARG002  # the protocol's
        """None: there is nothing beyond what is known."""
        return None

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[SidecarSet]:  # noqa: ARG002  # the protocol's
        """None, likewise."""
        return ()

    async def revision(self, name: str) -> ControllerRevision | None:
        """By name; the controller makes them, but a file may hold one."""
        return next((one for one in self._revisions.list() if one.metadata.name == name), None)

    async def revisions_of(self, set_name: str) -> Iterable[ControllerRevision]:
        """By label."""
        return self._revisions.by_index(RECORDED_SET, set_name)

    async def whitelist(self) -> str | None:
        """That of the ConfigMap."""
        found = (one for one in self._configuration.list() if one.metadata.name == names.CONFIGURATION_CONFIG_MAP)
        texts = (one.data.get(names.PATCH_POD_METADATA_WHITELIST_KEY) for one in found)
        return next((text for text in texts if text is not None), None)

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str] | None:  # noqa: ARG002
        """Nobody to ask."""
        return None


class NewerSets:
    """Reads the sets that were admitted a moment ago and that the index does not show.

    Whoever reaches the webhook port may claim a hundred sets that are never stored, so a claim alone costs no request:
    one list of metadata answers all reviews that arrive within a few milliseconds, and only a set that it shows in a
    state unknown to the index is read. [SS-39]
    """

    def __init__(self, client: Client, shows: Callable[[str, str, int], bool]) -> None:
        """``shows``: whether the index shows a set (name, uid, generation)."""
        # Outside of the callers' budgets: the interval is the limit, and a Pod waits for the answer.
        self._client = client.named("admission")
        self._shows = shows
        self._listed: Coalesced[None, Mapping[str, ObjectMeta]] = Coalesced(self._list, interval=LIST_INTERVAL)
        self._listed_for_strangers: Coalesced[None, Mapping[str, ObjectMeta]] = Coalesced(
            self._list, interval=STRANGERS_LIST_INTERVAL, shared=True
        )
        self._set: Coalesced[str, Mapping[str, Any] | None] = Coalesced(self._get, shared=True)

    async def __call__(self, set_names: Iterable[str]) -> list[Mapping[str, Any]]:
        """Those of these sets that are newer than the index. Raises KubeError, and TimeoutError after some seconds."""
        async with asyncio.timeout(LIST_SECONDS):
            listed = await (self._listed_for_strangers if STRANGER.get() else self._listed)(None)
            newer = [
                name
                for name in set_names
                if (one := listed.get(name)) is not None and not self._shows(name, one.uid, one.generation)
            ]
            found = [await self._set(name) for name in newer]
        return [one for one in found if one is not None]

    async def _list(self, _: None) -> Mapping[str, ObjectMeta]:
        found: dict[str, ObjectMeta] = {}
        token = ""
        while True:
            page = await self._client.list_page(
                SIDECAR_SET.resource(), continue_token=token, metadata_only=True, decode=decode_metadata
            )
            found |= {one.metadata.name: one.metadata for one in page.items}
            token = page.continue_token
            if not token:
                return found

    async def _get(self, name: str) -> Mapping[str, Any] | None:
        return await get_or_none(self._client, SIDECAR_SET.resource(), name)


class InjectionLookups:
    """What injection asks: the caches first, the API server where they are behind."""

    def __init__(
        self,
        namespaces: Store[Namespace],
        revisions: Store[ControllerRevision],
        client: Client | None,
        own: str,
        newer: NewerSets | None = None,
    ) -> None:
        """``client`` and ``newer`` are None without a cluster; ``own`` is the manager's namespace."""
        self._namespaces = namespaces
        self._revisions = revisions
        self._client = client
        self._own_namespace = own
        self._newer = newer

    def namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a cached namespace."""
        found = self._namespaces.get(namespace)
        return None if found is None else found.metadata.labels

    def revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """Cached revisions of a set."""
        return self._revisions.by_index(RECORDED_SET, set_name)

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[Mapping[str, Any]]:
        """Those of these SidecarSets that are newer than the index; none if they cannot be read."""
        if self._newer is None:
            return ()
        try:
            return await self._newer(set_names)
        except KubeError:
            return ()

    async def live_namespace_labels(self, namespace: str) -> Mapping[str, str] | None:
        """Labels of a namespace as the API server has it now; None if it cannot be read (SS-35).

        Without a cluster: its name, which every namespace has as a label.
        """
        if self._client is None:
            return {names.NAMESPACE_NAME: namespace}
        try:
            found = await self._client.get(NAMESPACES, namespace, decode=decode_namespace)
        except KubeError:
            return None
        return found.metadata.labels

    async def live_revisions(self, set_name: str) -> Iterable[ControllerRevision]:
        """Revisions of a set as the API server has them now; none if they cannot be read."""
        if self._client is None:
            return ()
        try:
            listing = await self._client.list(
                CONTROLLERREVISIONS,
                self._own_namespace,
                label_selector=f"{names.SIDECARSET_NAME}={set_name}",
                decode=decode_controller_revision,
            )
        except KubeError:
            return ()
        return listing.items


class ClusterLookups:
    """With a cluster: sets from a cache, everything else read when it is needed, which is when a set is written."""

    def __init__(
        self,
        client: Client,
        namespace: str,
        sidecarsets: FindSets,
        newer: NewerSets,
        *,
        defaults_allowed: bool = False,
    ) -> None:
        """``namespace`` is the manager's own."""
        self.sidecarsets = sidecarsets
        self._newer = newer
        self.defaults_allowed = defaults_allowed
        self._client = client
        self._namespace = namespace

    async def sidecarset(self, name: str) -> SidecarSet | None:
        """As the API server has it now."""
        return await get_or_none(self._client, SIDECAR_SET.resource(), name, decode=read_sidecar_set)

    async def newer_sidecarsets(self, set_names: Sequence[str]) -> Iterable[SidecarSet]:
        """As the API server has them now."""
        return [read_sidecar_set(orjson.dumps(found)) for found in await self._newer(set_names)]

    async def revision(self, name: str) -> ControllerRevision | None:
        """By name, whosever it is."""
        return await get_or_none(
            self._client, CONTROLLERREVISIONS, name, self._namespace, decode=decode_controller_revision
        )

    async def revisions_of(self, set_name: str) -> Iterable[ControllerRevision]:
        """By label."""
        listing = await self._client.list(
            CONTROLLERREVISIONS,
            self._namespace,
            label_selector=f"{names.SIDECARSET_NAME}={set_name}",
            decode=decode_controller_revision,
        )
        return listing.items

    async def whitelist(self) -> str | None:
        """Read at each use, as OpenKruise does: a change of the ConfigMap holds at once."""
        found = await get_or_none(
            self._client, CONFIGMAPS, names.CONFIGURATION_CONFIG_MAP, self._namespace, decode=decode_config_map
        )
        if found is None:
            return None
        return found.data.get(names.PATCH_POD_METADATA_WHITELIST_KEY)

    async def template_errors(self, template: Mapping[str, Any]) -> Sequence[str] | None:
        """By a dry run in the manager's namespace."""
        return await template_errors(self._client, self._namespace, template, "")
