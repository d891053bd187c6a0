"""The judge of CloneSets: the invariants of each write and those at rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from tests.simulation import invariants
from tests.simulation.pods import main_image, none_marked
from tests.simulation.script import NAMESPACE
from tests.simulation.workloads.cloneset.claims import ClaimPromises
from tests.simulation.workloads.cloneset.promises import Promises, Spec
from tests.simulation.workloads.judge import Judge, Write

Json = dict[str, Any]

#: Images that only the end of a run uses, so no Pod has one from an earlier rollout.
NEVER_BEFORE = ("clone:part",)


class CloneSetJudge(Judge):
    """Judges every write, and the state at rest."""

    def __init__(self) -> None:
        self._promises = Promises()
        self._claims = ClaimPromises(self._promises)
        #: By uid, as they are stored.
        self._sets: dict[str, Json] = {}
        self._pods: dict[str, Json] = {}
        #: Violations of the sets and Pods; None: unknown since the last write.
        self._to_do: list[str] | None = None
        self.judged = {
            "Pod": self._pod,
            "PersistentVolumeClaim": self._claims.claim_written,
            "ControllerRevision": self._promises.recorded,
            "CloneSet": self._set,
        }

    def _pod(self, write: Write) -> Iterator[str]:
        self._to_do = None
        write.kept_in(self._pods)
        yield from self._promises.broken_by(write)
        yield from self._claims.pod_written(write)
        yield from self._promises.short_of(write.at, invariants.owner_of(write.obj), excused=not self.calm)

    def _set(self, write: Write) -> None:
        self._to_do = None
        write.kept_in(self._sets)
        if write.after is not None:
            self._promises.asked(write.after)
        else:
            self._promises.gone(write.obj)

    def at_rest(self, now: datetime) -> Iterable[str]:
        if self._to_do is None:
            pods = [pod for pod in self._pods.values() if pod["metadata"].get("namespace") == NAMESPACE]
            came_back = self._promises.came_back
            self._to_do = [sentence for one in self._sets.values() for sentence in at_rest(one, pods, came_back)]
        yield from self._to_do
        for one in self._sets.values():
            # Not cached: a term of leadership may end without a write.
            yield from self._claims.at_rest(one["metadata"]["uid"], Spec.of(one))


def at_rest(obj: Json, pods: Iterable[Json], came_back: Collection[str]) -> Iterator[str]:
    """There are as many ready Pods as replicas, updated as far as the partition allows, and the status is correct.

    ``came_back``: uids of Pods that returned from their preDelete hook, whatever their revision (CS-97).
    """
    mine = [pod for pod in pods if invariants.owner_of(pod) == obj["metadata"]["uid"]]
    spec, status, name = obj["spec"], obj.get("status") or {}, invariants.name(obj)
    partition = Spec.of(obj).partition
    paused = ((spec.get("updateStrategy") or {}).get("rollingUpdate") or {}).get("paused", False)
    true = dict.fromkeys(("replicas", "readyReplicas", "availableReplicas"), spec["replicas"])
    true |= dict.fromkeys(("updatedReadyReplicas", "updatedAvailableReplicas"), status.get("updatedReplicas") or 0)
    true["observedGeneration"] = obj["metadata"]["generation"]
    yield from invariants.status_is(f"CloneSet {name}", status, true)
    yield from none_marked(f"CloneSet {name}", mine)
    if len(mine) != spec["replicas"]:
        yield f"CloneSet {name} at rest: {len(mine)} Pods, want {spec['replicas']}"
    image = spec["template"]["spec"]["containers"][0]["image"]
    updated = [pod for pod in mine if main_image(pod) == image]
    new = len(updated)
    least = max(0, spec["replicas"] - partition)
    if new < least and not paused:
        yield f"CloneSet {name} at rest: {new} Pods have {image}, want at least {least}"
        # CS-145: once all remaining Pods are updated, the partition holds nothing back.
    forgotten = status.get("currentRevision") == status.get("updateRevision")
    held = sum(pod["metadata"]["uid"] not in came_back for pod in updated)
    if held > least and image in NEVER_BEFORE and not forgotten:
        yield f"CloneSet {name} at rest: {new} Pods have {image}, want {least}: the partition holds back {partition}"
