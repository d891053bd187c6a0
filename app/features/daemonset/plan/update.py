"""Updates of a DaemonSet: which nodes to update next, the status, and the preview of a rollout. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final

from app.features.daemonset.plan.scale import DaemonPod, NodePods, Observed, ScalePlan, observe, plan_scaling
from app.features.daemonset.plan.settings import Settings
from app.kube.objects import Pod
from app.pods.node_fit import Eligibility
from app.workloads.report import Action, Preview, PreviewStep

# Which Pods to update now. Without surge, a plan lists old Pods to replace or update in place. With surge, it lists
# nodes that get a new Pod in addition to the old one, and old Pods that are no longer needed. [DS-37 … DS-47]


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

    ``excess``: there are further Pods.
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
            # The old Pod counts as unavailable. If it is ready, but not yet for minReadySeconds, it is still in service
            # and must wait for its turn. [DS-77]
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
            continue  # no Pod may be created there
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


# Status of a DaemonSet: counts of nodes. [DS-66]

REQUIRED: Final = (
    "currentNumberScheduled",
    "numberMisscheduled",
    "desiredNumberScheduled",
    "numberReady",
    "updatedNumberScheduled",
)
"""Fields that are written even if they are zero, because the schema requires them."""


def base_status(observed: Observed, *, generation: int, update_hash: str, collision_count: int) -> dict[str, Any]:
    """Return the status without conditions."""
    current = ready = available = updated = misscheduled = 0
    for node in observed.nodes:
        if not node.eligibility.should_run:
            misscheduled += bool(node.pods)
        elif node.pods:
            first = node.pods[0]
            current += 1
            ready += first.ready
            available += observed.available(first)
            updated += observed.is_new(first)
    return {
        "observedGeneration": generation,
        "currentNumberScheduled": current,
        "numberMisscheduled": misscheduled,
        "desiredNumberScheduled": observed.desired,
        "numberReady": ready,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": observed.desired - available,
        "updateRevision": update_hash,
        "collisionCount": collision_count,
    }


# Preview of a rollout: what happens to each Pod, in which order and why. After each step, the affected Pods are assumed
# to become available, and hooks to complete.

#: Returns why a Pod cannot be updated in place, or None.
Obstacle = Callable[[DaemonPod], str | None]


@dataclass(slots=True)
class _Run:
    """State of the simulated Pods during a preview."""

    eligibilities: Mapping[str, Eligibility]
    unselected: Collection[str]
    new: str
    settings: Settings
    obstacle: Obstacle
    now: float
    pods: list[DaemonPod]
    step: int = 0
    made: int = 0
    #: Nodes whose Pod was deleted in order to be replaced.
    replaced: set[str] = field(default_factory=set)
    steps: list[PreviewStep] = field(default_factory=list)

    def observed(self) -> Observed:
        return observe(self.eligibilities, self.pods, unselected=self.unselected, new=(self.new,), now=self.now)

    def note(self, node: str, pod: str, action: Action, reason: str = "") -> None:
        self.steps.append(PreviewStep(self.step, action, pod, reason, node=node))

    def add(self, node: str) -> None:
        self.made += 1
        name = f"(new {self.made})"
        self.pods.append(
            DaemonPod(
                pod=Pod(),
                name=name,
                node=node,
                bound=True,
                revision=self.new,
                terminating=False,
                ended=False,
                preparing_delete=False,
                hooked=False,
                ready=True,
                available_after=-inf,
                age=(False, inf, f"{self.made:09}"),
            )
        )


def preview(
    observed: Observed, settings: Settings, *, new: str, unselected: Collection[str], obstacle: Obstacle
) -> Preview:
    """Simulate the plans until nothing is left to do. ``new`` is the hash of the current template."""
    there = [*(pod for node in observed.nodes for pod in node.pods), *observed.strays]
    run = _Run(
        eligibilities={node.name: node.eligibility for node in observed.nodes},
        unselected=unselected,
        new=new,
        settings=replace(settings, lifecycle=None),
        obstacle=obstacle,
        now=observed.now,
        # Terminating Pods are assumed to be gone, and updates in progress to succeed.
        pods=[_settled(pod, new, observed) for pod in there if not pod.terminating],
    )
    for _ in range(4 * (len(observed.nodes) + len(there)) + 10):
        now = run.observed()
        scaling = plan_scaling(now, run.settings, {})
        if scaling.create or scaling.delete:
            _scale(run, scaling, now)
            continue
        rolling = plan_update(now, run.settings)
        if not rolling.update and not rolling.create:
            break
        _update(run, rolling)
    last = run.observed()
    rest = tuple(node.name for node in last.nodes if any(not last.is_new(pod) for pod in node.live))
    return Preview(tuple(run.steps), rest, _why_it_ends(settings, last) if rest else "")


def _settled(pod: DaemonPod, new: str, observed: Observed) -> DaemonPod:
    becomes_ready = observed.is_new(pod) and not pod.ended
    found = replace(pod, revision=new) if observed.is_new(pod) else pod
    return replace(found, ready=True, available_after=-inf) if becomes_ready else found


def _scale(run: _Run, plan: ScalePlan, observed: Observed) -> None:
    replacing = [node for node in plan.create if node in run.replaced]
    if len(replacing) < len(plan.create) or plan.delete:
        run.step += 1
    for node in plan.create:
        if node not in run.replaced:
            run.note(node, f"(new {run.made + 1})", Action.CREATE, "the node needs a Pod")
        run.replaced.discard(node)
        run.add(node)
    for pod in plan.delete:
        run.pods.remove(pod)
        run.note(pod.node, pod.name, Action.DELETE, _why_deleted(pod, observed, run))


def _why_deleted(pod: DaemonPod, observed: Observed, run: _Run) -> str:
    eligibility = run.eligibilities.get(pod.node)
    if pod.ended:
        run.replaced.add(pod.node)
        return f"its phase is {pod.pod.status.phase}"
    if eligibility is None:
        return "its node is gone"
    if not eligibility.should_continue:
        return eligibility.reason
    if pod.preparing_delete:
        run.replaced.add(pod.node)
        return "its deletion has begun"
    return "more than one on its node" if observed.is_new(pod) else "the new one is available"


def _update(run: _Run, plan: RollingPlan) -> None:
    run.step += 1
    for node in plan.create:
        run.note(node, f"(new {run.made + 1})", Action.CREATE, "in addition to the old one (maxSurge)")
        run.add(node)
    for pod in plan.update:
        in_place = run.settings.in_place and not run.settings.surges
        obstacle = run.obstacle(pod) if in_place else "rollingUpdateType is Standard"
        run.pods.remove(pod)
        if obstacle is None:
            run.note(pod.node, pod.name, Action.IN_PLACE)
            run.pods.append(replace(pod, revision=run.new, ready=True, available_after=-inf))
        else:
            run.note(pod.node, pod.name, Action.RECREATE, obstacle)
            run.replaced.add(pod.node)


def _why_it_ends(settings: Settings, observed: Observed) -> str:
    if settings.on_delete:
        return "OnDelete: the other Pods are updated when they are deleted"
    if settings.paused:
        return "paused: the other Pods are updated after the rollout is resumed"
    partition = settings.limits(observed.desired).partition
    held = [f"partition {settings.partition}"] if partition else []
    if settings.node_selector is not None or settings.node_selector_unreadable:
        held.append("the node selector")
    return f"held back by {' and '.join(held)}" if held else "held up by nodes without an available Pod"
