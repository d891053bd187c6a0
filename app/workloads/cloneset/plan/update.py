"""Which Pods of a CloneSet get to another revision now, and by what step (CS-124 … CS-132). Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from app.pods.lifecycle import LifecycleState
from app.workloads.cloneset.plan.diff import Diff
from app.workloads.cloneset.plan.settings import Settings
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.settings import UpdatePolicy
from app.workloads.engine.steps import Obstacle, Step, StepKind, UpdatePlan, in_place_step

#: Candidates in the order in which they are updated (CS-125 … CS-128).
UpdateOrder: TypeAlias = Callable[[Sequence[PodFacts]], Sequence[PodFacts]]


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
            step = in_place_step(pod, settings.lifecycle)
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
