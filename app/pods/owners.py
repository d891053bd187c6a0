"""Whose a Pod, a claim or a revision is, and what becoming or ceasing to be its owner takes (§ 4.7). Pure.

Owners are told by uid. Patches are strategic merge patches: they change one owner reference and leave the others.
Rules PM-107, PM-109, PM-112.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from app.kube.objects import ObjectMeta, OwnerReference

#: The index of objects by the uid of the controller that owns them, and of those nobody controls by :func:`ownerless`.
BY_CONTROLLER: Final = "controller"


def ownerless(namespace: str) -> str:
    """The index key of the objects of a namespace that nobody controls."""
    return f"none/{namespace}"


def controller_keys(obj: Any) -> Iterable[str]:
    """The index function of :data:`BY_CONTROLLER`."""
    metadata: ObjectMeta = obj.metadata
    controller = metadata.controller
    return (ownerless(metadata.namespace) if controller is None else controller.uid,)


def controller_of(references: Sequence[Mapping[str, Any]]) -> OwnerReference | None:
    """The controller among raw owner references."""
    for reference in references:
        if isinstance(reference, Mapping) and reference.get("controller") is True:
            fields = {field: reference.get(field) for field in ("apiVersion", "kind", "name", "uid")}
            if all(isinstance(value, str) for value in fields.values()):
                return OwnerReference(
                    str(fields["apiVersion"]), str(fields["kind"]), str(fields["name"]), str(fields["uid"]), True
                )
    return None


def controller_reference(api_version: str, kind: str, name: str, uid: str) -> dict[str, Any]:
    """The reference of the owner that manages an object; its deletion waits for that of the object."""
    return {
        "apiVersion": api_version,
        "kind": kind,
        "name": name,
        "uid": uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def adoption_patch(metadata: ObjectMeta, reference: dict[str, Any]) -> dict[str, Any]:
    """PM-109: the object gets this controller. If it got another one meanwhile, the API server refuses two."""
    return {"metadata": {"uid": metadata.uid, "ownerReferences": [reference]}}


def release_patch(metadata: ObjectMeta, owner_uid: str) -> dict[str, Any]:
    """PM-107: the object loses its reference to this owner and keeps all others."""
    return {"metadata": {"uid": metadata.uid, "ownerReferences": [{"$patch": "delete", "uid": owner_uid}]}}


def transfer_patch(metadata: ObjectMeta, owner_uid: str, reference: dict[str, Any]) -> dict[str, Any]:
    """Another owner instead of this one (CS-120)."""
    references = [reference, {"$patch": "delete", "uid": owner_uid}]
    return {"metadata": {"uid": metadata.uid, "ownerReferences": references}}
