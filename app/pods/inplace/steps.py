"""The steps of an in-place update: start it, and refresh it until it is complete. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from app.api.names import CONTROLLER_REVISION_HASH, IN_PLACE_UPDATE_GRACE, IN_PLACE_UPDATE_READY
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.pods.container_meta import is_env_current, runtime_meta
from app.pods.inplace.batch import PodChange, apply_batch, merged_resources, resize_patch
from app.pods.inplace.completion import (
    is_image_changed,
    resources_outstanding,
    resources_to_set,
    unfinished_resize,
    why_incomplete,
)
from app.pods.inplace.state import (
    GraceError,
    InPlaceUpdateState,
    Phase,
    RefMetadata,
    StateError,
    UpdateSpec,
    images_of,
    metadata_patch_bytes,
    state_annotations,
    statuses_of,
    update_in_grace,
    update_state,
    without_grace,
)
from app.pods.readiness import StatusPatch, has_gate, ready_after, status_patch
from app.pods.revisions import is_same_revision

# The start of an in-place update: take the Pod out of service, then begin with a single write. If an earlier update is
# still in progress, its pending changes (which wait for a grace period or for other containers) become part of the new
# update, because the Pod's revision label already includes them. [PM-56, PM-57a]

START_REASON: Final = "StartInPlaceUpdate"
_RESTART: Final = "RestartContainer"


@dataclass(frozen=True, slots=True)
class Start:
    """The second step of a start. ``resize``, if set, is sent to the subresource before ``patch``; ``delay`` is the
    grace period in seconds."""

    patch: dict[str, Any]
    resize: dict[str, Any] | None = None
    delay: int = 0


def must_be_unready(pod: Pod, spec: UpdateSpec) -> bool:
    """Return whether the Pod must be out of service during the update. [PM-23]

    It need not be if no container changes, or if only resources change and this restarts no container.
    """
    spec = with_unapplied(pod, spec)
    if not has_gate(pod, IN_PLACE_UPDATE_READY) or not spec.containers:
        return False
    if spec.container_images or spec.container_ref_metadata:
        return True
    changed = resources_to_set(pod, spec.container_resources)
    return any(
        policy.restart_policy == _RESTART
        and (
            policy.resource_name in changed[container.name].limits
            or policy.resource_name in changed[container.name].requests
        )
        for container in pod.spec.containers
        if container.name in changed
        for policy in container.resize_policy
    )


def unready_patch(pod: Pod, spec: UpdateSpec, now: datetime) -> StatusPatch | None:
    """Return the first step, which takes the Pod out of service, or None if it is not needed. [PM-22]

    A Pod whose condition is already False does not need it. If the cached condition is stale, the second step, which
    carries the Pod's resourceVersion, fails with a conflict, and the first step is evaluated again.
    """
    condition = pod.condition(IN_PLACE_UPDATE_READY)
    if (condition is not None and condition.status == "False") or not must_be_unready(pod, spec):
        return None
    unready = {
        "type": IN_PLACE_UPDATE_READY,
        "status": "False",
        "reason": START_REASON,
        "message": None,
        "lastTransitionTime": rfc3339(now),
    }
    lowered = ready_after(pod, IN_PLACE_UPDATE_READY, "False", now)
    return status_patch(pod, unready, *((lowered,) if lowered is not None else ()))


def start(
    pod: Pod,
    spec: UpdateSpec,
    now: datetime,
    *,
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    resize_subresource: bool = True,
) -> Start:
    """Return the write that begins the update. If the Pod must be out of service, it already is. [PM-24, PM-25]

    The same write sets ``labels`` and ``annotations``, such as the revision [PM-78] and the lifecycle state [PM-55].
    """
    spec = with_unapplied(pod, spec)
    prior = _prior(pod)
    state = InPlaceUpdateState(
        revision=spec.revision,
        update_timestamp=now,
        update_env_from_metadata=spec.update_env_from_metadata or _env_outstanding(pod, prior),
        update_resources=bool(spec.container_resources),
        update_images=bool(spec.container_images),
    )
    state = _with_outstanding(pod, state, prior)
    change = PodChange(annotations=dict(without_grace(pod)))
    delay = spec.grace_seconds if spec.containers else 0
    resize = None
    if delay > 0:
        state = msgspec.structs.replace(state, state=Phase.PREPARING)
        change.annotations.update(state_annotations(pod, state))
        change.annotations[IN_PLACE_UPDATE_GRACE] = spec.as_json()
    else:
        resize = write_batch(pod, spec, state, now, change, resize_subresource=resize_subresource)
    change.labels.update(labels)
    change.annotations.update(annotations or {})
    return Start(change.patch(pod), resize, delay)


def write_batch(
    pod: Pod, spec: UpdateSpec, state: InPlaceUpdateState, now: datetime, change: PodChange, *, resize_subresource: bool
) -> dict[str, Any] | None:
    """Add the metadata and the next batch to ``change``; return the patch for the resize subresource, if any. [PM-30 …
    PM-37]"""
    metadata = spec.metadata_patch
    for field, members in (("labels", change.labels), ("annotations", change.annotations)):
        members.update(metadata.get(field) or {})
    change.metadata.update({key: value for key, value in metadata.items() if key.endswith("finalizers")})
    state = apply_batch(pod, spec, state, now, change, resize=resize_subresource)
    return resize_patch(pod, state.container_resources)


def with_unapplied(pod: Pod, spec: UpdateSpec) -> UpdateSpec:
    """Return ``spec`` merged with the changes that an earlier update of the Pod has not applied yet."""
    for earlier in _unapplied(pod):
        spec = _after(earlier, spec)
    # After a rollback within the grace period, for example, a container already has the image and does not change.
    present = images_of(pod)
    images = {name: image for name, image in spec.container_images.items() if present.get(name) != image}
    return msgspec.structs.replace(spec, container_images=images)


def _unapplied(pod: Pod) -> list[UpdateSpec]:
    revision = pod.metadata.labels.get(CONTROLLER_REVISION_HASH, "")
    found: list[UpdateSpec] = []
    try:
        waiting = update_in_grace(pod)
    except GraceError:
        waiting = None  # The earlier update cannot be parsed; the new one replaces it.
    if waiting is not None and is_same_revision(revision, waiting.revision):
        found.append(waiting)
    prior = _prior(pod)
    if prior is not None and prior.has_next and is_same_revision(revision, prior.revision):
        found.append(prior.waiting())
    if prior is not None and (resources := resources_outstanding(pod, prior)):
        found.append(UpdateSpec(container_resources=resources))
    return found


def _after(earlier: UpdateSpec, later: UpdateSpec) -> UpdateSpec:
    """Merge two specs; if both set a value, the later one wins."""
    metadata = later.metadata_patch
    refs = dict(later.container_ref_metadata)
    overruled = {
        field: {*(metadata.get(field) or {}), *(key for ref in refs.values() for key in getattr(ref, field))}
        for field in ("labels", "annotations")
    }
    for name, ref in earlier.container_ref_metadata.items():
        own = refs.get(name, RefMetadata())
        left = RefMetadata(
            {**{k: v for k, v in ref.labels.items() if k not in overruled["labels"]}, **own.labels},
            {**{k: v for k, v in ref.annotations.items() if k not in overruled["annotations"]}, **own.annotations},
        )
        if left.labels or left.annotations:
            refs[name] = left
    patch = _merged_metadata(earlier.metadata_patch, metadata, overruled)
    return msgspec.structs.replace(
        later,
        container_images={**earlier.container_images, **later.container_images},
        container_ref_metadata=refs,
        container_resources=merged_resources(earlier.container_resources, later.container_resources),
        meta_data_patch=metadata_patch_bytes(patch) if patch or later.meta_data_patch else b"",
        update_env_from_metadata=bool(refs),
    )


def _merged_metadata(
    earlier: Mapping[str, Any], later: Mapping[str, Any], overruled: Mapping[str, set[str]]
) -> dict[str, Any]:
    patch = dict(later)
    for field, keys in overruled.items():
        left = {key: value for key, value in (earlier.get(field) or {}).items() if key not in keys}
        if left or later.get(field):
            patch[field] = {**left, **(later.get(field) or {})}
    gone, come = "$deleteFromPrimitiveList/finalizers", "finalizers"
    for field, opposite in ((gone, come), (come, gone)):
        undone = set(later.get(opposite) or ())
        kept = [name for name in earlier.get(field) or () if name not in undone]
        if kept:
            patch[field] = list(dict.fromkeys((*kept, *(later.get(field) or ()))))
    # This directive only sets the order, so it is dropped rather than extended to the finalizers of both updates.
    if earlier.get(come) or earlier.get(gone):
        patch.pop("$setElementOrder/finalizers", None)
    return patch


def _prior(pod: Pod) -> InPlaceUpdateState | None:
    try:
        return update_state(pod)
    except StateError:
        return None  # The invalid record is about to be overwritten.


def _env_outstanding(pod: Pod, prior: InPlaceUpdateState | None) -> bool:
    if prior is None or not prior.update_env_from_metadata:
        return False
    meta = runtime_meta(pod)
    return meta is None or not is_env_current(pod, meta)


def _with_outstanding(pod: Pod, state: InPlaceUpdateState, prior: InPlaceUpdateState | None) -> InPlaceUpdateState:
    """Add the containers of an earlier update that have not finished changing.

    Otherwise the Pod would count as updated before they restart.
    """
    if prior is None:
        return state
    statuses, images = statuses_of(pod), images_of(pod)
    before = {
        name: entry
        for name, entry in prior.before.items()
        if name in images
        and (
            name not in statuses
            or not is_image_changed(pod, statuses[name], images[name], entry, prior.last_container_ids.get(name, ""))
        )
    }
    ids = {name: container for name, container in prior.last_container_ids.items() if name in before}
    return msgspec.structs.replace(state, last_container_statuses=before or None, last_container_ids=ids)


# A refresh advances an in-place update each time its Pod is reconciled: it ends the grace period, applies the next
# batch, and finally sets the condition that lets the Pod receive traffic. [PM-42 … PM-46]


#: Seconds between retries of a resize. After two minutes the delay grows with the time since the first refusal.
RETRY_SECONDS: Final = 4
MAX_RETRY_SECONDS: Final = 30
_RETRY_SHARE: Final = 30


class RefreshAction(StrEnum):
    """Next action for the Pod."""

    NOTHING = "nothing"
    #: The grace period is not over; check again after ``delay`` seconds.
    WAIT = "wait"
    #: The containers have not changed yet, or a required container is not ready; ``reason`` says which.
    INCOMPLETE = "incomplete"
    #: The grace annotation belongs to another revision: ``patch`` removes it.
    DROP_GRACE = "drop grace"
    #: Send ``resize`` if set, then ``patch`` with the next batch.
    APPLY = "apply"
    #: Send ``resize``: the last batch was recorded, but its resources were not set.
    RESIZE = "resize"
    #: Send ``patch``, which makes the kubelet retry a refused resize.
    RETRY = "retry"
    #: Write ``status``: the Pod may receive traffic.
    READY = "ready"


@dataclass(frozen=True, slots=True)
class Refresh:
    """One step. After a conflict on ``patch``, compute the step again; a conflict on ``status`` ends the reconcile."""

    action: RefreshAction
    patch: dict[str, Any] | None = None
    resize: dict[str, Any] | None = None
    status: StatusPatch | None = None
    delay: int = 0
    reason: str = ""

    @property
    def stops(self) -> bool:
        """Whether this reconcile must not write to the Pod again, because the cached Pod is out of date."""
        return self.action in (RefreshAction.DROP_GRACE, RefreshAction.APPLY, RefreshAction.RESIZE, RefreshAction.RETRY)


_NOTHING = Refresh(RefreshAction.NOTHING)


def refresh(
    pod: Pod,
    now: datetime,
    *,
    grace_seconds: int | None = None,
    vertical_scaling: bool = False,
    resize_subresource: bool = True,
) -> Refresh:
    """Return the next step for an active Pod, even if its workload is paused.

    ``grace_seconds`` is the workload's current setting, which may shorten a wait in progress. Raises
    :class:`StateError` or :class:`GraceError` for annotations that cannot be parsed. [PM-46]
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
        return _incomplete(pod, state, now, reason)
    return _next_batch(pod, state, now, resize_subresource) if state.has_next else _ready(pod, now)


