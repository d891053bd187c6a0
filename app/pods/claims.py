"""Volume claims of Pods: how they are called, which belongs to which Pod, what is made and what goes. Pure.

Pods and claims of a CloneSet carry the same instance id (CS-115 … CS-120); others are known by their names.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.gojson import GoTypeError, dumps_go, go_value, list_of
from app.api.gopod import CLAIM
from app.kube.objects import PersistentVolumeClaim, Pod
from app.pods.hashes import Random, deep_hash, random_suffix
from app.pods.predicates import controller_reference

_CLAIMS: Final = list_of(CLAIM)


def claim_templates_hash(templates: Sequence[Mapping[str, Any]] | None) -> str:
    """The annotation by which revisions tell whether claim templates changed; '' without any.

    Only names and specs count, not the order they stand in.
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
    """The name of a claim template; its volume has the same."""
    return str((template.get("metadata") or {}).get("name") or "")


def claim_name(template: Mapping[str, Any], pod_name: str) -> str:
    """CS-116: the name of a Pod's claim."""
    return f"{claim_template_name(template)}-{pod_name}"


def instance_id(labels: Mapping[str, str]) -> str:
    """The instance id of a Pod or a claim; '' without."""
    return labels.get(names.CLONESET_INSTANCE_ID, "")


def free_instance_ids(
    pods: Iterable[Pod], claims: Iterable[PersistentVolumeClaim], held: Collection[str] = ()
) -> list[str]:
    """CS-117: ids of claims that no Pod of ``pods`` uses, sorted. Vanishing claims offer theirs to nobody (CS-189).

    ``held``: ids that Pods on their way out still hold; a new Pod of that name could not be made yet (B-8).
    """
    used = {instance_id(pod.metadata.labels) for pod in pods}.union(held)
    offered = {instance_id(claim.metadata.labels) for claim in claims if claim.metadata.deletion_timestamp is None}
    return sorted(offered - used - {""})


def instance_ids(count: int, free: Sequence[str], taken: Collection[str], rng: Random) -> list[str]:
    """CS-117: ``count`` ids in order: free ones first, then new ones that are not in ``taken``."""
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
    existing: Collection[str] = (),
) -> list[dict[str, Any]]:
    """CS-118, AS-65: the claims to create before the Pod; those in ``existing`` (names) are there.

    ``owner``: the reference to whoever they go with, if to anybody; ``labels``: on top of each claim template's own.
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
    """CS-118: the Pod's volumes: its claims first, in the order of their templates, in place of volumes so named."""
    claims = [
        {
            "name": claim_template_name(template),
            "persistentVolumeClaim": {"claimName": claim_name(template, pod_name)},
        }
        for template in templates
    ]
    taken = {claim["name"] for claim in claims}
    return [*claims, *(volume for volume in volumes or () if volume.get("name") not in taken)]


@dataclass(frozen=True, slots=True)
class ClaimCleanup:
    """CS-120: what becomes of claims whose Pods are no longer active, where claims are not used again."""

    #: Claim → the inactive Pod that shall own it, and take it along.
    hand_over: tuple[tuple[PersistentVolumeClaim, Pod], ...] = ()
    #: Claims of no Pod at all.
    delete: tuple[PersistentVolumeClaim, ...] = ()
    #: Claims of active Pods.
    kept: tuple[PersistentVolumeClaim, ...] = ()


def cleanup(claims: Iterable[PersistentVolumeClaim], active: Iterable[Pod], inactive: Iterable[Pod]) -> ClaimCleanup:
    """CS-120. ``claims``: those the workload controls and that are not going already; one without id is left alone."""
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
    """The controller reference by which a Pod takes its claims along."""
    return controller_reference("v1", "Pod", pod.metadata.name, pod.metadata.uid)


def is_claim_leaving(claim: PersistentVolumeClaim, pod_name: str) -> bool:
    """AS-67, AS-71: whether it is being deleted, or will be, with a former Pod of that name."""
    references = claim.metadata.owner_references
    stale = any((one.kind, one.group, one.name) == ("Pod", "", pod_name) for one in references)
    return claim.metadata.deletion_timestamp is not None or stale


def owner_changes(
    claim: PersistentVolumeClaim, owners: Iterable[tuple[Mapping[str, Any], bool]]
) -> dict[str, Any] | None:
    """The strategic merge patch that adds and takes away owner references of a claim; None: they are right. ``owners``:
    references, and whether each is to be there."""
    present = {one.uid for one in claim.metadata.owner_references}
    changes: list[Mapping[str, Any]] = []
    for reference, wanted in owners:
        if wanted and reference["uid"] not in present:
            changes.append(reference)
        elif not wanted and reference["uid"] in present:
            changes.append({"$patch": "delete", "uid": reference["uid"]})
    return {"metadata": {"uid": claim.metadata.uid, "ownerReferences": changes}} if changes else None
