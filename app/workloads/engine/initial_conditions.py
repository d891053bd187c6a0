"""A new Pod's first conditions and its step to Normal, which are one write, made by the readiness controller. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from app.kube.objects import OwnerReference, Pod
from app.pods.lifecycle import Lifecycle, LifecycleState, state_members, state_of
from app.pods.readiness.plan import InitialMetadata, initial_conditions
from app.workloads.engine.kind import WorkloadKind


def gets_initial_conditions(pod: Pod, lifecycle: Lifecycle | None) -> bool:
    """Whether a new Pod's first conditions and its step to Normal are one write, made by the readiness controller."""
    waits_for_hook = lifecycle is not None and lifecycle.pre_normal is not None
    return state_of(pod) == LifecycleState.PREPARING_NORMAL and not waits_for_hook and bool(initial_conditions(pod))


def awaits_initial_conditions(pod: Pod) -> bool:
    """Whether that write is under way, or about to be. Nobody else moves the Pod until then: one of both would be
    refused, for both insist on the version they saw."""
    preparing = state_of(pod) == LifecycleState.PREPARING_NORMAL
    return preparing and bool(pod.spec.node_name) and bool(initial_conditions(pod))


def initial_metadata(
    kind: WorkloadKind, lifecycle_of: Callable[[OwnerReference, str], tuple[Lifecycle | None] | None]
) -> InitialMetadata:
    """CS-135: a Pod without a preNormal hook becomes Normal once it is scheduled; its first conditions go into the same
    write. One that no node takes shows them all the same, for it may stay so.

    ``lifecycle_of``: the hooks of the workload that a reference in a namespace means, in a tuple; None where it is not
    there, is another one, or is going.
    """

    def members(pod: Pod, now: datetime) -> Mapping[str, Any] | None:
        reference = kind.managing_reference(pod.metadata)
        found = lifecycle_of(reference, pod.metadata.namespace) if reference is not None else None
        if found is None or not gets_initial_conditions(pod, found[0]):
            return {}
        if not pod.spec.node_name:
            scheduled = pod.condition("PodScheduled")
            return {} if scheduled is not None and scheduled.status == "False" else None
        labels, annotations = state_members(LifecycleState.NORMAL, now)
        return {"labels": labels, "annotations": annotations}

    return members