def _incomplete(pod: Pod, state: InPlaceUpdateState, now: datetime, reason: str) -> Refresh:
    """Wait for the containers. Retry a resize that the kubelet does not finish. [PM-190]

    Any write to the Pod makes the kubelet retry at once; otherwise, it waits 10 to 15 s. After a container restart, an
    attempt succeeds only if the runtime lists the old container's statistics before the new one's, which may take many
    attempts.
    """
    condition = unfinished_resize(pod) if state.update_resources else None
    since = condition.last_transition_time if condition is not None else None
    if since is None:
        return Refresh(RefreshAction.INCOMPLETE, reason=reason)
    last = max(since, state.resize_retried) if state.resize_retried is not None else since
    pause = min(max(RETRY_SECONDS, (last - since).total_seconds() / _RETRY_SHARE), MAX_RETRY_SECONDS)
    left = pause - (now - last).total_seconds()
    if left > 0:
        return Refresh(RefreshAction.INCOMPLETE, reason=reason, delay=math.ceil(min(left, MAX_RETRY_SECONDS)))
    change = PodChange(annotations=dict(state_annotations(pod, msgspec.structs.replace(state, resize_retried=now))))
    return Refresh(RefreshAction.RETRY, change.patch(pod), reason=reason)


def _in_grace(
    pod: Pod,
    waiting: UpdateSpec,
    state: InPlaceUpdateState | None,
    now: datetime,
    grace_seconds: int | None,
    resize_subresource: bool,
) -> Refresh:
    """Wait until the grace period is over, then apply the update. [PM-42]"""
    if state is None:
        raise StateError(
            f"Pod {pod.metadata.namespace}/{pod.metadata.name} waits for an in-place update but has no recorded state"
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
    """Wait for the required containers, or apply the next batch. [PM-44]"""
    check = state.pre_check_before_next
    ready = {name for name, status in statuses_of(pod).items() if status.ready}
    present = images_of(pod)
    awaited = [
        name
        for name in (check.containers_required_ready or () if check is not None else ())
        # Do not wait forever for a container that was removed from the Pod.
        if name not in ready and name in present
    ]
    if awaited:
        return Refresh(RefreshAction.INCOMPLETE, reason=f"waiting for {', '.join(awaited)} to be ready")
    change = PodChange()
    resize = write_batch(pod, state.waiting(), state, now, change, resize_subresource=resize_subresource)
    return Refresh(RefreshAction.APPLY, change.patch(pod), resize)


def _ready(pod: Pod, now: datetime) -> Refresh:
    """Set the readiness condition to True, because no update is in progress. [PM-45]"""
    condition = pod.condition(IN_PLACE_UPDATE_READY)
    # The condition is replaced only if its status differs, regardless of its reason and message. [PM-40]
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
    """Return the annotation to write with the lifecycle state once the update is complete; empty if already written."""
    try:
        state = update_state(pod)
    except StateError:
        return {}
    if state is None or state.state in ("", Phase.UPDATED):
        return {}
    return state_annotations(pod, msgspec.structs.replace(state, state=Phase.UPDATED))
