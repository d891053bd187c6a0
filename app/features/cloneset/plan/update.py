"""Updates of a CloneSet: which Pods to update now, by which step and in which order. Pure. [CS-124 … CS-132]"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from app.features.cloneset.plan.diff import Inputs, RolloutState
from app.features.cloneset.types import RollingUpdate
from app.kube.objects import Pod
from app.kube.selector_query import SelectorError
from app.pods.lifecycle import LifecycleState
from app.pods.sorting import in_default_update_order, in_update_order
from app.workloads.pods import PodFacts
from app.workloads.settings import UpdatePolicy
from app.workloads.steps import Obstacle, Step, StepKind, UpdatePlan, in_place_step

#: Sorts candidates into update order. [CS-125 … CS-128]
UpdateOrder: TypeAlias = Callable[[Sequence[PodFacts]], Sequence[PodFacts]]


def planned_update(inputs: Inputs, rollout: RolloutState) -> UpdatePlan:
    """Plan the update steps. [CS-123 … CS-132]"""
    target = inputs.revisions.update if rollout.to_update.update > 0 else inputs.revisions.current
    settings, ordered = inputs.resolved.settings, inputs.revisions.ordered
    return plan_update(
        rollout,
        update_order(rollout.pods, inputs.resolved.strategy),
        lambda pod: inputs.updates.obstacle(pod, target, ordered, settings),
    )


def plan_update(rollout: RolloutState, order: UpdateOrder, obstacle: Obstacle) -> UpdatePlan:
    """Plan the update steps. ``obstacle`` returns why a Pod cannot be updated in place, or None. [CS-123 … CS-132]"""
    settings, difference = rollout.settings, rollout.to_update
    if settings.on_delete or settings.paused or not difference.update:
        return UpdatePlan()
    target = rollout.update if difference.update > 0 else rollout.current
    policy = settings.update_policy or UpdatePolicy.RECREATE
    steps: list[Step] = []
    for pod in chosen_pods(rollout, order):
        reason = "the policy is ReCreate" if policy is UpdatePolicy.RECREATE else obstacle(pod)
        if reason is None:
            step = in_place_step(pod, settings.lifecycle)
            if step is not None:
                steps.append(step)
        elif policy is UpdatePolicy.IN_PLACE_ONLY:
            failure = f"find Pod {pod.name} update strategy is InPlaceOnly but can not update in-place"  # [CS-132]
            return UpdatePlan(target, tuple(steps), failure, reason)
        elif not pod.marked:  # otherwise it is already being replaced
            steps.append(Step(StepKind.RECREATE, pod, reason))
    return UpdatePlan(target, tuple(steps))


def released(rollout: RolloutState) -> frozenset[PodFacts]:
    """Return the Pods that are preparing for an update they no longer need. They return to service.

    OpenKruise returns a Pod to service if, and only if, it is at the update revision [PM-75]. So in OpenKruise, a
    partition rollback that waits for a hook never completes, and a Pod whose update was canceled by a higher partition
    or by OnDelete stays out of service.
    """
    settings, update = rollout.settings, rollout.update
    preparing = [pod for pod in rollout.pods if pod.lifecycle == LifecycleState.PREPARING_UPDATE]
    if not preparing:
        return frozenset()
    if settings.paused:
        # Pods that already wait for their hook keep waiting.
        return frozenset(pod for pod in preparing if pod.revision == update)
    wanted = 0 if settings.on_delete else rollout.to_update.update
    candidates = [pod for pod in preparing if (pod.revision == update) != (wanted > 0)]
    kept = sorted(candidates, key=lambda pod: pod.name)[: abs(wanted)]
    return frozenset(preparing) - frozenset(kept)


def chosen_pods(rollout: RolloutState, order: UpdateOrder) -> list[PodFacts]:
    """Return the candidates in order, as many as maxUnavailable allows. [CS-124]"""
    difference, update, now = rollout.to_update, rollout.update, rollout.now
    forward = difference.update > 0
    unavailable = at_target = 0
    candidates = []
    for pod in rollout.pods:
        is_new = pod.revision == update
        if pod.available_after >= now:
            unavailable += 1
            at_target += is_new == forward
        # A Pod in its grace period may change revisions again at once: its pending update is dropped. [PM-57a]
        if is_new != forward and not pod.preparing_delete:
            candidates.append(pod)
    # Pods in PreparingUpdate are out of service already, so they are always included.
    preparing = [pod for pod in candidates if pod.lifecycle == LifecycleState.PREPARING_UPDATE]
    # Do not sort candidates that cannot be updated.
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
                # A broken Pod later in the order is still updated: this does not reduce availability, and may make the
                # Pod recover.
                continue
            unavailable += 1
        chosen.append(pod)
    return chosen


# The update order [CS-125 … CS-128].


def update_order(
    all_pods: Sequence[PodFacts], strategy: RollingUpdate | None
) -> Callable[[Sequence[PodFacts]], list[PodFacts]]:
    """Return a function that sorts candidates for the update. An invalid selector, which admission rejects, is ignored.
    [CS-125 … CS-128]"""

    def ordered(candidates: Sequence[PodFacts]) -> list[PodFacts]:
        facts = {one.pod.metadata.uid: one for one in candidates}
        whole = [one.pod for one in all_pods] if strategy is not None and strategy.scatter_strategy else ()
        return [facts[pod.metadata.uid] for pod in in_order([one.pod for one in candidates], whole, strategy)]

    return ordered


def in_order(pods: Sequence[Pod], whole: Sequence[Pod], strategy: RollingUpdate | None) -> list[Pod]:
    """Return the Pods in update order. ``whole`` contains all Pods of the CloneSet, needed only for scattering."""
    found = in_default_update_order(pods)
    priority = strategy.priority_strategy if strategy is not None else None
    scatter = strategy.scatter_strategy if strategy is not None else None
    try:
        return in_update_order(found, whole, priority, scatter)
    except SelectorError:
        return in_update_order(found, whole, None, scatter)
