"""What goes on with an in-place update each time its Pod is looked at (§ 4.2, "Refresh"). Pure.

The end of a grace period, the next batch, and at last the condition that lets the Pod take traffic again. Rules PM-42 …
PM-46.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

import msgspec

from app.api.names import CONTROLLER_REVISION_HASH, IN_PLACE_UPDATE_READY
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.pods.inplace.batch import PodChange, resize_patch
from app.pods.inplace.completion import resources_outstanding, why_incomplete
from app.pods.inplace.spec import UpdateSpec, images_of, statuses_of, update_in_grace, without_grace
from app.pods.inplace.start import write_batch
from app.pods.inplace.state import InPlaceUpdateState, Phase, StateError, state_annotations, update_state
from app.pods.readiness.plan import StatusPatch, has_gate, status_patch
from app.pods.revisions import is_same_revision


class RefreshAction(StrEnum):
    """What to do with the Pod now."""

    NOTHING = "nothing"
    #: The grace period is not over; look again after ``delay`` seconds.
    WAIT = "wait"
    #: The containers have not changed yet, or those that must be ready are not; ``reason`` says which.
    INCOMPLETE = "incomplete"
    #: The grace annotation belongs to another revision: ``patch`` removes it.
    DROP_GRACE = "drop grace"
    #: ``resize`` the Pod if that is set, then ``patch`` it with the next batch.
    APPLY = "apply"
    #: ``resize``: the last batch was recorded, but did not reach the resources.
    RESIZE = "resize"
    #: ``status``: the Pod may take traffic.
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Refresh:
    """One step. A conflict on ``patch`` means to look again at the Pod; one on ``status`` ends the pass."""

    action: RefreshAction
    patch: dict[str, Any] | None = None
    resize: dict[str, Any] | None = None
    status: StatusPatch | None = None
    delay: int = 0
    reason: str = ""

    @property
    def stops(self) -> bool:
        """Whether nothing else is decided about the Pod in this pass: what was read of it is no longer true."""
        return self.action in (RefreshAction.DROP_GRACE, RefreshAction.APPLY, RefreshAction.RESIZE)


_NOTHING = Refresh(RefreshAction.NOTHING)


def refresh(
    pod: Pod,
    now: datetime,
    *,
    grace_seconds: int | None = None,
    vertical_scaling: bool = False,
    resize_subresource: bool = True,
) -> Refresh:
    """The step to take with an active Pod, also while its workload is paused.

    ``grace_seconds``: what the workload asks for now, if that shortens a running wait (B-7). Raises
    :class:`StateError` or :class:`GraceError` for annotations that cannot be read (PM-46, B-23).
    """
    waiting = update_in_grace(pod)
    state = update_state(pod)
    if waiting is not None:
        return _in_grace(pod, waiting, state, now, grace_seconds, resize_subresource)
    if state is None:
        return _ready(pod, now)
    if resize_subresource and (resize := resize_patch(pod, resources_outstanding(pod, state))) is not None:
        return Refresh(RefreshAction.RESIZE, resize=resize)
    reason = why_incomplete(pod, state, vertical_scaling=vertical_scaling)
    if reason:
        return Refresh(RefreshAction.INCOMPLETE, reason=reason)
    return _next_batch(pod, state, now, resize_subresource) if state.has_next else _ready(pod, now)


def _in_grace(
    pod: Pod,
    waiting: UpdateSpec,
    state: InPlaceUpdateState | None,
    now: datetime,
    grace_seconds: int | None,
    resize_subresource: bool,
) -> Refresh:
    """PM-42."""
    if state is None:
        raise StateError(
            f"Pod {pod.metadata.namespace}/{pod.metadata.name} waits for an in-place update of which it has no state"
        )
    if not is_same_revision(pod.metadata.labels.get(CONTROLLER_REVISION_HASH, ""), waiting.revision):
        return Refresh(RefreshAction.DROP_GRACE, PodChange(annotations=dict(without_grace(pod))).patch(pod))
    seconds = waiting.grace_seconds if grace_seconds is None else min(waiting.grace_seconds, max(0, grace_seconds))
    elapsed = (now - state.update_timestamp).total_seconds() if state.update_timestamp is not None else seconds
    if elapsed < seconds:
        return Refresh(RefreshAction.WAIT, delay=math.ceil(seconds - elapsed))
    change = PodChange(annotations=dict(without_grace(pod)))
    resize = write_batch(pod, waiting, state, now, change, resize_subresource=resize_subresource)
    return Refresh(RefreshAction.APPLY, change.patch(pod), resize)


def _next_batch(pod: Pod, state: InPlaceUpdateState, now: datetime, resize_subresource: bool) -> Refresh:
    """PM-44."""
    check = state.pre_check_before_next
    ready = {name for name, status in statuses_of(pod).items() if status.ready}
    present = images_of(pod)
    awaited = [
        name
        for name in (check.containers_required_ready or () if check is not None else ())
        # One that somebody took out of the Pod would be awaited for ever.
        if name not in ready and name in present
    ]
    if awaited:
        return Refresh(RefreshAction.INCOMPLETE, reason=f"waiting for {', '.join(awaited)} to be ready")
    change = PodChange()
    resize = write_batch(pod, state.waiting(), state, now, change, resize_subresource=resize_subresource)
    return Refresh(RefreshAction.APPLY, change.patch(pod), resize)


def _ready(pod: Pod, now: datetime) -> Refresh:
    """PM-45: nothing is under way, so nothing of ours keeps the Pod from being ready."""
    condition = pod.condition(IN_PLACE_UPDATE_READY)
    # PM-40: an entry is replaced only where its status differs, whatever its reason and message say.
    if not has_gate(pod, IN_PLACE_UPDATE_READY) or (condition is not None and condition.status == "True"):
        return _NOTHING
    raised = {
        "type": IN_PLACE_UPDATE_READY,
        "status": "True",
        "lastTransitionTime": rfc3339(now),
        **({"reason": None, "message": None} if condition is not None else {}),
    }
    return Refresh(RefreshAction.READY, status=status_patch(pod, raised))


def finished_annotations(pod: Pod) -> dict[str, str | None]:
    """D-3: what to write beside the lifecycle's state when the update is complete; empty where that stands already."""
    try:
        state = update_state(pod)
    except StateError:
        return {}
    if state is None or state.state in ("", Phase.UPDATED):
        return {}
    return state_annotations(pod, msgspec.structs.replace(state, state=Phase.UPDATED))
