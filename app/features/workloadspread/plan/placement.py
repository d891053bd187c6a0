"""Choose the subset of a new Pod by free places, and record the choice in an annotation. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final

import orjson

from app.api import names
from app.features.workloadspread.types import (
    SCHEDULABLE,
    SubsetCondition,
    SubsetStatus,
    WorkloadSpread,
    WorkloadSpreadStatus,
    WorkloadSpreadSubset,
)
from app.kube.clock import parsed_rfc3339
from app.kube.quantities import IntOrPercentError, scaled
from app.kube.rulings import Ruling
from app.kube.validation import LABEL_VALUE_MAX_LENGTH

# Free places of a subset: maxReplicas minus its Pods, including those being created. [WS-27, WS-62]

#: Number of free places of a subset without maxReplicas.
UNLIMITED: Final = -1


def limit_of(subset: WorkloadSpreadSubset, wanted: int) -> int | None:
    """Return how many Pods the subset takes, or None if unlimited. ``wanted`` is the number of replicas of the
    workload.

    An invalid maxReplicas, stored while admission was off, counts as 0.
    """
    if subset.max_replicas is None:
        return None
    try:
        return max(0, scaled(subset.max_replicas, max(0, wanted), round_up=True))
    except IntOrPercentError:
        return 0


def has_percentage(spread: WorkloadSpread) -> bool:
    """Return whether any maxReplicas is a percentage of the workload's replicas."""
    return any(isinstance(subset.max_replicas, str) for subset in spread.spec.subsets)


def missing_of(limit: int | None, replicas: int, creating: int, deleting: int) -> int:
    """Return the number of free places. [WS-62]"""
    if limit is None:
        return UNLIMITED
    return min(limit, max(0, limit - (replicas + creating - deleting)))


def places_of(subset: WorkloadSpreadSubset, status: SubsetStatus, wanted: int) -> int:
    """Return the number of free places according to the subset's status."""
    return missing_of(
        limit_of(subset, wanted), status.replicas, len(status.creating_pods or ()), len(status.deleting_pods or ())
    )


def by_name(statuses: Iterable[SubsetStatus] | None) -> Mapping[str, SubsetStatus]:
    """Index subset statuses by name."""
    return {one.name: one for one in statuses or ()}


def schedulable(status: SubsetStatus | None) -> SubsetCondition | None:
    """Return the Schedulable condition."""
    for condition in (status.conditions or ()) if status is not None else ():
        if condition.type == SCHEDULABLE:
            return condition
    return None


def version_statuses(spread: WorkloadSpread, version: str, wanted: int) -> list[SubsetStatus]:
    """Return the subset statuses of a version in the order of the spec, adding missing ones. [WS-27, WS-68]

    Statuses of subsets not in the spec follow; the controller removes them.
    """
    status = spread.status or WorkloadSpreadStatus()
    known = by_name((status.versioned_subset_statuses or {}).get(version))
    overall = by_name(status.subset_statuses)
    found = []
    for subset in spread.spec.subsets:
        one = known.get(subset.name)
        if one is None:
            condition = schedulable(overall.get(subset.name))
            one = SubsetStatus(
                name=subset.name, replicas=0, missing_replicas=missing_of(limit_of(subset, wanted), 0, 0, 0)
            )
            if condition is not None:
                one = one.model_copy(update={"conditions": [condition]})
        found.append(one)
    names = {subset.name for subset in spread.spec.subsets}
    return [*found, *(one for name, one in known.items() if name not in names)]


def with_version(spread: WorkloadSpread, version: str, statuses: list[SubsetStatus]) -> WorkloadSpread:
    """Return a copy of the object with these subset statuses for one version."""
    status = spread.status or WorkloadSpreadStatus()
    versions = {**(status.versioned_subset_statuses or {}), version: statuses}
    return spread.model_copy(update={"status": status.model_copy(update={"versioned_subset_statuses": versions})})


def remaining(text: object, seconds: float, now: datetime) -> float:
    """Return the seconds for which an entry with this timestamp remains valid, or 0.

    A timestamp in the future comes from a clock that is ahead. Its entry is valid for the normal lifetime, unless the
    timestamp is further ahead than that.
    """
    since = parsed_rfc3339(text)
    if since is None or since - now > timedelta(seconds=seconds):
        return 0.0
    return max(0.0, (min(since, now) + timedelta(seconds=seconds) - now).total_seconds())


