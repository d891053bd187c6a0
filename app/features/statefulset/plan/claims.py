"""Claims of a StatefulSet: which to create, keep, delete or resize, and which storage classes allow it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, TypeAlias, TypeGuard

from app.features.statefulset.plan.new_pods import pod_name
from app.features.statefulset.plan.settings import Replica, Replicas, ResolvedSpec
from app.kube.objects import ObjectMeta, PersistentVolumeClaim, Struct, decoder
from app.kube.quantities import QuantityError, parse
from app.kube.resources import Resource
from app.pods.claims import (
    claim_name,
    claim_template_name,
    claims_of_pod,
    is_claim_leaving,
    owner_changes,
)

# Expansion of claims to the size in their templates: which claims differ, may be expanded, or have been expanded
# [AS-103 … AS-106]. Pure.

#: Annotation on a claim that a workload expanded. The value is the name of the workload.
GROWN_BY: Final = "apps.kruise.io/owned-by-asts"
_RESIZE_PENDING: Final = "FileSystemResizePending"
_STORAGE: Final = "storage"


@dataclass(frozen=True, slots=True)
class ClaimState:
    """State of the claims of one Pod.

    ``compatible``: no claim requests less than its template. ``completed``: every expansion is done, except for file
    systems to be resized at the next mount. ``pending``: a file system will be resized at the next mount. ``ready``:
    each claim has the capacity it requests.
    """

    compatible: bool = True
    completed: bool = True
    pending: bool = False
    ready: bool = True


@dataclass(frozen=True, slots=True)
class Growth:
    """A claim that requests less than its template. ``patch`` raises the request; it is None if other fields differ
    too, which only the user can resolve. [AS-104]"""

    claim: PersistentVolumeClaim
    storage_class: str
    patch: dict[str, Any] | None


def is_compatible(template: Mapping[str, Any], claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim matches its template and requests at least as much storage. [AS-106]"""
    requests = ((template.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return _is_alike(template, claim) and _at_least(claim.spec.resources.requests, requests.get(_STORAGE))


def is_grown(claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim has the capacity it requests."""
    return _at_least(claim.status.capacity, claim.spec.resources.requests.get(_STORAGE))


def _is_alike(template: Mapping[str, Any], claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim differs from its template at most in size. A storage class that is set in only one of
    them does not count as a difference."""
    spec = template.get("spec") or {}
    wanted, present = spec.get("storageClassName"), claim.spec.storage_class_name
    same_class = not wanted or not present or wanted == present
    return same_class and list(spec.get("accessModes") or ()) == list(claim.spec.access_modes)


def _at_least(present: Mapping[str, str], wanted: Any) -> bool:
    if wanted is None or present.get(_STORAGE) == wanted:
        return True
    try:
        return parse(present.get(_STORAGE, "0")) >= parse(wanted)
    except QuantityError:
        return False


# Claims of a StatefulSet's Pods: their owners, and which are missing or must be expanded [AS-63 … AS-73, AS-103 …
# AS-108]. Claims are looked up by name. Pure.

Claims: TypeAlias = Callable[[str], PersistentVolumeClaim | None]
Pair: TypeAlias = tuple[Mapping[str, Any], PersistentVolumeClaim]


def in_the_way(resolved: ResolvedSpec, claims: Claims, ordinal: int) -> str:
    """Return the name of a claim for this ordinal that is being deleted, or that will be garbage-collected with a
    former Pod of the same name. Return "" if there is none. [AS-67, AS-71]"""
    name = pod_name(resolved.owner.name, ordinal)
    found = (claim.metadata.name for _, claim in _present(resolved, name, claims) if is_claim_leaving(claim, name))
    return next(found, "")


def missing_claims(resolved: ResolvedSpec, ordinal: int, claims: Claims) -> list[dict[str, Any]]:
    """Return the claims that must be created for the Pod with that ordinal. [AS-65, AS-73]"""
    owner = resolved.owner
    name = pod_name(owner.name, ordinal)
    present = {claim.metadata.name for _, claim in _present(resolved, name, claims)}
    reference = set_reference(resolved) if resolved.settings.retention.with_set else None
    return claims_of_pod(
        resolved.claim_templates, name, owner.namespace, reference, resolved.selector_labels, existing=present
    )


def set_reference(resolved: ResolvedSpec) -> dict[str, Any]:
    """Return the owner reference that causes a claim to be deleted together with the set, without making the set its
    controller. [AS-68]"""
    owner = resolved.owner
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}


def reference_changes(
    resolved: ResolvedSpec, replicas: Replicas, claims: Claims
) -> Iterator[tuple[Replica, PersistentVolumeClaim, dict[str, Any]]]:
    """Yield patches that set the owners of claims according to the retention policy. [AS-63, AS-68, AS-72]"""
    if not resolved.settings.gates.auto_delete_claims:
        return
    retention, to_this_set = resolved.settings.retention, set_reference(resolved)
    for wanted, pods in ((True, replicas.wanted), (False, replicas.condemned)):
        with_pod = retention.with_pod and not wanted
        with_set = retention.with_set and not with_pod
        for pod in pods:
            to_pod = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": pod.facts.pod.metadata.uid}
            for _, claim in _staying(resolved, pod, claims):
                patch = owner_changes(claim, ((to_this_set, with_set), (to_pod, with_pod)))
                if patch is not None:
                    yield pod, claim, patch


def claim_state(resolved: ResolvedSpec, pod: Replica, claims: Claims) -> ClaimState:
    """Return the state of the claims of one Pod. Claims that are missing or being deleted are ignored. [AS-103,
    AS-105]"""
    compatible, completed, pending, all_ready = True, True, False, True
    for template, claim in _staying(resolved, pod, claims):
        waits = any(one.type == _RESIZE_PENDING and one.status == "True" for one in claim.status.conditions)
        ready = is_grown(claim)
        all_ready = all_ready and ready
        compatible = compatible and is_compatible(template, claim)
        completed = completed and (ready or waits)
        pending = pending or (not ready and waits)
    return ClaimState(compatible, completed and compatible, pending and completed and compatible, all_ready)


def growths(resolved: ResolvedSpec, pod: Replica, claims: Claims) -> list[Growth]:
    """Return the claims of a Pod that must be expanded. [AS-104]"""
    found = []
    for template, claim in _staying(resolved, pod, claims):
        if is_compatible(template, claim):
            continue
        patch = None
        if _is_alike(template, claim):
            resources = (template.get("spec") or {}).get("resources") or {}
            patch = {
                "metadata": {"uid": claim.metadata.uid, "annotations": {GROWN_BY: resolved.owner.name}},
                "spec": {"resources": resources},
            }
        found.append(Growth(claim, claim.spec.storage_class_name or "", patch))
    return found


def claim_counts(resolved: ResolvedSpec, replicas: Replicas, claims: Claims) -> list[dict[str, Any]]:
    """Return the status per claim template: the number of Pods whose claim requests enough storage, and how many of
    these claims have the requested capacity. Claims being deleted do not count. [AS-108]"""
    counts = []
    for template in resolved.claim_templates:
        found = (claims(claim_name(template, pod.name)) for pod in replicas.wanted)
        compatible = [claim for claim in found if _is_staying(claim) and is_compatible(template, claim)]
        counts.append(
            {
                "volumeClaimName": claim_template_name(template),
                "compatibleReplicas": len(compatible),
                "compatibleReadyReplicas": sum(map(is_grown, compatible)),
            }
        )
    return counts


def uncounted_claims(resolved: ResolvedSpec, replicas: Replicas, claims: Claims) -> frozenset[str]:
    """Return the names of claims that :func:`claim_counts` does not count yet, because they are not in the cache, are
    being deleted, or lack the capacity they request."""
    wanted = {claim_name(template, pod.name) for template in resolved.claim_templates for pod in replicas.wanted}
    return frozenset(name for name in wanted if not _is_staying(claim := claims(name)) or not is_grown(claim))


def _present(resolved: ResolvedSpec, pod: str, claims: Claims) -> Iterator[Pair]:
    for template in resolved.claim_templates:
        claim = claims(claim_name(template, pod))
        if claim is not None:
            yield template, claim


def _staying(resolved: ResolvedSpec, pod: Replica, claims: Claims) -> Iterator[Pair]:
    return ((template, claim) for template, claim in _present(resolved, pod.name, claims) if _is_staying(claim))


def _is_staying(claim: PersistentVolumeClaim | None) -> TypeGuard[PersistentVolumeClaim]:
    return claim is not None and claim.metadata.deletion_timestamp is None


# Storage classes that allow volume expansion. [AS-31]

STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", "StorageClass", namespaced=False)
_DEFAULT_CLASS: Final = "storageclass.kubernetes.io/is-default-class"
_LONG_AGO: Final = datetime.min.replace(tzinfo=UTC)


class StorageClass(Struct, frozen=True):
    """StorageClass fields that the controller reads."""

    metadata: ObjectMeta = ObjectMeta()
    allow_volume_expansion: bool = False


decode_storage_class = decoder(StorageClass)


class Expandable(dict[str, bool | None]):
    """Whether a storage class allows volume expansion, by name; None for a class that does not exist."""

    def __contains__(self, name: object) -> bool:
        """Return True for every name except "", which is contained only if there is a default class. [AS-31]"""
        return name != "" or super().__contains__(name)

    def __missing__(self, name: str) -> None:
        return None


def expandable(classes: Iterable[StorageClass]) -> Expandable:
    """Return the map of these classes. An unset allowVolumeExpansion means false. The key "" is the default class; if
    there are several, the newest one applies. [AS-31]"""
    found = list(classes)
    known = Expandable({one.metadata.name: one.allow_volume_expansion for one in found})
    defaults = [one for one in found if one.metadata.annotations.get(_DEFAULT_CLASS) == "true"]
    if defaults:
        newest = max(defaults, key=lambda one: (one.metadata.creation_timestamp or _LONG_AGO, one.metadata.name))
        known[""] = newest.allow_volume_expansion
    return known
