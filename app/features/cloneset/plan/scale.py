"""Scaling of a CloneSet: which Pods to create and delete now, and in which order. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.api import names
from app.features.cloneset.plan.diff import Inputs, RolloutState
from app.kube.objects import Pod
from app.pods.lifecycle import may_cancel_deletion
from app.pods.sorting import NodeLabels, in_deletion_order, ranks_of
from app.workloads.pods import MAX_CREATIONS, PodFacts

# The steps of scaling have a fixed order, and only the first one that applies is planned: the next reconcile starts
# from its result. [CS-96 … CS-111]

#: Sorts Pods of one revision into deletion order. [CS-112]
DeletionOrder: TypeAlias = Callable[[Sequence[PodFacts]], Sequence[PodFacts]]


@dataclass(frozen=True, slots=True)
class Removal:
    """A Pod to delete. If ``prepare`` is set, its preDelete hook must complete first. [CS-105]"""

    pod: PodFacts
    prepare: bool


@dataclass(frozen=True, slots=True)
class ScalePlan:
    """Pods to keep, create or delete; at most one of these groups is non-empty."""

    #: Pods preparing for deletion that are needed again. [CS-97]
    cancel_deletion: tuple[PodFacts, ...] = ()
    create_current: int = 0
    create_update: int = 0
    remove: tuple[Removal, ...] = ()
    #: Pods to delete if no Pod can be created; deleting them may free the quota that new Pods need. [CS-100]
    otherwise: tuple[Removal, ...] = ()
    #: Number of Pods that may be created; set only if more Pods are missing. [CS-99]
    limited_to: int | None = None

    @property
    def create(self) -> int:
        return self.create_current + self.create_update


def planned_scaling(inputs: Inputs, rollout: RolloutState, node_labels: NodeLabels) -> ScalePlan:
    """Plan which Pods to create and delete. ``node_labels`` is needed only if :func:`asks_for_nodes` returns true.
    [CS-96 … CS-111]"""
    order = deletion_order(inputs.resolved.template, node_labels, rollout.now)
    if rollout.in_place_surge:
        # Pods updated in place are kept, and the surge Pods are deleted.
        return plan_scale(rollout, lambda group: sorted(order(group), key=_was_updated_in_place))
    return plan_scale(rollout, order)


def _was_updated_in_place(pod: PodFacts) -> bool:
    return names.IN_PLACE_UPDATE_STATE in pod.pod.metadata.annotations


def asks_for_nodes(inputs: Inputs, rollout: RolloutState) -> bool:
    """Return whether Pods must be deleted in an order that depends on node labels. [CS-114]"""
    return rollout.to_scale.delete > 0 and has_topology_keys(inputs.resolved.template)


def plan_scale(rollout: RolloutState, order: DeletionOrder) -> ScalePlan:
    """Plan which Pods to create and delete. [CS-96 … CS-104]"""
    pods, pod_counts, limits, difference = rollout.pods, rollout.pod_counts, rollout.limits, rollout.to_scale
    # Skip the scan if the counts show that no Pod is leaving. [CS-194]
    marked = [pod for pod in pods if rollout.is_marked(pod)] if pod_counts.marked or pod_counts.preparing_delete else []
    preparing = [pod for pod in pods if pod.preparing_delete] if pod_counts.preparing_delete else []
    leaving = len(marked) + sum(1 for pod in preparing if not rollout.is_marked(pod))
    wanted = _wanted_again(rollout, leaving) if may_cancel_deletion(rollout.settings.lifecycle) else 0
    if wanted > 0 and (back := [pod for pod in preparing if not rollout.is_marked(pod)]):
        return ScalePlan(cancel_deletion=_deletions_to_cancel(rollout, back, wanted))
    limited = difference.create_limit if difference.create > difference.create_limit else None
    # Deletions proceed even if creations are limited.
    removals = [Removal(pod, prepare=False) for pod in preparing if not pod.delete_hooked]  # [CS-102]
    if not removals:
        spare = rollout.counts.available - max(0, limits.replicas - limits.max_unavailable)
        budget = _Budget(difference.delete_ready_limit, spare, rollout.now)
        victims = [pod for pod in marked if not pod.preparing_delete]  # [CS-103]
        if not leaving and difference.delete:  # [CS-104]
            victims = _victims(rollout, order)
        # A Pod without its initial conditions enters PreparingDelete only after they are set.
        victims = [pod for pod in victims if not (pod.awaits_initial_conditions and pod.delete_hooked)]
        removals = [Removal(pod, prepare=pod.delete_hooked) for pod in victims if budget.allows(pod)]
    if difference.create_limit:  # [CS-93, CS-100]
        create = min(difference.create_limit, MAX_CREATIONS)  # [CS-195]
        current = min(create, difference.create_old)
        return ScalePlan((), current, create - current, otherwise=tuple(removals), limited_to=limited)
    return ScalePlan(remove=tuple(removals), limited_to=limited)


@dataclass(slots=True)
class _Budget:
    """Number of ready Pods that may be deleted. ``spare`` is the number of available Pods beyond the required minimum;
    it is lower than ``limit`` only if Pods marked for deletion are unavailable, because ``limit`` ignores marked Pods.
    Deleting a Pod that is ready but not yet available does not reduce ``spare``. [CS-94]"""

    limit: int
    spare: int
    now: float

    def allows(self, pod: PodFacts) -> bool:
        if not pod.delete_ready:
            return True
        available = pod.available(self.now)
        if self.limit <= 0 or (available and self.spare <= 0):
            return False
        self.limit -= 1
        self.spare -= available
        return True


def _wanted_again(rollout: RolloutState, leaving: int) -> int:
    """Return how many Pods preparing for deletion are needed again, without exceeding the surge. [CS-97]"""
    replicas, pods = rollout.limits.replicas, rollout.pod_counts
    return replicas - pods.total + min(leaving, rollout.to_scale.surge + pods.preparing_delete)


def _deletions_to_cancel(rollout: RolloutState, back: Sequence[PodFacts], wanted: int) -> tuple[PodFacts, ...]:
    """Choose the Pods to keep: first the old Pods that the partition still needs, then new Pods, then the other old
    Pods."""
    if wanted < len(back):
        old, new = ([pod for pod in back if rollout.is_new(pod) is want] for want in (False, True))
        first = max(0, rollout.limits.partition - rollout.pod_counts.active_old)
        back = [*old[:first], *new, *old[first:]]
    return tuple(back[:wanted])


def _victims(rollout: RolloutState, order: DeletionOrder) -> list[PodFacts]:
    """Choose the Pods to delete: ``to_scale`` determines how many of each revision, and the deletion order which ones.
    [CS-104]"""
    difference = rollout.to_scale
    old = [pod for pod in rollout.pods if not rollout.is_new(pod)]
    new = [pod for pod in rollout.pods if rollout.is_new(pod)]
    from_old = min(difference.delete_old, difference.delete)
    return [*_first(old, from_old, order), *_first(new, difference.delete - from_old, order)]


def _first(pods: Sequence[PodFacts], count: int, order: DeletionOrder) -> Sequence[PodFacts]:
    if not count:
        return ()
    # Skip the sort if all Pods are deleted. [CS-194]
    return pods if count >= len(pods) else order(pods)[:count]


# The deletion order [CS-112 … CS-114].


def deletion_order(
    template: Mapping[str, Any], node_labels: NodeLabels, now: float
) -> Callable[[Sequence[PodFacts]], list[PodFacts]]:
    """Return a function that sorts Pods of one revision for deletion. Ranks are computed among these Pods. [CS-112]"""

    def ordered(group: Sequence[PodFacts]) -> list[PodFacts]:
        facts = {one.pod.metadata.uid: one for one in group}
        pods = [one.pod for one in group]
        ranks = ranks_of(pods, template, node_labels)

        def available(pod: Pod) -> bool:
            return facts[pod.metadata.uid].available(now)

        return [facts[pod.metadata.uid] for pod in in_deletion_order(pods, available=available, ranks=ranks)]

    return ordered


def has_topology_keys(template: Mapping[str, Any]) -> bool:
    """Return whether the deletion order depends on node labels. [CS-114]"""
    return bool((template.get("spec") or {}).get("topologySpreadConstraints"))
