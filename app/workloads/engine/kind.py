"""Which workload an object belongs to, and how what a workload creates refers to it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final

from app.kube.objects import ControllerRevision, ObjectMeta, OwnerReference, PersistentVolumeClaim, Pod
from app.kube.resources import ObjectKey, Resource
from app.pods.owners import controller_reference

OWNER: Final = "owner"
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


def ownerless(namespace: str) -> str:
    """The key of index OWNER under which a namespace's objects stand that nobody controls."""
    return f"none/{namespace}"


def by_owner(obj: Pod | PersistentVolumeClaim) -> Iterable[str]:
    """The index function of OWNER for Pods and claims."""
    controller = obj.metadata.controller
    return (controller.uid,) if controller is not None else ()


def by_owner_or_none(revision: ControllerRevision) -> Iterable[str]:
    """The index function of OWNER for revisions; those nobody controls stand under :func:`ownerless`."""
    controller = revision.metadata.controller
    return (controller.uid,) if controller is not None else (ownerless(revision.metadata.namespace),)
