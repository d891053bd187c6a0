"""Preview of a rollout: what happens to each Pod, and why a Pod is in its state. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

import msgspec

from app.api import names
from app.features.statefulset.plan.new_pods import pod_name
from app.features.statefulset.plan.scale import ScalePlan, plan_scaling
from app.features.statefulset.plan.settings import Replica, Replicas, ResolvedSpec
from app.features.statefulset.plan.update import candidates, plan_update
from app.kube.objects import ObjectMeta, Pod, PodCondition, PodStatus
from app.pods.lifecycle import LifecycleState
from app.pods.ordinals import ordinal_of
from app.pods.revisions import short_hash
from app.workloads.pods import InPlaceUpdates, PodFacts, pod_facts
from app.workloads.report import Action, Preview, PreviewStep, held_lines, next_line, readiness_lines, revision_line
from app.workloads.settings import Revisions
from app.workloads.steps import StepKind

# After each step, the affected Pods are assumed to become available, because the next step waits for them. Lifecycle
# hooks are assumed to complete, and claims are assumed to exist. Pure.

_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=UTC)
#: Maximum number of steps in a preview.
MAX_STEPS: Final = 1000
#: States in which no update is in progress. Without a state, ``update_complete`` decides. [PM-55]
_AT_REST: Final = (LifecycleState.NORMAL, LifecycleState.PREPARING_DELETE)


@dataclass(slots=True)
class _Run:
    """State of the simulated Pods during a preview, by name."""

    resolved: ResolvedSpec
    revisions: Revisions
    pods: dict[str, PodFacts]
    now: float
    step: int = 0
    steps: list[PreviewStep] = field(default_factory=list)
    updates: InPlaceUpdates = field(default_factory=InPlaceUpdates)
    #: Pods that were deleted in order to be recreated.
    replaced: set[str] = field(default_factory=set)

    def note(self, action: Action, pod: str, reason: str = "") -> None:
        self.steps.append(PreviewStep(self.step, action, pod, reason))

    def put(self, name: str, revision: str) -> None:
        self.pods[name] = pod_facts(_serving(name, revision), self.resolved.settings)

    @property
    def replicas(self) -> Replicas:
        return Replicas.of(self.resolved.settings, self.resolved.owner.name, self.pods.values())


def preview(resolved: ResolvedSpec, pods: Sequence[PodFacts], revisions: Revisions, now: float) -> Preview:
    """Simulate the plan until nothing is left to do. The update revision may not be recorded yet; ``now`` is in POSIX
    seconds."""
    run = _Run(resolved, revisions, {one.name: one for one in pods}, now)
    _let_finish(run)
    ends = ""
    while len(run.steps) < MAX_STEPS:
        run.step += 1
        before = len(run.steps)
        replicas = run.replicas
        current, update = short_hash(revisions.current.name), short_hash(revisions.update.name)
        scaling = plan_scaling(replicas, current=current, update=update, now=now)
        _scale(run, scaling)
        if scaling.create or scaling.delete or scaling.prepare or scaling.cancel_deletion:
            run.step -= len(run.steps) == before
            continue
        if scaling.blocked:
            _update(run, replicas, begin=False, held_by=scaling.held_by)
            if len(run.steps) > before:
                continue
            ends = _blocked(replicas, scaling.held_by, current=current, update=update, now=now)
            break
        if (ended := _update(run, replicas)) is not None:
            ends = ended
            break
    else:
        ends = f"only the first {MAX_STEPS} steps are shown"
    rest = [one.name for one in run.replicas.wanted if not one.is_at(short_hash(revisions.update.name))]
    return Preview(tuple(run.steps), tuple(rest), ends)


def _let_finish(run: _Run) -> None:
    """Assume that updates in progress succeed and that terminating Pods are gone."""
    for name, one in list(run.pods.items()):
        if one.pod.metadata.deletion_timestamp is not None:
            del run.pods[name]
            run.replaced.add(name)
        elif one.lifecycle not in _AT_REST if one.lifecycle else not one.update_complete:
            run.put(name, one.pod.metadata.labels.get(names.CONTROLLER_REVISION_HASH, ""))


def _scale(run: _Run, plan: ScalePlan) -> None:
    revisions, owner = run.revisions, run.resolved.owner.name
    for ordinal, updated in plan.create:
        name = pod_name(owner, ordinal)
        run.put(name, (revisions.update if updated else revisions.current).name)
        if name not in run.replaced:
            run.note(Action.CREATE, name)
        run.replaced.discard(name)  # its deletion was already recorded
    for one in (*plan.delete, *plan.prepare):
        del run.pods[one.name]
        wanted = one.ordinal in run.resolved.settings.slots
        run.note(Action.RECREATE if wanted else Action.DELETE, one.name, "it has finished" if wanted else "")
        if wanted:
            run.replaced.add(one.name)
    for one in plan.cancel_deletion:
        run.put(one.name, one.facts.pod.metadata.labels.get(names.CONTROLLER_REVISION_HASH, ""))


def _update(run: _Run, replicas: Replicas, *, begin: bool = True, held_by: Replica | None = None) -> str | None:
    """Simulate one step of the update. Return why the update stops, or None if it continues."""
    settings, revisions = run.resolved.settings, run.revisions
    current, update = short_hash(revisions.current.name), short_hash(revisions.update.name)
    listed = candidates(replicas, current=current, update=update)
    plan = plan_update(
        replicas,
        listed,
        update=update,
        now=run.now,
        obstacle=lambda pod: run.updates.obstacle(pod, revisions.update, revisions.ordered, settings),
        begin=begin,
        held_by=held_by,
    ).update
    for one in plan.steps:
        name = one.pod.name
        if one.kind is StepKind.RECREATE:
            del run.pods[name]
            run.replaced.add(name)
            run.note(Action.RECREATE, name, one.obstacle)
        elif one.kind is not StepKind.REFUSE:
            run.put(name, revisions.update.name)
            run.note(Action.IN_PLACE, name, "after its inPlaceUpdate hook" if one.kind is StepKind.PREPARE else "")
    if plan.failure:
        return plan.failure
    if not plan.steps:
        return _why_it_ends(replicas, update)
    return None


def _blocked(replicas: Replicas, held_by: Replica | None, *, current: str, update: str, now: float) -> str:
    waits = next((one.name for one in replicas.wanted if one.ended or not one.available(now)), "")
    waits = waits or next((one.name for one in replicas.condemned), "")
    if not waits:
        return ""
    why, settings = f"OrderedReady: all other Pods wait until {waits} is available", replicas.settings
    if settings.repairs or settings.paused or held_by is None or held_by.running_and_ready or held_by.is_at(update):
        return why
    if all(one.ordinal != held_by.ordinal for one in candidates(replicas, current=current, update=update)):
        return why
    return f'{why}; delete it if it cannot recover, or set annotation {names.REPAIR_ORDERED_READY}: "true"'


def _why_it_ends(replicas: Replicas, update: str) -> str:
    settings = replicas.settings
    if all(one.is_at(update) for one in replicas.wanted):
        return ""
    if settings.on_delete:
        return "OnDelete: Pods are updated when they are deleted"
    if settings.paused:
        return "the update is paused"
    if settings.partition:
        return f"the partition keeps {min(settings.partition, settings.replicas)} at the old revision"
    return "maxUnavailable is used up by Pods that are not available"


def _serving(name: str, revision: str) -> Pod:
    labels = {names.CONTROLLER_REVISION_HASH: revision, names.LIFECYCLE_STATE: LifecycleState.NORMAL.value}
    ready = PodCondition(type="Ready", status="True", last_transition_time=_LONG_AGO)
    status = PodStatus(phase="Running", conditions=(ready,))
    return msgspec.structs.replace(Pod(), metadata=ObjectMeta(name=name, uid=name, labels=labels), status=status)


def explain(facts: PodFacts, resolved: ResolvedSpec, coming: Preview, *, update: str, now: float) -> list[str]:
    """Return lines that explain the state of one Pod. ``coming`` is the preview from the current state, ``update`` the
    short hash of the update revision; ``now`` is in POSIX seconds."""
    owner = resolved.owner.name
    pod = Replica(ordinal_of(owner, facts.name), facts)
    if pod.ordinal < 0 or not resolved.selector.matches(facts.pod.metadata.labels):
        return [f"not counted: its name or labels do not match StatefulSet {owner}"]
    held = held_lines(facts, resolved.settings.lifecycle)
    lines = [_slot_line(pod, resolved), revision_line(facts, update), *_readiness_lines(pod, resolved, now)]
    return [*lines, *held, *_coming_lines(pod, coming)]


def _slot_line(pod: Replica, resolved: ResolvedSpec) -> str:
    slots, settings = resolved.settings.slots, resolved.settings
    rank = slots.rank(pod.ordinal)
    if not rank:
        return f"ordinal {pod.ordinal}: surplus, because the ordinal is beyond the replicas or reserved"
    kept = not settings.unordered and not settings.on_delete and rank <= settings.partition
    partition = f"; the partition ({settings.partition}) keeps it at its revision" if kept else ""
    return f"ordinal {pod.ordinal}: number {rank} of {len(slots)}{partition}"


def _readiness_lines(pod: Replica, resolved: ResolvedSpec, now: float) -> Iterator[str]:
    if pod.terminating:
        yield "it is terminating; its replacement is created once it is gone"
        return
    facts, available = pod.facts, pod.usable(now)
    yield from readiness_lines(facts, now, resolved.settings.min_ready_seconds, available=available)
    if not available and not facts.in_grace and not facts.update_complete:
        yield "  its in-place update is in progress: its containers have not changed yet"


def _coming_lines(pod: Replica, coming: Preview) -> Iterator[str]:
    if pod.facts.marked:
        yield f"its deletion was requested (label {names.SPECIFIED_DELETE})"
    waits = coming.ends.startswith("OrderedReady") and coming.of(pod.name) is None and pod.name not in coming.rest
    yield f"next: nothing until this is resolved: {coming.ends}" if waits else next_line(pod.name, coming)
