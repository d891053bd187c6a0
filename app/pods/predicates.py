"""Facts about a Pod: whether it is active, ready or available, and who controls it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf
from typing import Any, Final, Protocol, Self, TypeVar

from app.api.names import SPECIFIED_DELETE
from app.kube.objects import Meta, ObjectMeta, OwnerReference, Pod
from app.kube.resources import ObjectKey, Resource

FINISHED = frozenset({"Succeeded", "Failed"})


def is_condition_true(pod: Pod, type_: str) -> bool:
    """Return whether the condition exists with status True."""
    found = pod.condition(type_)
    return found is not None and found.status == "True"


def is_active(pod: Pod) -> bool:
    """Return whether the Pod is neither finished nor being deleted. [PM-113]"""
    return pod.status.phase not in FINISHED and pod.metadata.deletion_timestamp is None


def is_ready(pod: Pod) -> bool:
    """Return whether condition Ready is True. [PM-113]"""
    return is_condition_true(pod, "Ready")


def is_running_and_ready(pod: Pod) -> bool:
    """Return whether the Pod is in phase Running and ready. [PM-113]"""
    return pod.status.phase == "Running" and is_ready(pod)


def is_unschedulable(pod: Pod) -> bool:
    """Return whether the Pod is pending because the scheduler found no node. [WS-65, UD-55]"""
    scheduled = pod.condition("PodScheduled")
    return (
        pod.metadata.deletion_timestamp is None
        and pod.status.phase == "Pending"
        and not pod.spec.node_name
        and scheduled is not None
        and scheduled.status == "False"
        and scheduled.reason == "Unschedulable"
    )


def ready_since(pod: Pod) -> datetime | None:
    """Return when the Pod became ready; None if it is not ready or the time is unknown."""
    found = pod.condition("Ready")
    return found.last_transition_time if found is not None and found.status == "True" else None


def available_after(pod: Pod, min_ready_seconds: int) -> float:
    """Return the POSIX time when the Pod becomes available; -inf without minReadySeconds, inf if unknown. [PM-114]"""
    if min_ready_seconds <= 0:
        return -inf
    since = ready_since(pod)
    return inf if since is None else since.timestamp() + min_ready_seconds


def is_specified_delete(pod: Pod) -> bool:
    """Return whether the Pod is marked for deletion by the label, regardless of the label's value. [PM-103]"""
    return SPECIFIED_DELETE in pod.metadata.labels


# Owner references: who owns an object, and the patches that adopt and release it. Users who may create an object may
# write any owner reference into it, with the uid of any other object. A reference therefore identifies an owner only if
# uid, group, kind, name and namespace agree. Only :func:`owner_key` decides this; both the index of cached objects and
# every comparison use it. Patches are strategic merge patches that change one owner reference and leave the others.
# [PM-107, PM-109, PM-112]

#: The index of objects by the :func:`owner_key` of their controller; objects without a controller are under
#: :func:`ownerless`.
BY_CONTROLLER: Final = "controller"


class Reference(Protocol):
    """The fields of an owner reference that identify the owner."""

    @property
    def api_version(self) -> str: ...
    @property
    def kind(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


R = TypeVar("R", bound=Reference, covariant=True)


class Dependent(Protocol[R]):
    """Metadata that may list owner references."""

    @property
    def namespace(self) -> str: ...
    @property
    def controller(self) -> R | None: ...


@dataclass(frozen=True, slots=True)
class Owner:
    """Fields of an owner that its dependents refer to. ``namespace`` is empty for a cluster-scoped object."""

    api_version: str
    kind: str
    name: str
    namespace: str
    uid: str

    @classmethod
    def of(cls, resource: Resource, metadata: Meta) -> Self:
        return cls(
            resource.api_version, resource.kind, metadata.name, metadata.namespace or "", str(metadata.uid or "")
        )

    @property
    def reference(self) -> dict[str, Any]:
        """The owner reference with ``controller: true``."""
        return controller_reference(self.api_version, self.kind, self.name, self.uid)

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.namespace, self.name)

    @property
    def index_key(self) -> str:
        """The key of its dependents in the index BY_CONTROLLER."""
        return owner_key(self, self.namespace)

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}"


def owner_key(reference: Reference, namespace: str) -> str:
    """Return the identity that a reference in an object of ``namespace`` claims: group, kind, namespace, name and uid.

    The version is ignored. No field of a real owner contains a slash, so a forged reference with slashes in its
    fields matches none.
    """
    group = reference.api_version.rpartition("/")[0]
    return f"{group}/{reference.kind}/{namespace}/{reference.name}/{reference.uid}"


def refers_to(reference: Reference | None, namespace: str, owner: Owner) -> bool:
    """Return whether a reference in an object of ``namespace`` refers to ``owner``."""
    if reference is None:
        return False
    # Dependents of a cluster-scoped owner can be in any namespace.
    return owner_key(reference, namespace if owner.namespace else "") == owner.index_key


def is_controlled_by(metadata: Dependent[Reference], owner: Owner) -> bool:
    """Return whether ``owner`` is the controller of the object with this metadata."""
    return refers_to(metadata.controller, metadata.namespace, owner)


def ownerless(namespace: str) -> str:
    """Return the index key of a namespace's objects that have no controller."""
    return f"none/{namespace}"


def controller_keys(obj: Any) -> Iterable[str]:
    """The index function of :data:`BY_CONTROLLER`."""
    metadata: ObjectMeta = obj.metadata
    controller = metadata.controller
    return (ownerless(metadata.namespace) if controller is None else owner_key(controller, metadata.namespace),)


def controller_of(references: Sequence[Mapping[str, Any]]) -> OwnerReference | None:
    """Return the controller among raw owner references."""
    for reference in references:
        if isinstance(reference, Mapping) and reference.get("controller") is True:
            fields = {field: reference.get(field) for field in ("apiVersion", "kind", "name", "uid")}
            if all(isinstance(value, str) for value in fields.values()):
                return OwnerReference(
                    str(fields["apiVersion"]), str(fields["kind"]), str(fields["name"]), str(fields["uid"]), True
                )
    return None


def controller_reference(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """Return the controller reference to an owner; foreground deletion of the owner waits for the dependent."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def adoption_patch(metadata: ObjectMeta, reference: dict[str, Any]) -> dict[str, Any]:
    """Return the patch that sets this controller. If the object has another controller by then, the API server rejects
    the patch. [PM-109]"""
    return {"metadata": {"uid": metadata.uid, "ownerReferences": [reference]}}


def release_patch(metadata: ObjectMeta, owner_uid: str) -> dict[str, Any]:
    """Return the patch that removes the reference to this owner and keeps all others. [PM-107]"""
    return {"metadata": {"uid": metadata.uid, "ownerReferences": [{"$patch": "delete", "uid": owner_uid}]}}


def transfer_patch(metadata: ObjectMeta, owner_uid: str, reference: dict[str, Any]) -> dict[str, Any]:
    """Return the patch that replaces this owner with another. [CS-120]"""
    references = [reference, {"$patch": "delete", "uid": owner_uid}]
    return {"metadata": {"uid": metadata.uid, "ownerReferences": references}}