#: Maximum number of subset statuses across all versions. Each reservation and each reconcile reads and writes all of
#: them, and anyone who may create Pods can add versions through a label.
MAX_STATUSES: Final = 2_048


def versions_apart(versions: Iterable[str], spread: WorkloadSpread) -> frozenset[str]:
    """Return the versions whose Pods are counted separately. All others are counted together as VERSION_IGNORED."""
    return frozenset(sorted(versions)[: MAX_STATUSES // max(1, len(spread.spec.subsets))])


def counted_version(spread: WorkloadSpread, version: str) -> str:
    """Return the version under which a new or deleted Pod is counted, according to the status."""
    known = (spread.status.versioned_subset_statuses if spread.status is not None else None) or {}
    if version in known or (len(known) + 1) * len(spread.spec.subsets) <= MAX_STATUSES:
        return version
    return VERSION_IGNORED


# The subset of a new Pod, and the place that a deleted Pod frees. [WS-25 … WS-29, WS-41 … WS-43]

_ORDINAL: Final = re.compile(r"-([0-9]{1,10})\Z", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a subset. ``counted`` is the key of its entry in the status, or "" if it has none."""

    subset: str
    counted: str = ""


@dataclass(frozen=True, slots=True)
class NewPod:
    """A Pod to be created: its version, its entry key, and the current replicas of the workload."""

    version: str
    key: str
    wanted: int
    #: Current time, formatted as in the status.
    now: str


def sole_subset(spread: WorkloadSpread) -> str:
    """Return the only subset if it has no maxReplicas, else ''. [WS-25]"""
    subsets = spread.spec.subsets
    return subsets[0].name if len(subsets) == 1 and subsets[0].max_replicas is None else ""


def by_ordinal(spread: WorkloadSpread, pod_name: str) -> str:
    """Return the subset for a StatefulSet's Pod, or ''. Unschedulable subsets are skipped. [WS-26]"""
    found = _ORDINAL.search(pod_name)
    ordinal = int(found[1]) if found else -1
    statuses = by_name(spread.status.subset_statuses if spread.status is not None else None)
    threshold = 0
    for subset in spread.spec.subsets:
        if _is_shut(statuses.get(subset.name)):
            continue
        if subset.max_replicas is None:
            return subset.name
        # Validation rejects percentages for StatefulSets. If stored anyway, they count as 0.
        threshold += subset.max_replicas if isinstance(subset.max_replicas, int) else 0
        if ordinal < threshold:
            return subset.name
    return ""


def choose(spread: WorkloadSpread | None, pod: NewPod) -> Ruling[WorkloadSpread, Place | None]:
    """Return the first subset of the spec with a free place, and the status that reserves it. [WS-27 … WS-29]"""
    if spread is None or spread.deleting:
        return Ruling(None)
    version = counted_version(spread, pod.version)
    statuses = version_statuses(spread, version, pod.wanted)
    names = {subset.name for subset in spread.spec.subsets}
    for status in statuses:
        if status.name in names and _has(status.creating_pods, pod.key):
            return Ruling(Place(status.name, pod.key))
    # Prefer the subset in which a Pod of the same name is being deleted.
    order = sorted(range(len(spread.spec.subsets)), key=lambda index: not _has(statuses[index].deleting_pods, pod.key))
    for index in order:
        subset, status = spread.spec.subsets[index], statuses[index]
        if _is_shut(status):
            continue
        places = places_of(subset, status, pod.wanted)
        if places == UNLIMITED:
            # An unlimited subset needs no reservation.
            return Ruling(Place(subset.name), provisional=True)
        if places > 0:
            update: dict[str, object] = {
                "missing_replicas": places - 1,
                "creating_pods": {**(status.creating_pods or {}), pod.key: pod.now},
            }
            if _has(status.deleting_pods, pod.key):
                going = {key: since for key, since in (status.deleting_pods or {}).items() if key != pod.key}
                update["deleting_pods"] = going or None
            statuses[index] = status.model_copy(update=update)
            return Ruling(Place(subset.name, pod.key), with_version(spread, version, statuses))
    return Ruling(None)


def give_back(
    spread: WorkloadSpread | None, version: str, subset: str, pod_name: str, now: str
) -> Ruling[WorkloadSpread, bool]:
    """Return whether the place of a deleted Pod was freed, and the status that records it. [WS-43]"""
    if spread is None or spread.deleting or spread.status is None:
        return Ruling(False, provisional=True)
    version = counted_version(spread, version)
    statuses: Sequence[SubsetStatus] = (spread.status.versioned_subset_statuses or {}).get(version) or ()
    if any(_has(one.creating_pods, pod_name) or _has(one.deleting_pods, pod_name) for one in statuses):
        return Ruling(False, provisional=True)
    changed = list(statuses)
    for index, one in enumerate(statuses):
        if one.name != subset:
            continue
        if one.missing_replicas == UNLIMITED:
            break
        after = one.model_copy(update={"deleting_pods": {**(one.deleting_pods or {}), pod_name: now}})
        missing = one.missing_replicas + 1
        for known in spread.spec.subsets:
            # The replicas that a percentage refers to are unknown here; the next reservation recomputes the number.
            if known.name == subset and isinstance(known.max_replicas, int):
                missing = places_of(known, after, 0)
        changed[index] = after.model_copy(update={"missing_replicas": missing})
        return Ruling(True, with_version(spread, version, changed))
    return Ruling(False, provisional=True)


def _is_shut(status: SubsetStatus | None) -> bool:
    condition = schedulable(status)
    return condition is not None and condition.status == "False"


def _has(entries: dict[str, str] | None, key: str) -> bool:
    return entries is not None and key in entries


# Subset annotation of a Pod, and the version of its workload. [WS-33, WS-40]

#: Common version of all Pods whose versions are not counted separately.
VERSION_IGNORED: Final = "versionIgnored"
#: Labels that contain the version of a Pod; the first one present is used.
_VERSION_LABELS: Final = (names.POD_TEMPLATE_HASH, names.CONTROLLER_REVISION_HASH)
#: Maximum length of an annotation to parse. The names in it are much shorter.
_MOST_TEXT: Final = 4_096


@dataclass(frozen=True, slots=True)
class SubsetRecord:
    """The subset annotation of a Pod. ``uid`` is the entry key of a Pod without a name."""

    spread: str
    subset: str
    uid: str = ""

    def annotation(self) -> dict[str, str]:
        value = {"name": self.spread, "subset": self.subset}
        if self.uid:
            value["uid"] = self.uid
        return {names.MATCHED_WORKLOAD_SPREAD: orjson.dumps(value).decode()}


def record_of(annotations: Mapping[str, str]) -> SubsetRecord | None:
    """Parse the annotation, ignoring the case of keys. Return None if it is missing or invalid. [WS-33]"""
    text = annotations.get(names.MATCHED_WORKLOAD_SPREAD)
    if not text or len(text) > _MOST_TEXT:
        return None
    try:
        read = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    if not isinstance(read, dict):
        return None
    found = {key.lower(): value for key, value in read.items() if isinstance(value, str)}
    return SubsetRecord(found.get("name", ""), found.get("subset", ""), found.get("uid", ""))


def version_of(kind: str, labels: Mapping[str, Any], versioned: Collection[str]) -> str:
    """Return the version of a Pod whose controller is of this kind. ``versioned`` lists kinds in lower case. [WS-40]"""
    if kind.lower() not in versioned:
        return VERSION_IGNORED
    template, revision = (labels.get(key) for key in _VERSION_LABELS)
    return str(template or "") or str(revision or "").rpartition("-")[2] or VERSION_IGNORED


def has_long_version(labels: Mapping[str, str]) -> bool:
    """Return whether a label that holds the version is longer than the API server allows."""
    return any(len(labels.get(key, "")) > LABEL_VALUE_MAX_LENGTH for key in _VERSION_LABELS)


def versioned_kinds(text: str) -> frozenset[str]:
    """Parse the kinds in the flag's value. ``deployment`` includes ReplicaSets. [WS-40]"""
    kinds = {part.strip().lower() for part in text.split(",")} - {""}
    return frozenset(kinds | {"replicaset"} if "deployment" in kinds else kinds)
