"""Which Pods of a CloneSet get to another revision now, and by what step (CS-124 … CS-132). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from app.pods.lifecycle import LifecycleState, UpdateAction, update_action
from app.workloads.cloneset.diff import Diff
from app.workloads.cloneset.pods import PodFacts
from app.workloads.cloneset.settings import Settings, UpdatePolicy

#: Candidates in the order in which they are updated (CS-125 … CS-128).
UpdateOrder: TypeAlias = Callable[[Sequence[PodFacts]], Sequence[PodFacts]]
#: Why a Pod cannot be updated in place: the first field that stands in the way; None: it can.
Obstacle: TypeAlias = Callable[[PodFacts], str | None]


class StepKind(StrEnum):
    """What an update does with a Pod now."""

    PREPARE = "Prepare"
    """Its hook is on: it says it is about to be updated and waits (PreparingUpdate)."""
    REARM = "Rearm"
    """Updated, but another revision has come: back to PreparingUpdate with the hook put on again (PM-73)."""
    IN_PLACE = "InPlace"
    RECREATE = "Recreate"
    """It is marked for deletion; scaling replaces it (CS-132)."""
    REFUSE = "Refuse"
    """Somebody has put it into a state from which no update starts: an error, which the others do not wait for."""


@dataclass(frozen=True, slots=True)
class Step:
    """One Pod and what is done with it. ``obstacle``: what keeps it from being updated in place."""

    kind: StepKind
    pod: PodFacts
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Steps in order. ``failure``: what then ends the update with an error; ``obstacle``: the field it is for."""

    #: The revision Pods are taken to.
    target: str = ""
    steps: tuple[Step, ...] = ()
    failure: str = ""
    obstacle: str = ""


def plan_update(
    pods: Sequence[PodFacts],
    difference: Diff,
    settings: Settings,
    *,
    current: str,
    update: str,
    now: float,
    order: UpdateOrder,
    obstacle: Obstacle,
) -> UpdatePlan:
    """CS-123 … CS-132. ``current`` and ``update``: the short hashes of the revisions; ``now`` in POSIX seconds."""
    if settings.on_delete or settings.paused or not difference.update:
        return UpdatePlan()
    target = update if difference.update > 0 else current
    chosen = chosen_pods(pods, difference, update=update, now=now, order=order)
    steps: list[Step] = []
    for pod in chosen:
        reason = obstacle(pod) if _in_place_wanted(settings) else "the policy is ReCreate"
        if reason is None:
            step = _in_place_step(pod, settings)
            if step is not None:
                steps.append(step)
        elif settings.rolling_update is not None and settings.rolling_update.policy is UpdatePolicy.IN_PLACE_ONLY:
            return UpdatePlan(target, tuple(steps), in_place_only_failure(pod), reason)
        else:
            steps.append(Step(StepKind.RECREATE, pod, reason))
    return UpdatePlan(target, tuple(steps))


def released_pods(
    pods: Sequence[PodFacts], difference: Diff, settings: Settings, *, update: str
) -> frozenset[PodFacts]:
    """Pods that prepared for an update nobody wants of them any more: they go back into service.

    OpenKruise does so only for Pods that are at the update revision (PM-75), and never ends a rollback by partition
    whose hook it waits for (B-18); a Pod left over by a raised partition or by OnDelete stays out of service there.
    """
    preparing = [pod for pod in pods if pod.lifecycle == LifecycleState.PREPARING_UPDATE]
    if not preparing:
        return frozenset()
    wanted = 0 if settings.on_delete else difference.update
    forward = wanted > 0
    candidates = [pod for pod in preparing if wanted and (pod.revision == update) != forward]
    if settings.paused:
        # Whoever waits while the roll-out is paused goes on waiting.
        candidates = [pod for pod in preparing if pod.revision != update]
        return frozenset(preparing) - frozenset(candidates)
    kept = sorted(candidates, key=lambda pod: pod.name)[: abs(wanted)]
    return frozenset(preparing) - frozenset(kept)


def in_place_only_failure(pod: PodFacts) -> str:
    """CS-132, N-6: the message of condition FailedUpdate."""
    return f"find Pod {pod.name} update strategy is InPlaceOnly but can not update in-place"


def chosen_pods(
    pods: Sequence[PodFacts], difference: Diff, *, update: str, now: float, order: UpdateOrder
) -> list[PodFacts]:
    """CS-124: the candidates in order, as many as maxUnavailable allows."""
    forward = difference.update > 0
    unavailable = at_target = 0
    candidates = []
    for pod in pods:
        is_new = pod.revision == update
        if pod.available_after >= now:
            unavailable += 1
            at_target += is_new == forward
        # PM-57a: one that waits for its grace may be taken elsewhere at once: what was held back is never applied.
        if is_new != forward and not pod.preparing_delete:
            candidates.append(pod)
    # Whoever prepares is out of service for this update already: nothing is gained by keeping it there.
    preparing = [pod for pod in candidates if pod.lifecycle == LifecycleState.PREPARING_UPDATE]
    # Whoever may not be touched need not be put in order.
    if difference.update_max <= at_target:
        candidates = preparing
    if not candidates:
        return []
    chosen: list[PodFacts] = []
    for pod in order(candidates)[: abs(difference.update)]:
        if pod.lifecycle == LifecycleState.PREPARING_UPDATE:
            chosen.append(pod)
            continue
        if at_target + len(chosen) >= difference.update_max:
            break
        if pod.available_after < now:
            if unavailable >= difference.update_max:
                # One behind it that is broken costs nothing, and may need just this update to recover.
                continue
            unavailable += 1
        chosen.append(pod)
    return chosen


def _in_place_wanted(settings: Settings) -> bool:
    return settings.rolling_update is not None and settings.rolling_update.policy is not UpdatePolicy.RECREATE


def _in_place_step(pod: PodFacts, settings: Settings) -> Step | None:
    """CS-130: by where the Pod stands in its lifecycle; None: nothing for now."""
    if pod.awaits_initial_conditions:
        return None
    hooks = settings.lifecycle
    match update_action(pod.pod, hooks.in_place_update if hooks is not None else None):
        case UpdateAction.START:
            return Step(StepKind.IN_PLACE, pod)
        case UpdateAction.PREPARE:
            return Step(StepKind.PREPARE, pod)
        case UpdateAction.REARM:
            return Step(StepKind.REARM, pod)
        case UpdateAction.REFUSE:
            return Step(StepKind.REFUSE, pod, f"not allowed in lifecycle state {pod.lifecycle!r}")
    return None
