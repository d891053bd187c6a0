"""Updates of a CloneSet: which Pods to update now, by which step and in which order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from app.features.cloneset.plan.scale import Diff
from app.features.cloneset.plan.settings import Settings
from app.features.cloneset.types import RollingUpdate
from app.kube.objects import Pod
from app.kube.selector_query import SelectorError
from app.pods.lifecycle import LifecycleState
from app.pods.sorting import in_default_update_order, in_update_order
from app.workloads.pods import PodFacts
from app.workloads.settings import UpdatePolicy
from app.workloads.steps import Obstacle, Step, StepKind, UpdatePlan, in_place_step

# Which Pods move to another revision now, and by which step [CS-124 … CS-132]. Pure.

#: Sorts candidates into update order. [CS-125 … CS-128]
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
    """Plan the update steps. ``current`` and ``update`` are the short hashes of the revisions; ``now`` is in POSIX
    seconds. [CS-123 … CS-132]"""
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
    """Return the Pods that are preparing for an update they no longer need. They return to service.

    OpenKruise always returns Pods at the update revision to service, and only those [PM-75]. So a partition rollback
    that waits for a hook never completes there, and a Pod whose update was canceled by a higher partition or by
    OnDelete stays out of service.
    """
    preparing = [pod for pod in pods if pod.lifecycle == LifecycleState.PREPARING_UPDATE]
    if not preparing:
        return frozenset()
    wanted = 0 if settings.on_delete else difference.update
    forward = wanted > 0
    candidates = [pod for pod in preparing if wanted and (pod.revision == update) != forward]
    if settings.paused:
        # While the rollout is paused, Pods that already wait for their hook keep waiting.
        candidates = [pod for pod in preparing if pod.revision != update]
        return frozenset(preparing) - frozenset(candidates)
    kept = sorted(candidates, key=lambda pod: pod.name)[: abs(wanted)]
    return frozenset(preparing) - frozenset(kept)


def in_place_only_failure(pod: PodFacts) -> str:
    """Return the message of condition FailedUpdate. [CS-132]"""
    return f"find Pod {pod.name} update strategy is InPlaceOnly but can not update in-place"


def chosen_pods(
    pods: Sequence[PodFacts], difference: Diff, *, update: str, now: float, order: UpdateOrder
) -> list[PodFacts]:
    """Return the candidates in order, as many as maxUnavailable allows. [CS-124]"""
    forward = difference.update > 0
    unavailable = at_target = 0
    candidates = []
    for pod in pods:
        is_new = pod.revision == update
        if pod.available_after >= now:
            unavailable += 1
            at_target += is_new == forward
        # A Pod in its grace period may switch revisions at once: the pending update is never applied. [PM-57a]
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
                # Updating a broken Pod later in the order costs no availability, and the Pod may need this update to
                # recover.
                continue
            unavailable += 1
        chosen.append(pod)
    return chosen


def _in_place_wanted(settings: Settings) -> bool:
    return settings.rolling_update is not None and settings.rolling_update.policy is not UpdatePolicy.RECREATE


# The update order [CS-125 … CS-128]. Pure.


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
    """Return the Pods in update order. ``whole`` is all Pods of the CloneSet, needed only for scattering."""
    found = in_default_update_order(pods)
    priority = strategy.priority_strategy if strategy is not None else None
    scatter = strategy.scatter_strategy if strategy is not None else None
    try:
        return in_update_order(found, whole, priority, scatter)
    except SelectorError:
        return in_update_order(found, whole, None, scatter)
