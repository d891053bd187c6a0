"""Preview of a rollout: what happens to each Pod, and why a Pod is in its current state. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import Final

import msgspec

from app.api import names
from app.features.cloneset.plan.diff import Inputs, RolloutState, counted
from app.features.cloneset.plan.scale import Removal, ScalePlan, deletion_order, planned_scaling
from app.features.cloneset.plan.settings import ResolvedSpec
from app.features.cloneset.plan.update import planned_update, released
from app.kube.objects import ObjectMeta, Pod
from app.pods.inplace.eligibility import Blocked
from app.pods.inplace.state import GraceError, StateError, UpdateSpec
from app.pods.inplace.steps import RefreshAction, refresh
from app.pods.lifecycle import LifecycleState
from app.pods.predicates import FINISHED, is_active
from app.pods.revisions import Revision, short_hash
from app.pods.sorting import NodeLabels
from app.workloads.pods import InPlaceUpdates, PodFacts
from app.workloads.report import (
    Action,
    Preview,
    PreviewStep,
    held_lines,
    hook_members,
    next_line,
    readiness_lines,
    revision_line,
)
from app.workloads.settings import Revisions
from app.workloads.steps import Step, StepKind

# The preview records how, why and in which order Pods are updated. After each step, the affected Pods are assumed to
# become available, because the next step waits for them. Lifecycle hooks are assumed to complete.

_UNDER_WAY: Final = (LifecycleState.PREPARING_NORMAL, LifecycleState.UPDATING, LifecycleState.UPDATED)
_IN_SERVICE: Final[Mapping[str, object]] = {
    "lifecycle": LifecycleState.NORMAL.value,
    "available_after": -inf,
    "update_ready": True,
    "delete_ready": True,
    "in_grace": False,
}


@dataclass(slots=True)
class _PreviewRun:
    """State of the simulated Pods during a preview."""

    resolved: ResolvedSpec
    revisions: Revisions
    pods: list[PodFacts]
    node_labels: NodeLabels
    now: float
    step: int = 0
    created: int = 0
    #: Pods being deleted in order to be recreated, and the number of replacements still to create.
    recreated: set[str] = field(default_factory=set)
    to_replace: int = 0
    #: Pods that had to wait for a lifecycle hook.
    waiting: set[str] = field(default_factory=set)
    #: Reasons why the current state of a Pod blocks its update, by Pod name.
    refused: dict[str, str] = field(default_factory=dict)
    steps: list[PreviewStep] = field(default_factory=list)
    updates: InPlaceUpdates = field(default_factory=InPlaceUpdates)
    #: Whether a step was recorded since the last decision.
    counted: bool = False

    def note(self, action: Action, pod: str, revision: str, reason: str = "") -> None:
        self.step += not self.counted
        self.counted = True
        self.steps.append(PreviewStep(self.step, action, pod, reason, revision))

    def change(self, facts: PodFacts, /, **changes: object) -> None:
        self.pods[self.pods.index(facts)] = replace(facts, **changes)  # type: ignore[arg-type]

    def inputs(self) -> Inputs:
        return Inputs(self.resolved, self.pods, self.revisions, self.updates, self.now)


def preview(
    resolved: ResolvedSpec, pods: Sequence[PodFacts], revisions: Revisions, now: float, node_labels: NodeLabels
) -> Preview:
    """Simulate the plan until nothing is left to do. The update revision may not be recorded yet; ``now`` is in POSIX
    seconds."""
    run = _PreviewRun(resolved, revisions, list(pods), node_labels, now)
    for pod in pods:
        _let_finish(run, pod)
    ends = ""
    for _ in range(6 * (len(pods) + resolved.settings.replicas) + 20):
        inputs, run.counted = run.inputs(), False
        rollout = counted(inputs)
        scaling = planned_scaling(inputs, rollout, node_labels)
        if scaling.create or scaling.remove or scaling.cancel_deletion:
            _scale(run, rollout, scaling)
            continue
        if back := released(rollout):
            for pod in back:
                run.change(pod, **_IN_SERVICE, pod=_in_state(pod, LifecycleState.NORMAL))
            continue
        updating = planned_update(inputs, rollout)
        run.refused |= {step.pod.name: step.obstacle for step in updating.steps if step.kind is StepKind.REFUSE}
        steps = [step for step in updating.steps if step.kind is not StepKind.REFUSE]
        for step in steps:
            _carry_out_step(run, updating.target, step)
        if updating.failure:
            ends = f"{updating.failure}: {updating.obstacle}"
            break
        if not steps and not _complete_deletions(run):
            refusals = "; ".join(f"Pod {name}: {why}" for name, why in sorted(run.refused.items()))
            ends = refusals or _why_it_ends(rollout)
            break
    rest = tuple(pod.name for pod in run.pods if pod.revision != short_hash(revisions.update.name))
    return Preview(tuple(run.steps), rest, ends)


def _let_finish(run: _PreviewRun, pod: PodFacts) -> None:
    """Assume that an update in progress succeeds."""
    if pod.lifecycle == LifecycleState.PREPARING_UPDATE:
        _release(run, pod)
    elif pod.lifecycle in _UNDER_WAY:
        run.change(pod, **_IN_SERVICE, pod=_in_state(pod, LifecycleState.NORMAL))


def _complete_deletions(run: _PreviewRun) -> bool:
    """Assume that pending preDelete hooks complete. Return whether any were pending."""
    held = [pod for pod in run.pods if pod.preparing_delete and pod.delete_hooked]
    for pod in held:
        run.waiting.add(pod.name)
        run.change(pod, delete_hooked=False)
    return bool(held)


def _release(run: _PreviewRun, pod: PodFacts) -> None:
    run.waiting.add(pod.name)
    state = LifecycleState.PREPARING_UPDATE
    run.change(
        pod,
        lifecycle=state.value,
        available_after=inf,
        pod=_without_hook(_in_state(pod, state), run.resolved),
    )


def _in_state(facts: PodFacts, state: LifecycleState) -> Pod:
    metadata = facts.pod.metadata
    labels = {**metadata.labels, names.LIFECYCLE_STATE: state.value}
    return msgspec.structs.replace(facts.pod, metadata=msgspec.structs.replace(metadata, labels=labels))


def _updated(run: _PreviewRun, facts: PodFacts, found: UpdateSpec | Blocked) -> Pod:
    """Return the Pod after its in-place update, including the fields that the scale-in order depends on."""
    pod = _in_state(facts, LifecycleState.NORMAL)
    changed = found.containers if isinstance(found, UpdateSpec) else ()
    annotations = {**pod.metadata.annotations, names.IN_PLACE_UPDATE_STATE: "{}"}
    since = datetime.fromtimestamp(run.now + run.step, UTC)
    replaced = msgspec.structs.replace
    status = replaced(
        pod.status,
        conditions=tuple(
            replaced(one, last_transition_time=since) if changed and one.type == "Ready" else one
            for one in pod.status.conditions
        ),
        container_statuses=tuple(
            replaced(one, restart_count=one.restart_count + 1) if one.name in changed else one
            for one in pod.status.container_statuses
        ),
    )
    return replaced(pod, metadata=replaced(pod.metadata, annotations=annotations), status=status)


def _without_hook(pod: Pod, resolved: ResolvedSpec) -> Pod:
    lifecycle = resolved.settings.lifecycle
    hook = lifecycle.in_place_update if lifecycle is not None else None
    if hook is None:
        return pod
    metadata = pod.metadata
    labels = {key: value for key, value in metadata.labels.items() if hook.labels.get(key) != value}
    finalizers = tuple(name for name in metadata.finalizers if name not in hook.finalizers)
    return msgspec.structs.replace(
        pod, metadata=msgspec.structs.replace(metadata, labels=labels, finalizers=finalizers)
    )


def _scale(run: _PreviewRun, rollout: RolloutState, plan: ScalePlan) -> None:
    for pod in plan.cancel_deletion:
        run.change(pod, preparing_delete=False, **_IN_SERVICE, pod=_in_state(pod, LifecycleState.NORMAL))
    for removal in plan.remove:
        _remove(run, rollout, removal)
    for index in range(plan.create):
        revision = rollout.current if index < plan.create_current else rollout.update
        run.created += 1
        run.pods.append(_new_pod(run, revision))
        if run.to_replace:
            run.to_replace -= 1
        else:
            surplus = len(run.pods) > rollout.settings.replicas
            run.note(Action.CREATE, run.pods[-1].name, revision, "maxSurge" if surplus else "")


def _remove(run: _PreviewRun, rollout: RolloutState, removal: Removal) -> None:
    pod = removal.pod
    if removal.prepare:
        state = LifecycleState.PREPARING_DELETE
        run.change(pod, preparing_delete=True, lifecycle=state.value, available_after=inf, pod=_in_state(pod, state))
        return
    run.pods.remove(pod)
    if pod.name in run.recreated:
        run.recreated.discard(pod.name)
        run.to_replace += 1
    else:
        waited = "after its preDelete hook" if pod.name in run.waiting and pod.preparing_delete else ""
        run.note(Action.DELETE, pod.name, pod.revision, waited or _why_deleted(pod, rollout))


def _why_deleted(pod: PodFacts, rollout: RolloutState) -> str:
    if pod.marked or pod.name in rollout.settings.pods_to_delete:
        return "requested by its label or podsToDelete"
    return "more Pods than replicas"


def _carry_out_step(run: _PreviewRun, target: str, step: Step) -> None:
    pod = step.pod
    match step.kind:
        case StepKind.PREPARE | StepKind.REARM:
            _release(run, pod)
        case StepKind.IN_PLACE:
            revisions = run.revisions
            goal = revisions.update if target == short_hash(revisions.update.name) else revisions.current
            found = run.updates.spec_between(pod.revision, goal, revisions.ordered, run.resolved.settings)
            what = changes(found) if isinstance(found, UpdateSpec) else ""
            hook = ", after its inPlaceUpdate hook" if pod.name in run.waiting else ""
            run.note(Action.IN_PLACE, pod.name, target, f"{what}{hook}")
            run.change(pod, revision=target, **_IN_SERVICE, pod=_updated(run, pod, found))
        case StepKind.RECREATE:
            run.note(Action.RECREATE, pod.name, target, step.obstacle)
            run.recreated.add(pod.name)
            run.change(pod, marked=True)


def changes(spec: UpdateSpec) -> str:
    """Describe the changes in an in-place update."""
    parts = [f"image of {name} becomes {image}" for name, image in sorted(spec.container_images.items())]
    parts += [f"resources of {name}" for name in sorted(spec.container_resources)]
    parts += [f"env of {name} from labels or annotations" for name in sorted(spec.container_ref_metadata)]
    if spec.metadata_patch and not spec.container_ref_metadata:
        parts.append("metadata")
    return ", ".join(parts)


def _why_it_ends(rollout: RolloutState) -> str:
    settings, left = rollout.settings, len(rollout.pods) - rollout.counts.updated
    if not left:
        return ""
    if settings.on_delete:
        return "OnDelete: the other Pods are updated when they are deleted"
    if settings.paused:
        return "paused: the other Pods are updated after the rollout is resumed"
    if not rollout.to_update.update:
        return f"partition: {rollout.limits.partition} Pods keep their revision"
    down = sorted(pod.name for pod in rollout.pods if not pod.available(rollout.now))
    return (
        f"maxUnavailable {rollout.limits.max_unavailable} is used up by Pods that are not available: {', '.join(down)}"
    )


def _new_pod(run: _PreviewRun, revision: str) -> PodFacts:
    name = f"{run.resolved.owner.name}-(new {run.created})"
    labels: Mapping[str, str] = (run.resolved.template.get("metadata") or {}).get("labels") or {}
    own = {**labels, names.CONTROLLER_REVISION_HASH: revision}
    pod = Pod(metadata=ObjectMeta(name=name, namespace=run.resolved.owner.namespace, uid=name, labels=own))
    return PodFacts(
        pod=pod,
        name=name,
        revision=revision,
        lifecycle=LifecycleState.NORMAL.value,
        preparing_delete=False,
        available_after=-inf,
        update_ready=True,
        delete_ready=True,
        marked=False,
        delete_hooked=False,
        in_grace=False,
        settled=True,
    )


def explain(
    pod: Pod, resolved: ResolvedSpec, rollout: RolloutState, coming: Preview, update: Revision, node_labels: NodeLabels
) -> list[str]:
    """Return lines that explain the state of one Pod of the CloneSet.

    ``coming`` is the preview of the rollout from the current state.
    """
    facts = next((one for one in rollout.pods if one.pod.metadata.uid == pod.metadata.uid), None)
    if facts is None:
        return [_not_counted(pod, resolved)]
    lines = [
        revision_line(facts, short_hash(update.name)),
        *_readiness_lines(facts, resolved, rollout),
        *_hook_lines(facts, resolved),
    ]
    lines += _coming_lines(facts, rollout, coming)
    return [*lines, _scale_in_line(facts, resolved, rollout, node_labels)]


def _not_counted(pod: Pod, resolved: ResolvedSpec) -> str:
    if not is_active(pod):
        ended = pod.status.phase in FINISHED
        return "not counted: it is terminating" if not ended else f"not counted: its phase is {pod.status.phase}"
    if not resolved.selector.matches(pod.metadata.labels):
        return f"not counted: its labels do not match the selector {resolved.selector}"
    return "not counted: it is controlled by another object"


def _readiness_lines(facts: PodFacts, resolved: ResolvedSpec, rollout: RolloutState) -> Iterator[str]:
    available = facts.available(rollout.now)
    yield from readiness_lines(facts, rollout.now, resolved.settings.min_ready_seconds, available=available)
    if not available:
        yield from _update_line(facts, resolved, rollout)


def _hook_lines(facts: PodFacts, resolved: ResolvedSpec) -> Iterator[str]:
    lifecycle = resolved.settings.lifecycle
    if lifecycle is not None and facts.lifecycle in (LifecycleState.PREPARING_NORMAL, LifecycleState.UPDATED):
        is_new = facts.lifecycle == LifecycleState.PREPARING_NORMAL
        hook = lifecycle.pre_normal if is_new else lifecycle.in_place_update
        if hook is not None and (lacks := hook_members(hook, facts.pod, present=False)):
            yield f"  it enters service once it has: {', '.join(lacks)}"
        return
    yield from held_lines(facts, lifecycle)


def _update_line(facts: PodFacts, resolved: ResolvedSpec, rollout: RolloutState) -> Iterator[str]:
    """Explain what an in-place update in progress is waiting for."""
    scaling = resolved.settings.gates.vertical_scaling
    try:
        step = refresh(facts.pod, datetime.fromtimestamp(rollout.now, UTC), vertical_scaling=scaling)
    except (StateError, GraceError) as error:
        yield f"  its in-place update cannot continue: {error}"
        return
    if step.action in (RefreshAction.INCOMPLETE, RefreshAction.RETRY):
        yield f"  its in-place update is in progress: {step.reason}"


def _coming_lines(facts: PodFacts, rollout: RolloutState, coming: Preview) -> Iterator[str]:
    if facts.marked or facts.name in rollout.settings.pods_to_delete:
        why = f"label {names.SPECIFIED_DELETE}" if facts.marked else "podsToDelete"
        yield f"its deletion was requested ({why})"
    yield next_line(facts.name, coming)


def _scale_in_line(facts: PodFacts, resolved: ResolvedSpec, rollout: RolloutState, node_labels: NodeLabels) -> str:
    order = deletion_order(resolved.template, node_labels, rollout.now)(list(rollout.pods))
    place = order.index(facts) + 1
    return f"scale-in: number {place} of {len(order)} in deletion order"
