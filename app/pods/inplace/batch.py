"""One batch of an in-place update: which containers change together, and the patch that changes them. Pure.

Containers with the highest launch priority change first, the others once those are ready. [PM-30 … PM-37]
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

from app.kube.objects import Pod, ResourceRequirements
from app.pods.container_meta import launch_priorities
from app.pods.inplace.completion import resources_to_set
from app.pods.inplace.state import (
    ContainerBefore,
    InPlaceUpdateState,
    RefMetadata,
    UpdateSpec,
    images_of,
    resources_json,
    state_annotations,
    statuses_of,
)

_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)", re.ASCII)


@dataclass(slots=True)
class PodChange:
    """Contents of one strategic merge patch to a Pod; None removes a label or an annotation."""

    labels: dict[str, str | None] = field(default_factory=dict)
    annotations: dict[str, str | None] = field(default_factory=dict)
    #: Other metadata fields, as they appear in the patch.
    metadata: dict[str, Any] = field(default_factory=dict)
    #: The fields that change, by container name.
    containers: dict[str, dict[str, Any]] = field(default_factory=dict)

    def of_container(self, name: str, fields: Mapping[str, Any]) -> None:
        self.containers.setdefault(name, {}).update(fields)

    def patch(self, pod: Pod) -> dict[str, Any]:
        """Return the patch body, which applies only to the Pod version it was computed from."""
        metadata = {
            "uid": pod.metadata.uid,
            "resourceVersion": pod.metadata.resource_version,
            **({"labels": self.labels} if self.labels else {}),
            **({"annotations": self.annotations} if self.annotations else {}),
            **self.metadata,
        }
        body: dict[str, Any] = {"metadata": metadata}
        inits = {container.name for container in pod.spec.init_containers}
        for name, fields in self.containers.items():
            kind = "initContainers" if name in inits else "containers"
            body.setdefault("spec", {}).setdefault(kind, []).append({"name": name, **fields})
        return body


def containers_of_batch(spec: UpdateSpec, priorities: Mapping[str, int]) -> frozenset[str]:
    """Return the containers without a priority, those with the highest priority, and those that read the same labels or
    annotations as a container of the batch. [PM-32, PM-33]"""
    affected = spec.containers
    ranked = {name: priorities[name] for name in affected if name in priorities}
    highest = max(ranked.values(), default=0)
    batch = {name for name in affected if name not in ranked or ranked[name] == highest}
    refs = {name: _keys(ref) for name, ref in spec.container_ref_metadata.items()}
    readers: dict[tuple[str, str], list[str]] = {}
    for name, keys in refs.items():
        for key in keys:
            readers.setdefault(key, []).append(name)
    pending = [*batch]
    while pending:
        for key in refs.get(pending.pop(), ()):
            joining = set(readers.pop(key, ())) - batch
            batch |= joining
            pending += joining
    return frozenset(batch)


def _keys(ref: RefMetadata) -> frozenset[tuple[str, str]]:
    return frozenset({*(("labels", key) for key in ref.labels), *(("annotations", key) for key in ref.annotations)})


def apply_batch(
    pod: Pod, spec: UpdateSpec, state: InPlaceUpdateState, now: datetime, change: PodChange, *, resize: bool
) -> InPlaceUpdateState:
    """Add the next batch of ``spec`` to ``change`` and return the state to record.

    With ``resize``, resources are set through the subresource (:func:`resize_patch`), not by this patch. Containers
    that are not in the Pod are dropped, since they can never change.
    """
    spec, _ = _divided(spec, frozenset(images_of(pod)))
    batch = containers_of_batch(spec, launch_priorities(pod))
    now_spec, rest = _divided(spec, batch)
    statuses = statuses_of(pod)
    before, ids = dict(state.before), dict(state.last_container_ids)
    for name, image in now_spec.container_images.items():
        change.of_container(name, {"image": image})
        status = statuses.get(name)
        # A Pod without a node runs nothing yet; a scheduled Pod may be starting the old image right now. [PM-34]
        if status is not None or pod.spec.node_name:
            before[name] = ContainerBefore(status.image_id if status is not None else "")
        if status is not None and status.container_id:
            ids[name] = status.container_id
    for ref in now_spec.container_ref_metadata.values():  # [PM-35]
        change.labels.update(ref.labels)
        change.annotations.update(ref.annotations)
    wanted = merged_resources(state.container_resources, now_spec.container_resources) if resize else {}
    if not resize:
        for name, fields in resources_json(resources_to_set(pod, now_spec.container_resources)).items():
            change.of_container(name, {"resources": fields})
    state = msgspec.structs.replace(
        state, last_container_statuses=before or None, last_container_ids=ids, container_resources=wanted
    )
    state = state.with_next(rest, batch).with_batch(batch, now)
    change.annotations.update(state_annotations(pod, state))
    return state


def _divided(spec: UpdateSpec, containers: frozenset[str]) -> tuple[UpdateSpec, UpdateSpec]:
    """Split the spec into the part for ``containers`` and the rest."""

    def part(inside: bool) -> UpdateSpec:
        return msgspec.structs.replace(
            spec,
            container_images={n: v for n, v in spec.container_images.items() if (n in containers) is inside},
            container_ref_metadata={
                n: v for n, v in spec.container_ref_metadata.items() if (n in containers) is inside
            },
            container_resources={n: v for n, v in spec.container_resources.items() if (n in containers) is inside},
        )

    return part(True), part(False)


def merged_resources(
    first: Mapping[str, ResourceRequirements], second: Mapping[str, ResourceRequirements]
) -> dict[str, ResourceRequirements]:
    """Merge two maps of resources; if both set a value, ``second`` wins."""
    merged = dict(first)
    for name, resources in second.items():
        earlier = merged.get(name)
        if earlier is not None:
            resources = ResourceRequirements(
                {**earlier.limits, **resources.limits}, {**earlier.requests, **resources.requests}
            )
        merged[name] = resources
    return merged


def has_resize_subresource(git_version: str) -> bool:
    """Return whether an API server of this version sets resources through a subresource; False for an unreadable
    version. [PM-37]"""
    found = _VERSION.match(git_version)
    return found is not None and (int(found[1]), int(found[2])) >= (1, 32)


def resize_patch(pod: Pod, wanted: Mapping[str, ResourceRequirements]) -> dict[str, Any] | None:
    """Return the strategic merge patch for the subresource ``resize``, or None if the Pod already has these resources.
    [PM-37]"""
    differing = resources_json(resources_to_set(pod, wanted))
    if not differing:
        return None
    containers = [{"name": name, "resources": fields} for name, fields in differing.items()]
    return {"metadata": {"uid": pod.metadata.uid}, "spec": {"containers": containers}}
