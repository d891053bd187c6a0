"""Preview of a DaemonSet's rollout: what happens to each Pod, in which order and why. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from app.features.daemonset.plan.scale import DaemonPod, Observed, ScalePlan, observe, plan_scaling
from app.features.daemonset.plan.settings import Settings
from app.features.daemonset.plan.update import RollingPlan, plan_update
from app.kube.objects import Pod
from app.pods.node_fit import Eligibility
from app.workloads.report import Action, Preview, PreviewStep

# After each step, the affected Pods are assumed to become available. Hooks are assumed to complete.

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


def preview(observed: Observed, settings: Settings, *, new: str, obstacle: Obstacle) -> Preview:
    """Simulate the plans until nothing is left to do. ``new`` is the hash of the current template."""
    there = [*(pod for node in observed.nodes for pod in node.pods), *observed.strays]
    run = _Run(
        eligibilities={node.name: node.eligibility for node in observed.nodes},
        unselected={node.name for node in observed.nodes if not node.selected},
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
    return "more than one Pod on its node" if observed.is_new(pod) else "the new Pod on its node is available"


def _update(run: _Run, plan: RollingPlan) -> None:
    run.step += 1
    for node in plan.create:
        run.note(node, f"(new {run.made + 1})", Action.CREATE, "in addition to the old Pod (maxSurge)")
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
