"""Who judges CloneSets: their promises, those about claims, and what must hold of them at rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from datetime import datetime
from typing import Any

from app.api import names
from tests.simulation import invariants
from tests.simulation.passes import Pass
from tests.simulation.pods import main_image
from tests.simulation.script import NAMESPACE
from tests.simulation.workloads.cloneset.claims import ClaimPromises
from tests.simulation.workloads.cloneset.promises import Promises, Spec
from tests.simulation.workloads.judge import Judge

Json = dict[str, Any]

#: Images that only the end of a run asks for: no Pod has one of an earlier roll-out.
NEVER_BEFORE = ("clone:part",)


class CloneSetJudge(Judge):
    """Holds every write against the promises, and what is there at rest against what was asked for."""

    def __init__(self) -> None:
        self._promises = Promises()
        self._claims = ClaimPromises(self._promises)
        #: By uid, as they are stored.
        self._sets: dict[str, Json] = {}
        self._pods: dict[str, Json] = {}
        #: What the sets and Pods have wrong; None: something was written since.
        self._to_do: list[str] | None = None

    def wrote(self, at: float, kind: str, before: Json | None, after: Json | None, known: Pass | None) -> Iterable[str]:
        """Return the promises that a write breaks."""
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
            yield from self._claims.at_rest(one["metadata"]["uid"], Spec.of(one))  # of a term that may end meanwhile


def at_rest(obj: Json, pods: Iterable[Json], came_back: Collection[str]) -> Iterator[str]:
    """At rest: as many Pods as asked for, all ready, as many of them new as the partition leaves, and a true status.

    ``came_back``: Pods (uid) that came back from their preDelete hook, which does not go by their revision (CS-97).
    """
    mine = [pod for pod in pods if invariants.owner_of(pod) == obj["metadata"]["uid"]]
    spec, status, name = obj["spec"], obj.get("status") or {}, invariants.name(obj)
    partition = Spec.of(obj).partition
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
    updated = [pod for pod in mine if main_image(pod) == image]
    new = len(updated)
    least = max(0, spec["replicas"] - partition)
    if new < least and not paused:
        yield f"CloneSet {name} at rest: {new} Pods have {image}, at least {least} should"
    # CS-145: once all Pods that are left are new, nothing is held back any more.
    forgotten = status.get("currentRevision") == status.get("updateRevision")
    held = sum(pod["metadata"]["uid"] not in came_back for pod in updated)
    if held > least and image in NEVER_BEFORE and not forgotten:
        yield f"CloneSet {name} at rest: {new} Pods have {image}, {least} should: {partition} are to be held back"
