"""The status counts of a SidecarSet: what one Pod contributes, and how the sum is kept current one Pod at a time.

Pure. An event costs the judgement of the one Pod it is about, however many belong to the set.
Rules SS-89, SS-91, SS-96, SS-106.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import msgspec

from app.api import names
from app.api.gojson import GoTypeError
from app.api.sidecarset import SidecarSet
from app.kube.objects import ContainerStatus, Pod
from app.kube.resources import ObjectKey
from app.kube.selectors import Selector, compile_selector
from app.pods.images import has_digest, same_image
from app.pods.predicates import is_active, is_running_and_ready
from app.sidecars.sidecarset.hashing import sidecarset_hashes


@dataclass(frozen=True, slots=True)
class HotSidecar:
    """A sidecar with a twin (SS-45): the base name, the names of both, and the image the idle one runs."""

    name: str
    empty_image: str

    @property
    def first(self) -> str:
        """The twin that works in a fresh Pod."""
        return f"{self.name}-1"

    @property
    def second(self) -> str:
        """The twin that idles in a fresh Pod."""
        return f"{self.name}-2"


@dataclass(frozen=True, slots=True)
class SetView:
    """What judging a Pod needs of a SidecarSet, prepared once per change of the set."""

    name: str
    hash: str
    #: SS-35: an empty one matches nothing here.
    selector: Selector
    #: None: every namespace.
    namespaces: Selector | None
    #: Every container the set brings, by the name it has in a Pod: twins by their own. Init containers do not count.
    sidecars: frozenset[str]
    hot: tuple[HotSidecar, ...] = ()


class PodFacts(NamedTuple):
    """What one Pod says about one set. ``revision`` is the ControllerRevision its annotation names, '' if none."""

    matched: bool
    updated: bool
    ready: bool
    revision: str


@dataclass(frozen=True, slots=True)
class Counts:
    """SS-106: the four numbers of the status."""

    matched: int = 0
    updated: int = 0
    ready: int = 0
    updated_ready: int = 0


def set_view(sidecar_set: SidecarSet) -> SetView:
    """The view of a set. Raises ``SelectorError`` for a selector that admission would have refused."""
    spec = sidecar_set.spec
    containers = spec.containers or ()
    hot = tuple(HotSidecar(c.name, c.upgrade_strategy.hot_upgrade_empty_image) for c in containers if c.hot)
    twins = {twin for sidecar in hot for twin in (sidecar.first, sidecar.second)}
    return SetView(
        name=sidecar_set.name,
        hash=_hash(sidecar_set),
        selector=compile_selector(spec.selector),
        namespaces=compile_selector(spec.namespace_selector) if spec.namespace_selector is not None else None,
        sidecars=frozenset(twins | {container.name for container in containers if not container.hot}),
        hot=hot,
    )


def _hash(sidecar_set: SidecarSet) -> str:
    recorded_hash = sidecar_set.metadata.annotations.get(names.SIDECARSET_HASH)
    if recorded_hash:
        return recorded_hash
    # Written past admission, which would have put it there (SS-8).
    spec = sidecar_set.spec.to_dict()
    try:
        return sidecarset_hashes(spec.get("containers"), spec.get("initContainers")).hash
    except GoTypeError:
        return ""


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    hash: str = ""
    controller_revision: str = ""


class _Before(msgspec.Struct, frozen=True):
    image_id: str = msgspec.field(default="", name="imageID")


class _InPlaceState(msgspec.Struct, frozen=True, rename="camel"):
    last_container_statuses: dict[str, _Before] | None = None


# SS-59: a bare hash instead of the record is the oldest form of the annotation.
_RECORDS = msgspec.json.Decoder(dict[str, _Record | str])
_STATES = msgspec.json.Decoder(dict[str, _InPlaceState])
_WORKING = msgspec.json.Decoder(dict[str, str])


def injected_sets(annotations: Mapping[str, str]) -> tuple[str, ...]:
    """SS-56: the names of the sets a Pod was injected by."""
    listed = annotations.get(names.SIDECARSET_INJECTED_LIST)
    if not listed:
        return ()
    return tuple(name for name in (part.strip() for part in listed.split(",")) if name)


def recorded(annotations: Mapping[str, str], set_name: str) -> tuple[str, str]:
    """Hash and ControllerRevision a Pod records for the set (SS-57); both '' where nothing readable is recorded."""
    text = annotations.get(names.SIDECARSET_HASH)
    if not text:
        return "", ""
    try:
        record = _RECORDS.decode(text).get(set_name, "")
    except msgspec.DecodeError:
        return "", ""
    return (record, "") if isinstance(record, str) else (record.hash, record.controller_revision)


def pod_facts(view: SetView, pod: Pod, namespace_labels: Mapping[str, str] | None) -> PodFacts:
    """What ``pod`` contributes; ``namespace_labels`` is None while the Namespace is unknown: in no scope (SS-35)."""
    hash_, revision = recorded(pod.metadata.annotations, view.name)
    if not is_matched(view, pod, namespace_labels):
        return PodFacts(False, False, False, revision)
    ready = is_running_and_ready(pod) and pod.metadata.deletion_timestamp is None
    return PodFacts(
        True, hash_ == view.hash != "", ready and twins_are_idle(view, pod) and is_consistent(view, pod), revision
    )


def is_matched(view: SetView, pod: Pod, namespace_labels: Mapping[str, str] | None) -> bool:
    """SS-91: in scope, active, listed as injected, and holding every sidecar of the set as it is now."""
    if not is_active(pod) or view.name not in injected_sets(pod.metadata.annotations):
        return False
    if view.namespaces is not None and (namespace_labels is None or not view.namespaces.matches(namespace_labels)):
        return False
    # SS-35: an empty selector matches nothing.
    if view.selector.empty or not view.selector.matches(pod.metadata.labels):
        return False
    if not view.sidecars <= {container.name for container in pod.spec.containers}:
        return False
    return not view.hot or working_twins(pod).keys() >= {sidecar.name for sidecar in view.hot}


def working_twins(pod: Pod) -> dict[str, str]:
    """SS-79: hot-upgrade sidecar → the name of the twin that works; empty if nothing readable is recorded."""
    try:
        return _WORKING.decode(pod.metadata.annotations.get(names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER) or "{}")
    except msgspec.DecodeError:
        return {}


def twins_are_idle(view: SetView, pod: Pod) -> bool:
    """SS-82: in every pair the twin that does not work is set to the empty image."""
    if not view.hot:
        return True
    images = {container.name: container.image for container in pod.spec.containers}
    working = working_twins(pod)
    # SS-80: anything but the first twin's name means that the second works.
    return all(
        images.get(sidecar.second if working.get(sidecar.name) == sidecar.first else sidecar.first)
        == sidecar.empty_image
        for sidecar in view.hot
    )


def is_consistent(view: SetView, pod: Pod) -> bool:
    """SS-96: whether the set's containers in the Pod run what its spec says, as far as can be told."""
    statuses = {status.name: status for status in pod.status.container_statuses}
    if len(statuses) != len(pod.spec.containers):
        return False
    images = {container.name: container.image for container in pod.spec.containers if container.name in view.sidecars}
    if all(map(has_digest, images.values())):
        return all(name in statuses and same_image(image, statuses[name].image_id) for name, image in images.items())
    state = pod.metadata.annotations.get(names.SIDECARSET_IN_PLACE_UPDATE_STATE)
    if state is None:
        return True
    try:
        mine = _STATES.decode(state).get(view.name, _InPlaceState())
    except msgspec.DecodeError:
        return False
    before = mine.last_container_statuses or {}
    return not any(
        _still_old(before[name], image, statuses.get(name)) for name, image in images.items() if name in before
    )


