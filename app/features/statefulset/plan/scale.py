"""Which Pods to create and delete now, in which order, and what must wait. Pure. [AS-41, AS-54 … AS-64, AS-101]"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from app.features.statefulset.plan.new_pods import NewRevisions
from app.features.statefulset.plan.settings import Replica, Replicas
from app.features.statefulset.plan.update import candidates
from app.pods.lifecycle import LifecycleState
from app.pods.ordinals import Slots
from app.workloads.pods import MAX_CREATIONS, PodFacts


@dataclass(slots=True)
class ScalePlan:
    """Pods to create and delete now.

    ``create``: ordinals, and whether each is created at the update revision. ``prepare``: Pods that must enter
    PreparingDelete for their preDelete hook. ``cancel_deletion``: Pods that are needed again. ``blocked``: no update
    may begin yet. ``held_by``: the Pod that OrderedReady waits for. ``waits_for``: claims that must be gone before Pods
    are created.
    """

    create: list[tuple[int, bool]] = field(default_factory=list)
    delete: list[Replica] = field(default_factory=list)
    prepare: list[Replica] = field(default_factory=list)
    cancel_deletion: list[Replica] = field(default_factory=list)
    blocked: bool = False
    held_by: Replica | None = None
    waits_for: list[str] = field(default_factory=list)

    def without(self, moved: Collection[PodFacts]) -> ScalePlan:
        """Return the plan without Pods that were just patched, because their next step depends on their new state."""
        if not moved:
            return self
        return replace(
            self,
            delete=[one for one in self.delete if one.facts not in moved],
            prepare=[one for one in self.prepare if one.facts not in moved],
            cancel_deletion=[one for one in self.cancel_deletion if one.facts not in moved],
        )

    def without_replaced(self, slots: Slots) -> ScalePlan:
        """Return the plan without Pods whose ordinals are reserved; they stay until they are replaced. [AS-64]"""

        def leaves(one: Replica) -> bool:
            return one.ordinal in slots or one.ordinal >= slots.end

        return replace(self, delete=[*filter(leaves, self.delete)], prepare=[*filter(leaves, self.prepare)])


def plan_scaling(
    replicas: Replicas, *, current: str, update: str, now: float, claim_in_the_way: Callable[[int], str] = lambda _: ""
) -> ScalePlan:
    """Plan which Pods to create and delete. [AS-55 … AS-64]

    ``current`` and ``update`` are short hashes; ``now`` is in POSIX seconds; ``claim_in_the_way`` returns the claim
    that must be gone before the Pod with that ordinal may be created, or "". [AS-67, AS-71]
    """
    plan = ScalePlan(cancel_deletion=_wanted_again(replicas, current=current, update=update))
    revisions = NewRevisions(replicas, current=current, update=update)
    if _fill_slots(plan, replicas, revisions, now, claim_in_the_way):
        plan.blocked = True
        return plan
    _take_away(plan, replicas, now)
    return plan


def _fill_slots(
    plan: ScalePlan, replicas: Replicas, revisions: NewRevisions, now: float, claim_in_the_way: Callable[[int], str]
) -> bool:
    """Fill the slots in ascending order. Return whether OrderedReady stops at one of them."""
    settings = replicas.settings
    ordered, left = settings.ordered, settings.scale_limit
    present = {one.ordinal: one for one in replicas.wanted}
    for ordinal in settings.slots:
        found, charged = present.get(ordinal), False
        if found is None:
            if claim := claim_in_the_way(ordinal):
                plan.waits_for.append(claim)
                # The limit also applies to blocked creations.
                charged = len(plan.waits_for) + len(plan.create) >= MAX_CREATIONS
            else:
                plan.create.append((ordinal, revisions.next(ordinal)))
                charged = True
        elif found.ended:
            _delete(plan, found)
            charged = True  # finished Pods are always replaced [AS-138]
        elif found.terminating or not found.available(now):
            charged = True
        if ordered and (found is None or found.ended or found.terminating or not found.available(now)):
            plan.held_by = found if found is not None and not found.ended else None
            return True
        if len(plan.create) + len(plan.waits_for) >= MAX_CREATIONS:
            break
        if charged and left is not None:
            left -= 1
            if left <= 0:
                break
    return False


def _take_away(plan: ScalePlan, replicas: Replicas, now: float) -> None:
    """Delete surplus Pods in descending order. [AS-60 … AS-62]"""
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
        # A Pod that waits for its hook need not be available, and a finished Pod never will be. [AS-102]
        unhealthy = [one for one in replicas.condemned if not one.healthy]
        first_unhealthy = unhealthy[-1] if unhealthy else None
        if not (highest.running_and_ready and highest.available(now)) and highest is not first_unhealthy:
            return
    _delete(plan, highest)


def _delete(plan: ScalePlan, pod: Replica) -> None:
    """Delete the Pod, or start its preDelete hook. [AS-98]"""
    if pod.terminating:
        return
    if not pod.facts.delete_hooked:
        plan.delete.append(pod)
    elif not pod.facts.preparing_delete:
        plan.prepare.append(pod)


def _wanted_again(replicas: Replicas, *, current: str, update: str) -> list[Replica]:
    """Return the Pods in slots whose pending deletion must be canceled. [AS-101]

    Pods that the update is about to replace are included only while the update is paused; without them, OrderedReady
    would wait until the rollout is resumed. [AS-76]
    """
    waiting = [
        one
        for one in replicas.wanted
        if one.facts.lifecycle == LifecycleState.PREPARING_DELETE
        and not (one.terminating or one.ended or one.facts.marked)
    ]
    if not waiting:
        return []
    listed = [] if replicas.settings.paused else candidates(replicas, current=current, update=update)
    replaced = {one.ordinal for one in listed}
    return [one for one in waiting if one.is_at(update) or one.ordinal not in replaced]
