"""Invariants of every write to a Pod by the CloneSet controller, given the objects the reconcile had read.

A reconcile may lag behind: a watch freezes, or a request takes a minute. A write is therefore checked against the spec
that was cached when the reconcile began, and Pods lost to others since then do not count. The controller's own writes
always count.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson

from tests.simulation import invariants
from tests.simulation.passes import Pass
from tests.simulation.pods import (
    hash_of,
    held_back,
    is_active,
    is_available,
    is_marked,
    main_image,
    ready_too_early,
    state_of,
    strange_step,
    updated_again,
)
from tests.simulation.workloads.judge import Write

Json = dict[str, Any]

#: Seconds for which a CloneSet may have too few Pods without a reason while no fault is active.
SHORT_SECONDS = 15.0
#: The longest delay of a controller's caches.
LOST_SECONDS = 600.0
#: Controllers that do not know of a CloneSet's deletion may create at most its number of Pods times this.
LATE = 3


@dataclass(frozen=True, slots=True)
class Spec:
    """The fields of a CloneSet's spec that the judge uses."""

    replicas: int
    partition: int
    max_unavailable: int
    max_surge: int
    scale_max_unavailable: int
    min_ready: float
    policy: str
    image: str
    claims: tuple[str, ...]
    reuse: bool

    @classmethod
    def of(cls, obj: Json) -> Spec:
        spec = obj["spec"]
        rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        scale = spec.get("scaleStrategy") or {}
        return cls(
            spec.get("replicas", 1),
            rolling.get("partition") or 0,
            _number(rolling.get("maxUnavailable"), 1),
            0 if rolling.get("paused") else _number(rolling.get("maxSurge"), 0),
            _number(scale.get("maxUnavailable"), 2**31),
            _number(spec.get("minReadySeconds"), 0),
            rolling.get("podUpdatePolicy", "ReCreate"),
            spec["template"]["spec"]["containers"][0]["image"],
            tuple(one["metadata"]["name"] for one in spec.get("volumeClaimTemplates") or ()),
            bool(scale.get("enablePVCReuse")),
        )

    @property
    def least(self) -> int:
        return self.replicas - self.max_unavailable

    @property
    def most(self) -> int:
        return self.replicas + self.max_surge

    @property
    def most_new(self) -> int:
        """Return how many Pods may have the newest revision while older ones exist."""
        return max(0, self.replicas - self.partition) + self.max_surge


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


