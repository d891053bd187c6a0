"""The judge of CloneSets: the invariants of each write and those at rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from tests.simulation import invariants
from tests.simulation.passes import Pass
from tests.simulation.pods import main_image, none_marked
from tests.simulation.script import NAMESPACE
from tests.simulation.workloads.cloneset.claims import ClaimPromises
from tests.simulation.workloads.cloneset.promises import Promises, Spec
from tests.simulation.workloads.judge import Judge

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

    def wrote(self, at: float, kind: str, before: Json | None, after: Json | None, known: Pass | None) -> Iterable[str]:
        """Return the invariants that a write violates."""
        if kind == "Pod":
            self._keep(self._pods, before, after)
            yield from self._promises.broken_by(at, before, after, known)
            yield from self._claims.pod_written(before, after, known)
            owner = invariants.owner_of(after or before or {"metadata": {}})
            yield from self._promises.short_of(at, owner, excused=not self.calm)
        elif kind == "PersistentVolumeClaim":
            yield from self._claims.claim_written(before, after, known)
        elif kind == "ControllerRevision" and after is not None:
            self._promises.recorded(after)
        elif kind == "CloneSet":
            self._keep(self._sets, before, after)
            if after is not None:
                self._promises.asked(after)
            elif before is not None:
                self._promises.gone(before)

    def _keep(self, stored: dict[str, Json], before: Json | None, after: Json | None) -> None:
        self._to_do = None
        if after is not None:
            stored[after["metadata"]["uid"]] = after
        elif before is not None:
            stored.pop(before["metadata"]["uid"], None)

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
