"""Settings of a SidecarSet as used by the plans, and the records of SidecarSets in Pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import orjson

from app.api import names
from app.api.fields import UpdatePriorityStrategy, UpdateScatterTerm
from app.api.gojson import GoTypeError, dumps_go
from app.features.sidecarset.defaults import MAX_UNAVAILABLE
from app.features.sidecarset.hashes import SidecarSetHashes, sidecarset_hashes
from app.features.sidecarset.injection.metadata import MAX_COMMAS, MetadataPatch
from app.features.sidecarset.types import NOT_UPDATE, RETAIN, SidecarSet
from app.kube.jsonvalues import as_object, nested_deeper
from app.kube.objects import Pod
from app.kube.selector_query import SelectorError
from app.kube.selectors import Selector, compile_selector

_NOTHING: Final = compile_selector(
    {"matchExpressions": [{"key": "never", "operator": word} for word in ("Exists", "DoesNotExist")]}
)


@dataclass(frozen=True, slots=True)
class HotSidecar:
    """A hot-upgradable sidecar: its name in the set, and the images of its idle and working twins. [SS-45]"""

    name: str
    empty_image: str
    image: str = ""

    @property
    def first(self) -> str:
        """The twin that is active in a new Pod."""
        return f"{self.name}-1"

    @property
    def second(self) -> str:
        """The twin that is idle in a new Pod."""
        return f"{self.name}-2"

    def other(self, twin: str) -> str:
        return self.second if twin == self.first else self.first


@dataclass(frozen=True, slots=True)
class Strategy:
    """``spec.updateStrategy``: which Pods are updated, how many at once, in which order."""

    rolling: bool = False
    paused: bool = False
    #: None selects every Pod.
    selector: Selector | None = None
    partition: int | str | None = None
    max_unavailable: int | str | None = None
    priority: UpdatePriorityStrategy | None = None
    scatter: Sequence[UpdateScatterTerm] | None = None


@dataclass(frozen=True, slots=True)
class SetView:
    """The parts of a SidecarSet needed to evaluate and update Pods."""

    name: str
    hash: str
    #: An empty selector matches nothing. [SS-35]
    selector: Selector
    #: None selects every namespace.
    namespaces: Selector | None
    #: Names of the set's containers in a Pod, including both twins of a hot-upgradable sidecar. Init containers do not
    #: count.
    sidecars: frozenset[str]
    hot: tuple[HotSidecar, ...] = ()
    hash_without_image: str = ""
    #: Sidecar without a twin → its target image.
    images: Mapping[str, str] = field(default_factory=dict)
    #: Names of the set's sidecars, as recorded in hash annotations. [SS-58]
    sidecar_list: tuple[str, ...] = ()
    patches: tuple[MetadataPatch, ...] = ()
    strategy: Strategy = Strategy()

    def selects(self, pod: Pod, namespace_labels: Mapping[str, str] | None) -> bool:
        """Return whether the Pod's labels and namespace are selected; None means an unknown namespace. [SS-35]"""
        if self.namespaces is not None and (namespace_labels is None or not self.namespaces.matches(namespace_labels)):
            return False
        return not self.selector.empty and self.selector.matches(pod.metadata.labels)


def set_view(sidecar_set: SidecarSet) -> SetView:
    """Return the view of a set. Raises ``SelectorError`` for a selector that admission would have rejected."""
    spec = sidecar_set.spec
    containers = spec.containers or ()
    hot = tuple(HotSidecar(c.name, c.upgrade_strategy.hot_upgrade_empty_image, c.image) for c in containers if c.hot)
    images = {container.name: container.image for container in containers if not container.hot}
    twins = {twin for sidecar in hot for twin in (sidecar.first, sidecar.second)}
    lasting = {container.name for container in spec.init_containers or () if container.keeps_running}
    hashes = _hashes(sidecar_set)
    return SetView(
        name=sidecar_set.name,
        hash=hashes.hash,
        selector=compile_selector(spec.selector),
        namespaces=compile_selector(spec.namespace_selector) if spec.namespace_selector is not None else None,
        sidecars=frozenset(twins | images.keys()),
        hot=hot,
        hash_without_image=hashes.without_image,
        images=images,
        sidecar_list=tuple(sorted({container.name for container in containers} | lasting)),
        patches=tuple(
            MetadataPatch(sidecar_set.name, patch.patch_policy or RETAIN, tuple(sorted(patch.annotations.items())))
            for patch in spec.patch_pod_metadata or ()
            if patch.annotations
        ),
        strategy=_strategy(sidecar_set),
    )


def _strategy(sidecar_set: SidecarSet) -> Strategy:
    given = sidecar_set.spec.update_strategy
    return Strategy(
        rolling=given.type != NOT_UPDATE,
        paused=given.paused,
        selector=_update_selector(given.selector),
        partition=given.partition,
        max_unavailable=MAX_UNAVAILABLE if given.max_unavailable is None else given.max_unavailable,
        priority=given.priority_strategy,
        scatter=given.scatter_strategy,
    )


def _update_selector(given: Mapping[str, Any] | None) -> Selector | None:
    """Return the selector: a missing one selects every Pod, an invalid one none. [SS-92]"""
    if given is None:
        return None
    try:
        return compile_selector(given)
    except SelectorError:
        return _NOTHING


