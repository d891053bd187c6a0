"""Which Pods to update now, in which order, and which marked Pods to delete. Pure. [AS-75 … AS-94]"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from app.features.statefulset.plan.claims import ClaimState
from app.features.statefulset.plan.new_pods import NewRevisions
from app.features.statefulset.plan.settings import Replica, Replicas
from app.pods.lifecycle import LifecycleState
from app.pods.sorting import by_readable_priority
from app.workloads.pods import PodFacts
from app.workloads.settings import UpdatePolicy
from app.workloads.steps import Obstacle, Step, StepKind, UpdatePlan, in_place_step


def candidates(replicas: Replicas, *, current: str, update: str) -> list[Replica]:
    """Return the Pods beyond the partition, in update order. [AS-79, AS-80]"""
    settings = replicas.settings
    if settings.on_delete:
        return []
    descending = list(reversed(replicas.wanted))
    if not settings.unordered:
        return [one for one in descending if settings.slots.rank(one.ordinal) > settings.partition]
    updated = {one.ordinal for one in descending if one.terminating or replicas.is_updated(one, update)}
    done = [one for one in descending if one.ordinal in updated]
    facts = {one.facts.pod.metadata.uid: one for one in descending}
    rest = [one.facts.pod for one in descending if one.ordinal not in updated]
    ordered = by_readable_priority(rest, settings.priority)
    # An empty slot whose Pod will be created at the update revision counts as updated.
    old = NewRevisions(replicas, current=current, update=update).old_ones(replicas.missing)
    count = settings.replicas - settings.partition - (replicas.missing - old)
    return [*done, *(facts[pod.metadata.uid] for pod in ordered)][: max(0, count)]


#: Reasons for replacing a Pod that are unrelated to its revision.
MARKED = "it is marked for deletion"
BEGUN = "its deletion has begun"
CLAIMS_GROWN = "its claims wait for a file system resize at the next mount"

READY_CLAIMS = ClaimState()


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """Pods to update now. ``update`` has the steps for the engine; ``grow`` are Pods whose claims must be expanded
    first; ``held`` are Pods whose update waits for its hook."""

    update: UpdatePlan
    grow: Sequence[Replica] = ()
    held: Sequence[Replica] = ()

    def begun(self, done: Iterable[Step]) -> frozenset[PodFacts]:
        """Return the Pods whose update or deletion has begun. ``done`` are the steps that succeeded. [AS-84, AS-92]"""
        taken = (step.pod for step in done if step.kind is not StepKind.RECREATE or not step.pod.delete_hooked)
        return frozenset((*taken, *(one.facts for one in self.held)))


def released(replicas: Replicas, listed: Collection[Replica], *, update: str) -> frozenset[PodFacts]:
    """Return the Pods that are preparing for an update they no longer need. They return to service.

    ``listed`` are the update candidates. While the update is paused, Pods that already wait for their hook keep
    waiting.
    """
    chosen = {one.ordinal for one in listed}
    return frozenset(
        one.facts
        for one in replicas.everyone
        if one.facts.lifecycle == LifecycleState.PREPARING_UPDATE
        and (one.is_at(update) or (not replicas.settings.paused and one.ordinal not in chosen))
    )


def plan_update(
    replicas: Replicas,
    listed: Sequence[Replica],
    *,
    update: str,
    now: float,
    obstacle: Obstacle,
    claims: dict[int, ClaimState] | None = None,
    begin: bool = True,
    held_by: Replica | None = None,
) -> RolloutPlan:
    """Plan the update steps. [AS-76 … AS-94]

    ``listed`` are the candidates; ``obstacle`` returns why a Pod cannot be updated in place; ``claims`` are the claim
    states by ordinal if claims are expanded with the update. Unless ``begin`` is set, only updates that have begun
    continue [AS-57]. Even then, ``held_by``, the outdated Pod that OrderedReady waits for, is updated if the set
    enables repairs. [AS-140]
    """
    settings, found = replicas.settings, claims or {}
    held_by = held_by if settings.repairs else None
    if settings.paused and not settings.on_delete:
        return RolloutPlan(UpdatePlan())
    disruptions = _Disruptions(replicas, now)
    steps: list[Step] = []
    grow: list[Replica] = []
    held: list[Replica] = []
    handled = _marked_steps(replicas, disruptions, steps, begin=begin)
    for pod in listed if begin else [one for one in listed if _is_begun(one) or _is_broken(one, held_by, update)]:
        state = found.get(pod.ordinal, READY_CLAIMS)
        if (pod.is_at(update) and state.compatible and not state.pending) or pod.ordinal in handled:
            continue
        if pod.terminating or not disruptions.allows(pod):
            continue
        if not state.compatible or not state.completed:
            # The Pod is updated after its claims are expanded. [AS-105]
            if not state.compatible:
                grow.append(pod)
            continue
        if pod.is_at(update) or pod.facts.preparing_delete:
            _replace(pod, BEGUN if pod.facts.preparing_delete else CLAIMS_GROWN, steps)  # [AS-148]
            continue
        reason = "the policy is ReCreate" if settings.policy is UpdatePolicy.RECREATE else obstacle(pod.facts)
        if reason is None:
            step = in_place_step(pod.facts, settings.lifecycle)
            if step is not None:
                steps.append(step)
            elif begin:
                held.append(pod)
        elif settings.policy is UpdatePolicy.IN_PLACE_ONLY:
            failure = f"update strategy is InPlaceOnly but Pod {pod.name} can not update in-place: {reason}"  # [AS-110]
            return RolloutPlan(UpdatePlan(update, tuple(steps), failure, reason), grow, held)
        else:
            _replace(pod, reason, steps)
    return RolloutPlan(UpdatePlan(update, tuple(steps)), grow, held)


class _Disruptions:
    """Number of additional Pods that may become unavailable. [AS-77, AS-78]"""

    def __init__(self, replicas: Replicas, now: float) -> None:
        self._out = {one.ordinal for one in replicas.wanted if not one.usable(now)}
        self._left = replicas.settings.update_limit - len(self._out) - replicas.missing

    def allows(self, pod: Replica) -> bool:
        """Return whether the Pod may be taken out of service, and if so, count it as unavailable. [AS-81, AS-83,
        AS-90]"""
        if pod.ordinal in self._out:
            return True  # an unavailable Pod does not count against the limit, regardless of its position [AS-139]
        if self._left <= 0:
            return False
        self._left -= 1
        self._out.add(pod.ordinal)
        return True


def _is_begun(pod: Replica) -> bool:
    """Return whether a hook of the Pod has started. Skipping such a Pod would deadlock an OrderedReady set."""
    return pod.facts.lifecycle in (LifecycleState.PREPARING_UPDATE, LifecycleState.PREPARING_DELETE)


def _is_broken(pod: Replica, held_by: Replica | None, update: str) -> bool:
    """Return whether the Pod blocks OrderedReady and the update may repair it. [AS-140]"""
    held = held_by is not None and pod.ordinal == held_by.ordinal
    return held and not pod.running_and_ready and not pod.is_at(update)


def _marked_steps(replicas: Replicas, disruptions: _Disruptions, steps: list[Step], *, begin: bool) -> set[int]:
    """Add steps for Pods that are marked for deletion. Return their ordinals. [AS-89 … AS-91, AS-94, AS-142]"""
    handled = set()
    for pod in reversed(replicas.wanted):
        if pod.facts.marked and (begin or _is_begun(pod)) and not pod.terminating and disruptions.allows(pod):
            handled.add(pod.ordinal)
            _replace(pod, MARKED, steps)
    return handled


def _replace(pod: Replica, why: str, steps: list[Step]) -> None:
    """Add a step that deletes the Pod or starts its preDelete hook, unless the hook is pending. [AS-98]"""
    if not (pod.facts.delete_hooked and pod.facts.preparing_delete):
        steps.append(Step(StepKind.RECREATE, pod.facts, why))
