"""What a subset does to a Pod: tolerations, node affinity, patch (WS-31, WS-32). Pure; prepared once per change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.api.podmerge import POD
from app.api.workloadspread import WorkloadSpreadSubset
from app.kube.patches import PatchError
from app.kube.strategic import strategic_merge

Json: TypeAlias = Mapping[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIREMENTS: Final = ("matchExpressions", "matchFields")


@dataclass(frozen=True, slots=True)
class PreparedSubset:
    """A subset as it is put into Pods."""

    name: str
    tolerations: tuple[Json, ...]
    required: Json | None
    preferred: tuple[Json, ...]
    patch: Any


def prepare(subset: WorkloadSpreadSubset) -> PreparedSubset:
    """The subset, rendered."""
    return PreparedSubset(
        subset.name,
        tuple(one.to_dict() for one in subset.tolerations or ()),
        subset.required_node_selector.to_dict() if subset.required_node_selector is not None else None,
        tuple(one.to_dict() for one in subset.preferred_node_selector or ()),
        subset.patch or None,
    )


def tolerations_with(subset: PreparedSubset, spec: Json) -> Sequence[Json]:
    """Those of the Pod and of the subset."""
    return [*(spec.get("tolerations") or ()), *subset.tolerations]


def affinity_with(subset: PreparedSubset, spec: Json) -> Json:
    """WS-31: the Pod's affinity with the subset's terms; nodeAffinity is there, if only empty."""
    affinity = spec.get("affinity") or {}
    node = dict(affinity.get("nodeAffinity") or {})
    if subset.preferred:
        node[_PREFERRED] = [*(node.get(_PREFERRED) or ()), *subset.preferred]
    if subset.required is not None:
        own = node.get(_REQUIRED) or {}
        node[_REQUIRED] = {**own, "nodeSelectorTerms": required_terms(subset.required, own)}
    return {**affinity, "nodeAffinity": node}


def required_terms(required: Json, own: Json) -> list[Json]:
    """The subset's term within each of the Pod's: both must hold.

    A term of the Pod that says nothing matches no node, and stays so.
    """
    terms = own.get("nodeSelectorTerms") or ()
    return [_joined(term, required) if any(term.get(key) for key in _REQUIREMENTS) else term for term in terms] or [
        required
    ]


def _joined(term: Json, other: Json) -> Json:
    joined = dict(term)
    for key in _REQUIREMENTS:
        if other.get(key):
            joined[key] = [*(term.get(key) or ()), *other[key]]
    return joined


def patched(subset: PreparedSubset, pod: Json) -> Json:
    """WS-32: metadata and spec of the Pod with the subset's patch. Raises PatchError."""
    patch = subset.patch
    if not patch:
        return pod
    if not isinstance(patch, Mapping):
        raise PatchError("expected an object")
    wanted = {key: value for key, value in patch.items() if key in ("metadata", "spec", "$patch", "$retainKeys")}
    merged = strategic_merge({key: pod.get(key) or {} for key in ("metadata", "spec")}, wanted, POD)
    spec = merged.get("spec")
    before = (pod.get("spec") or {}).get("priorityClassName")
    if isinstance(spec, dict) and spec.get("priorityClassName") != before:
        # The API server computes it from the new class.
        spec = {key: value for key, value in spec.items() if key != "priority"}
        merged = {**merged, "spec": spec}
    return merged
