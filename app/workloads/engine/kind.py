"""Which workload an object belongs to, and how what a workload creates refers to it. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from app.kube.objects import ObjectMeta, OwnerReference
from app.kube.resources import ObjectKey, Resource
from app.pods.owners import BY_CONTROLLER, controller_reference

OWNER: Final = BY_CONTROLLER
"""The index of Pods, claims and revisions by the uid of the object that controls them; one for all workloads."""


@dataclass(frozen=True, slots=True)
class Owner:
    """One workload, as what it creates refers to it."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str

    @property
    def reference(self) -> dict[str, Any]:
        """The controller's owner reference."""
        return controller_reference(self.api_version, self.kind, self.name, self.uid)

    @property
    def key(self) -> ObjectKey:
        """Under which the controller works on it."""
        return ObjectKey(self.namespace, self.name)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class WorkloadKind:
    """A kind of workload; ``resource`` is that of the stored version."""

    resource: Resource

    def owner(self, name: str, namespace: str, uid: str) -> Owner:
        """The workload of that name and uid."""
        return Owner(self.resource.api_version, self.resource.kind, name, namespace, uid)

    def managing_reference(self, metadata: ObjectMeta) -> OwnerReference | None:
        """The reference to the workload of this kind that manages an object, in whatever version (D-2)."""
        reference = metadata.controller
        if reference is not None and (reference.kind, reference.group) == (self.resource.kind, self.resource.group):
            return reference
        return None

    def manages(self, metadata: ObjectMeta, uid: str) -> bool:
        """Whether the workload of this kind with that uid manages the object."""
        reference = self.managing_reference(metadata)
        return reference is not None and reference.uid == uid
