"""What must hold of every write that a pass of the CloneSet controller does to a Pod, given what the pass knew.

The pass may be behind: a watch stands still, a request takes a minute. So a write is held against the spec that the
pass knew when it began, and Pods that others took meanwhile are not counted against it. What the controller did itself,
in this pass or before, is never excused.
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

Json = dict[str, Any]

#: Seconds that a CloneSet may have too few Pods without a reason, with nothing going wrong.
SHORT_SECONDS = 15.0
#: How long the caches of a controller may be behind at most.
LOST_SECONDS = 600.0
#: How many times as many Pods as it may have may be made for a CloneSet that is gone: nobody may know of its end.
LATE = 3


@dataclass(frozen=True, slots=True)
class Spec:
    """One state of a CloneSet's spec, as far as it is judged."""

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
        """Pods that must stay available."""
        return self.replicas - self.max_unavailable

    @property
    def most(self) -> int:
        return self.replicas + self.max_surge

    @property
    def most_new(self) -> int:
        """Pods that may be at the newest revision while there are old ones."""
        return max(0, self.replicas - self.partition) + self.max_surge


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


@dataclass(frozen=True, slots=True)
class _Loss:
    """A Pod that another actor made inactive or unavailable. ``version``: of that write; ``before``: the Pod before
    it."""

    version: int
    at: float
    before: Json
    after: Json | None


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A revision of a CloneSet: which it is, what its container runs, and its template but for that."""

    number: int
    image: str
    frame: bytes


class Promises:
    """Remembers what users asked for and what became of the Pods, and checks each write of a Pod against it."""

    def __init__(self) -> None:
        #: By CloneSet (uid): its specs by generation, the newest last.
        self._specs: dict[str, dict[int, Spec]] = {}
        #: By CloneSet (uid): the revisions that its status has named as the current one.
        self._current: dict[str, set[str]] = {}
        #: By CloneSet (uid): its revisions by name.
        self._recorded: dict[str, dict[str, _Recorded]] = {}
        self._pods: dict[str, dict[str, Json]] = {}
        self._lost: dict[str, list[_Loss]] = {}
        #: By CloneSet (uid) that is gone: how many Pods may still be made for it by those who do not know.
        self._late: dict[str, int] = {}
        #: Pods (uid) that came back from their preDelete hook.
        self.came_back: set[str] = set()
        #: Since when there have been too few Pods, with no reason for it.
        self._short: dict[str, float] = {}

    # ---- what is known

    def asked(self, obj: Json) -> None:
        """A CloneSet was created or changed."""
        uid = obj["metadata"]["uid"]
        specs, generation = self._specs.setdefault(uid, {}), obj["metadata"]["generation"]
        if generation not in specs:
            specs[generation] = Spec.of(obj)
        if current := (obj.get("status") or {}).get("currentRevision"):
            self._current.setdefault(uid, set()).add(current)

    def recorded(self, revision: Json) -> None:
        template = ((revision.get("data") or {}).get("spec") or {}).get("template")
        uid = invariants.owner_of(revision)
        if uid not in self._specs or not template:
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
        """The spec that a pass goes by; None: the CloneSet is gone."""
        return self._specs.get(known.uid, {}).get(known.generation)

    def pods_of(self, uid: str) -> list[Json]:
        return [*self._pods.get(uid, {}).values()]

    # ---- a write of a Pod

    def broken_by(self, at: float, before: Json | None, after: Json | None, known: Pass | None) -> Iterator[str]:
        """Return the promises that a write breaks. ``known``: the reconcile that wrote; None: another actor."""
        pod = after if after is not None else before
        uid = invariants.owner_of(pod) if pod is not None else ""
        if pod is not None and before is None and uid in self._late:
            self._late[uid] -= 1
            if self._late[uid] < 0:
                yield f"Pod {invariants.name(pod)} is made for a CloneSet that is gone, as were all before it"
        if pod is None or uid not in self._specs:
            return
        pods = self._pods.setdefault(uid, {})
        if after is None:
            pods.pop(pod["metadata"]["uid"], None)
        else:
            pods[after["metadata"]["uid"]] = after
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
        name = invariants.name(pod)
        for sentence in self._judged(at, before, after, known, spec):
            yield f"Pod {name} {sentence}"

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
        """Where only images change, a Pod that can be updated in place is not replaced.

        More changes when a CloneSet was created with no webhook registered: its template gets its defaults (CS-16) when
        it is changed next.
        """
        if not is_marked(after) or is_marked(before) or spec.policy == "ReCreate":
            return
        recorded = self._recorded.get(uid, {})
        has = recorded.get(hash_of(before))
        gets = [one for one in recorded.values() if one.image == spec.image]
        newest = max(gets, key=lambda one: one.number, default=None)
        if has is None or newest is None or has.frame == newest.frame:
            yield "is replaced though it can be updated in place"

    def _taken(
        self, at: float, before: Json, after: Json | None, known: Pass, spec: Spec, active: list[Json]
    ) -> Iterator[str]:
        """maxUnavailable holds, and no Pod is taken out of service that is needed."""
        seen = (at, spec.min_ready)
        if is_available(before, *seen) and (after is None or not is_available(after, *seen)):
            saw = known.pod(before["metadata"]["uid"])
            available = sum(is_available(one, *seen) for one in active)
            # Else it was free to go, even if it has become available since.
            serves = saw is not None and is_available(saw, known.at, spec.min_ready)
            if serves and available < spec.least and available + self._unknown(known, seen) < spec.least:
                yield f"was taken: {available} are available, {spec.least} have to be"
        taken = is_active(before) and (after is None or not is_active(after)) and not is_marked(before)
        if taken and len(active) + (0 if len(active) >= spec.replicas else self._unknown(known, None)) < spec.replicas:
            yield f"was deleted for nothing: {len(active)} are active, asked for are {spec.replicas}"

    def _unknown(self, known: Pass, seen: tuple[float, float] | None) -> int:
        """Pods that others took, and which the pass saw as they were before: active, or available where ``seen`` (now,
        and how long a Pod must be ready), also if that is so only by now."""
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
        """No more than the surge allows, and no more new ones than the partition."""
        if is_active(after) and (before is None or not is_active(before)) and len(active) > spec.most:
            yield f"is one too many: {len(active)} are active, {spec.most} may be"
        revision = hash_of(after)
        if before is not None and hash_of(before) == revision:
            return
        old = sum(hash_of(one) != revision for one in active)
        current = self._current.get(known.uid)
        if spec.partition == 0 or not current or revision in current:
            return  # CS-73: the newest revision is the one to go on with, whatever older Pods there are
        count = len(active) - old
        if old and main_image(after) == spec.image and count > spec.most_new:
            yield f"came past the partition: {count} have {revision}, {spec.most_new} may"

    # ---- too few Pods

    def short_of(self, at: float, uid: str, *, excused: bool) -> Iterator[str]:
        """With nothing going wrong a CloneSet does not stay below its replicas. ``excused``: a reason is named, or
        something goes wrong."""
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
            yield f"{active} Pods are active for {at - since:.0f} s, asked for are {spec.replicas}: nothing says why"


def _version(obj: Json) -> int:
    return int(obj["metadata"]["resourceVersion"])


def _standing(pod: Json, at: float) -> int:
    """0: not active, 1: active, 2: available."""
    return is_active(pod) + is_available(pod, at, 0.0)
