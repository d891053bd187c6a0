"""The claims of a StatefulSet's Pods: whose they are, which are missing, which are to grow (AS-63 … AS-73, AS-103 …
AS-108). Pure: a claim is asked for by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.kube.objects import PersistentVolumeClaim
from app.kube.quantities import QuantityError, parse
from app.pods.claims import claim_name, claim_template_name
from app.workloads.statefulset.plan.creation import claims_of, pod_name, set_reference
from app.workloads.statefulset.plan.replicas import Replica, Replicas
from app.workloads.statefulset.plan.resolved import ResolvedSpec
from app.workloads.statefulset.plan.update import ClaimState

Claims: TypeAlias = Callable[[str], PersistentVolumeClaim | None]
_RESIZE_PENDING: Final = "FileSystemResizePending"
_STORAGE: Final = "storage"


def in_the_way(resolved: ResolvedSpec, ordinal: int, claims: Claims) -> str:
    """AS-67, AS-71: the claim of an ordinal without Pod that is going, or will be collected with a former Pod of that
    name; "" if there is none."""
    name = pod_name(resolved.owner.name, ordinal)
    for template in resolved.claim_templates:
        claim = claims(claim_name(template, name))
        if claim is None:
            continue
        metadata = claim.metadata
        stale = any((one.kind, one.group, one.name) == ("Pod", "", name) for one in metadata.owner_references)
        if metadata.deletion_timestamp is not None or stale:
            return metadata.name
    return ""


def missing_claims(resolved: ResolvedSpec, ordinal: int, claims: Claims) -> list[dict[str, Any]]:
    """AS-65, AS-73: the claims of a Pod that are still to be created."""
    return [made for made in claims_of(resolved, ordinal) if claims(made["metadata"]["name"]) is None]


def reference_changes(
    resolved: ResolvedSpec, replicas: Replicas, claims: Claims
) -> Iterator[tuple[Replica, PersistentVolumeClaim, dict[str, Any]]]:
    """AS-63, AS-68, AS-72: patches that make the owners of claims what the policy says."""
    if not resolved.settings.gates.auto_delete_claims or not resolved.claim_templates:
        return
    for wanted, pods in ((True, replicas.wanted), (False, replicas.condemned)):
        for pod in pods:
            for template in resolved.claim_templates:
                claim = claims(claim_name(template, pod.name))
                if claim is None or claim.metadata.deletion_timestamp is not None:
                    continue
                if (patch := _reference_patch(resolved, pod, claim, wanted)) is not None:
                    yield pod, claim, patch


def _reference_patch(
    resolved: ResolvedSpec, pod: Replica, claim: PersistentVolumeClaim, wanted: bool
) -> dict[str, Any] | None:
    retention, uid = resolved.settings.retention, pod.facts.pod.metadata.uid
    to_pod = retention.with_pod and not wanted
    to_set = retention.with_set and not to_pod
    present = {one.uid for one in claim.metadata.owner_references}
    pod_reference = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": uid}
    changes: list[dict[str, Any]] = []
    for reference, is_wanted in ((set_reference(resolved), to_set), (pod_reference, to_pod)):
        if is_wanted and reference["uid"] not in present:
            changes.append(reference)
        elif not is_wanted and reference["uid"] in present:
            changes.append({"$patch": "delete", "uid": reference["uid"]})
    if not changes:
        return None
    return {"metadata": {"uid": claim.metadata.uid, "ownerReferences": changes}}


@dataclass(frozen=True, slots=True)
class Growth:
    """A claim that asks for less than its template. ``patch``: what makes it ask for as much; None: it differs in more
    than its size, and only its user can help (AS-104)."""

    claim: PersistentVolumeClaim
    storage_class: str
    patch: dict[str, Any] | None


def claim_state(resolved: ResolvedSpec, pod: Replica, claims: Claims) -> ClaimState:
    """AS-103, AS-105: of the claims of one Pod that are there and stay."""
    compatible, completed, pending, all_ready = True, True, False, True
    for template, claim in _live(resolved, pod, claims):
        waits = any(one.type == _RESIZE_PENDING and one.status == "True" for one in claim.status.conditions)
        ready = _is_ready(claim)
        all_ready = all_ready and ready
        compatible = compatible and _is_compatible(template, claim)
        completed = completed and (ready or waits)
        pending = pending or (not ready and waits)
    return ClaimState(compatible, completed and compatible, pending and completed and compatible, all_ready)


def growth(resolved: ResolvedSpec, pod: Replica, claims: Claims) -> list[Growth]:
    """AS-104: the claims of a Pod that are to grow."""
    found = []
    for template, claim in _live(resolved, pod, claims):
        if _is_compatible(template, claim):
            continue
        patch = None
        if _is_alike(template, claim):
            resources = (template.get("spec") or {}).get("resources") or {}
            patch = {
                "metadata": {"uid": claim.metadata.uid, "annotations": {OWNED_BY: resolved.owner.name}},
                "spec": {"resources": resources},
            }
        found.append(Growth(claim, claim.spec.storage_class_name or "", patch))
    return found


OWNED_BY: Final = "apps.kruise.io/owned-by-asts"


def claim_counts(resolved: ResolvedSpec, replicas: Replicas, claims: Claims) -> list[dict[str, Any]]:
    """AS-108: per template the Pods in slots whose claim asks for enough, and has got it."""
    counts = []
    for template in resolved.claim_templates:
        compatible = ready = 0
        for pod in replicas.wanted:
            claim = claims(claim_name(template, pod.name))
            if claim is not None and _is_compatible(template, claim):
                compatible += 1
                ready += _is_ready(claim)
        counts.append(
            {
                "volumeClaimName": claim_template_name(template),
                "compatibleReplicas": compatible,
                "compatibleReadyReplicas": ready,
            }
        )
    return counts


def _live(
    resolved: ResolvedSpec, pod: Replica, claims: Claims
) -> Iterator[tuple[Mapping[str, Any], PersistentVolumeClaim]]:
    for template in resolved.claim_templates:
        claim = claims(claim_name(template, pod.name))
        if claim is not None and claim.metadata.deletion_timestamp is None:
            yield template, claim


def _is_alike(template: Mapping[str, Any], claim: PersistentVolumeClaim) -> bool:
    """Whether the claim differs from its template by its size at most; a class that one does not name is no
    difference."""
    spec = template.get("spec") or {}
    wanted, present = spec.get("storageClassName"), claim.spec.storage_class_name
    same_class = not wanted or not present or wanted == present
    return same_class and list(spec.get("accessModes") or ()) == list(claim.spec.access_modes)


def _is_compatible(template: Mapping[str, Any], claim: PersistentVolumeClaim) -> bool:
    """AS-106: whether the claim is like its template and asks for no less."""
    requests = ((template.get("spec") or {}).get("resources") or {}).get("requests") or {}
    return _is_alike(template, claim) and _at_least(claim.spec.resources.requests, requests.get(_STORAGE))


def _is_ready(claim: PersistentVolumeClaim) -> bool:
    return _at_least(claim.status.capacity, claim.spec.resources.requests.get(_STORAGE))


def _at_least(present: Mapping[str, str], wanted: Any) -> bool:
    if wanted is None or present.get(_STORAGE) == wanted:
        return True
    try:
        return parse(present.get(_STORAGE, "0")) >= parse(wanted)
    except QuantityError:
        return False
