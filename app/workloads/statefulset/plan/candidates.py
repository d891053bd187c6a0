"""Which Pods an update takes, in what order, and which revision new ones get (AS-41, AS-79, AS-80). Pure."""

from __future__ import annotations

from app.pods.lifecycle import LifecycleState
from app.pods.update_order import by_readable_priority
from app.workloads.statefulset.plan.replicas import Replica, Replicas


def candidates(replicas: Replicas, *, current: str, update: str) -> list[Replica]:
    """AS-79, AS-80: the Pods of the slots that the partition leaves, in the order in which they are updated."""
    settings = replicas.settings
    if settings.on_delete:
        return []
    descending = list(reversed(replicas.wanted))
    if not settings.unordered:
        return [one for one in descending if settings.slots.rank(one.ordinal) > settings.partition]
    done = [one for one in descending if one.terminating or one.is_at(update)]
    facts = {one.facts.pod.metadata.uid: one for one in descending}
    rest = [one.facts.pod for one in descending if not (one.terminating or one.is_at(update))]
    ordered = by_readable_priority(rest, settings.priority)
    # Slots without Pod that will get one at the update revision are done as well.
    old = NewRevisions(replicas, current=current, update=update).old_ones(replicas.missing)
    count = settings.replicas - settings.partition - (replicas.missing - old)
    return [*done, *(facts[pod.metadata.uid] for pod in ordered)][: max(0, count)]


class NewRevisions:
    """AS-41: which revision the next new Pod gets."""

    def __init__(self, replicas: Replicas, *, current: str, update: str) -> None:
        self._settings = replicas.settings
        self._same = current == update
        early = self._settings.gates.preparing_update_as_update
        self._not_updated = sum(
            not one.is_at(update) and not (early and one.facts.lifecycle == LifecycleState.PREPARING_UPDATE)
            for one in replicas.wanted
        )

    def old_ones(self, missing: int) -> int:
        """How many of so many new Pods would be made at the current revision, in an unordered update."""
        return min(missing, max(0, self._settings.partition - self._not_updated))

    def next(self, ordinal: int) -> bool:
        """Whether the Pod of that ordinal is made at the update revision."""
        settings = self._settings
        if settings.on_delete or self._same:
            return True
        if not settings.unordered:
            return settings.slots.rank(ordinal) > settings.partition
        if self._not_updated < settings.partition:
            self._not_updated += 1
            return False
        return True
