"""Which Pods get to the update revision now, and which are deleted because somebody asks (AS-75 … AS-94). Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.pods.claimgrowth import ClaimState
from app.pods.lifecycle import LifecycleState
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.settings import UpdatePolicy
from app.workloads.engine.steps import Obstacle, Step, StepKind, UpdatePlan, in_place_step
from app.workloads.statefulset.plan.replicas import Replica, Replicas, is_marked

#: Why a Pod is replaced though nothing about its revision asks for it.
MARKED = "it is marked for deletion"
BEGUN = "its deletion was begun"
CLAIMS_GROWN = "its claims wait for a file system that grows when they are mounted anew"

READY_CLAIMS = ClaimState()


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """``update``: steps for the engine. ``grow``: Pods whose claims are made larger first."""

    update: UpdatePlan
    grow: Sequence[Replica] = ()


def released(replicas: Replicas, listed: Collection[Replica], *, update: str) -> frozenset[PodFacts]:
    """Pods that prepared for an update nobody wants of them any more: they go back into service. ``listed``: the
    candidates. While the update is paused whoever waits goes on waiting."""
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
    """AS-76 … AS-94. ``listed``: the candidates; ``obstacle``: why a Pod cannot be updated in place; ``claims``: by
    ordinal, where they grow with the update; ``begin``: whether more is begun than was before (AS-57), save for an
    outdated Pod that OrderedReady waits for, ``held_by``, where the set asks for its repair (AS-140)."""
    settings, found = replicas.settings, claims or {}
    held_by = held_by if settings.repairs else None
    if settings.paused and not settings.on_delete:
        return RolloutPlan(UpdatePlan())
    disruptions = _Disruptions(replicas, now)
    steps: list[Step] = []
    grow: list[Replica] = []
    handled = _marked_steps(replicas, disruptions, steps, begin=begin)
    for pod in listed if begin else [one for one in listed if _is_begun(one) or _is_broken(one, held_by, update)]:
        state = found.get(pod.ordinal, READY_CLAIMS)
        if (pod.is_at(update) and state.compatible and not state.pending) or pod.ordinal in handled:
            continue
        if pod.terminating or not disruptions.allows(pod):
            continue
        if not state.compatible or not state.completed:
            # AS-105: it is updated when its claims are done.
            if not state.compatible:
                grow.append(pod)
            continue
        if pod.is_at(update) or pod.facts.preparing_delete:
            _replace(pod, BEGUN if pod.facts.preparing_delete else CLAIMS_GROWN, steps)  # AS-148
            continue
        reason = "the policy is ReCreate" if settings.policy is UpdatePolicy.RECREATE else obstacle(pod.facts)
        if reason is None:
            step = in_place_step(pod.facts, settings.lifecycle)
            if step is not None:
                steps.append(step)
        elif settings.policy is UpdatePolicy.IN_PLACE_ONLY:
            return RolloutPlan(UpdatePlan(update, tuple(steps), in_place_only_failure(pod, reason), reason), grow)
        else:
            _replace(pod, reason, steps)
    return RolloutPlan(UpdatePlan(update, tuple(steps)), grow)


def in_place_only_failure(pod: Replica, reason: str) -> str:
    """AS-110: what the condition says."""
    return f"update strategy is InPlaceOnly but Pod {pod.name} can not update in-place: {reason}"


class _Disruptions:
    """How many more Pods may become unavailable (AS-77, AS-78)."""

    def __init__(self, replicas: Replicas, now: float) -> None:
        self._out = {one.ordinal for one in replicas.wanted if not one.usable(now)}
        self._left = replicas.settings.update_limit - len(self._out) - replicas.missing

    def allows(self, pod: Replica) -> bool:
        """AS-81, AS-90: whether the Pod may be taken out of service; it counts from then on (AS-83)."""
        if pod.ordinal in self._out:
            return True  # AS-139: that costs nothing, wherever it stands
        if self._left <= 0:
            return False
        self._left -= 1
        self._out.add(pod.ordinal)
        return True


def _is_begun(pod: Replica) -> bool:
    """Whether its hook was asked: were it left, an OrderedReady set would wait for it, and it for the set."""
    return pod.facts.lifecycle in (LifecycleState.PREPARING_UPDATE, LifecycleState.PREPARING_DELETE)


def _is_broken(pod: Replica, held_by: Replica | None, update: str) -> bool:
    """AS-140: whether it is what OrderedReady waits for, perhaps in vain, and the update may be what repairs it."""
    held = held_by is not None and pod.ordinal == held_by.ordinal
    return held and not pod.running_and_ready and not pod.is_at(update)


def _marked_steps(replicas: Replicas, disruptions: _Disruptions, steps: list[Step], *, begin: bool) -> set[int]:
    """AS-89 … AS-91, AS-94, AS-142."""
    handled = set()
    for pod in reversed(replicas.wanted):
        if is_marked(pod) and (begin or _is_begun(pod)) and not pod.terminating and disruptions.allows(pod):
            handled.add(pod.ordinal)
            _replace(pod, MARKED, steps)
    return handled


def _replace(pod: Replica, why: str, steps: list[Step]) -> None:
    """AS-98: deleted, or its hook is asked; while that holds it there is nothing to do."""
    if not (pod.facts.delete_hooked and pod.facts.preparing_delete):
        steps.append(Step(StepKind.RECREATE, pod.facts, why))
