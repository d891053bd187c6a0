"""What is written to one Pod: new images and the records of it, in one patch. Pure. Rules SS-55, SS-98 … SS-101."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from app.api import names
from app.kube.objects import Pod
from app.pods.draft import PodRefusedError
from app.pods.inplace.batch import PodChange
from app.sidecars.sidecarset.annotations import hash_record, kept_members, record_entry, timestamp
from app.sidecars.sidecarset.plan import hot
from app.sidecars.sidecarset.plan.records import with_state
from app.sidecars.sidecarset.plan.view import SetView
from app.sidecars.sidecarset.pod_metadata import MetadataPatchError, patched_annotations


class CannotUpdateError(Exception):
    """Something in the Pod or the set makes this update impossible; the message says what."""


@dataclass(frozen=True, slots=True)
class PodUpdate:
    """A strategic merge patch of a Pod that holds for the Pod that was looked at alone, and what it changes."""

    patch: Mapping[str, Any]
    #: Container → the image it ran and the one it shall run.
    images: Mapping[str, tuple[str, str]]

    def __str__(self) -> str:
        changes = (f"{name} {before} → {after}" for name, (before, after) in self.images.items())
        return ", ".join(changes) or "its containers run the set's images already"


def updated(view: SetView, pod: Pod, latest: str, version: str, now: datetime) -> PodUpdate:
    """The update of a Pod to the set as it is: revision ``latest``, resourceVersion ``version``.

    Raises CannotUpdateError.
    """
    present = {container.name: container.image for container in pod.spec.containers}
    twins = hot.upgraded(view, pod, version)
    images = {name: image for name, image in view.images.items() if name in present and present[name] != image}
    images |= twins.images
    own = pod.metadata.annotations
    when = timestamp(now)
    entry = record_entry(view.name, view.hash, view.sidecar_list, latest)
    try:
        kept = kept_members(
            f"{pod.metadata.namespace}/{pod.metadata.name}",
            names.SIDECARSET_HASH,
            own.get(names.SIDECARSET_HASH) or "{}",
        )
        patched = patched_annotations(own, view.patches)
    except (PodRefusedError, MetadataPatchError) as error:
        raise CannotUpdateError(str(error)) from error
    annotations = {
        **patched,
        **twins.annotations,
        names.SIDECARSET_HASH: hash_record(kept, [entry], when),
        names.SIDECARSET_IN_PLACE_UPDATE_STATE: with_state(pod, view.name, view.hash, when, images),
    }
    return _change(pod, images, annotations)


def idled(view: SetView, pod: Pod, now: datetime) -> PodUpdate:
    """SS-81: the end of a hot upgrade: the former twins take the empty image."""
    twins = hot.migrated(view, pod)
    state = with_state(pod, view.name, view.hash, timestamp(now), twins.images)
    return _change(pod, twins.images, {**twins.annotations, names.SIDECARSET_IN_PLACE_UPDATE_STATE: state})


def _change(pod: Pod, images: Mapping[str, str], annotations: Mapping[str, str]) -> PodUpdate:
    present = {container.name: container.image for container in pod.spec.containers}
    change = PodChange()
    for name, image in images.items():
        change.of_container(name, {"image": image})
    change.annotations.update(annotations)
    return PodUpdate(change.patch(pod), {name: (present[name], image) for name, image in images.items()})
