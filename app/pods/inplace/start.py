"""The start of an in-place update: out of service first, then one write that begins it (§ 4.2). Pure.

A Pod may still be busy with an earlier update. What that one had not applied yet, because of a grace period or because
containers waited for others, is part of the new one: the Pod's label already says that it was done (PM-56, PM-57a).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from app.api.names import CONTROLLER_REVISION_HASH, IN_PLACE_UPDATE_GRACE, IN_PLACE_UPDATE_READY
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.pods.inplace.batch import PodChange, apply_batch, merged_resources, resize_patch
from app.pods.inplace.completion import is_image_changed, resources_outstanding, resources_to_set
from app.pods.inplace.spec import (
    GraceError,
    RefMetadata,
    UpdateSpec,
    images_of,
    metadata_patch_bytes,
    statuses_of,
    update_in_grace,
    without_grace,
)
from app.pods.inplace.state import InPlaceUpdateState, Phase, StateError, state_annotations, update_state
from app.pods.readiness.plan import StatusPatch, has_gate, ready_after, status_patch
from app.pods.revisions import is_same_revision
from app.pods.runtimemeta import is_env_current, runtime_meta

START_REASON: Final = "StartInPlaceUpdate"
_RESTART: Final = "RestartContainer"


@dataclass(frozen=True, slots=True)
class Start:
    """The second step. ``resize``, if any, goes to the subresource before ``patch``; ``delay``: seconds of grace."""

    patch: dict[str, Any]
    resize: dict[str, Any] | None = None
    delay: int = 0


def must_be_unready(pod: Pod, spec: UpdateSpec) -> bool:
    """PM-23: whether the Pod takes no traffic meanwhile.

    Not if no container changes (B-5), nor if only resources change and none of them restarts its container.
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
    """PM-22: the first step; None where it is not needed.

    Nor is it where the Pod shows the condition False already: should that be no longer true, the second step, which
    carries the Pod's resourceVersion, meets a conflict, and the first is looked at again.
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
    """PM-24, PM-25: the write that begins the update of a Pod that is out of service, if it must be.

    ``labels`` and ``annotations`` go into the same write: the revision's (PM-78), and the lifecycle's (PM-55).
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
    """PM-30 … PM-37: the metadata and the next batch go into ``change``; what comes out is for the subresource."""
    metadata = spec.metadata_patch
    for field, members in (("labels", change.labels), ("annotations", change.annotations)):
        members.update(metadata.get(field) or {})
    change.metadata.update({key: value for key, value in metadata.items() if key.endswith("finalizers")})
    state = apply_batch(pod, spec, state, now, change, resize=resize_subresource)
    return resize_patch(pod, state.container_resources)


def with_unapplied(pod: Pod, spec: UpdateSpec) -> UpdateSpec:
    """``spec``, and before it what an earlier update of the Pod has left to do."""
    for earlier in _unapplied(pod):
        spec = _after(earlier, spec)
    # Nothing changes for a container that has the image already, as after a rollback within the grace period.
    present = images_of(pod)
    images = {name: image for name, image in spec.container_images.items() if present.get(name) != image}
    return msgspec.structs.replace(spec, container_images=images)


def _unapplied(pod: Pod) -> list[UpdateSpec]:
    revision = pod.metadata.labels.get(CONTROLLER_REVISION_HASH, "")
    found: list[UpdateSpec] = []
    try:
        waiting = update_in_grace(pod)
    except GraceError:
        waiting = None  # It cannot be followed; the new update says what it should say.
    if waiting is not None and is_same_revision(revision, waiting.revision):
        found.append(waiting)
    prior = _prior(pod)
    if prior is not None and prior.has_next and is_same_revision(revision, prior.revision):
        found.append(prior.waiting())
    if prior is not None and (resources := resources_outstanding(pod, prior)):
        found.append(UpdateSpec(container_resources=resources))
    return found


def _after(earlier: UpdateSpec, later: UpdateSpec) -> UpdateSpec:
    """Both as one; where both say something, the later counts."""
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
        kept = [name for name in earlier.get(field) or () if name not in (later.get(opposite) or ())]
        if kept:
            patch[field] = [*kept, *(name for name in later.get(field) or () if name not in kept)]
    # Only for its order; with finalizers of two updates it would have to name both.
    if earlier.get(come) or earlier.get(gone):
        patch.pop("$setElementOrder/finalizers", None)
    return patch


def _prior(pod: Pod) -> InPlaceUpdateState | None:
    try:
        return update_state(pod)
    except StateError:
        return None  # It is about to be written anew.


def _env_outstanding(pod: Pod, prior: InPlaceUpdateState | None) -> bool:
    if prior is None or not prior.update_env_from_metadata:
        return False
    meta = runtime_meta(pod)
    return meta is None or not is_env_current(pod, meta)


def _with_outstanding(pod: Pod, state: InPlaceUpdateState, prior: InPlaceUpdateState | None) -> InPlaceUpdateState:
    """With the containers that an earlier update changed and that have not become what it made of them.

    Otherwise the Pod would count as updated while one of them is still to be restarted.
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
