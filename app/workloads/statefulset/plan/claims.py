"""The claims of a StatefulSet's Pods: whose they are, which are missing, which are to grow (AS-63 … AS-73, AS-103 …
AS-108). Pure: a claim is asked for by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from app.kube.objects import PersistentVolumeClaim
from app.pods import claimgrowth
from app.pods.claimgrowth import ClaimState, Growth, is_compatible, is_grown
from app.pods.claims import claim_name, claim_template_name, claims_of_pod, is_claim_leaving, owner_changes
from app.workloads.statefulset.plan.creation import pod_name
from app.workloads.statefulset.plan.replicas import Replica, Replicas
from app.workloads.statefulset.plan.resolved import ResolvedSpec

Claims: TypeAlias = Callable[[str], PersistentVolumeClaim | None]
Pair: TypeAlias = tuple[Mapping[str, Any], PersistentVolumeClaim]


def in_the_way(resolved: ResolvedSpec, claims: Claims, ordinal: int) -> str:
    """AS-67, AS-71: the claim of an ordinal without Pod that is going, or will be collected with a former Pod of that
    name; "" if there is none."""
    name = pod_name(resolved.owner.name, ordinal)
    found = (claim.metadata.name for _, claim in _present(resolved, name, claims) if is_claim_leaving(claim, name))
    return next(found, "")


def missing_claims(resolved: ResolvedSpec, ordinal: int, claims: Claims) -> list[dict[str, Any]]:
    """AS-65, AS-73: the claims of the Pod of that ordinal that are still to be created."""
    owner = resolved.owner
    name = pod_name(owner.name, ordinal)
    present = {claim.metadata.name for _, claim in _present(resolved, name, claims)}
    reference = set_reference(resolved) if resolved.settings.retention.with_set else None
    return claims_of_pod(
        resolved.claim_templates, name, owner.namespace, reference, resolved.selector_labels, existing=present
    )


def set_reference(resolved: ResolvedSpec) -> dict[str, Any]:
    """AS-68: the reference by which a claim goes with the set, and which does not make the set its controller."""
    owner = resolved.owner
    return {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}


def reference_changes(
    resolved: ResolvedSpec, replicas: Replicas, claims: Claims
) -> Iterator[tuple[Replica, PersistentVolumeClaim, dict[str, Any]]]:
    """AS-63, AS-68, AS-72: patches that make the owners of claims what the policy says."""
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
    """AS-103, AS-105: of the claims of one Pod that are there and stay."""
    return claimgrowth.claim_state(_staying(resolved, pod, claims))


def growths(resolved: ResolvedSpec, pod: Replica, claims: Claims) -> list[Growth]:
    """AS-104: the claims of a Pod that are to grow."""
    return claimgrowth.growths(_staying(resolved, pod, claims), resolved.owner.name)


def claim_counts(resolved: ResolvedSpec, replicas: Replicas, claims: Claims) -> list[dict[str, Any]]:
    """AS-108: per template the Pods in slots whose claim asks for enough, and has got it."""
    counts = []
    for template in resolved.claim_templates:
        found = (claims(claim_name(template, pod.name)) for pod in replicas.wanted)
        compatible = [claim for claim in found if claim is not None and is_compatible(template, claim)]
        counts.append(
            {
                "volumeClaimName": claim_template_name(template),
                "compatibleReplicas": len(compatible),
                "compatibleReadyReplicas": sum(map(is_grown, compatible)),
            }
        )
    return counts


def uncounted_claims(resolved: ResolvedSpec, replicas: Replicas, claims: Claims) -> frozenset[str]:
    """The names of claims that :func:`claim_counts` will count later: they are not in the cache, or not as large as
    they ask to be."""
    wanted = {claim_name(template, pod.name) for template in resolved.claim_templates for pod in replicas.wanted}
    return frozenset(name for name in wanted if (claim := claims(name)) is None or not is_grown(claim))


def _present(resolved: ResolvedSpec, pod: str, claims: Claims) -> Iterator[Pair]:
    for template in resolved.claim_templates:
        claim = claims(claim_name(template, pod))
        if claim is not None:
            yield template, claim


def _staying(resolved: ResolvedSpec, pod: Replica, claims: Claims) -> Iterator[Pair]:
    present = _present(resolved, pod.name, claims)
    return ((template, claim) for template, claim in present if claim.metadata.deletion_timestamp is None)
