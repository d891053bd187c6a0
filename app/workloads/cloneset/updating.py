"""Carrying out what the plan says about updating: Pods refreshed, then the next ones taken to another revision."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from app.api import names
from app.api.cloneset import CloneSet
from app.kube.clock import Clock
from app.kube.errors import Conflict, KubeError, message_of
from app.pods.budget import RETRY_SECONDS, Disruption, DisruptionBudget
from app.pods.inplace import Blocked, StateError, update_state
from app.pods.lifecycle import LifecycleState
from app.pods.revisions import Revision, short_hash
from app.pods.templates import revision_labels
from app.workloads.cloneset.orders import update_order
from app.workloads.cloneset.plan import RolloutState, released, update
from app.workloads.cloneset.pods import PodFacts
from app.workloads.cloneset.refresh import PodRefresh, refresh_pod
from app.workloads.cloneset.resolved import ResolvedSpec
from app.workloads.cloneset.scaling import Outcome
from app.workloads.cloneset.settings import UpdatePolicy
from app.workloads.cloneset.state import CloneSetState, Metrics
from app.workloads.cloneset.update import Step, StepKind
from app.workloads.cloneset.writer import PodGoneError, Writer, gather_results

logger = logging.getLogger(__name__)

#: Pods that one pass begins to update at most, and how soon the next follows, in seconds.
MAX_UPDATES_AT_A_TIME: Final = 100
REQUEUE_DELAY: Final = 0.01
#: How many Pods are named where many failed.
MAX_NAMED_PODS: Final = 3


class Updater:
    """Carries out update plans. ``budget`` is asked before a Pod is taken out of service (CS-129)."""

    def __init__(self, writer: Writer, clock: Clock, budget: DisruptionBudget, metrics: Metrics) -> None:
        self._writer = writer
        self._clock = clock
        self._budget = budget
        self._metrics = metrics

    async def carry_out(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        rollout: RolloutState,
        revisions: tuple[Revision, Revision],
        ordered: Sequence[Revision],
    ) -> Outcome:
        """CS-122 … CS-132. ``revisions``: current and update; ``ordered``: all there are."""
        outcome = Outcome()
        moved = await self._refresh(owner, resolved, rollout, outcome)
        if outcome.error is not None:
            return outcome
        target = revisions[1] if rollout.to_update.update > 0 else revisions[0]

        def obstacle(pod: PodFacts) -> str | None:
            return state.obstacle(pod, target, ordered, resolved)

        plan = update(rollout, update_order(rollout.pods, resolved.strategy), obstacle)
        # Whoever has just moved is not what it was when it was chosen; for all others what was counted errs on the
        # safe side, for a Pod that moved is rather more available than before.
        steps = [step for step in plan.steps if step.pod not in moved]
        steps = [step for step in steps if not (step.kind is StepKind.RECREATE and step.pod.marked)]
        refused = [step for step in steps if step.kind is StepKind.REFUSE]
        steps = [step for step in steps if step not in refused]
        if len(steps) > MAX_UPDATES_AT_A_TIME:
            # Those that are done meanwhile are not to wait for all that begin.
            steps = steps[:MAX_UPDATES_AT_A_TIME]
            outcome.requeue_after.append(REQUEUE_DELAY)
        steps = await self._within_budget(rollout, steps, outcome)
        found = await gather_results(self._step(owner, state, resolved, step, target, ordered) for step in steps)
        for one in found:
            if isinstance(one, KubeError):
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
            self._report_obstacle(owner, state, why)
        if messages:
            outcome.message = "; ".join(messages)
        return outcome

    # ---- what is due on each Pod

    async def _refresh(
        self, owner: CloneSet, resolved: ResolvedSpec, rollout: RolloutState, outcome: Outcome
    ) -> frozenset[PodFacts]:
        """CS-122: the Pods that moved on."""
        due = [pod for pod in rollout.pods if not pod.settled]
        if not due:
            return frozenset()
        back, now = released(rollout), self._clock.now()
        steps: list[tuple[PodFacts, PodRefresh]] = []
        errors: list[str] = []
        for pod in due:
            step = refresh_pod(
                pod.pod,
                resolved.settings,
                now,
                returns=pod in back,
                resize_subresource=self._writer.resize_subresource,
            )
            if step.error:
                errors.append(step.error)
            if step.requeue_after:
                outcome.requeue_after.append(step.requeue_after)
            if step.writes:
                steps.append((pod, step))
        found = await gather_results(self._writer.refresh(resolved.owner.uid, pod.pod, step) for pod, step in steps)
        for (pod, step), one in zip(steps, found, strict=True):
            if isinstance(one, KubeError):
                outcome.error = outcome.error or one
            elif step.completes and not isinstance(one, PodGoneError):
                self._finished(owner, pod)
        if outcome.error is not None and not isinstance(outcome.error, Conflict):
            outcome.message = message_of(outcome.error)
        elif errors:
            outcome.message = "; ".join(errors[:MAX_NAMED_PODS])
        return frozenset(pod for pod, step in steps if step.writes)

    def _finished(self, owner: CloneSet, pod: PodFacts) -> None:
        try:
            state = update_state(pod.pod)
        except StateError:
            return
        if state is not None and state.update_timestamp is not None:
            seconds = (self._clock.now() - state.update_timestamp).total_seconds()
            self._metrics.in_place_finished(owner.metadata.namespace, max(0.0, seconds))
            logger.info("inplace: Pod %s/%s is updated after %.0f s", owner.metadata.namespace, pod.name, seconds)

    # ---- updating

    async def _within_budget(self, rollout: RolloutState, steps: list[Step], outcome: Outcome) -> list[Step]:
        """CS-129: up to the first Pod that a budget does not let go."""
        if not rollout.settings.gates.budget:
            return steps
        for index, step in enumerate(steps):
            verdict = await self._budget.ask(step.pod.pod, Disruption.UPDATE)
            if not verdict.allowed:
                outcome.requeue_after.append(RETRY_SECONDS)
                return steps[:index]
        return steps

    async def _step(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        step: Step,
        target: Revision,
        ordered: Sequence[Revision],
    ) -> float:
        pod, uid, lifecycle = step.pod.pod, resolved.owner.uid, resolved.settings.lifecycle
        match step.kind:
            case StepKind.PREPARE:
                await self._writer.set_state(uid, pod, LifecycleState.PREPARING_UPDATE, lifecycle)
            case StepKind.REARM:
                hook = lifecycle.in_place_update if lifecycle is not None else None
                await self._writer.set_state(uid, pod, LifecycleState.PREPARING_UPDATE, lifecycle, rearm=hook)
            case StepKind.RECREATE:
                await self._recreate(owner, state, resolved, step, target)
            case StepKind.IN_PLACE:
                return await self._in_place(owner, state, resolved, step.pod, target, ordered)
        return 0.0

    async def _recreate(
        self, owner: CloneSet, state: CloneSetState, resolved: ResolvedSpec, step: Step, target: Revision
    ) -> None:
        name, rolling = step.pod.name, resolved.settings.rolling_update
        try:
            await self._writer.mark_for_deletion(resolved.owner.uid, step.pod.pod)
        except KubeError as error:
            text = (
                f"failed to patch pod specified-delete {name} for update(revision {target.name}): {message_of(error)}"
            )
            self._writer.event(owner, "FailedUpdatePodReCreate", text, warning=True)
            raise
        # B-22, PM-189
        logger.info(
            "inplace: Pod %s/%s is replaced for %s: %s", owner.metadata.namespace, name, target.name, step.obstacle
        )
        text = f"successfully patch pod {name} specified-delete for update(revision {target.name})"
        self._writer.event(owner, "SuccessfulUpdatePodReCreate", text)
        why = f"pods are replaced for update(revision {target.name}), not updated in-place: {step.obstacle}"
        if rolling is not None and rolling.policy is UpdatePolicy.IN_PLACE_IF_POSSIBLE:
            self._report_obstacle(owner, state, why)

    def _report_obstacle(self, owner: CloneSet, state: CloneSetState, why: str) -> None:
        """B-22: once, not per Pod and pass."""
        if state.not_in_place_for != why:
            state.not_in_place_for = why
            self._writer.event(owner, "InPlaceUpdateNotPossible", why)

    async def _in_place(
        self,
        owner: CloneSet,
        state: CloneSetState,
        resolved: ResolvedSpec,
        facts: PodFacts,
        target: Revision,
        ordered: Sequence[Revision],
    ) -> float:
        """CS-131."""
        namespace, pod = owner.metadata.namespace, facts.pod
        spec = state.spec_of(facts, target, ordered, resolved)
        if isinstance(spec, Blocked):
            return 0.0
        labels = revision_labels(target.name, short_hash(target.name), bare_hash=resolved.settings.gates.short_hash)
        at = pod.metadata.labels.get(names.CONTROLLER_REVISION_HASH, "")
        try:
            delay = await self._writer.update_in_place(resolved.owner.uid, pod, spec, labels, revision=at)
        except Conflict:
            raise  # somebody else writes the Pod just now: the next pass tries again
        except KubeError as error:
            self._metrics.in_place_failed(namespace)
            logger.warning("inplace: Pod %s/%s is not updated to %s: %s", namespace, facts.name, target.name, error)
            text = f"failed to update pod {facts.name} in-place(revision {target.name}): {message_of(error)}"
            self._writer.event(owner, "FailedUpdatePodInPlace", text, warning=True)
            raise
        if delay is None:
            return 0.0
        self._metrics.in_place_started(namespace)
        after = f" after a grace period of {delay:.0f} s" if delay else ""
        logger.info("inplace: Pod %s/%s goes to %s%s", namespace, facts.name, target.name, after)  # PM-189
        text = f"successfully update pod {facts.name} in-place(revision {target.name})"
        self._writer.event(owner, "SuccessfulUpdatePodInPlace", text)
        return delay