def _hashes(sidecar_set: SidecarSet) -> SidecarSetHashes:
    annotations = sidecar_set.metadata.annotations
    stored = annotations.get(names.SIDECARSET_HASH), annotations.get(names.SIDECARSET_HASH_WITHOUT_IMAGE)
    if all(stored):
        return SidecarSetHashes(stored[0] or "", stored[1] or "")
    # The set was written without admission, which would have set the hashes. [SS-8]
    spec = sidecar_set.spec.to_dict()
    try:
        computed = sidecarset_hashes(spec.get("containers"), spec.get("initContainers"))
    except GoTypeError:
        return SidecarSetHashes(stored[0] or "", stored[1] or "")
    return SidecarSetHashes(stored[0] or computed.hash, stored[1] or computed.without_image)


#: Maximum number of sets read from a Pod's annotation. Any user may write the annotation, and each name adds an index
#: entry or is compared with all containers.
MAX_SETS: Final = 256


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    hash: str = ""
    controller_revision: str = ""


class _Before(msgspec.Struct, frozen=True):
    image_id: str = msgspec.field(default="", name="imageID")


class InPlaceState(msgspec.Struct, frozen=True, rename="camel"):
    """One set's entry in the state annotation. Only we write the container IDs; other readers ignore them. [SS-99]"""

    last_container_statuses: dict[str, _Before] | None = None
    last_container_ids: dict[str, str] | None = msgspec.field(default=None, name="lastContainerIDs")

    @property
    def before(self) -> Mapping[str, str]:
        """Container → the ID of its former image."""
        return {name: before.image_id for name, before in (self.last_container_statuses or {}).items()}

    def container_before(self, name: str) -> str:
        """Return the ID of the former container, or '' if it was not recorded."""
        return (self.last_container_ids or {}).get(name, "")


# In its oldest form, the annotation holds a bare hash instead of a record. [SS-59]
_RECORDS = msgspec.json.Decoder(dict[str, _Record | str])
_STATES = msgspec.json.Decoder(dict[str, InPlaceState])
_WORKING = msgspec.json.Decoder(dict[str, str])


def injected_sets(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of the sets that injected a Pod. [SS-56]"""
    listed = annotations.get(names.SIDECARSET_INJECTED_LIST)
    if not listed:
        return ()
    parts = listed.split(",", MAX_SETS)[:MAX_SETS]
    return tuple(name for name in (part.strip() for part in parts) if name)


def recorded(annotations: Mapping[str, str], set_name: str, key: str = names.SIDECARSET_HASH) -> tuple[str, str]:
    """Return the hash and ControllerRevision a Pod records for the set, or '' for both. [SS-57]"""
    text = annotations.get(key)
    if not text or text.count(",") > MAX_COMMAS:
        return "", ""
    try:
        record = _RECORDS.decode(text).get(set_name, "")
    except (msgspec.DecodeError, RecursionError):
        return "", ""
    return (record, "") if isinstance(record, str) else (record.hash, record.controller_revision)


def in_place_states(pod: Pod) -> Mapping[str, InPlaceState] | None:
    """Return each set's last change to the Pod; None if the annotation is unreadable or too large. [SS-99]"""
    text = pod.metadata.annotations.get(names.SIDECARSET_IN_PLACE_UPDATE_STATE)
    if text is None:
        return {}
    try:
        states = _STATES.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return states if len(states) <= MAX_SETS else None


def with_state(pod: Pod, set_name: str, digest: str, now: str, changed: Mapping[str, str]) -> str:
    """Return the state annotation after this set changed the containers ``changed`` (name → new image). [SS-99, SS-100]

    Entries of other sets are kept.
    """
    entries = _objects(pod.metadata.annotations.get(names.SIDECARSET_IN_PLACE_UPDATE_STATE, ""))
    try:
        known = msgspec.convert(entries.get(set_name, {}), InPlaceState)
    except msgspec.ValidationError:
        known = InPlaceState()
    before, ids = dict(known.before), dict(known.last_container_ids or {})
    statuses = {status.name: status for status in pod.status.container_statuses}
    for name in changed:
        status = statuses.get(name)
        before[name] = status.image_id if status is not None else ""
        ids.pop(name, None)
        if status is not None and status.container_id:
            ids[name] = status.container_id
    entry: dict[str, object] = {
        "revision": digest,
        "updateTimestamp": now,
        "lastContainerStatuses": {name: {"imageID": image} if image else {} for name, image in sorted(before.items())},
    }
    if ids:
        entry["lastContainerIDs"] = dict(sorted(ids.items()))
    return dumps_go(dict(sorted({**entries, set_name: entry}.items())))


def _objects(text: str) -> dict[str, object]:
    """Return the entries of an annotation; none if it is unreadable or too large, so that it is rewritten."""
    try:
        found = as_object(orjson.loads(text)) if text else {}
    except orjson.JSONDecodeError:
        return {}
    if len(found) >= MAX_SETS or nested_deeper(found):
        return {}  # nested too deeply to be serialized again
    return {name: entry for name, entry in found.items() if isinstance(entry, dict)}


def working_twins(pod: Pod) -> dict[str, str]:
    """Return the working twin of each hot-upgradable sidecar; empty if nothing readable is recorded. [SS-79]"""
    try:
        return _WORKING.decode(pod.metadata.annotations.get(names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER) or "{}")
    except (msgspec.DecodeError, RecursionError):
        return {}
