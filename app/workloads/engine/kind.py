"""Which workload an object belongs to, and how what a workload creates refers to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from app.kube.objects import Meta, ObjectMeta, OwnerReference
from app.kube.resources import Resource
from app.pods.owners import BY_CONTROLLER, Owner

__all__ = ["OWNER", "Owner", "WorkloadKind"]

OWNER: Final = BY_CONTROLLER
"""The index of Pods, claims and revisions by the object that controls them; one for all workloads."""


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind of workload; ``resource`` is that of the stored version."""

    resource: Resource

    def owner(self, metadata: Meta) -> Owner:
        """Return the workload with this metadata as its dependents refer to it."""
        return Owner.of(self.resource, metadata)

    def managing_reference(self, metadata: ObjectMeta) -> OwnerReference | None:
        """Return the reference to the workload of this kind that manages an object, in whatever version (D-2)."""
        reference = metadata.controller
        if reference is not None and (reference.kind, reference.group) == (self.resource.kind, self.resource.group):
            return reference
        return None
