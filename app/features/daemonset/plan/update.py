"""Updates of a DaemonSet: which Pods to update now, and on which nodes to surge. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from app.features.daemonset.plan.scale import DaemonPod, NodePods, Observed
from app.features.daemonset.plan.settings import Settings

# Without surge, a plan lists old Pods to replace or update in place. With surge, it lists nodes that get a new Pod in
# addition to the old one, and old Pods that are no longer needed. [DS-37 … DS-47]


@dataclass(frozen=True, slots=True)
class RollingPlan:
    """Pods to update now.

    ``update``: old Pods to update, in order. ``create``: nodes that get a new Pod in addition to the old one.
    ``unavailable``: number of nodes that count against maxUnavailable, including those of this plan. ``waiting``:
    number of available old Pods that maxUnavailable holds back. [DS-78]
    """

    update: tuple[DaemonPod, ...] = ()
    create: tuple[str, ...] = ()
    unavailable: int = 0
    waiting: int = 0


NOTHING = RollingPlan()


@dataclass(frozen=True, slots=True)
class NodeState:
    """Live Pods of one node: the first from the new template and the first from an old one.

    ``excess``: there are several Pods from the new template, or several from old ones.
    """

    node: NodePods
    new: DaemonPod | None
    old: DaemonPod | None
    excess: bool


def node_state(node: NodePods, observed: Observed) -> NodeState:
    """Return the state of a node. [DS-37]"""
    new = [pod for pod in node.live if observed.is_new(pod)]
    old = [pod for pod in node.live if not observed.is_new(pod)]
    return NodeState(node, new[0] if new else None, old[0] if old else None, len(new) > 1 or len(old) > 1)


def update_candidates(observed: Observed, settings: Settings) -> list[NodeState]:
    """Return the nodes that take part in the update, in order, without those that the partition excludes. [DS-38 …
    DS-41]"""
    taking_part = [
        node
        for node in observed.nodes
        if node.eligibility.should_run or (node.pods and not settings.gates.prune_ineligible)  # [DS-39]
    ]
    first: list[NodeState] = []
    second: list[NodeState] = []
    rest: list[NodeState] = []
    for node in reversed(taking_part):
        state = node_state(node, observed)
        if state.new is not None or state.excess:
            first.append(state)
        elif state.old is None or state.old.preparing_delete:
            second.append(state)
        elif settings.node_selector is None or node.selected:
            rest.append(state)
    kept = max(0, len(taking_part) - settings.limits(observed.desired).partition)
    return [*first, *second, *rest][:kept]


def plan_update(observed: Observed, settings: Settings) -> RollingPlan:
    """Plan the update steps; none if the rollout is paused or the strategy is OnDelete."""
    if settings.on_delete or settings.paused or settings.node_selector_unreadable:
        return NOTHING
    candidates = update_candidates(observed, settings)
    return (_plan_surge if settings.limits(observed.desired).max_surge > 0 else _plan_replacement)(
        candidates, observed, settings
    )


def _in_service(pod: DaemonPod | None) -> bool:
    return pod is not None and not pod.preparing_delete


def _plan_replacement(candidates: Sequence[NodeState], observed: Observed, settings: Settings) -> RollingPlan:
    """Plan an update without surge. [DS-43, DS-44]"""
    limits, unavailable = settings.limits(observed.desired), 0
    free: list[DaemonPod] = []
    available: list[DaemonPod] = []
    for state in candidates:
        new, old = state.new, state.old
        if state.excess or _in_service(new) == _in_service(old):
            unavailable += 1
        elif new is not None:
            unavailable += (not observed.available(new)) + new.preparing_delete
        elif old is not None:
            if observed.available(old):
                available.append(old)
                continue
            if not settings.gates.strict:
                free.append(old)
                continue
            # The old Pod counts as unavailable. If it is ready but not yet available, it is still in service and must
            # wait for its turn. [DS-77]
            unavailable += 1
            if not old.ready:
                free.append(old)
    room = max(0, limits.max_unavailable - unavailable)
    picked = available[:room]
    return RollingPlan(
        update=(*free, *picked)[: limits.burst],
        unavailable=unavailable + len(picked),
        waiting=len(available) - len(picked),
    )


def _plan_surge(candidates: Sequence[NodeState], observed: Observed, settings: Settings) -> RollingPlan:
    """Plan an update with surge. [DS-46, DS-47]"""
    limits, surging = settings.limits(observed.desired), 0
    done: list[DaemonPod] = []
    free: list[str] = []
    available: list[str] = []
    for state in candidates:
        new, old, name = state.new, state.old, state.node.name
        if state.excess:
            surging += 1
        elif old is None or old.preparing_delete:
            continue
        elif new is not None:
            if not observed.available(new) or new.preparing_delete:
                surging += 1
            else:
                done.append(old)
        elif not state.node.eligibility.should_run:
            continue  # no Pod may be created on this node
        elif observed.available(old):
            available.append(name)
        else:
            free.append(name)
    room = max(0, limits.max_surge - surging)
    return RollingPlan(update=tuple(done[: limits.burst]), create=(*free, *available[:room])[: limits.burst])


def next_available(observed: Observed) -> float:
    """Return the time (POSIX seconds) at which the next ready Pod becomes available; inf if none will. [DS-68]"""
    times = (pod.available_after for node in observed.nodes for pod in node.live if pod.available_after > observed.now)
    return min((time for time in times if time < inf), default=inf)