def _still_old(before: _Before, image: str, status: ContainerStatus | None) -> bool:
    # The status has full names: a new tag of the same content has arrived once its name shows, short or full.
    return (
        status is not None
        and status.image_id == before.image_id
        and status.image != image
        and not same_image(status.image, image)
    )


class PodTally:
    """The facts of every Pod a set may count, and their sums."""

    def __init__(self) -> None:
        self._facts: dict[ObjectKey, PodFacts] = {}
        self._sums: Counter[PodFacts] = Counter()

    def observe(self, key: ObjectKey, facts: PodFacts) -> None:
        """Take a Pod's facts in place of what was known of it."""
        known = self._facts.get(key)
        if known == facts:
            return
        if known is not None:
            self._subtract(known)
        self._facts[key] = facts
        self._sums[facts] += 1

    def forget(self, key: ObjectKey) -> None:
        """Drop a Pod; one that is not known is no error."""
        known = self._facts.pop(key, None)
        if known is not None:
            self._subtract(known)

    def _subtract(self, facts: PodFacts) -> None:
        self._sums[facts] -= 1
        if not self._sums[facts]:
            del self._sums[facts]

    @property
    def pods(self) -> Iterable[ObjectKey]:
        """The Pods known."""
        return self._facts.keys()

    def clear(self) -> None:
        """Forget every Pod, as when the set itself has changed."""
        self._facts.clear()
        self._sums.clear()

    @property
    def counts(self) -> Counts:
        """The sums. There are only a few different facts, so this does not grow with the Pods."""
        found = [(facts, number) for facts, number in self._sums.items() if facts.matched]
        return Counts(
            matched=sum(number for _, number in found),
            updated=sum(number for facts, number in found if facts.updated),
            ready=sum(number for facts, number in found if facts.ready),
            updated_ready=sum(number for facts, number in found if facts.updated and facts.ready),
        )

    @property
    def revisions(self) -> frozenset[str]:
        """The ControllerRevisions named by some Pod (SS-76)."""
        return frozenset(facts.revision for facts in self._sums if facts.revision)


def status_patch(
    present: Mapping[str, Any], counts: Counts, generation: int, latest_revision: str, collision_count: int
) -> dict[str, Any]:
    """SS-89: the status fields to write as a merge patch: only those that differ from ``present``; {} if none does."""
    wanted: dict[str, Any] = {
        "observedGeneration": max(generation, present.get("observedGeneration") or 0),
        # SS-106: these three are there from the start, as zeroes.
        "matchedPods": counts.matched,
        "updatedPods": counts.updated,
        "readyPods": counts.ready,
        # Those that Go leaves out when empty: null takes them away.
        "updatedReadyPods": counts.updated_ready or None,
        "latestRevision": latest_revision or None,
        "collisionCount": collision_count,
    }
    return {field: value for field, value in wanted.items() if present.get(field) != value}