@dataclass(frozen=True, slots=True)
class _Loss:
    """A write by another actor that made a Pod inactive or unavailable. ``version``: the resourceVersion it created."""

    version: int
    at: float
    before: Json
    after: Json | None


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A revision: its number, the image of its first container, and the rest of its template."""

    number: int
    image: str
    frame: bytes


class Promises:
    """Follows CloneSets and their Pods, and judges each write of a Pod."""

    def __init__(self) -> None:
        #: By CloneSet (uid): its specs by generation, the newest last.
        self._specs: dict[str, dict[int, Spec]] = {}
        #: By CloneSet (uid): every currentRevision that its status has had.
        self._current: dict[str, set[str]] = {}
        #: By CloneSet (uid): its revisions by name.
        self._recorded: dict[str, dict[str, _Recorded]] = {}
        self._pods: dict[str, dict[str, Json]] = {}
        self._lost: dict[str, list[_Loss]] = {}
        #: By deleted CloneSet (uid): how many Pods may still be created for it.
        self._late: dict[str, int] = {}
        #: UIDs of Pods that returned to Normal from their preDelete hook.
        self.came_back: set[str] = set()
        #: By CloneSet (uid): when it began to have too few Pods without a reason.
        self._short: dict[str, float] = {}

    # ---- state

    def asked(self, obj: Json) -> None:
        """Record a CloneSet that was created or updated."""
        uid = obj["metadata"]["uid"]
        specs, generation = self._specs.setdefault(uid, {}), obj["metadata"]["generation"]
        if generation not in specs:
            specs[generation] = Spec.of(obj)
        if current := (obj.get("status") or {}).get("currentRevision"):
            self._current.setdefault(uid, set()).add(current)

    def recorded(self, write: Write) -> None:
        revision = write.obj
        template = ((revision.get("data") or {}).get("spec") or {}).get("template")
        uid = invariants.owner_of(revision)
        if write.after is None or uid not in self._specs or not template:
            return
        first, *others = template["spec"]["containers"]
        containers = [{**first, "image": ""}, *others]
        frame = {**template, "spec": {**template["spec"], "containers": containers}}
        kept = _Recorded(revision["revision"], first["image"], orjson.dumps(frame, option=orjson.OPT_SORT_KEYS))
        self._recorded.setdefault(uid, {})[invariants.name(revision)] = kept

    def gone(self, obj: Json) -> None:
        specs = self._specs.pop(obj["metadata"]["uid"], None)
        if specs:
            self._late[obj["metadata"]["uid"]] = LATE * max(spec.most for spec in specs.values())

    def known_to(self, known: Pass) -> Spec | None:
        """Return the spec that a reconcile works with; None if the CloneSet is deleted."""
        return self._specs.get(known.uid, {}).get(known.generation)

    def pods_of(self, uid: str) -> list[Json]:
        return [*self._pods.get(uid, {}).values()]

    # ---- a write of a Pod

    def broken_by(self, write: Write) -> Iterator[str]:
        at, before, after, known = write.at, write.before, write.after, write.known
        uid = invariants.owner_of(write.obj)
        if before is None and uid in self._late:
            self._late[uid] -= 1
            if self._late[uid] < 0:
                yield f"Pod {write.name} was created for a deleted CloneSet, once too often"
        if uid not in self._specs:
            return
        write.kept_in(self._pods.setdefault(uid, {}))
        if before is not None and after is not None:
            yield from ready_too_early(before, after)
            yield from strange_step(before, after)
            if (state_of(before), state_of(after)) == ("PreparingDelete", "PreparingNormal"):
                self.came_back.add(after["metadata"]["uid"])
        spec = self.known_to(known) if known is not None else None
        if known is None or spec is None or known.uid != uid:
            if before is not None and _standing(before, at) > (_standing(after, at) if after is not None else 0):
                self._lose(uid, at, before, after)
            return
        for sentence in self._judged(at, before, after, known, spec):
            yield f"Pod {write.name} {sentence}"

    def _lose(self, uid: str, at: float, before: Json, after: Json | None) -> None:
        version = int(after["metadata"]["resourceVersion"]) if after is not None else _version(before) + 1
        recent = [loss for loss in self._lost.get(uid, ()) if at - loss.at < LOST_SECONDS]
        self._lost[uid] = [*recent, _Loss(version, at, before, after)]

    def _judged(self, at: float, before: Json | None, after: Json | None, known: Pass, spec: Spec) -> Iterator[str]:
        active = [one for one in self._pods[known.uid].values() if is_active(one)]
        if before is not None and after is not None:
            yield from held_back(before, after)
            yield from updated_again(before, after)
            yield from self._replaced(before, after, known.uid, spec)
        if before is not None:
            yield from self._taken(at, before, after, known, spec, active)
        if after is not None:
            yield from self._added(before, after, known, spec, active)

    def _replaced(self, before: Json, after: Json, uid: str, spec: Spec) -> Iterator[str]:
        """A Pod is not replaced if only images change and the policy allows an in-place update.

        A CloneSet created without webhooks gets its template defaults (CS-16) with its next update.
        """
        if not is_marked(after) or is_marked(before) or spec.policy == "ReCreate":
            return
        recorded = self._recorded.get(uid, {})
        has = recorded.get(hash_of(before))
        gets = [one for one in recorded.values() if one.image == spec.image]
        newest = max(gets, key=lambda one: one.number, default=None)
        if has is None or newest is None or has.frame == newest.frame:
            yield "is replaced although it can be updated in place"

    def _taken(
        self, at: float, before: Json, after: Json | None, known: Pass, spec: Spec, active: list[Json]
    ) -> Iterator[str]:
        """maxUnavailable is respected, and no needed Pod is deleted."""
        seen = (at, spec.min_ready)
        if is_available(before, *seen) and (after is None or not is_available(after, *seen)):
            saw = known.pod(before["metadata"]["uid"])
            available = sum(is_available(one, *seen) for one in active)
            # A Pod that the reconcile saw unavailable may be taken down, even if it has become available since.
            serves = saw is not None and is_available(saw, known.at, spec.min_ready)
            if serves and available < spec.least and available + self._unknown(known, seen) < spec.least:
                yield f"was taken down: {available} are available, {spec.least} must be"
        taken = is_active(before) and (after is None or not is_active(after)) and not is_marked(before)
        if taken and len(active) + (0 if len(active) >= spec.replicas else self._unknown(known, None)) < spec.replicas:
            yield f"was deleted without need: {len(active)} are active, want {spec.replicas}"

    def _unknown(self, known: Pass, seen: tuple[float, float] | None) -> int:
        """Count the Pods that others took down after the reconcile saw them active, or available if
        ``seen`` is given (the time, and how long a Pod must be ready)."""
        count = 0
        for loss in self._lost.get(known.uid, ()):
            if 0 < known.version_of(loss.before["metadata"]["uid"]) < loss.version:
                states = [
                    is_active(one) if seen is None else is_available(one, *seen)
                    for one in (loss.before, loss.after)
                    if one is not None
                ]
                count += states[0] and not (len(states) == 2 and states[1])
        return count

    def _added(self, before: Json | None, after: Json, known: Pass, spec: Spec, active: list[Json]) -> Iterator[str]:
        """maxSurge and the partition are respected."""
        if is_active(after) and (before is None or not is_active(before)) and len(active) > spec.most:
            yield f"is one too many: {len(active)} are active, {spec.most} allowed"
        revision = hash_of(after)
        if before is not None and hash_of(before) == revision:
            return
        old = sum(hash_of(one) != revision for one in active)
        current = self._current.get(known.uid)
        if spec.partition == 0 or not current or revision in current:
            return  # CS-73: the newest revision is the current one, regardless of older Pods
        count = len(active) - old
        if old and main_image(after) == spec.image and count > spec.most_new:
            yield f"exceeds the partition: {count} have {revision}, {spec.most_new} allowed"

    # ---- too few Pods

    def short_of(self, at: float, uid: str, *, excused: bool) -> Iterator[str]:
        """Without faults, a CloneSet does not stay below its replicas. ``excused``: a fault is active."""
        if excused:
            self._short.pop(uid, None)
            return
        specs = self._specs.get(uid)
        pods = self._pods.get(uid, {}).values()
        if not specs:
            return
        spec = specs[max(specs)]
        active = sum(map(is_active, pods))
        waits = any(pod["metadata"].get("deletionTimestamp") or state_of(pod) == "PreparingDelete" for pod in pods)
        limited = sum(not is_available(pod, at, spec.min_ready) for pod in pods) >= spec.scale_max_unavailable
        if active >= spec.replicas or waits or limited:
            self._short.pop(uid, None)
        elif at - self._short.setdefault(uid, at) > SHORT_SECONDS:
            since = self._short.pop(uid)
            yield f"{active} Pods have been active for {at - since:.0f} s without a reason, want {spec.replicas}"


def _version(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _standing(pod: Json, at: float) -> int:
    """Return 0 if a Pod is not active, 1 if it is active, 2 if it is available."""
    return is_active(pod) + is_available(pod, at, 0.0)
