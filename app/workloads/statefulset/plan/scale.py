"""Which Pods are created and deleted now, in what order, and what waits (AS-41, AS-54 … AS-64, AS-101). Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace

from app.pods.lifecycle import LifecycleState
from app.workloads.engine.creation import MAX_CREATIONS
from app.workloads.engine.pods import PodFacts
from app.workloads.statefulset.plan.candidates import NewRevisions, candidates
from app.workloads.statefulset.plan.replicas import Replica, Replicas, is_marked


@dataclass(slots=True)
class ScalePlan:
    """``create``: ordinals, and whether each gets the update revision. ``prepare``: Pods whose preDelete hook is asked.
    ``cancel_deletion``: Pods that are wanted again. ``blocked``: no update may begin before what waits.
    ``held_by``: the Pod that OrderedReady waits for. ``waits_for``: claims that must go before Pods are created."""

    create: list[tuple[int, bool]] = field(default_factory=list)
    delete: list[Replica] = field(default_factory=list)
    prepare: list[Replica] = field(default_factory=list)
    cancel_deletion: list[Replica] = field(default_factory=list)
    blocked: bool = False
    held_by: Replica | None = None
    waits_for: list[str] = field(default_factory=list)

    def without(self, moved: Collection[PodFacts]) -> ScalePlan:
        """The same but for Pods that were written to just now: what is to come of them is decided on what they are by
        now."""
        if not moved:
            return self
        return replace(
            self,
            delete=[one for one in self.delete if one.facts not in moved],
            prepare=[one for one in self.prepare if one.facts not in moved],
            cancel_deletion=[one for one in self.cancel_deletion if one.facts not in moved],
        )


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


def _wanted_again(replicas: Replicas, *, current: str, update: str) -> list[Replica]:
    """AS-101: Pods in slots that were to go and are not any more. One that the update is about to replace stays; while
    the update is paused there is none, and OrderedReady would wait for it as long (AS-76)."""
    waiting = [
        one
        for one in replicas.wanted
        if one.facts.lifecycle == LifecycleState.PREPARING_DELETE
        and not (one.terminating or one.ended or is_marked(one))
    ]
    if not waiting:
        return []
    listed = [] if replicas.settings.paused else candidates(replicas, current=current, update=update)
    replaced = {one.ordinal for one in listed}
    return [one for one in waiting if one.is_at(update) or one.ordinal not in replaced]
