"""Writes of the DaemonSet controller, and the state it keeps for them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final, TypeAlias

from app.api import names
from app.features.daemonset.plan.new_pods import PodMaker
from app.features.daemonset.plan.scale import DaemonPod, NodeFacts, Observed, ScalePlan, daemon_pod, node_facts
from app.features.daemonset.plan.settings import Limits, ResolvedSpec
from app.features.daemonset.plan.update import NOTHING, RollingPlan, plan_update
from app.features.daemonset.types import DaemonSet
from app.kube.errors import KubeError
from app.kube.hashes import random_suffix
from app.kube.objects import Node, Pod
from app.kube.store import Store
from app.pods.lifecycle import LifecycleState, readiness_patch, state_of
from app.pods.readiness import has_gate
from app.pods.revisions import Revision, recorded_template, short_hash
from app.workloads.image_pulls import ImagePuller, RolloutCounts, min_updated_ready_of
from app.workloads.pods import PodFacts
from app.workloads.predownload import Decision, changed_images
from app.workloads.state import (
    TIMER_TOLERANCE,
    AnySnapshot,
    Metrics,
    Outcome,
    Snapshot,
    WorkloadState,
    creation_outcome,
    gather_results,
    most_urgent,
    outcome_of,
)
from app.workloads.steps import Step, StepKind, UpdatePlan, in_place_step
from app.workloads.updater import Updater
from app.workloads.writer import Wording, Writer

#: Seconds to keep a finished Pod after another one was deleted on the same node. The time doubles after each deletion,
#: up to the maximum. [DS-29]
FIRST_WAIT: Final = 1.0
LONGEST_WAIT: Final = 900.0


@dataclass(slots=True)
class DaemonSetState(WorkloadState[ResolvedSpec]):
    """State that the controller keeps for one DaemonSet."""

    nodes: dict[str, NodeFacts] = field(default_factory=dict)
    daemon_pods: dict[str, DaemonPod] = field(default_factory=dict)
    #: By node: seconds for which finished Pods are kept, and the start of that period. [DS-29]
    ended: dict[str, tuple[float, float]] = field(default_factory=dict)
    #: Numbers in the last warning about maxUnavailable. [DS-78]
    limit_reported: tuple[int, int] | None = None

    def set_resolved(self, resolved: ResolvedSpec | None, key: object) -> None:
        """Store the resolved spec, and drop everything derived from the previous one."""
        WorkloadState.set_resolved(self, resolved, key)
        self.nodes, self.daemon_pods, self.ended = {}, {}, {}

    def facts_of_node(self, resolved: ResolvedSpec, node: Node) -> NodeFacts:
        """Return the facts about a node. They are computed once per version of the Node."""
        found = self.nodes.get(node.metadata.name)
        if found is None or found.node is not node:
            found = node_facts(node, resolved.placement, resolved.settings.node_selector)
        return found

    def facts_of_pods(self, resolved: ResolvedSpec, pods: list[Pod]) -> list[DaemonPod]:
        """Return the facts about Pods. They are computed once per version of each Pod."""
        known, found = self.daemon_pods, {}
        for pod in pods:
            uid = pod.metadata.uid
            one = known.get(uid)
            found[uid] = one if one is not None and one.pod is pod else daemon_pod(pod, resolved.settings)
        self.daemon_pods = found
        return list(found.values())

    def held(self, now: float) -> dict[str, float]:
        """Return the remaining seconds to keep finished Pods, by node. ``now`` is monotonic time. [DS-29]"""
        for node, (wait, since) in list(self.ended.items()):
            if now - since > 2 * max(wait, LONGEST_WAIT):
                del self.ended[node]
        left = {node: wait - (now - since) for node, (wait, since) in self.ended.items()}
        return {node: seconds for node, seconds in left.items() if seconds > TIMER_TOLERANCE}

    def note_ended(self, node: str, now: float) -> None:
        """Record that a finished Pod on the node was deleted. [DS-29]"""
        wait = self.ended[node][0] * 2 if node in self.ended else FIRST_WAIT
        self.ended[node] = (min(wait, LONGEST_WAIT), now)


Seen: TypeAlias = Snapshot[DaemonSet, DaemonSetState, ResolvedSpec]


_NAME_ATTEMPTS: Final = 20


#: Event messages of DaemonSets. [DS-51, DS-69]
WORDING: Final = Wording(
    created="Created pod: {pod}",
    not_created="Error creating: {why}",
    deleted="Deleted pod: {pod}",
    not_deleted="Error deleting: {why}",
    updated_in_place="successfully update pod {pod} in-place",
)


async def remove(writer: Writer, snapshot: AnySnapshot, pod: Pod, *, hooked: bool) -> bool:
    """Delete the Pod, or put it into PreparingDelete while a hook holds it. Return whether anything was written.
    [DS-59, PM-72]"""
    if not hooked:
        return await writer.delete_pod(snapshot.workload, pod)
    going, lifecycle = LifecycleState.PREPARING_DELETE, snapshot.resolved.settings.lifecycle
    if state_of(pod) == going and readiness_patch(pod, going, lifecycle, writer.clock.now()) is None:
        return False
    await writer.set_state(snapshot.owner.uid, pod, going, lifecycle)
    return True


class Scaler:
    """Carries out scale plans. ``rng`` draws the suffixes of Pod names."""

    def __init__(self, writer: Writer, pods: Store[Pod], rng: Random) -> None:
        self._writer = writer
        self._pods = pods
        self._rng = rng

    async def carry_out(self, snapshot: Seen, plan: ScalePlan) -> Outcome:
        """Create Pods, then delete Pods. [DS-32, DS-33]"""
        created = await self.create(snapshot, plan.create)
        deleted = await self._delete(snapshot, plan)
        return Outcome(
            changed=created.changed or deleted.changed,
            error=most_urgent((created.error, deleted.error)),
            message=created.message or deleted.message,
            requeue_after=[*created.requeue_after, *deleted.requeue_after, *plan.waits],
        )

    async def create(self, snapshot: Seen, nodes: Sequence[str]) -> Outcome:
        state, now = snapshot.state, self._writer.clock.monotonic()
        if not nodes:
            return Outcome()
        if waits := state.creation_backoff.remaining(now):
            return Outcome(message=None, requeue_after=[waits])
        maker = PodMaker(snapshot.resolved, snapshot.revisions.update)
        names: dict[str, str] = {}
        for node in nodes:
            names[self._free_name(maker.name_base, snapshot.owner.namespace, names)] = node
        wanted = [maker.new_pod(name, node) for name, node in names.items()]
        made, refused = await self._writer.create_pods(snapshot.workload, wanted, snapshot.resolved.selector)
        missing = f"{len(nodes) - made} of {len(nodes)} Pods were not created"
        backoff = state.creation_backoff
        return creation_outcome(
            backoff, refused, made=made, now=now, describe=lambda why: f"{why} ({missing})"
        )  # [DS-32]

    def _free_name(self, base: str, namespace: str, drawn: dict[str, str]) -> str:
        name = ""
        for _ in range(_NAME_ATTEMPTS):
            name = f"{base}{random_suffix(self._rng)}"
            if name not in drawn and self._pods.get(name, namespace) is None:
                break
        return name

    async def _delete(self, snapshot: Seen, plan: ScalePlan) -> Outcome:
        if not plan.delete:
            return Outcome()
        for pod in plan.ended:
            self._record_ended(snapshot, pod)
        found = await gather_results(remove(self._writer, snapshot, pod.pod, hooked=pod.hooked) for pod in plan.delete)
        outcome = outcome_of([one for one in found if one is not False])
        ended = set(plan.ended)
        for pod, one in zip(plan.delete, found, strict=True):
            if pod in ended and not isinstance(one, KubeError):
                snapshot.state.note_ended(pod.node, self._writer.clock.monotonic())
        return outcome

    def _record_ended(self, snapshot: Seen, pod: DaemonPod) -> None:
        """Emit an event about a finished Pod. [DS-29]"""
        where = f"daemon pod {pod.pod.metadata.namespace}/{pod.name} on node {pod.node}"
        if pod.pod.status.phase == "Failed":
            text = f"Found failed {where}, will try to kill it"
            self._writer.event(snapshot.workload, "FailedDaemonPod", text, warning=True)
        else:
            text = f"Found succeeded {where}, will try to delete it"
            self._writer.event(snapshot.workload, "SucceededDaemonPod", text)


class DaemonSetUpdater(Updater):
    """Carries out rolling plans."""

    def __init__(self, writer: Writer, metrics: Metrics, scaler: Scaler) -> None:
        super().__init__(writer, metrics)
        self._scaler = scaler

    async def update(self, snapshot: Seen, nodes: Observed, *, may_start: bool) -> Outcome:
        """Continue updates in progress, then plan and start others if ``may_start``: an update in progress must not
        depend on the plan. [DS-45, DS-46, PM-45]"""
        outcome, moved = await self.refresh(snapshot, ())
        if outcome.error is not None:
            return outcome
        settings = snapshot.resolved.settings
        plan = plan_update(nodes, settings) if may_start else NOTHING
        self._record_limit(snapshot, plan, settings.limits(nodes.desired))
        if plan.create:
            created = await self._scaler.create(snapshot, plan.create)
            outcome.requeue_after += created.requeue_after
            outcome.error, outcome.message = created.error, created.message
        steps = UpdatePlan(short_hash(snapshot.revisions.update.name), tuple(self._steps(snapshot, plan)))
        return await self.carry_out(snapshot, steps, outcome, moved)

    def _steps(self, snapshot: Seen, plan: RollingPlan) -> list[Step]:
        facts = {one.pod.metadata.uid: one for one in snapshot.pods}
        found = []
        for pod in plan.update:
            one = facts.get(pod.pod.metadata.uid)
            if one is not None:  # a finished Pod is deleted by scaling
                step = self._step_of(snapshot, pod, one)
                if step is not None:
                    found.append(step)
        return found

    def _step_of(self, snapshot: Seen, pod: DaemonPod, facts: PodFacts) -> Step | None:
        """Return the step that updates the Pod, if any. [DS-45, DS-48, DS-49]"""
        settings, revisions = snapshot.resolved.settings, snapshot.revisions
        if settings.surges or not settings.in_place:
            return Step(StepKind.RECREATE, facts, "rollingUpdateType is Standard")
        if not has_gate(pod.pod, names.IN_PLACE_UPDATE_READY):
            return Step(StepKind.RECREATE, facts, f"the Pod has no readiness gate {names.IN_PLACE_UPDATE_READY}")
        obstacle = snapshot.state.in_place.obstacle(facts, revisions.update, revisions.ordered, settings)
        return Step(StepKind.RECREATE, facts, obstacle) if obstacle is not None else in_place_step(facts, None)

    async def recreate(self, snapshot: AnySnapshot, step: Step, target: Revision) -> None:  # noqa: ARG002
        """Delete the Pod; scaling creates its replacement. [DS-45]"""
        await remove(self.writer, snapshot, step.pod.pod, hooked=step.pod.delete_hooked)

    def _record_limit(self, snapshot: Seen, plan: RollingPlan, limits: Limits) -> None:
        """Warn when maxUnavailable starts to hold Pods back, and when the numbers change. [DS-78]"""
        state = snapshot.state
        numbers = (plan.unavailable, limits.max_unavailable) if plan.waiting else None
        if numbers is not None and numbers != state.limit_reported:
            owner = snapshot.owner
            text = (
                f"{owner.namespace}/{owner.name} number of unavailable DaemonSet pods: {numbers[0]}, is equal to or "
                f"exceeds allowed maximum: {numbers[1]}"
            )
            self.writer.event(snapshot.workload, "numUnavailable >= maxUnavailable", text, warning=True)
        state.limit_reported = numbers


# Image pulls before a DaemonSet's Pods are updated, in place or not [DS-62 … DS-65].


class DaemonSetImagePuller(ImagePuller):
    """Pulls images that old revisions do not use, either when an update begins or once the required number of updated
    Pods is ready."""

    warns = True  # [DS-65]

    def decision(self, snapshot: AnySnapshot, counts: RolloutCounts) -> Decision:
        """Decide whether to pull images now. [DS-62, PM-165]"""
        update, ordered = snapshot.revisions.update, snapshot.revisions.ordered
        if counts.updated == counts.replicas:
            return Decision.CLEAN_UP
        if names.PRE_DOWNLOAD_CREATED in update.labels or names.PRE_DOWNLOAD_IGNORED in update.labels:
            return Decision.NOTHING
        at_once = counts.partition == 0 and counts.max_unavailable >= counts.replicas
        if at_once or len(ordered) < 2:
            return Decision.IGNORE
        waits = counts.updated_ready < min_updated_ready_of(snapshot, counts.replicas)
        return Decision.WAIT if waits else Decision.CREATE

    def images(self, snapshot: AnySnapshot, template: Mapping[str, Any]) -> Mapping[str, str]:
        """Return the images of containers that are new or whose image differs from an old revision. [DS-64]"""
        found: dict[str, str] = {}
        for revision in snapshot.revisions.ordered:
            old = recorded_template(revision) if revision.name != snapshot.revisions.update.name else None
            if old is not None:
                found |= changed_images(old, template)
        return found


def counts_of(nodes: Observed, limits: Limits) -> RolloutCounts:
    """Return the counts on which :meth:`DaemonSetImagePuller.decision` depends."""
    eligible = [node for node in nodes.nodes if node.eligibility.should_run and node.pods]
    updated = [node.pods[0] for node in eligible if nodes.is_new(node.pods[0])]
    return RolloutCounts(
        replicas=limits.desired,
        partition=limits.partition,
        max_unavailable=limits.max_unavailable,
        updated=len(updated),
        updated_ready=sum(pod.ready for pod in updated),
    )
