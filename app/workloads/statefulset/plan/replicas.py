"""The Pods of a StatefulSet by their ordinals: those in slots, and those that are to go (AS-50 … AS-52). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import inf

from app.api import names
from app.pods.lifecycle import LifecycleState
from app.pods.ordinals import ordinal_of
from app.pods.predicates import FINISHED, is_running_and_ready
from app.workloads.engine.pods import PodFacts
from app.workloads.statefulset.plan.settings import Settings


@dataclass(frozen=True, slots=True)
class Replica:
    """One Pod and its ordinal. ``claims_ready``: none of its claims is still to grow (AS-78)."""

    ordinal: int
    facts: PodFacts
    claims_ready: bool = True

    @property
    def name(self) -> str:
        """The Pod's name."""
        return self.facts.name

    @property
    def terminating(self) -> bool:
        """Whether it is being deleted."""
        return self.facts.pod.metadata.deletion_timestamp is not None

    @property
    def ended(self) -> bool:
        """Whether it has run to its end."""
        return self.facts.pod.status.phase in FINISHED

    @property
    def running_and_ready(self) -> bool:
        """Whether it runs and says it is ready."""
        return is_running_and_ready(self.facts.pod)

    @property
    def healthy(self) -> bool:
        """AS-51."""
        in_service = self.facts.lifecycle in ("", LifecycleState.NORMAL)
        return self.running_and_ready and not self.terminating and in_service

    def available(self, now: float) -> bool:
        """AS-51, at POSIX seconds."""
        return self.facts.available(now)

    def usable(self, now: float) -> bool:
        """AS-78: what an update may count on."""
        complete = self.facts.update_complete and self.claims_ready
        return self.healthy and complete and self.facts.available(now)

    def is_at(self, revision: str) -> bool:
        """Whether it is at the revision of that short hash."""
        return self.facts.revision == revision


@dataclass(frozen=True, slots=True)
class Replicas:
    """All Pods. ``wanted``: those in slots, ascending; ``condemned``: the others, descending (AS-60)."""

    settings: Settings
    wanted: Sequence[Replica]
    condemned: Sequence[Replica]

    @classmethod
    def of(cls, settings: Settings, owner: str, pods: Iterable[PodFacts]) -> Replicas:
        """Sort the Pods by ordinal. Names that are none of the owner's are left out."""
        found = [Replica(ordinal, one) for one in pods if (ordinal := ordinal_of(owner, one.name)) >= 0]
        wanted = [one for one in found if one.ordinal in settings.slots]
        condemned = [one for one in found if one.ordinal not in settings.slots]
        wanted.sort(key=lambda one: one.ordinal)
        condemned.sort(key=lambda one: -one.ordinal)
        return cls(settings, wanted, condemned)

    @property
    def everyone(self) -> Sequence[Replica]:
        """Those in slots, and those to go."""
        return (*self.wanted, *self.condemned)

    @property
    def missing(self) -> int:
        """How many slots have no Pod."""
        return self.settings.replicas - len(self.wanted)

    def next_available(self, now: float) -> float:
        """When the next Pod becomes available by itself, in POSIX seconds; inf: none does (AS-141)."""
        times = (one.facts.available_after for one in self.everyone if not one.terminating)
        return min((time for time in times if now <= time < inf), default=inf)


def is_marked(replica: Replica) -> bool:
    """AS-89: whether somebody asks for its deletion."""
    return names.SPECIFIED_DELETE in replica.facts.pod.metadata.labels
