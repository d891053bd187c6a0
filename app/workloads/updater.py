"""Carrying out updates: Pods refreshed, then the next ones taken to another revision, in place or by replacement."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from app.api import names
from app.kube.clock import Clock
from app.kube.errors import Conflict, KubeError, message_of
from app.pods.agents import REPORT_SECONDS, seconds_for_report
from app.pods.budget import RETRY_SECONDS, Disruption, DisruptionBudget
from app.pods.inplace.eligibility import Blocked, blocked_on_pod
from app.pods.inplace.state import StateError, update_state
from app.pods.lifecycle import LifecycleState
from app.pods.revisions import Revision, revision_labels, short_hash
from app.workloads.pods import PodFacts
from app.workloads.state import AnySnapshot, Metrics, Outcome, PodGoneError, PodHeldError, gather_results
from app.workloads.steps import PodRefresh, Step, StepKind, UpdatePlan, refresh_pod
from app.workloads.writer import Writer

logger = logging.getLogger(__name__)

#: Pods that one reconcile begins to update at most, and how soon the next follows, in seconds.
MAX_UPDATES_AT_A_TIME: Final = 100
REQUEUE_DELAY: Final = 0.01
#: How many Pods are named where many failed.
MAX_NAMED_PODS: Final = 3


class Updater:
    """Carries out update plans. ``budget`` is asked before a Pod is taken out of service (CS-129).

    A workload says in a subclass how it replaces a Pod: :meth:`recreate`.
    """

    def __init__(self, writer: Writer, clock: Clock, budget: DisruptionBudget, metrics: Metrics) -> None:
        self.writer = writer
        self._clock = clock
        self._budget = budget
        self._metrics = metrics

    async def recreate(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:  # noqa: ARG002
        """Replace a Pod that is not updated in place. Here: delete it; the next reconcile creates another."""
        await self.writer.delete_pod(snapshot.workload, step.pod.pod)

    # ---- what is due on each Pod

    async def refresh(
        self, snapshot: AnySnapshot, released: Collection[PodFacts]
    ) -> tuple[Outcome, frozenset[PodFacts]]:
        """CS-122: carry on what is under way on each Pod. What came of it, and the Pods that moved on.

        ``released``: Pods in PreparingUpdate that need not be updated any more.
        """
        outcome = Outcome()
        due = [pod for pod in snapshot.pods if not pod.settled]
        if not due:
            return outcome, frozenset()
        settings, now = snapshot.resolved.settings, self._clock.now()
        by_subresource = not settings.gates.vertical_scaling or await self.writer.server.has_resize_subresource()
        steps: list[tuple[PodFacts, PodRefresh]] = []
        errors: list[str] = []
        for pod in due:
            step = refresh_pod(
                pod.pod,
                settings,
                now,
                returns=pod in released,
                resize_subresource=by_subresource,
            )
            if step.error:
                errors.append(step.error)
            if step.requeue_after:
                outcome.requeue_after.append(step.requeue_after)
            if step.writes:
                steps.append((pod, step))
        found = await gather_results(self.writer.refresh(snapshot.owner.uid, pod.pod, step) for pod, step in steps)
        for (pod, step), one in zip(steps, found, strict=True):
            if isinstance(one, KubeError):
                outcome.error = outcome.error or one
            elif step.completes and not isinstance(one, PodGoneError):
                self._finished(pod)
        if outcome.error is not None and not isinstance(outcome.error, Conflict):
            outcome.message = message_of(outcome.error)
        elif errors:
            outcome.message = "; ".join(errors[:MAX_NAMED_PODS])
        return outcome, frozenset(pod for pod, step in steps if step.writes)

    def _finished(self, pod: PodFacts) -> None:
        try:
            state = update_state(pod.pod)
        except StateError:
            return
        if state is not None and state.update_timestamp is not None:
            namespace = pod.pod.metadata.namespace
            seconds = (self._clock.now() - state.update_timestamp).total_seconds()
            self._metrics.in_place_finished(namespace, max(0.0, seconds))
            logger.info("inplace: Pod %s/%s is updated after %.0f s", namespace, pod.name, seconds)

    # ---- updating

    async def carry_out(
        self, snapshot: AnySnapshot, plan: UpdatePlan, outcome: Outcome, moved: Collection[PodFacts]
    ) -> Outcome:
        """CS-122 … CS-132. ``outcome`` and ``moved``: what :meth:`refresh` gave."""
        target = snapshot.revision_of(plan.target)
        # Whoever has just moved is not what it was when it was chosen; for all others what was counted errs on the
        # safe side, for a Pod that moved is rather more available than before.
        steps = [step for step in plan.steps if step.pod not in moved]
        refused = [step for step in steps if step.kind is StepKind.REFUSE]
        steps = [step for step in steps if step not in refused]
        steps = self._without_waiting(snapshot, steps, target, outcome)
        if len(steps) > MAX_UPDATES_AT_A_TIME:
            # Those that are done meanwhile are not to wait for all that begin.
            steps = steps[:MAX_UPDATES_AT_A_TIME]
            outcome.requeue_after.append(REQUEUE_DELAY)
        steps = await self._within_budget(snapshot, steps, outcome)
        found = await gather_results(self._step(snapshot, step, target) for step in steps)
        for one in found:
            if isinstance(one, PodHeldError):
                outcome.requeue_after.append(RETRY_SECONDS)
            elif isinstance(one, KubeError):
                if outcome.error is None or isinstance(outcome.error, Conflict):
                    outcome.error = one
            elif isinstance(one, float) and one > 0:
                outcome.requeue_after.append(one)
        outcome.changed = bool(steps)
        if outcome.error is not None and not isinstance(outcome.error, Conflict):
            outcome.message = message_of(outcome.error)
        messages = [f"Pod {step.pod.name}: {step.obstacle}" for step in refused[:MAX_NAMED_PODS]]
        if plan.failure:
            messages.insert(0, plan.failure)
            why = f"pods cannot be updated in-place for update(revision {target.name}): {plan.obstacle}"
            self.report_obstacle(snapshot, why)
        if messages:
            outcome.message = "; ".join(messages)
        return outcome

    def _without_waiting(
        self, snapshot: AnySnapshot, steps: list[Step], target: Revision, outcome: Outcome
    ) -> list[Step]:
        """The steps but those that replace a Pod whose node agent has not reported yet. [PM-140]"""
        waiting = {step: seconds for step in steps if (seconds := self._seconds_for_report(snapshot, step, target))}
        if not waiting:
            return steps
        outcome.requeue_after.append(min(waiting.values()))
        named = ", ".join(step.pod.name for step in [*waiting][:MAX_NAMED_PODS])
        more = f" and {len(waiting) - MAX_NAMED_PODS} more" if len(waiting) > MAX_NAMED_PODS else ""
        outcome.waiting = (
            f"the node agent has not reported the containers of {named}{more} yet; "
            f"a Pod without a report within {REPORT_SECONDS:.0f} s of its start is replaced"
        )
        return [step for step in steps if step not in waiting]

    def _seconds_for_report(self, snapshot: AnySnapshot, step: Step, target: Revision) -> float:
        """Seconds for which the Pod is not replaced, because its agent may still report; 0 if nothing is awaited."""
        pod = step.pod.pod
        if step.kind is not StepKind.RECREATE or not step.obstacle:
            return 0.0
        settings, ordered = snapshot.resolved.settings, snapshot.revisions.ordered
        spec = snapshot.state.in_place.spec_of(step.pod, target, ordered, settings)
        blocked = None if isinstance(spec, Blocked) else blocked_on_pod(pod, spec)
        if blocked is None or step.obstacle != str(blocked) or not self.writer.agents.runs_on(pod.spec.node_name):
            return 0.0
        return seconds_for_report(pod, self._clock.now())

    async def _within_budget(self, snapshot: AnySnapshot, steps: list[Step], outcome: Outcome) -> list[Step]:
        """CS-129: up to the first Pod that a budget does not let go."""
        if not snapshot.resolved.settings.gates.budget:
            return steps
        for index, step in enumerate(steps):
            verdict = await self._budget.ask(step.pod.pod, Disruption.UPDATE)
            if not verdict.allowed:
                outcome.requeue_after.append(RETRY_SECONDS)
                return steps[:index]
        return steps

    async def _step(self, snapshot: AnySnapshot, step: Step, target: Revision) -> float:
        pod, uid, lifecycle = step.pod.pod, snapshot.owner.uid, snapshot.resolved.settings.lifecycle
        match step.kind:
            case StepKind.PREPARE:
                await self.writer.set_state(uid, pod, LifecycleState.PREPARING_UPDATE, lifecycle)
            case StepKind.REARM:
                hook = lifecycle.in_place_update if lifecycle is not None else None
                await self.writer.set_state(uid, pod, LifecycleState.PREPARING_UPDATE, lifecycle, rearm=hook)
            case StepKind.RECREATE:
                await self.recreate(snapshot, step, target)
            case StepKind.IN_PLACE:
                return await self._in_place(snapshot, step.pod, target)
        return 0.0

    def report_obstacle(self, snapshot: AnySnapshot, why: str) -> None:
        """B-22: once, not per Pod and reconcile."""
        if snapshot.state.not_in_place_for != why:
            snapshot.state.not_in_place_for = why
            self.writer.event(snapshot.workload, "InPlaceUpdateNotPossible", why)

    async def _in_place(self, snapshot: AnySnapshot, facts: PodFacts, target: Revision) -> float:
        """CS-131."""
        pod, settings, workload = facts.pod, snapshot.resolved.settings, snapshot.workload
        namespace = snapshot.owner.namespace
        spec = snapshot.state.in_place.spec_of(facts, target, snapshot.revisions.ordered, settings)
        if isinstance(spec, Blocked):
            return 0.0
        labels = revision_labels(target.name, short_hash(target.name), bare_hash=settings.gates.short_hash)
        if not settings.gates.template_hash:
            del labels[names.POD_TEMPLATE_HASH]
        at = pod.metadata.labels.get(names.CONTROLLER_REVISION_HASH, "")
        try:
            shown = settings.gates.lifecycle_states
            delay = await self.writer.update_in_place(
                snapshot.owner.uid, pod, spec, labels, revision=at, shows_state=shown
            )
        except Conflict:
            raise  # somebody else writes the Pod just now: the next reconcile tries again
        except KubeError as error:
            self._metrics.in_place_failed(namespace)
            logger.warning("inplace: Pod %s/%s is not updated to %s: %s", namespace, facts.name, target.name, error)
            text = f"failed to update pod {facts.name} in-place(revision {target.name}): {message_of(error)}"
            self.writer.event(workload, "FailedUpdatePodInPlace", text, warning=True)
            raise
        if delay is None:
            return 0.0
        self._metrics.in_place_started(namespace)
        after = f" after a grace period of {delay:.0f} s" if delay else ""
        logger.info("inplace: Pod %s/%s goes to %s%s", namespace, facts.name, target.name, after)  # PM-189
        text = self.writer.wording.updated_in_place(facts.name, target.name)
        self.writer.event(workload, "SuccessfulUpdatePodInPlace", text)
        return delay
