"""The next step of a Pod's update, and progress of in-place updates. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, TypeAlias

from app.api import names
from app.kube.objects import Pod
from app.pods.inplace.completion import is_update_complete
from app.pods.inplace.state import GraceError, StateError
from app.pods.inplace.steps import RefreshAction, finished_annotations, refresh
from app.pods.lifecycle import (
    Lifecycle,
    LifecycleState,
    UpdateAction,
    next_state,
    readiness_patch,
    state_members,
    state_of,
    update_action,
)
from app.pods.readiness import initial_conditions
from app.pods.revisions import short_hash
from app.workloads.pods import PodFacts, gets_initial_conditions
from app.workloads.settings import WorkloadSettings

#: Returns the first field that prevents an in-place update of a Pod; None if it is possible.
Obstacle: TypeAlias = Callable[[PodFacts], str | None]


class StepKind(StrEnum):
    """Next action of a Pod's update."""

    PREPARE = "Prepare"
    """A hook holds the Pod: set lifecycle state PreparingUpdate and wait."""
    REARM = "Rearm"
    """Updated, but there is a newer revision: return to PreparingUpdate and set the hook again. [PM-73]"""
    IN_PLACE = "InPlace"
    RECREATE = "Recreate"
    """Replace the Pod: mark it for deletion or delete it, depending on the workload."""
    REFUSE = "Refuse"
    """No update may start in the Pod's lifecycle state. This is an error; updates of other Pods continue."""


@dataclass(frozen=True, slots=True)
class Step:
    """One Pod and its next action. ``obstacle`` is what prevents an in-place update."""

    kind: StepKind
    pod: PodFacts
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Steps in order. ``failure`` is the error that stops the update after these steps; ``obstacle`` is the field that
    caused it."""

    #: Short hash of the target revision.
    target: str = ""
    steps: tuple[Step, ...] = ()
    failure: str = ""
    obstacle: str = ""


def in_place_step(pod: PodFacts, lifecycle: Lifecycle | None) -> Step | None:
    """Return the next step of a Pod that can be updated in place, given its lifecycle state; None to wait. [CS-130]"""
    if pod.awaits_initial_conditions:
        return None
    match update_action(pod.pod, lifecycle.in_place_update if lifecycle is not None else None):
        case UpdateAction.START:
            return Step(StepKind.IN_PLACE, pod)
        case UpdateAction.PREPARE:
            return Step(StepKind.PREPARE, pod)
        case UpdateAction.REARM:
            return Step(StepKind.REARM, pod)
        case UpdateAction.REFUSE:
            return Step(StepKind.REFUSE, pod, f"not allowed in lifecycle state {pod.lifecycle!r}")
    return None


# Writes that a Pod needs regardless of the rollout: in-place progress, lifecycle, labels. Pure. Metadata and conditions
# go into one write: the subresource ``status`` accepts both. [CS-122, CS-135]


@dataclass(frozen=True, slots=True)
class PodRefresh:
    """Writes to one Pod, and when to check it again.

    ``resize`` goes to the subresource of that name, then ``patch`` to the Pod. If conditions change, ``status`` goes to
    the status subresource instead, and may include metadata.
    """

    patch: Mapping[str, Any] | None = None
    resize: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None
    requeue_after: float = 0.0
    #: Whether this write completes the Pod's update.
    completes: bool = False
    error: str = ""

    @property
    def writes(self) -> bool:
        return self.patch is not None or self.resize is not None or self.status is not None


NOTHING = PodRefresh()


def refresh_pod(
    pod: Pod, settings: WorkloadSettings, now: datetime, *, returns: bool, resize_subresource: bool = True
) -> PodRefresh:
    """Return the writes that a Pod needs. ``returns`` means that the Pod is in PreparingUpdate but no longer needs an
    update."""
    scaling = settings.gates.vertical_scaling
    try:
        step = refresh(
            pod,
            now,
            grace_seconds=settings.grace_seconds,
            vertical_scaling=scaling,
            resize_subresource=resize_subresource,
        )
        complete = is_update_complete(pod, vertical_scaling=scaling)
    except (StateError, GraceError) as error:
        return PodRefresh(error=str(error))
    if step.stops:
        return PodRefresh(patch=step.patch, resize=step.resize)
    if step.action is RefreshAction.WAIT:
        return PodRefresh(requeue_after=step.delay)
    state = next_state(
        pod,
        settings.lifecycle,
        at_update_revision=returns,
        update_complete=complete,
        needs_node=settings.gates.normal_needs_node,
    )
    if state is LifecycleState.NORMAL and gets_initial_conditions(pod, settings.lifecycle):
        return NOTHING
    shown = settings.gates.lifecycle_states and bool(state_of(pod))
    finishes = complete and (state is not None or not shown)
    metadata = _metadata(pod, state, now, finishes, settings.gates.template_hash)
    conditions: list[Any] = []
    # The readiness controller writes the first conditions and the lifecycle state together.
    if step.status is not None and not initial_conditions(pod):
        conditions += step.status["status"]["conditions"]
    if state is not None and (keys := readiness_patch(pod, state, settings.lifecycle, now)) is not None:
        conditions += keys["status"]["conditions"]
    if not metadata and not conditions:
        return PodRefresh(requeue_after=step.delay)
    # The patch applies only to the version of the Pod that was examined: in a later version the containers may have
    # changed, and a late change to state Normal must not undo newer decisions, possibly by another leader.
    seen = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    body = {"metadata": {**seen, **metadata}}
    was_updated = names.IN_PLACE_UPDATE_STATE in pod.metadata.annotations
    finished = was_updated and complete and (state is not None or bool(conditions) or bool(finished_annotations(pod)))
    if conditions:
        return PodRefresh(status={**body, "status": {"conditions": conditions}}, completes=finished)
    return PodRefresh(patch=body, completes=finished)


def _metadata(
    pod: Pod, state: LifecycleState | None, now: datetime, finishes: bool, template_hash: bool
) -> dict[str, Any]:
    labels: dict[str, Any] = {}
    annotations: dict[str, Any] = {}
    if state is not None:
        labels, annotations = state_members(state, now)
    if finishes:
        annotations = {**annotations, **finished_annotations(pod)}
    revision = pod.metadata.labels.get(names.CONTROLLER_REVISION_HASH)
    if template_hash and revision and names.POD_TEMPLATE_HASH not in pod.metadata.labels:
        labels = {**labels, names.POD_TEMPLATE_HASH: short_hash(revision)}
    members = (("labels", labels), ("annotations", annotations))
    return {field: values for field, values in members if values}
