"""What a roll-out would do to each Pod, in which order, in place or not and why: the plan, played to its end. Pure.

After each step the Pods it touched are taken to be available, as the next step waits for them. What users' hooks wait
for is taken to happen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from math import inf
from typing import Final

import msgspec

from app.api import names
from app.kube.objects import ObjectMeta, Pod
from app.pods.inplace import Blocked, UpdateSpec
from app.pods.lifecycle import LifecycleState
from app.pods.ranking import NodeLabels
from app.pods.revisions import short_hash
from app.workloads.cloneset.plan.resolved import ResolvedSpec
from app.workloads.cloneset.plan.rollout import Inputs, RolloutState, counted, planned_scaling, planned_update, released
from app.workloads.cloneset.plan.scale import Removal, ScalePlan
from app.workloads.engine.in_place import InPlaceUpdates
from app.workloads.engine.pods import PodFacts
from app.workloads.engine.preview import Action, Preview, PreviewStep
from app.workloads.engine.revisions import Revisions
from app.workloads.engine.steps import Step, StepKind, UpdatePlan

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
    """The Pods as they would be by now."""

    resolved: ResolvedSpec
    revisions: Revisions
    pods: list[PodFacts]
    node_labels: NodeLabels
    now: float
    step: int = 0
    created: int = 0
    #: Pods on their way out because they are recreated, and how many of them are still to be replaced.
    recreated: set[str] = field(default_factory=set)
    to_replace: int = 0
    #: Pods that had to wait for their hook.
    waiting: set[str] = field(default_factory=set)
    #: Pod → why no update starts from the state it is in.
    refused: dict[str, str] = field(default_factory=dict)
    steps: list[PreviewStep] = field(default_factory=list)
    updates: InPlaceUpdates = field(default_factory=InPlaceUpdates)
    #: Whether a step was noted since the decision was made.
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
    """Play the plan to its end. ``revisions``: the update revision may be one that is not recorded yet; ``now``: POSIX
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
        if _go_back_into_service(run, rollout):
            continue
        updating = planned_update(inputs, rollout)
        run.refused |= {step.pod.name: step.obstacle for step in updating.steps if step.kind is StepKind.REFUSE}
        steps = [step for step in updating.steps if step.kind is not StepKind.REFUSE]
        for step in steps:
            _carry_out_step(run, updating.target, step)
        if updating.failure:
            ends = _failure(updating)
            break
        if not steps and not _let_go(run):
            ends = _refusals(run) or _why_it_ends(rollout)
            break
    rest = tuple(pod.name for pod in run.pods if pod.revision != short_hash(revisions.update.name))
    return Preview(tuple(run.steps), rest, ends)


def _let_finish(run: _PreviewRun, pod: PodFacts) -> None:
    """What is under way is taken to end well."""
    if pod.lifecycle == LifecycleState.PREPARING_UPDATE:
        _release(run, pod)
    elif pod.lifecycle in _UNDER_WAY:
        run.change(pod, **_IN_SERVICE, pod=_in_state(pod, LifecycleState.NORMAL))


def _go_back_into_service(run: _PreviewRun, rollout: RolloutState) -> bool:
    """Whether there were Pods in PreparingUpdate that need not be updated any more."""
    back = released(rollout)
    for pod in back:
        run.change(pod, **_IN_SERVICE, pod=_in_state(pod, LifecycleState.NORMAL))
    return bool(back)


def _let_go(run: _PreviewRun) -> bool:
    """Whether there were Pods whose preDelete hook was waited for: it is taken to let them go."""
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
        update_hooked=False,
        lifecycle=state.value,
        available_after=inf,
        pod=_without_hook(_in_state(pod, state), run.resolved),
    )


def _in_state(facts: PodFacts, state: LifecycleState) -> Pod:
    metadata = facts.pod.metadata
    labels = {**metadata.labels, names.LIFECYCLE_STATE: state.value}
    return msgspec.structs.replace(facts.pod, metadata=msgspec.structs.replace(metadata, labels=labels))


def _updated(run: _PreviewRun, facts: PodFacts, found: UpdateSpec | Blocked) -> Pod:
    """The Pod after its update in place: what decides whom a scale-in takes has changed too."""
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
        return "asked for by its label or podsToDelete"
    return "more Pods than replicas"


def _carry_out_step(run: _PreviewRun, target: str, step: Step) -> None:
    pod = step.pod
    match step.kind:
        case StepKind.PREPARE | StepKind.REARM:
            _release(run, pod)
        case StepKind.IN_PLACE:
            revisions = run.revisions
            goal = revisions.update if target == short_hash(revisions.update.name) else revisions.current
            found = run.updates.spec_of(pod, goal, revisions.ordered, run.resolved.settings)
            what = changes(found) if isinstance(found, UpdateSpec) else ""
            hook = ", after its inPlaceUpdate hook" if pod.name in run.waiting else ""
            run.note(Action.IN_PLACE, pod.name, target, f"{what}{hook}")
            run.change(pod, revision=target, **_IN_SERVICE, pod=_updated(run, pod, found))
        case StepKind.RECREATE:
            run.note(Action.RECREATE, pod.name, target, step.obstacle)
            run.recreated.add(pod.name)
            run.change(pod, marked=True)


def changes(spec: UpdateSpec) -> str:
    """What an update in place changes, in words."""
    parts = [f"image of {name} becomes {image}" for name, image in sorted(spec.container_images.items())]
    parts += [f"resources of {name}" for name in sorted(spec.container_resources)]
    parts += [f"env of {name} from labels or annotations" for name in sorted(spec.container_ref_metadata)]
    if spec.metadata_patch and not spec.container_ref_metadata:
        parts.append("metadata")
    return ", ".join(parts)


def _failure(plan: UpdatePlan) -> str:
    return f"{plan.failure}: {plan.obstacle}" if plan.failure else ""


def _refusals(run: _PreviewRun) -> str:
    return "; ".join(f"Pod {name}: {why}" for name, why in sorted(run.refused.items()))


def _why_it_ends(rollout: RolloutState) -> str:
    settings, left = rollout.settings, len(rollout.pods) - rollout.counts.updated
    if not left:
        return ""
    if settings.on_delete:
        return "OnDelete: the others are updated when somebody deletes them"
    if settings.paused:
        return "paused: the others are updated when it is resumed"
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
        update_hooked=False,
        in_grace=False,
        settled=True,
    )
