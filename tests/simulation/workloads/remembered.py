"""State shared by the judges of workloads: specs by generation, Pods, and losses caused by others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from tests.simulation import invariants
from tests.simulation.passes import Pass
from tests.simulation.pods import is_available
from tests.simulation.workloads.judge import Write

Json = dict[str, Any]
S = TypeVar("S")

#: The longest delay of a controller's caches.
BEHIND_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class _Loss:
    """A write by another actor that made a Pod unavailable. ``version``: the resourceVersion it created."""

    version: int
    at: float
    before: Json


class Remembered(Generic[S]):
    """State of one kind. ``spec_of`` reads an object's spec; ``min_ready``: seconds for which a Pod must be ready."""

    def __init__(self, kind: str, spec_of: Callable[[Json], S], min_ready: Callable[[S], float]) -> None:
        self.kind = kind
        self._spec_of = spec_of
        self._min_ready = min_ready
        #: By uid: the objects, their specs by generation, and every currentRevision that the status has had.
        self.objects: dict[str, Json] = {}
        self.specs: dict[str, dict[int, S]] = {}
        self.current: dict[str, set[str]] = {}
        self._pods: dict[str, dict[str, Json]] = {}
        self._lost: dict[str, list[_Loss]] = {}

    def wrote_object(self, write: Write) -> None:
        write.kept_in(self.objects)
        uid, after = write.uid, write.after
        if after is None:
            return
        self.specs.setdefault(uid, {}).setdefault(after["metadata"]["generation"], self._spec_of(after))
        if current := (after.get("status") or {}).get("currentRevision"):
            self.current.setdefault(uid, set()).add(current)

    def wrote_pod(self, write: Write) -> tuple[str, S] | None:
        """Record a write of a Pod. Return its owner's uid and the spec that the reconcile works with; None if the
        owner's reconcile did not write, or if the owner is deleted."""
        at, before, after, known = write.at, write.before, write.after, write.known
        uid = invariants.owner_of(write.obj)
        if uid not in self.specs:
            return None
        write.kept_in(self._pods.setdefault(uid, {}))
        spec = self.specs[uid].get(known.generation) if known is not None and known.uid == uid else None
        if spec is None or uid not in self.objects:
            if before is not None and is_available(before, at, 0.0) and not (after and is_available(after, at, 0.0)):
                version = int(write.obj["metadata"]["resourceVersion"]) + (after is None)
                recent = [loss for loss in self._lost.get(uid, ()) if at - loss.at < BEHIND_SECONDS]
                self._lost[uid] = [*recent, _Loss(version, at, before)]
            return None
        return uid, spec

    def pods_of(self, uid: str) -> list[Json]:
        return [*self._pods.get(uid, {}).values()]

    def unknown(self, known: Pass, at: float, min_ready: float) -> list[Json]:
        """Return the Pods that others took down after the reconcile saw them."""
        return [
            loss.before
            for loss in self._lost.get(known.uid, ())
            if 0 < known.version_of(loss.before["metadata"]["uid"]) < loss.version
            and is_available(loss.before, at, min_ready)
        ]

    def taken(self, write: Write, known: Pass, spec: S) -> bool:
        """Return whether the reconcile made a Pod unavailable that it saw available."""
        at, before, after, min_ready = write.at, write.before, write.after, self._min_ready(spec)
        if before is None or not is_available(before, at, min_ready):
            return False
        if after is not None and is_available(after, at, min_ready):
            return False
        saw = known.pod(before["metadata"]["uid"])
        return saw is not None and is_available(saw, known.at, min_ready)

    def newest(self, uid: str) -> S:
        specs = self.specs[uid]
        return specs[max(specs)]

    def standing(self) -> Iterator[tuple[Json, S]]:
        for uid, obj in self.objects.items():
            yield obj, self.newest(uid)
