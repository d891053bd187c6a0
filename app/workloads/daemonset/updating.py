"""Carrying out what the plan says about updates: Pods refreshed, then the next ones replaced or changed in place."""

from __future__ import annotations

from typing import Any

from app.api import names
from app.kube.clock import Clock
from app.pods.readiness.plan import has_gate
from app.pods.revisions import Revision, short_hash
from app.workloads.daemonset.plan.nodes import DaemonPod
from app.workloads.daemonset.plan.update import RollingPlan
from app.workloads.daemonset.scaling import Scaler, remove
from app.workloads.daemonset.snapshot import DaemonSetSnapshot
from app.workloads.engine.outcome import Outcome
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.snapshot import AnySnapshot
from app.workloads.engine.steps import Step, StepKind, UpdatePlan, in_place_step
from app.workloads.engine.updater import Updater


class DaemonSetUpdater(Updater):
    """Carries out rolling plans. ``options`` are those of the engine's."""

    def __init__(self, scaler: Scaler, clock: Clock, **options: Any) -> None:
        super().__init__(clock=clock, **options)
        self._clock_of_hooks = clock
        self._scaler = scaler

    async def update(self, snapshot: DaemonSetSnapshot, plan: RollingPlan) -> Outcome:
        """DS-45, DS-46, DS-52."""
        outcome, moved = await self.refresh(snapshot, ())
        if outcome.error is not None:
            return outcome
        self._record_limit(snapshot, plan)
        if plan.create:
            created = await self._scaler.create(snapshot, plan.create)
            outcome.requeue_after += created.requeue_after
            outcome.changed, outcome.error, outcome.message = created.changed, created.error, created.message
        steps = UpdatePlan(short_hash(snapshot.revisions.update.name), tuple(self._steps(snapshot, plan)))
        changed = outcome.changed
        outcome = await self.carry_out(snapshot, steps, outcome, moved)
        outcome.changed |= changed
        return outcome

    def _steps(self, snapshot: DaemonSetSnapshot, plan: RollingPlan) -> list[Step]:
        facts = {one.pod.metadata.uid: one for one in snapshot.pods}
        found = []
        for pod in plan.update:
            one = facts.get(pod.pod.metadata.uid)
            if one is not None:  # else it has ended, and goes for that
                step = self._step_of(snapshot, pod, one)
                if step is not None:
                    found.append(step)
        return found

    def _step_of(self, snapshot: DaemonSetSnapshot, pod: DaemonPod, facts: PodFacts) -> Step | None:
        """DS-45, DS-48, DS-49."""
        settings, revisions = snapshot.resolved.settings, snapshot.revisions
        if settings.surges or not settings.in_place:
            return Step(StepKind.RECREATE, facts, "the type is Standard")
        if not has_gate(pod.pod, names.IN_PLACE_UPDATE_READY):
            return Step(StepKind.RECREATE, facts, f"the Pod has no readiness gate {names.IN_PLACE_UPDATE_READY}")
        obstacle = snapshot.state.in_place.obstacle(facts, revisions.update, revisions.ordered, settings)
        return Step(StepKind.RECREATE, facts, obstacle) if obstacle is not None else in_place_step(facts, None)

    async def recreate(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:  # noqa: ARG002
        """DS-45: scaling creates the next one."""
        await remove(self.writer, self._clock_of_hooks, snapshot, step.pod.pod, hooked=step.pod.delete_hooked)

    def _record_limit(self, snapshot: DaemonSetSnapshot, plan: RollingPlan) -> None:
        """DS-78: when it begins to hold Pods up, and when it does so in other numbers."""
        state, limits = snapshot.state, snapshot.resolved.settings.limits(snapshot.nodes.desired)
        numbers = (plan.unavailable, limits.max_unavailable) if plan.waiting else None
        if numbers is not None and numbers != state.limit_told:
            owner = snapshot.owner
            text = (
                f"{owner.namespace}/{owner.name} number of unavailable DaemonSet pods: {numbers[0]}, is equal to or "
                f"exceeds allowed maximum: {numbers[1]}"
            )
            self.writer.event(snapshot.workload, "numUnavailable >= maxUnavailable", text, warning=True)
        state.limit_told = numbers
