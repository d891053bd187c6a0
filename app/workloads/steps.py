"""The next step of a Pod's update, and how an in-place update goes on. Pure."""

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
    update_action,
)
from app.pods.readiness import initial_conditions
from app.pods.revisions import short_hash
from app.workloads.pods import PodFacts, gets_initial_conditions
from app.workloads.settings import WorkloadSettings

#: Why a Pod cannot be updated in place: the first field that stands in the way; None: it can.
Obstacle: TypeAlias = Callable[[PodFacts], str | None]


class StepKind(StrEnum):
    """What an update does with a Pod now."""

    PREPARE = "Prepare"
    """Its hook is on: it says it is about to be updated and waits (PreparingUpdate)."""
    REARM = "Rearm"
    """Updated, but another revision has come: back to PreparingUpdate with the hook put on again (PM-73)."""
    IN_PLACE = "InPlace"
    RECREATE = "Recreate"
    """It is replaced: marked for deletion, or deleted, as the workload has it."""
    REFUSE = "Refuse"
    """Somebody has put it into a state from which no update starts: an error, which the others do not wait for."""


@dataclass(frozen=True, slots=True)
class Step:
    """One Pod and what is done with it. ``obstacle``: what keeps it from being updated in place."""

    kind: StepKind
    pod: PodFacts
    obstacle: str = ""


@dataclass(frozen=True, slots=True)
class UpdatePlan:
    """Steps in order. ``failure``: what then ends the update with an error; ``obstacle``: the field it is for."""

    #: The short hash of the revision Pods are taken to.
    target: str = ""
    steps: tuple[Step, ...] = ()
    failure: str = ""
    obstacle: str = ""


def in_place_step(pod: PodFacts, lifecycle: Lifecycle | None) -> Step | None:
    """CS-130: the step of a Pod that can be updated in place, by where it stands in its lifecycle; None: none yet."""
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


# What is due on one Pod whatever the roll-out does: in-place progress, lifecycle, labels (CS-122, CS-135). Pure.
#
# All that goes to metadata and conditions is one write: the subresource ``status`` takes both.


@dataclass(frozen=True, slots=True)
class PodRefresh:
    """One Pod's writes, of which at most one kind is set, and when to look again.

    ``resize``: to that subresource, then ``patch`` to the Pod. ``status``: to the subresource; it may hold metadata.
    """

    patch: Mapping[str, Any] | None = None
    resize: Mapping[str, Any] | None = None
    status: Mapping[str, Any] | None = None
    requeue_after: float = 0.0
    #: The update of the Pod is complete with this write.
    completes: bool = False
    #: The lifecycle or a label changes: what the cache shows of the Pod is no longer true.
    moves: bool = False
    error: str = ""

    @property
    def writes(self) -> bool:
        """Whether there is anything to write."""
        return self.patch is not None or self.resize is not None or self.status is not None


NOTHING = PodRefresh()


def refresh_pod(
    pod: Pod,
    settings: WorkloadSettings,
    now: datetime,
    *,
    returns: bool,
    resize_subresource: bool = True,
) -> PodRefresh:
    """``returns``: the Pod is in PreparingUpdate and no update waits for it any more."""
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
        return PodRefresh(patch=step.patch, resize=step.resize, moves=True)
    if step.action is RefreshAction.WAIT:
        return PodRefresh(requeue_after=step.delay)
    state = next_state(pod, settings.lifecycle, at_update_revision=returns, update_complete=complete)
    if state is LifecycleState.NORMAL and gets_initial_conditions(pod, settings.lifecycle):
        return NOTHING
    finishes = complete and (state is not None or not settings.gates.lifecycle_states)
    metadata = _metadata(pod, state, now, finishes, settings.gates.template_hash)
    conditions: list[Any] = []
    # A Pod that waits for its first conditions gets both from the readiness controller, in one write.
    if step.status is not None and not initial_conditions(pod):
        conditions += step.status["status"]["conditions"]
    if state is not None and (keys := readiness_patch(pod, state, settings.lifecycle, now)) is not None:
        conditions += keys["status"]["conditions"]
    if not metadata and not conditions:
        return NOTHING
    # That the containers have changed is true of this version of the Pod alone; and a step to Normal that was
    # under way for a minute must not undo what was decided since, by another leader even.
    seen = {"uid": pod.metadata.uid, "resourceVersion": pod.metadata.resource_version}
    body = {"metadata": {**seen, **metadata}}
    was_updated = names.IN_PLACE_UPDATE_STATE in pod.metadata.annotations
    finished = was_updated and complete and (state is not None or bool(conditions) or bool(finished_annotations(pod)))
    if conditions:
        return PodRefresh(
            status={**body, "status": {"conditions": conditions}}, moves=bool(metadata), completes=finished
        )
    return PodRefresh(patch=body, moves=True, completes=finished)


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
