"""Carries out updates: refreshes Pods, then updates the next ones in place or replaces them."""

from __future__ import annotations

import logging
from collections.abc import Collection
from typing import Final

from app.api import names
from app.kube.errors import Conflict, KubeError, message_of
from app.kube.text import first_of
from app.pods.disruption_budget import RETRY_SECONDS, Disruption
from app.pods.inplace.eligibility import Blocked, blocked_on_pod
from app.pods.inplace.state import StateError, update_state
from app.pods.lifecycle import LifecycleState
from app.pods.node_agents import REPORT_SECONDS, seconds_for_report
from app.pods.revisions import Revision, revision_labels, short_hash
from app.workloads.pods import PodFacts
from app.workloads.state import AnySnapshot, Metrics, Outcome, PodGoneError, PodHeldError, gather_results
from app.workloads.steps import PodRefresh, Step, StepKind, UpdatePlan, refresh_pod
from app.workloads.writer import Writer

logger = logging.getLogger(__name__)

#: Maximum number of updates started in one reconcile. Completed updates must not wait until all others have started.
MAX_UPDATES_AT_A_TIME: Final = 100
#: Maximum number of Pods named in a message.
MAX_NAMED_PODS: Final = 3


class Updater:
    """Carries out update plans. Kinds override :meth:`recreate` to replace a Pod differently."""

    def __init__(self, writer: Writer, metrics: Metrics) -> None:
        self.writer = writer
        self._metrics = metrics

    async def recreate(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:  # noqa: ARG002
        """Replace a Pod that is not updated in place. By default, delete it; the next reconcile recreates it."""
        await self.writer.delete_pod(snapshot.workload, step.pod.pod)

    # ---- refreshing Pods

    async def refresh(
        self, snapshot: AnySnapshot, released: Collection[PodFacts]
    ) -> tuple[Outcome, frozenset[PodFacts]]:
        """Continue updates in progress. Return the outcome and the Pods whose state changed. [CS-122]

        ``released`` Pods are in PreparingUpdate and no longer need an update.
        """
        outcome = Outcome()
        due = [pod for pod in snapshot.pods if not pod.settled]
        if not due:
            return outcome, frozenset()
        settings, now = snapshot.resolved.settings, self.writer.clock.now()
        by_subresource = not settings.gates.vertical_scaling or await self.writer.has_resize_subresource()
        steps: list[tuple[PodFacts, PodRefresh]] = []
        errors: list[str] = []
        for pod in due:
            step = refresh_pod(pod.pod, settings, now, returns=pod in released, resize_subresource=by_subresource)
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
        return outcome, frozenset(pod for pod, _ in steps)

    def _finished(self, pod: PodFacts) -> None:
        try:
            state = update_state(pod.pod)
        except StateError:
            return
        if state is not None and state.update_timestamp is not None:
            namespace = pod.pod.metadata.namespace
            seconds = (self.writer.clock.now() - state.update_timestamp).total_seconds()
            self._metrics.in_place_finished(namespace, max(0.0, seconds))
            logger.info("inplace: Pod %s/%s updated in %.0f s", namespace, pod.name, seconds)

    # ---- updating

    async def carry_out(
        self, snapshot: AnySnapshot, plan: UpdatePlan, outcome: Outcome, moved: Collection[PodFacts]
    ) -> Outcome:
        """Carry out the plan. ``outcome`` and ``moved`` are the result of :meth:`refresh`. [CS-122 … CS-132]"""
        target = snapshot.revision_of(plan.target)
        # Pods that just changed state are skipped. For the other Pods the plan remains safe: a Pod that changed state
        # is more likely to be available than the plan assumed.
        steps = [step for step in plan.steps if step.pod not in moved]
        refused = [step for step in steps if step.kind is StepKind.REFUSE]
        steps = [step for step in steps if step.kind is not StepKind.REFUSE]
        steps = self._without_waiting(snapshot, steps, target, outcome)
        steps = await self._within_budget(steps[:MAX_UPDATES_AT_A_TIME], outcome)
        found = await gather_results(self._step(snapshot, step, target) for step in steps)
        outcome.done = [
            step for step, one in zip(steps, found, strict=True) if not isinstance(one, KubeError | PodGoneError)
        ]
        for one in found:
            if isinstance(one, PodHeldError):
                outcome.requeue_after.append(RETRY_SECONDS)
            elif isinstance(one, KubeError) and (outcome.error is None or isinstance(outcome.error, Conflict)):
                outcome.error = one
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
        """Return the steps except replacements of Pods whose node agent has not reported yet. [PM-140]"""
        waiting = {step: seconds for step in steps if (seconds := self._seconds_for_report(snapshot, step, target))}
        if not waiting:
            return steps
        outcome.requeue_after.append(min(waiting.values()))
        named = first_of([step.pod.name for step in waiting], MAX_NAMED_PODS)
        outcome.waiting = (
            f"the node agent has not reported the containers of {named} yet; "
            f"a Pod without a report within {REPORT_SECONDS:.0f} s of its start is replaced"
        )
        return [step for step in steps if step not in waiting]

    def _seconds_for_report(self, snapshot: AnySnapshot, step: Step, target: Revision) -> float:
        """Return the seconds to wait for the node agent's report before the Pod is replaced; 0 if none is expected."""
        pod = step.pod.pod
        if step.kind is not StepKind.RECREATE or not step.obstacle:
            return 0.0
        settings, ordered = snapshot.resolved.settings, snapshot.revisions.ordered
        spec = snapshot.state.in_place.spec_between(step.pod.revision, target, ordered, settings)
        blocked = None if isinstance(spec, Blocked) else blocked_on_pod(pod, spec)
        if blocked is None or step.obstacle != str(blocked) or not self.writer.agents.runs_on(pod.spec.node_name):
            return 0.0
        return seconds_for_report(pod, self.writer.clock.now())

    async def _within_budget(self, steps: list[Step], outcome: Outcome) -> list[Step]:
        """Return the steps up to the first Pod that a budget blocks. [PUB-90]"""
        for index, step in enumerate(steps):
            verdict = await self.writer.budget.ask(step.pod.pod, Disruption.UPDATE)
            if not verdict.allowed:
                outcome.requeue_after.append(RETRY_SECONDS)
                return steps[:index]
        return steps

    async def _step(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:
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
                await self._in_place(snapshot, step.pod, target)

    def report_obstacle(self, snapshot: AnySnapshot, why: str) -> None:
        """Report why Pods are not updated in place, but only once per reason."""
        if snapshot.state.not_in_place_for != why:
            snapshot.state.not_in_place_for = why
            self.writer.event(snapshot.workload, "InPlaceUpdateNotPossible", why)

    async def _in_place(self, snapshot: AnySnapshot, facts: PodFacts, target: Revision) -> None:
        """Update the Pod in place. [CS-162]"""
        pod, settings, workload = facts.pod, snapshot.resolved.settings, snapshot.workload
        namespace = snapshot.owner.namespace
        spec = snapshot.state.in_place.spec_between(facts.revision, target, snapshot.revisions.ordered, settings)
        if isinstance(spec, Blocked):
            return
        labels = revision_labels(target.name, short_hash(target.name), bare_hash=settings.gates.short_hash)
        if not settings.gates.template_hash:
            del labels[names.POD_TEMPLATE_HASH]
        at = pod.metadata.labels.get(names.CONTROLLER_REVISION_HASH, "")
        try:
            shown = settings.gates.lifecycle_states and (settings.gates.first_lifecycle_state or bool(facts.lifecycle))
            delay = await self.writer.update_in_place(
                snapshot.owner.uid, pod, spec, labels, revision=at, shows_state=shown
            )
        except Conflict:
            raise  # a concurrent writer caused a conflict; the next reconcile retries
        except KubeError as error:
            self._metrics.in_place_failed(namespace)
            logger.warning("inplace: Pod %s/%s not updated to %s: %s", namespace, facts.name, target.name, error)
            text = f"failed to update pod {facts.name} in-place(revision {target.name}): {message_of(error)}"
            self.writer.event(workload, "FailedUpdatePodInPlace", text, warning=True)
            raise
        if delay is None:
            return
        self._metrics.in_place_started(namespace)
        after = f" after a grace period of {delay:.0f} s" if delay else ""
        logger.info("inplace: Pod %s/%s updating to %s%s", namespace, facts.name, target.name, after)  # [PM-189]
        text = self.writer.wording.updated_in_place.format(pod=facts.name, revision=target.name)
        self.writer.event(workload, "SuccessfulUpdatePodInPlace", text)
