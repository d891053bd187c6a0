"""Which Pods are updated now, in which order, and what is written to each, for cold and hot upgrades. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, NamedTuple

from app.api import names
from app.api.fields import UpdateScatterTerm
from app.api.gojson import dumps_go
from app.features.sidecarset.injection.metadata import (
    MetadataPatchError,
    hash_record,
    kept_members,
    patched_annotations,
    record_entry,
)
from app.features.sidecarset.plan.pod_state import twins_to_idle, unsettled, working_twin
from app.features.sidecarset.plan.settings import (
    HotSidecar,
    SetView,
    Strategy,
    in_place_states,
    with_state,
    working_twins,
)
from app.features.sidecarset.plan.status import ALONE, Judged, Neighbors, PodCounts, max_unavailable_of
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.kube.quantities import IntOrPercentError, scaled
from app.pods.admission_draft import PodRefusedError
from app.pods.inplace.batch import PodChange
from app.pods.predicates import is_ready
from app.pods.sorting import by_priority, scattered

# Decide how many Pods of a SidecarSet to update now, which ones, and in which order. [SS-92 … SS-96, SS-124]


def partition_of(value: int | str | None, matched: int) -> int:
    """Return how many Pods keep the old revision; a percentage below 100 leaves at least one to update. [SS-95]"""
    try:
        kept = scaled(value, matched, True) if value is not None else 0
    except IntOrPercentError:
        return matched
    if isinstance(value, str) and kept == matched > 1 and value != "100%":
        kept = matched - 1
    return max(0, min(kept, matched))


class Room(NamedTuple):
    """How many Pods may be updated now."""

    #: Limit from the partition.
    pods: int
    #: Limit from maxUnavailable, for Pods that the update makes unavailable.
    costly: int
    #: Limit for ready Pods: maxUnavailable minus all Pods unavailable because of updates, by this set or others. If
    #: negative, Pods that another set has made unavailable are not updated either.
    ready: int


def room(strategy: Strategy, pod_counts: PodCounts, uncertain: int = 0, elsewhere: int = 0) -> Room:
    """Return the limits. The partition counts all outdated Pods, including those that cannot be updated now. [SS-124]

    ``uncertain``: Pods whose update may or may not have been written; ``elsewhere``: Pods that other sets are writing
    now.
    """
    counts = pod_counts.counts
    outdated = counts.matched - counts.updated - uncertain
    allowed = outdated - partition_of(strategy.partition, counts.matched)
    limit = max_unavailable_of(strategy.max_unavailable, counts.matched)
    return Room(
        max(0, allowed),
        max(0, limit - pod_counts.unavailable - uncertain),
        limit - pod_counts.disturbed - uncertain - elsewhere,
    )


def next_pods(
    strategy: Strategy,
    pod_counts: PodCounts,
    held: Collection[str] = (),
    uncertain: int = 0,
    limit: int = 0,
    neighbors: Neighbors = ALONE,
) -> list[Judged]:
    """Return the Pods to update now. Pods in ``held`` (uids) are skipped; ``limit`` caps the result (0 means no limit);
    ``neighbors`` are the other sets of these Pods, whose limits apply as well. [SS-95]"""
    if strategy.paused or not strategy.rolling:
        return []
    allowed, costly, ready = room(strategy, pod_counts, uncertain, neighbors.writing(pod_counts))
    if limit:
        allowed = min(allowed, limit)
    candidates = [one for one in pod_counts.waiting if one.pod.metadata.uid not in held]
    if not allowed or not (costly or any(one.facts.free for one in candidates)):
        return []
    taken: list[Judged] = []
    for one in in_order(strategy, candidates, pod_counts):
        if len(taken) == allowed:
            break
        if not one.facts.free:
            if not costly or ready < one.facts.ready:
                break
            if one.facts.ready:
                if not neighbors.take(one.pod):
                    continue
                ready -= 1
            costly -= 1
        taken.append(one)
    return taken


def next_to_idle(
    strategy: Strategy, pod_counts: PodCounts, held: Collection[str], neighbors: Neighbors
) -> list[Judged]:
    """Return the Pods whose former twin gets the empty image now. This makes a ready Pod briefly unavailable, so the
    result has at most maxUnavailable ready Pods (one if maxUnavailable is 0). [SS-81]"""
    limit = max(1, max_unavailable_of(strategy.max_unavailable, pod_counts.counts.matched))
    left = limit - pod_counts.down - neighbors.writing(pod_counts)
    taken: list[Judged] = []
    for one in sorted(pod_counts.migrated, key=lambda one: one.rank):
        if one.pod.metadata.uid in held:
            continue
        if is_ready(one.pod):
            if left <= 0 or not neighbors.take(one.pod, idle=True):
                continue
            left -= 1
        taken.append(one)
    return taken


def in_order(strategy: Strategy, candidates: Iterable[Judged], pod_counts: PodCounts) -> Sequence[Judged]:
    """Sort the candidates in the default order, then by priority, then scatter them. [SS-94]"""
    ordered = sorted(candidates, key=lambda one: one.rank)
    if strategy.priority is None and not strategy.scatter:
        return ordered
    found = {id(one.pod): one for one in ordered}
    pods = by_priority([one.pod for one in ordered], strategy.priority)
    if strategy.scatter:
        matched = pod_counts.matched()
        pods = scattered(pods, matched, expanded(strategy.scatter, matched))
    return [found[id(pod)] for pod in pods]


#: Maximum number of terms that one ``*`` expands to, one for each of the most common values. There is a limit because
#: each term reorders all Pods.
MAX_VALUES: Final = 256


def expanded(terms: Sequence[UpdateScatterTerm], pods: Iterable[Pod]) -> list[UpdateScatterTerm]:
    """Expand a term with value ``*`` to one term for each value that the Pods have. [SS-94]"""
    found: dict[tuple[str, str], UpdateScatterTerm] = {}
    present = list(pods)
    for term in terms:
        values = [term.value]
        if term.value == "*":
            carried = Counter(pod.metadata.labels[term.key] for pod in present if term.key in pod.metadata.labels)
            values = sorted(sorted(carried, key=lambda value: (-carried[value], value))[:MAX_VALUES])
        for value in values:
            found.setdefault((term.key, value), UpdateScatterTerm(key=term.key, value=value))
    return list(found.values())


# Hot upgrade: one twin takes the new image, and once it has taken over, the other becomes idle. [SS-80 … SS-85]


@dataclass(slots=True)
class HotUpgradeChange:
    """What changes in one Pod: images by container, and annotations."""

    images: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)

    def idle(self, former: str, works: str, empty_image: str) -> None:
        """Give the former twin the empty image, and show in the version annotations that no migration is pending."""
        self.images[former] = empty_image
        self.annotations[f"{names.SIDECARSET_VERSION_PREFIX}{former}"] = "0"
        self.annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{works}"] = "0"


def upgraded(view: SetView, pod: Pod, version: str) -> HotUpgradeChange:
    """Return the next change that moves each pair of twins toward the set's image. ``version`` is the set's
    resourceVersion. [SS-81]"""
    change = HotUpgradeChange()
    images = {container.name: container.image for container in pod.spec.containers}
    working = working_twins(pod)
    late = unsettled(view, pod, in_place_states(pod))
    good = frozenset(
        status.name for status in pod.status.container_statuses if status.ready and status.name not in late
    )
    for sidecar in view.hot:
        _upgrade(sidecar, images, working, good, pod.metadata.annotations, version, change)
    if working != working_twins(pod):
        change.annotations[names.SIDECARSET_WORKING_HOT_UPGRADE_CONTAINER] = dumps_go(working, sort_keys=True)
    return change


def twin_to_upgrade(sidecar: HotSidecar, images: Mapping[str, str], working: str, good: Collection[str]) -> str:
    """Return the idle twin. If both run, return the only unhealthy one, else the one that is not working. [SS-81]"""
    if images.get(sidecar.first) == sidecar.empty_image:
        return sidecar.first
    if images.get(sidecar.second) == sidecar.empty_image:
        return sidecar.second
    well = [twin for twin in (sidecar.first, sidecar.second) if twin in good]
    return sidecar.other(well[0] if len(well) == 1 else working)


def _upgrade(
    sidecar: HotSidecar,
    images: Mapping[str, str],
    working: dict[str, str],
    good: Collection[str],
    annotations: Mapping[str, str],
    version: str,
    change: HotUpgradeChange,
) -> None:
    target = twin_to_upgrade(sidecar, images, working_twin(sidecar, working), good)
    other = sidecar.other(target)
    wanted = sidecar.image
    if images.get(other) == wanted:
        if images.get(target) != sidecar.empty_image and wanted != sidecar.empty_image:
            # The other twin has the target image: it keeps working, and the intended successor becomes idle. [SS-85]
            change.idle(target, other, sidecar.empty_image)
            working[sidecar.name] = other
        return
    if wanted == sidecar.empty_image:
        return
    if images.get(target) != wanted:
        change.images[target] = wanted
    elif working_twin(sidecar, working) == target:
        return
    # The set was rolled back to the image that the former twin still runs: that twin works again, and the other becomes
    # idle.
    working[sidecar.name] = target
    before = annotations.get(f"{names.SIDECARSET_VERSION_PREFIX}{other}", "0")
    change.annotations[f"{names.SIDECARSET_VERSION_PREFIX}{target}"] = version
    change.annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{target}"] = before
    change.annotations[f"{names.SIDECARSET_VERSION_ALT_PREFIX}{other}"] = version


def migrated(view: SetView, pod: Pod) -> HotUpgradeChange:
    """Return the change that sets the former twins of all pairs to the empty image. [SS-81]"""
    change = HotUpgradeChange()
    empty = {twin: sidecar.empty_image for sidecar in view.hot for twin in (sidecar.first, sidecar.second)}
    for former, works in twins_to_idle(view, pod).items():
        change.idle(former, works, empty[former])
    return change


# The patch of one Pod: new images and their records, in one write. [SS-55, SS-98 … SS-101]


class CannotUpdateError(Exception):
    """The Pod or the set makes this update impossible; the message says why."""


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """A strategic merge patch that applies only to the observed version of a Pod, and the images it changes."""

    patch: Mapping[str, Any]
    #: Container → its former and its new image.
    images: Mapping[str, tuple[str, str]]

    def __str__(self) -> str:
        changes = (f"{name} {before} → {after}" for name, (before, after) in self.images.items())
        return ", ".join(changes) or "its containers already run the set's images"


def updated(view: SetView, pod: Pod, latest: str, version: str, now: datetime) -> PodUpdate:
    """Return the update of a Pod to the current set: revision ``latest``, resourceVersion ``version``.

    Raises CannotUpdateError.
    """
    present = {container.name: container.image for container in pod.spec.containers}
    twins = upgraded(view, pod, version)
    images = {name: image for name, image in view.images.items() if name in present and present[name] != image}
    images |= twins.images
    own = pod.metadata.annotations
    when = rfc3339(now)
    entry = record_entry(view.name, view.hash, view.sidecar_list, latest)
    try:
        kept = kept_members(
            f"{pod.metadata.namespace}/{pod.metadata.name}",
            names.SIDECARSET_HASH,
            own.get(names.SIDECARSET_HASH) or "{}",
        )
        patched = patched_annotations(own, view.patches)
    except (PodRefusedError, MetadataPatchError) as error:
        raise CannotUpdateError(str(error)) from error
    annotations = {
        **patched,
        **twins.annotations,
        names.SIDECARSET_HASH: hash_record(kept, [entry], when),
        names.SIDECARSET_IN_PLACE_UPDATE_STATE: with_state(pod, view.name, view.hash, when, images),
    }
    return _change(pod, images, annotations)


def idled(view: SetView, pod: Pod, now: datetime) -> PodUpdate:
    """Return the update that ends a hot upgrade: the former twins get the empty image. [SS-81]"""
    twins = migrated(view, pod)
    state = with_state(pod, view.name, view.hash, rfc3339(now), twins.images)
    return _change(pod, twins.images, {**twins.annotations, names.SIDECARSET_IN_PLACE_UPDATE_STATE: state})


def _change(pod: Pod, images: Mapping[str, str], annotations: Mapping[str, str]) -> PodUpdate:
    present = {container.name: container.image for container in pod.spec.containers}
    change = PodChange()
    for name, image in images.items():
        change.of_container(name, {"image": image})
    change.annotations.update(annotations)
    return PodUpdate(change.patch(pod), {name: (present[name], image) for name, image in images.items()})
