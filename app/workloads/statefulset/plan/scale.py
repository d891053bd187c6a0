"""Which Pods are created and deleted now, in what order, and what waits (AS-41, AS-54 … AS-64, AS-101). Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from app.pods.lifecycle import LifecycleState
from app.workloads.statefulset.plan.replicas import Replica, Replicas, is_marked

#: Pods that one reconcile creates at most.
MAX_CREATIONS: Final = 500


@dataclass(slots=True)
class ScalePlan:
    """``create``: ordinals, and whether each gets the update revision. ``prepare``: Pods whose preDelete hook is asked.
    ``revive``: Pods that are wanted again. ``blocked``: no update may overtake what waits. ``waits_for``: claims that
    must be gone before Pods are created."""

    create: list[tuple[int, bool]] = field(default_factory=list)
    delete: list[Replica] = field(default_factory=list)
    prepare: list[Replica] = field(default_factory=list)
    revive: list[Replica] = field(default_factory=list)
    blocked: bool = False
    waits_for: list[str] = field(default_factory=list)


def plan_scaling(
    replicas: Replicas,
    *,
    current: str,
    update: str,
    now: float,
    claim_in_the_way: Callable[[int], str] = lambda _: "",
) -> ScalePlan:
    """AS-55 … AS-64. ``current``, ``update``: short hashes; ``now``: POSIX seconds; ``claim_in_the_way``: the claim
    that must be gone before the Pod of an ordinal may be created, or "" (AS-67, AS-71)."""
    plan = ScalePlan(revive=_wanted_again(replicas, update))
    revisions = NewRevisions(replicas, current=current, update=update)
    if _fill_slots(plan, replicas, revisions, now, claim_in_the_way):
        plan.blocked = True
        return plan
    _take_away(plan, replicas, now)
    return plan


def _fill_slots(
    plan: ScalePlan, replicas: Replicas, revisions: NewRevisions, now: float, claim_in_the_way: Callable[[int], str]
) -> bool:
    """The slots from the lowest up. Whether OrderedReady stops at one of them."""
    settings = replicas.settings
    ordered, left = settings.ordered, settings.scale_limit
    present = {one.ordinal: one for one in replicas.wanted}
    for ordinal in settings.slots:
        found, charged = present.get(ordinal), False
        if found is None:
            if claim := claim_in_the_way(ordinal):
                plan.waits_for.append(claim)
                # Ever more that cannot be created are not looked for.
                charged = len(plan.waits_for) + len(plan.create) >= MAX_CREATIONS
            else:
                plan.create.append((ordinal, revisions.next(ordinal)))
                charged = True
        elif found.ended:
            _delete(plan, found)
            charged = True  # AS-138: what ended goes in any case
        elif found.terminating or not found.available(now):
            charged = True
        if ordered and (found is None or found.ended or found.terminating or not found.available(now)):
            return True
        if len(plan.create) + len(plan.waits_for) >= MAX_CREATIONS:
            break
        if charged and left is not None:
            left -= 1
            if left <= 0:
                break
    return False


def _take_away(plan: ScalePlan, replicas: Replicas, now: float) -> None:
    """AS-60 … AS-62, from the highest ordinal down."""
    if not replicas.condemned:
        return
    if not replicas.settings.ordered:
        for one in replicas.condemned:
            _delete(plan, one)
        return
    highest = replicas.condemned[0]
    plan.blocked = True
    if highest.terminating:
        return
    if not (highest.facts.preparing_delete or highest.ended):
        # AS-102: whoever waits for its hook need not be available; what has ended will never be.
        unhealthy = [one for one in replicas.condemned if not one.healthy]
        first_unhealthy = unhealthy[-1] if unhealthy else None
        if not (highest.running_and_ready and highest.available(now)) and highest is not first_unhealthy:
            return
    _delete(plan, highest)


def _delete(plan: ScalePlan, pod: Replica) -> None:
    """AS-98."""
    if pod.terminating:
        return
    if not pod.facts.delete_hooked:
        plan.delete.append(pod)
    elif not pod.facts.preparing_delete:
        plan.prepare.append(pod)


def _wanted_again(replicas: Replicas, update: str) -> list[Replica]:
    """AS-101: Pods in slots that were to go and are not any more. One that an update may be about to replace stays."""
    on_delete = replicas.settings.on_delete
    return [
        one
        for one in replicas.wanted
        if one.facts.lifecycle == LifecycleState.PREPARING_DELETE
        and not (one.terminating or one.ended or is_marked(one))
        and (on_delete or one.is_at(update) or replicas.settings.slots.rank(one.ordinal) <= _kept(replicas))
    ]


def _kept(replicas: Replicas) -> int:
    settings = replicas.settings
    return 0 if settings.unordered else settings.partition


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
