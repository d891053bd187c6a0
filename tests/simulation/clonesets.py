"""CloneSets in the simulation: what users do to them, and what must hold of their Pods after every write.

Users here leave the Pods of CloneSets alone, so every Pod that comes, goes or changes its image does so because of the
controller. It may act on a CloneSet that it knew minutes ago (a watch that stands still); so what it does is measured
against the most generous of the specs it may have seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from random import Random
from typing import Any

from app.api import names
from app.api.cloneset import CLONE_SET
from app.kube.virtualtime import EPOCH
from tests.simulation import invariants
from tests.simulation.lifecycle import DELETE_HOOK, LIFECYCLE, UPDATE_HOOK, is_held

Json = dict[str, Any]

#: How far behind a cache may be: a stalled watch, and the time until it is known to be dead.
STALE_SECONDS = 400.0
#: The same with nothing going wrong.
FRESH_SECONDS = 2.0
#: Images that only the end of a run asks for: no Pod has one of an earlier roll-out.
NEVER_BEFORE = ("clone:part",)
HASH_LABEL = "controller-revision-hash"

POLICIES = ("ReCreate", "InPlaceIfPossible", "InPlaceOnly")


def spec_by_seed(rng: Random) -> Json:
    """How a user sets one up."""
    return {
        "replicas": rng.randrange(1, 7),
        "policy": rng.choice(POLICIES),
        "max_unavailable": rng.randrange(1, 3),
        "max_surge": rng.choice((0, 0, 1, 2)),
        "image": f"clone:{rng.randrange(3)}",
        "min_ready": rng.choice((0, 0, 4, 10)),
        "grace": rng.choice((0, 0, 3)),
        "hooked": rng.random() < 0.35,
    }


def clone_set(
    name: str,
    namespace: str,
    *,
    replicas: int,
    policy: str,
    max_unavailable: int,
    max_surge: int,
    image: str,
    min_ready: int,
    grace: int,
    hooked: bool,
) -> Json:
    """The object a user applies."""
    rolling = {"podUpdatePolicy": policy, "maxUnavailable": max_unavailable, "maxSurge": max_surge, "partition": 0}
    rolling["inPlaceUpdateStrategy"] = {"gracePeriodSeconds": grace}
    labels = {"clone": name, "app": "clones", **(dict.fromkeys((DELETE_HOOK, UPDATE_HOOK), "true") if hooked else {})}
    return {
        "apiVersion": CLONE_SET.resource().api_version,
        "kind": CLONE_SET.kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "replicas": replicas,
            "minReadySeconds": min_ready,
            "selector": {"matchLabels": {"clone": name}},
            "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": rolling},
            **({"lifecycle": LIFECYCLE} if hooked else {}),
            "template": {
                "metadata": {"labels": labels},
                "spec": {"terminationGracePeriodSeconds": 1, "containers": [{"name": "main", "image": image}]},
            },
        },
    }


@dataclass(frozen=True, slots=True)
class _Spec:
    """One state of a spec, and until when it was the current one (None: it is)."""

    replicas: int
    partition: int
    max_unavailable: int
    max_surge: int
    min_ready: float
    until: float | None = None

    @classmethod
    def of(cls, obj: Json) -> _Spec:
        spec = obj["spec"]
        rolling = (spec.get("updateStrategy") or {}).get("rollingUpdate") or {}
        return cls(
            spec.get("replicas", 1),
            rolling.get("partition") or 0,
            _number(rolling.get("maxUnavailable"), 1),
            _number(rolling.get("maxSurge"), 0),
            _number(spec.get("minReadySeconds"), 0),
        )


def _number(value: object, default: int) -> int:
    return value if isinstance(value, int) else default


class Promises:
    """Remembers what users asked for, and checks each write of a Pod against it."""

    def __init__(self) -> None:
        self._specs: dict[str, list[_Spec]] = {}
        #: When users took Pods, by CloneSet: the manager may not know it yet.
        self._lost: dict[str, list[float]] = {}

    def asked(self, at: float, obj: Json) -> None:
        """A CloneSet was created or changed."""
        uid, spec = obj["metadata"]["uid"], _Spec.of(obj)
        known = self._specs.setdefault(uid, [])
        if known and known[-1] == spec:
            return
        if known:
            last = known[-1]
            known[-1] = replace(last, until=at)
        known.append(spec)

    def broken_by(
        self,
        at: float,
        before: Json | None,
        after: Json | None,
        pods: Iterable[Json],
        *,
        by_user: bool,
        behind: float = STALE_SECONDS,
    ) -> Iterator[str]:
        """What a write of a Pod breaks; ``pods`` are all as they are after it. ``behind``: what a cache may be."""
        pod = after if after is not None else before
        uid = invariants.owner_of(pod) if pod is not None else ""
        specs = [spec for spec in self._specs.get(uid, ()) if spec.until is None or at - spec.until <= behind]
        if pod is None or not specs:
            return
        if by_user and before is not None and (after is None or is_taken(before, after)):
            self._lost.setdefault(uid, []).append(at)
            return
        mine = [one for one in pods if invariants.owner_of(one) == uid]
        name = invariants.name(pod)
        active = [one for one in mine if is_active(one)]
        if before is None:
            most = max(spec.replicas + spec.max_surge for spec in specs)
            if len(active) > most:
                yield f"Pod {name} is one too many: {len(active)} are active, {most} are the most ever asked for"
        if before is not None and after is not None:
            yield from held_back(before, after)
        seen = (at, specs[-1].min_ready)
        if before is not None and after is not None and is_taken(before, after) and is_available(before, *seen):
            available = sum(is_available(one, *seen) for one in mine)
            lost = sum(at - when <= behind for when in self._lost.get(uid, ()))
            least = min(spec.replicas - spec.max_unavailable for spec in specs) - lost
            if available < least:
                yield f"Pod {name} was taken: {available} are available, {least} are the least ever asked for"
        yield from self._partition(before, after, active, specs)

    @staticmethod
    def _partition(before: Json | None, after: Json | None, active: list[Json], specs: list[_Spec]) -> Iterator[str]:
        """Never more Pods of the newest revision than the partition leaves, once it was held back all the time."""
        if after is None or all(spec.partition == 0 for spec in specs):
            return
        revision = after["metadata"].get("labels", {}).get(HASH_LABEL)
        if before is None or before["metadata"].get("labels", {}).get(HASH_LABEL) == revision:
            return
        most = max(max(0, spec.replicas - spec.partition) + spec.max_surge for spec in specs)
        count = sum(one["metadata"].get("labels", {}).get(HASH_LABEL) == revision for one in active)
        if count > most and max(spec.replicas for spec in specs) == min(spec.replicas for spec in specs):
            yield f"Pod {after['metadata']['name']} was updated past the partition: {count} have {revision}, not {most}"


def is_active(pod: Json) -> bool:
    """Neither going nor finished, nor about to be deleted."""
    finished = (pod.get("status") or {}).get("phase") in ("Succeeded", "Failed")
    state = (pod["metadata"].get("labels") or {}).get(names.LIFECYCLE_STATE)
    return not finished and not pod["metadata"].get("deletionTimestamp") and state != "PreparingDelete"


def is_available(pod: Json, at: float, min_ready: float) -> bool:
    """Active, in service as its lifecycle has it (CS-87), and Ready for long enough. ``at``: virtual seconds."""
    state = (pod["metadata"].get("labels") or {}).get(names.LIFECYCLE_STATE, "Normal")
    if not is_active(pod) or state != "Normal" or invariants.condition(pod, names.IN_PLACE_UPDATE_READY) == "False":
        return False
    for one in (pod.get("status") or {}).get("conditions") or ():
        if one.get("type") == "Ready":
            since = (datetime.fromisoformat(one["lastTransitionTime"]) - EPOCH).total_seconds()
            return one.get("status") == "True" and since + min_ready <= at
    return False


def is_taken(before: Json, after: Json) -> bool:
    """Whether a write begins to delete a Pod, or to update it in place."""
    deleted = bool(after["metadata"].get("deletionTimestamp")) and not before["metadata"].get("deletionTimestamp")
    gates = [invariants.condition(pod, names.IN_PLACE_UPDATE_READY) for pod in (before, after)]
    return deleted or _images(before) != _images(after) or (gates[0] != "False" and gates[1] == "False")


def held_back(before: Json, after: Json) -> Iterator[str]:
    """No Pod is deleted or changed while its hook holds it."""
    name = invariants.name(after)
    deleted = bool(after["metadata"].get("deletionTimestamp")) and not before["metadata"].get("deletionTimestamp")
    if deleted and is_held(before, DELETE_HOOK):
        yield f"Pod {name} was deleted before its hook was released"
    if _images(before) != _images(after) and is_held(before, UPDATE_HOOK):
        yield f"Pod {name} was updated before its hook was released"


def _images(pod: Json) -> list[str]:
    return [container["image"] for container in pod["spec"]["containers"] if container["name"] == "main"]


def at_rest(obj: Json, pods: Iterable[Json]) -> Iterator[str]:
    """At rest: as many Pods as asked for, all ready, as many of them new as the partition leaves, and a true status."""
    mine = [pod for pod in pods if invariants.owner_of(pod) == obj["metadata"]["uid"]]
    spec, status, name = obj["spec"], obj.get("status") or {}, invariants.name(obj)
    partition = _Spec.of(obj).partition
    paused = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("paused", False)
    wanted = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), spec["replicas"])
    wanted |= dict.fromkeys(("updatedReadyReplicas", "updatedAvailableReplicas"), status.get("updatedReplicas") or 0)
    wanted["observedGeneration"] = obj["metadata"]["generation"]
    for field, value in wanted.items():
        if (status.get(field) or 0) != value:
            yield f"CloneSet {name} at rest: status.{field} is {status.get(field)}, asked for is {value}"
    marked = sum(names.SPECIFIED_DELETE in (pod["metadata"].get("labels") or {}) for pod in mine)
    if marked:
        yield f"CloneSet {name} at rest: {marked} Pods are still to be replaced"
    if len(mine) != spec["replicas"]:
        yield f"CloneSet {name} at rest: {len(mine)} Pods, asked for are {spec['replicas']}"
    image = spec["template"]["spec"]["containers"][0]["image"]
    new = sum(_images(pod) == [image] for pod in mine)
    least = max(0, spec["replicas"] - partition)
    if new < least and not paused:
        yield f"CloneSet {name} at rest: {new} Pods have {image}, at least {least} should"
    if new > least and image in NEVER_BEFORE:
        yield f"CloneSet {name} at rest: {new} Pods have {image}, {least} should: {partition} are to be held back"
