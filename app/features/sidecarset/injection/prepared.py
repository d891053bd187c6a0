"""SidecarSets prepared for injection, and the revision that a Pod gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from app.api import names
from app.api.gojson import GoField, GoTypeError, go_value, struct
from app.features.sidecarset.hashes import sidecarset_hashes
from app.features.sidecarset.injection.metadata import MetadataPatch, RecordEntry, record_entry
from app.features.sidecarset.injection.prepared_containers import (
    MalformedSidecarSetError,
    PreparedSidecar,
    UnusableSidecarSetError,
    mapping,
    names_in_pod,
    objects,
    prepare_sidecar,
    refuse_other_than_text,
    selector_of,
)
from app.features.sidecarset.kind import RECORDED_FIELDS, SPECS, canary_base
from app.features.sidecarset.types import RETAIN
from app.kube.fielderrors import shortened
from app.kube.jsonvalues import MAX_DEPTH, nested_deeper, without_managed_fields
from app.kube.objects import ControllerRevision
from app.kube.quantities import is_percent, percentage
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector


@dataclass(frozen=True, slots=True)
class RevisionChoice:
    """``spec.injectionStrategy.revision`` with the parts of the update strategy it depends on. [SS-68, SS-70]"""

    revision_name: str
    custom_version: str
    #: Whether only some Pods get the recorded revision: the policy is Partial and updates are not paused.
    partial: bool
    #: If partial, Pods that do not match this selector get the recorded revision. None matches all Pods.
    update_selector: Selector | None
    #: If partial, the percentage of matching Pods that get the recorded revision.
    percent: int

    @property
    def field(self) -> str:
        """The field that names the revision, with its value, for messages."""
        if self.revision_name:
            return f"spec.injectionStrategy.revision.revisionName {self.revision_name}"
        return f"spec.injectionStrategy.revision.customVersion {self.custom_version}"


def revision_choice(revision: Mapping[str, Any] | None, update_strategy: Mapping[str, Any]) -> RevisionChoice | None:
    """Parse the choice from the JSON of a set's spec; None if every Pod gets the current spec.

    Raises SelectorError for an invalid ``updateStrategy.selector``.
    """
    revision_name = (revision or {}).get("revisionName") or ""
    custom_version = (revision or {}).get("customVersion") or ""
    if revision is None or not (revision_name or custom_version):
        return None
    selector = update_strategy.get("selector")
    partition = update_strategy.get("partition")
    return RevisionChoice(
        revision_name=revision_name,
        custom_version=custom_version,
        partial=revision.get("policy") == "Partial" and not update_strategy.get("paused"),
        update_selector=compile_selector(selector) if selector is not None else None,
        percent=percentage(partition) if isinstance(partition, str) and is_percent(partition) else 0,
    )


def takes_recorded(choice: RevisionChoice, labels: Mapping[str, str], random: Callable[[], float]) -> bool:
    """Return whether a Pod with these labels gets the recorded revision. ``random()`` is in [0, 1). [SS-70]"""
    if not choice.partial:
        return True
    if choice.update_selector is not None and not choice.update_selector.matches(labels):
        return True
    return choice.percent > 0 and random() * 100 < choice.percent


def recorded_revision(
    set_name: str, choice: RevisionChoice, revisions: Iterable[ControllerRevision]
) -> ControllerRevision | None:
    """Return the chosen revision among those of the manager's namespace, or None. [SS-68]

    A revision belongs to the set that its label names; revisions of other sets are ignored. [SS-34]
    """
    own = [r for r in revisions if r.metadata.labels.get(names.SIDECARSET_NAME) == set_name]
    if choice.revision_name:
        return next((r for r in own if r.metadata.name == choice.revision_name), None)
    tagged = [r for r in own if r.metadata.labels.get(names.SIDECARSET_CUSTOM_VERSION) == choice.custom_version]
    return max(tagged, key=lambda revision: revision.revision, default=None)


# What a SidecarSet injects, precomputed whenever the set changes, so that a review only matches and copies. Built from
# the JSON of a defaulted v1beta1 SidecarSet, or of a ControllerRevision of one. A container that needs nothing from the
# Pod (no shared mounts, transferred env or computed resources) is serialized here and copied into patches as bytes
# (see ``prepared_containers``). Prepared objects are shared by all reviews and never modified.

_HASHES = (names.SIDECARSET_HASH, names.SIDECARSET_HASH_WITHOUT_IMAGE)


_RECORDED = struct(*(GoField(name, go_type) for name, go_type in RECORDED_FIELDS.items()))


@dataclass(frozen=True, slots=True)
class PreparedVolume:
    """A volume of the set that its sidecars use. ``rendered`` is its JSON."""

    name: str
    body: Mapping[str, Any]
    rule: str
    rendered: orjson.Fragment


@dataclass(frozen=True, slots=True)
class PreparedContent:
    """What a set injects: its current spec, or a recorded revision of it. [SS-69]"""

    set_name: str
    containers: tuple[PreparedSidecar, ...]
    init_containers: tuple[PreparedSidecar, ...]
    #: The volumes its sidecars use, in order of use. [SS-48]
    volumes: tuple[PreparedVolume, ...]
    image_pull_secrets: tuple[Mapping[str, Any], ...]
    metadata: tuple[MetadataPatch, ...]
    #: Names that the containers and init containers get in a Pod; for twins, both names.
    names: frozenset[str]
    init_names: frozenset[str]
    #: ``names``, ``init_names`` and, for twins, their common name in the set. Containers with these names are never
    #: targets of a resources policy. [SS-61]
    all_names: frozenset[str]
    #: Hot-upgradable sidecars, by their name in the set. [SS-80]
    hot: tuple[str, ...]
    #: The set's entries in the two hash annotations. [SS-57]
    hash_entry: RecordEntry
    hash_without_image_entry: RecordEntry

    @property
    def injects(self) -> bool:
        """Whether it contains any sidecar."""
        return bool(self.containers or self.init_containers)


@dataclass(frozen=True, slots=True)
class PreparedSet:
    """A SidecarSet ready to be matched and injected."""

    name: str
    uid: str
    #: None selects nothing. [SS-35]
    selector: Selector | None
    #: None selects every namespace.
    namespace_selector: Selector | None
    #: Namespaces it is indexed under; empty means all. [SS-36]
    namespaces: tuple[str, ...]
    #: Whether matching needs the namespace's labels, not only its name.
    needs_namespace_labels: bool
    #: Whether injection is paused or the set is being deleted. [SS-38, SS-39]
    dormant: bool
    #: The base this canary replaces, or "". [SS-77]
    canary_of: str
    #: If None, the current spec is injected. [SS-68]
    revision: RevisionChoice | None
    #: The current spec, or why it cannot be injected. Matching Pods are then refused, not started without sidecars.
    content: PreparedContent | UnusableSidecarSetError


def prepare(obj: Mapping[str, Any]) -> PreparedSet:
    """Prepare a SidecarSet from its defaulted v1beta1 JSON.

    Raises UnusableSidecarSetError, naming the field, if its Pods cannot be determined; MalformedSidecarSetError if any
    field has the wrong type.
    """
    metadata = mapping(obj, "metadata")
    name = metadata.get("name")
    if not isinstance(name, str) or not name:
        raise UnusableSidecarSetError("SidecarSet: metadata.name is required")
    try:
        return _prepare(name, metadata, obj)
    except MalformedSidecarSetError as error:
        raise MalformedSidecarSetError(f"SidecarSet {shortened(name)}: {error}") from error
    except (UnusableSidecarSetError, SelectorError) as error:
        raise UnusableSidecarSetError(f"SidecarSet {shortened(name)}: {error}") from error


def unusable(obj: Mapping[str, Any]) -> UnusableSidecarSetError | None:
    """Return why a SidecarSet (defaulted v1beta1 JSON) cannot be injected into any Pod; None if it can."""
    try:
        prepare(obj)
    except UnusableSidecarSetError as error:
        return error
    return None


def _refuse_mistyped(obj: Mapping[str, Any]) -> None:
    """Raise MalformedSidecarSetError if any field that is read later has the wrong type, at any depth."""
    if field := nested_deeper(without_managed_fields(obj)):
        raise MalformedSidecarSetError(f"{field}: nested deeper than {MAX_DEPTH} levels")
    metadata = mapping(obj, "metadata")
    for field in ("uid", "deletionTimestamp"):
        refuse_other_than_text(metadata, field, "metadata.")
    for key, value in mapping(metadata, "annotations", "metadata.").items():
        if not isinstance(value, str):
            raise MalformedSidecarSetError(f"metadata.annotations[{shortened(key)}]: expected a string")
    refuse_other_than_text(mapping(obj, "status"), "latestRevision", "status.")
    try:
        go_value(SPECS[names.V1BETA1], mapping(obj, "spec"), "spec")
    except GoTypeError as error:
        raise MalformedSidecarSetError(shortened(str(error))) from error


def _prepare(name: str, metadata: Mapping[str, Any], obj: Mapping[str, Any]) -> PreparedSet:
    _refuse_mistyped(obj)
    spec = mapping(obj, "spec")
    annotations = mapping(metadata, "annotations", "metadata.")
    injection = mapping(spec, "injectionStrategy", "spec.")
    namespace_selector = selector_of(spec, "namespaceSelector")
    namespaces = _namespaces(namespace_selector)
    selector = selector_of(spec, "selector")
    return PreparedSet(
        name=name,
        uid=metadata.get("uid") or "",
        selector=None if selector is None or selector.empty else selector,
        namespace_selector=namespace_selector,
        namespaces=namespaces,
        needs_namespace_labels=namespace_selector is not None
        and not (namespaces and len(namespace_selector.requirements) == 1),
        dormant=bool(injection.get("paused")) or bool(metadata.get("deletionTimestamp")),
        canary_of=canary_base(annotations),
        revision=revision_choice(injection.get("revision"), mapping(spec, "updateStrategy", "spec.")),
        content=_current(name, obj, spec, annotations),
    )


def _current(
    name: str, obj: Mapping[str, Any], spec: Mapping[str, Any], annotations: Mapping[str, Any]
) -> PreparedContent | UnusableSidecarSetError:
    hashes = tuple(annotations.get(key) for key in _HASHES)
    try:
        return _content(name, spec, hashes, mapping(obj, "status").get("latestRevision") or "")
    except MalformedSidecarSetError:
        raise
    except UnusableSidecarSetError as error:
        return UnusableSidecarSetError(f"SidecarSet {name}: {error}")


def prepare_revision(set_name: str, revision: ControllerRevision) -> PreparedContent:
    """Return what a recorded revision of a set injects. [SS-69]

    Raises UnusableSidecarSetError naming the revision and the field.
    """
    metadata = revision.metadata
    hashes = tuple(metadata.annotations.get(key) for key in _HASHES)
    try:
        data = orjson.loads(bytes(revision.data))
        spec = mapping(data, "spec", "data.") if isinstance(data, dict) else {}
        if field := nested_deeper(spec):
            raise MalformedSidecarSetError(f"data.spec.{field}: nested deeper than {MAX_DEPTH} levels")
        go_value(_RECORDED, spec, "data.spec")
        return _content(set_name, spec, hashes, metadata.name)
    except (UnusableSidecarSetError, GoTypeError, orjson.JSONDecodeError) as error:
        raise UnusableSidecarSetError(f"SidecarSet {set_name}: ControllerRevision {metadata.name}: {error}") from error


def _content(set_name: str, spec: Mapping[str, Any], hashes: tuple[str | None, ...], revision: str) -> PreparedContent:
    raw = objects(spec, "containers", named=True)
    raw_init = objects(spec, "initContainers", named=True)
    containers = tuple(prepare_sidecar(container, set_name, init=False) for container in raw)
    init_containers = tuple(prepare_sidecar(container, set_name, init=True) for container in raw_init)
    if hashes[0] is None or hashes[1] is None:
        # The hashes are recomputed if their annotations are missing [SS-69]. A missing list hashes as null, not as an
        # empty list [SS-12].
        computed = sidecarset_hashes(*(spec.get(field) for field in ("containers", "initContainers")))
        hashes = (hashes[0] or computed[0], hashes[1] or computed[1])
    # [SS-58]
    listed = sorted({c["name"] for c in raw} | {c["name"] for c in raw_init if c.get("restartPolicy") == "Always"})
    container_names = names_in_pod(containers)
    init_names = names_in_pod(init_containers)
    _refuse_duplicates((*container_names, *init_names))
    return PreparedContent(
        set_name=set_name,
        containers=containers,
        init_containers=init_containers,
        volumes=tuple(
            PreparedVolume(name, volume, f"SS-48 SidecarSet {set_name}", orjson.Fragment(orjson.dumps(volume)))
            for name, volume in _used_volumes(spec, raw_init, raw).items()
        ),
        image_pull_secrets=tuple(objects(spec, "imagePullSecrets")),
        metadata=tuple(_metadata_patch(entry, set_name) for entry in objects(spec, "patchPodMetadata")),
        names=frozenset(container_names),
        init_names=frozenset(init_names),
        all_names=frozenset((*container_names, *init_names, *(container["name"] for container in (*raw, *raw_init)))),
        hot=tuple(sidecar.name for sidecar in (*init_containers, *containers) if sidecar.empty_image is not None),
        hash_entry=record_entry(set_name, hashes[0] or "", listed, revision),
        hash_without_image_entry=record_entry(set_name, hashes[1] or "", listed, ""),
    )


def _metadata_patch(entry: Mapping[str, Any], set_name: str) -> MetadataPatch:
    annotations = mapping(entry, "annotations", "spec.patchPodMetadata.")
    for key, value in annotations.items():
        if not isinstance(value, str):
            raise MalformedSidecarSetError(f"spec.patchPodMetadata.annotations[{key}]: expected a string")
    return MetadataPatch(set_name, entry.get("patchPolicy") or RETAIN, tuple(sorted(annotations.items())))


def _used_volumes(
    spec: Mapping[str, Any], init_containers: Iterable[Mapping[str, Any]], containers: Iterable[Mapping[str, Any]]
) -> dict[str, Mapping[str, Any]]:
    """Return the set's volumes that its sidecars mount, in order of use; the others never reach a Pod. [SS-48]"""
    pool = {volume.get("name"): volume for volume in objects(spec, "volumes")}
    used: dict[str, Mapping[str, Any]] = {}
    for container in (*init_containers, *containers):
        for mount in (*objects(container, "volumeMounts"), *objects(container, "volumeDevices")):
            name = mount.get("name")
            if name and name in pool:
                used[name] = pool[name]
    return used


def _refuse_duplicates(taken: Sequence[str]) -> None:
    if len(set(taken)) != len(taken):
        twice = sorted({name for name in taken if taken.count(name) > 1})
        raise UnusableSidecarSetError(f"spec: container name {twice[0]} is used twice; rename one of the two")


def _namespaces(selector: Selector | None) -> tuple[str, ...]:
    """Return the namespaces a selector names by their metadata.name label. [SS-36]"""
    if selector is None:
        return ()
    named = [r for r in selector.requirements if r.key == names.NAMESPACE_NAME and r.operator == "In"]
    # Use the requirement with the fewest values; a matchLabels entry is an In requirement with one value.
    return min((requirement.values for requirement in named), key=len, default=())
