"""Volume claims of Pods: their names, which Pod each belongs to, and which to create and delete. Pure.

Pods and claims of a CloneSet share an instance id [CS-115 … CS-120]; those of other workloads are matched by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.gojson import GoTypeError, dumps_go, go_value, list_of
from app.api.gopod import CLAIM
from app.kube.hashes import Random, deep_hash, random_suffix
from app.kube.jsonvalues import objects
from app.kube.objects import PersistentVolumeClaim, Pod
from app.pods.predicates import controller_reference

_CLAIMS: Final = list_of(CLAIM)


def claim_templates_hash(templates: Sequence[Mapping[str, Any]] | None) -> str:
    """Return the hash that revisions store in an annotation to detect changed claim templates; '' if there are none.

    It covers the names and specs, in any order.
    """
    if not templates:
        return ""
    reduced = [
        {"metadata": {"name": claim_template_name(template)}, "spec": template.get("spec") or {}}
        for template in sorted(templates, key=claim_template_name)
    ]
    try:
        printed = go_value(_CLAIMS, reduced)
    except GoTypeError:
        printed = reduced
    return str(deep_hash(dumps_go(printed).encode()))


def claim_template_name(template: Mapping[str, Any]) -> str:
    """Return the name of a claim template, which is also the name of its volume."""
    return str((template.get("metadata") or {}).get("name") or "")


def claim_name(template: Mapping[str, Any], pod_name: str) -> str:
    """Return the name of a Pod's claim. [CS-116]"""
    return f"{claim_template_name(template)}-{pod_name}"


def instance_id(labels: Mapping[str, str]) -> str:
    """Return the instance id of a Pod or claim, or ''."""
    return labels.get(names.CLONESET_INSTANCE_ID, "")


def free_instance_ids(pods: Iterable[Pod], claims: Iterable[PersistentVolumeClaim], held: Collection[str]) -> list[str]:
    """Return the sorted ids of claims that no Pod of ``pods`` uses. Ids of claims being deleted are not reused.
    [CS-117, CS-189]

    ``held`` contains the ids of terminating Pods, whose names are not free yet.
    """
    used = {instance_id(pod.metadata.labels) for pod in pods}.union(held)
    offered = {instance_id(claim.metadata.labels) for claim in claims if claim.metadata.deletion_timestamp is None}
    return sorted(offered - used - {""})


def instance_ids(count: int, free: Sequence[str], taken: Collection[str], rng: Random) -> list[str]:
    """Return ``count`` ids: free ones first, then new ones that are not in ``taken``. [CS-117]"""
    ids = list(free[:count])
    known = {*taken, *free}
    while len(ids) < count:
        candidate = random_suffix(rng)
        if candidate not in known:
            known.add(candidate)
            ids.append(candidate)
    return sorted(ids)


def claims_of_pod(
    templates: Sequence[Mapping[str, Any]],
    pod_name: str,
    namespace: str,
    owner: Mapping[str, Any] | None,
    labels: Mapping[str, str],
    existing: Collection[str],
) -> list[dict[str, Any]]:
    """Return the claims to create before the Pod; claims named in ``existing`` are left out. [CS-118, AS-65]

    ``owner`` is the owner reference of the claims, if any; ``labels`` are added to those of each claim template.
    """
    made = []
    for template in templates:
        name = claim_name(template, pod_name)
        if name in existing:
            continue
        given = template.get("metadata") or {}
        metadata: dict[str, Any] = {
            "name": name,
            "namespace": namespace,
            "labels": {**(given.get("labels") or {}), **labels},
        }
        if owner is not None:
            metadata["ownerReferences"] = [owner]
        metadata |= {field: given[field] for field in ("annotations", "finalizers") if given.get(field)}
        spec = template.get("spec") or {}
        made.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return made


def with_claim_volumes(
    volumes: Sequence[Mapping[str, Any]] | None, templates: Sequence[Mapping[str, Any]], pod_name: str
) -> list[Mapping[str, Any]]:
    """Return the Pod's volumes: its claims first, in template order, replacing volumes of the same name. [CS-118]"""
    claims = [
        {"name": claim_template_name(template), "persistentVolumeClaim": {"claimName": claim_name(template, pod_name)}}
        for template in templates
    ]
    taken = {claim["name"] for claim in claims}
    return [*claims, *(volume for volume in volumes or () if volume.get("name") not in taken)]


def claim_volumes(templates: Any) -> list[dict[str, Any]]:
    """Return one volume for each claim template, with the same name, so that a Pod template can be validated before any
    Pod has claims. ``templates`` may be any JSON."""
    names_of_claims = map(claim_template_name, objects(templates))
    return [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in names_of_claims]


@dataclass(frozen=True, slots=True)
class ClaimCleanup:
    """What to do with claims whose Pods are no longer active, if the workload does not reuse claims. [CS-120]"""

    #: Claims to be owned by an inactive Pod, and deleted with it.
    hand_over: tuple[tuple[PersistentVolumeClaim, Pod], ...] = ()
    #: Claims that belong to no Pod.
    delete: tuple[PersistentVolumeClaim, ...] = ()
    #: Claims of active Pods.
    kept: tuple[PersistentVolumeClaim, ...] = ()


def cleanup(claims: Iterable[PersistentVolumeClaim], active: Iterable[Pod], inactive: Iterable[Pod]) -> ClaimCleanup:
    """Return what to do with ``claims``, which the workload controls and which are not being deleted. Claims without an
    instance id are ignored. [CS-120]"""
    in_use = {instance_id(pod.metadata.labels) for pod in active}
    leaving = {instance_id(pod.metadata.labels): pod for pod in inactive}
    hand_over, delete, kept = [], [], []
    for claim in claims:
        id_ = instance_id(claim.metadata.labels)
        if not id_ or id_ in in_use:
            kept.append(claim)
        elif id_ in leaving:
            hand_over.append((claim, leaving[id_]))
        else:
            delete.append(claim)
    return ClaimCleanup(tuple(hand_over), tuple(delete), tuple(kept))


def pod_reference(pod: Pod) -> dict[str, Any]:
    """Return the controller reference to a Pod. Claims that carry it are garbage-collected with the Pod."""
    return controller_reference("v1", "Pod", pod.metadata.name, pod.metadata.uid)


def is_claim_leaving(claim: PersistentVolumeClaim, pod_name: str) -> bool:
    """Return whether the claim is being deleted, or will be deleted with a former Pod of that name. [AS-67, AS-71]"""
    references = claim.metadata.owner_references
    stale = any((one.kind, one.group, one.name) == ("Pod", "", pod_name) for one in references)
    return claim.metadata.deletion_timestamp is not None or stale


def owner_changes(
    claim: PersistentVolumeClaim, owners: Iterable[tuple[Mapping[str, Any], bool]]
) -> dict[str, Any] | None:
    """Return the strategic merge patch that corrects the owner references of a claim, or None if they are correct.
    ``owners`` pairs each reference with whether it must be present."""
    present = {one.uid for one in claim.metadata.owner_references}
    changes: list[Mapping[str, Any]] = []
    for reference, wanted in owners:
        if wanted and reference["uid"] not in present:
            changes.append(reference)
        elif not wanted and reference["uid"] in present:
            changes.append({"$patch": "delete", "uid": reference["uid"]})
    return {"metadata": {"uid": claim.metadata.uid, "ownerReferences": changes}} if changes else None
