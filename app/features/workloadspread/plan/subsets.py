"""What a subset adds to a Pod, and which subset an existing Pod belongs to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.api.gopod import POD
from app.features.workloadspread.plan.placement import SubsetRecord, limit_of, record_of, version_statuses, with_version
from app.features.workloadspread.plan.status import keys_of
from app.features.workloadspread.types import WorkloadSpread, WorkloadSpreadSubset
from app.kube.jsonvalues import json_size
from app.kube.objects import Node, Pod
from app.kube.patches import PatchError, same, strategic_merge
from app.kube.rulings import Ruling
from app.pods.node_fit import joining_problem, node_term, toleration_of

# Tolerations, node affinity and patch of a subset, prepared once per change of the spec. [WS-31, WS-32]

Json: TypeAlias = Mapping[str, Any]

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
_REQUIREMENTS: Final = ("matchExpressions", "matchFields")
#: Maximum size in bytes of a Pod together with the patch merged into it, because merging delays the creation of other
#: Pods.
MAX_PATCHED_BYTES: Final = 256 * 1024


@dataclass(frozen=True, slots=True)
class PreparedSubset:
    """A subset, prepared for merging into Pods."""

    name: str
    tolerations: tuple[Json, ...]
    required: Json | None
    preferred: tuple[Json, ...]
    patch: Any


def prepare(subset: WorkloadSpreadSubset) -> PreparedSubset:
    """Prepare a subset."""
    return PreparedSubset(
        subset.name,
        tuple(one.to_dict() for one in subset.tolerations or ()),
        subset.required_node_selector.to_dict() if subset.required_node_selector is not None else None,
        tuple(one.to_dict() for one in subset.preferred_node_selector or ()),
        subset.patch or None,
    )


def tolerations_with(subset: PreparedSubset, spec: Json) -> Sequence[Json]:
    """Return the tolerations of the Pod and the subset."""
    return [*(spec.get("tolerations") or ()), *subset.tolerations]


def affinity_with(subset: PreparedSubset, spec: Json) -> Json:
    """Return the Pod's affinity with the subset's terms. nodeAffinity is always set, even if empty. Raises PatchError.
    [WS-31]"""
    affinity = spec.get("affinity") or {}
    node = dict(affinity.get("nodeAffinity") or {})
    if subset.preferred:
        node[_PREFERRED] = [*(node.get(_PREFERRED) or ()), *subset.preferred]
    if subset.required is not None:
        own = node.get(_REQUIRED) or {}
        node[_REQUIRED] = {**own, "nodeSelectorTerms": required_terms(subset.required, own)}
    return {**affinity, "nodeAffinity": node}


def required_terms(required: Json, own: Json) -> list[Json]:
    """Add the subset's term to each term of the Pod, so that both must match. An empty term of the Pod matches no node
    and stays empty.

    Raises PatchError if this would add too many requirements.
    """
    terms = own.get("nodeSelectorTerms") or ()
    if problem := joining_problem(terms, required):
        raise PatchError(problem)
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
    """Apply the subset's patch to the Pod's metadata and spec. Raises PatchError. [WS-32]"""
    patch = subset.patch
    if not patch:
        return pod
    if not isinstance(patch, Mapping):
        raise PatchError("expected an object")
    refuse_too_large(pod, patch)
    wanted = {key: value for key, value in patch.items() if key in ("metadata", "spec", "$patch", "$retainKeys")}
    merged = strategic_merge({key: pod.get(key) or {} for key in ("metadata", "spec")}, wanted, POD)
    spec = merged.get("spec")
    before = (pod.get("spec") or {}).get("priorityClassName")
    if isinstance(spec, dict) and spec.get("priorityClassName") != before:
        # The API server sets spec.priority from the new priority class.
        spec = {key: value for key, value in spec.items() if key != "priority"}
        merged = {**merged, "spec": spec}
    return merged


def refuse_too_large(pod: Json, patch: Any) -> None:
    """Raise PatchError for a Pod or Pod template that is too large to be merged with the patch."""
    if (size := json_size(pod) + json_size(patch)) > MAX_PATCHED_BYTES:
        raise PatchError(f"Pod and patch total {size} bytes, more than {MAX_PATCHED_BYTES}")


# Subset of an existing Pod: the one in its annotation or, without one, a subset that fits its node. [WS-50 … WS-53]

#: Placeholder name for Pods that belong to no subset.
NO_SUBSET: Final = "kruise.io/workloadspread-fake-subset-name"
#: Annotation. If "true", the patch's metadata is not applied to existing Pods. [WS-53]
IGNORE_METADATA: Final = "workloadspread.kruise.io/ignore-patch-existing-pods-metadata"


@dataclass(frozen=True, slots=True)
class Adoption:
    """Assignment of an existing Pod to a subset, with the metadata to merge into the Pod."""

    pod: Pod
    subset: str
    metadata: Json


def recorded_subset(spread: WorkloadSpread, pod: Pod) -> str | None:
    """Return the subset recorded for this WorkloadSpread in the Pod's annotation, or None. [WS-50]"""
    record = record_of(pod.metadata.annotations)
    if record is None or record.spread != spread.name or not record.subset:
        return None
    return record.subset if any(one.name == record.subset for one in spread.spec.subsets) else NO_SUBSET


def leaves_others_alone(spread: WorkloadSpread) -> bool:
    """Return whether Pods beyond maxReplicas are ignored, as they are if there is only one subset. [WS-56]"""
    subsets = spread.spec.subsets
    return len(subsets) == 1 and subsets[0].max_replicas is not None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Pod that has no subset yet, with its JSON, node and version."""

    pod: Pod
    raw: Json
    node: Node
    version: str


def adoptions(
    spread: WorkloadSpread,
    subsets: Sequence[PreparedSubset],
    candidates: Sequence[Candidate],
    counted: Mapping[tuple[str, str], int],
    wanted: int,
) -> list[Adoption]:
    """Return the assignments of Pods that fit a subset. [WS-51 … WS-53]

    ``counted`` is the number of assigned Pods by version and subset.
    """
    taken = Counter(counted)
    limits = {one.name: limit_of(one, wanted) for one in spread.spec.subsets}
    found = []
    for candidate in candidates:
        best: tuple[int, PreparedSubset] | None = None
        for subset in subsets:
            limit = limits[subset.name]
            room = limit is None or taken[candidate.version, subset.name] < limit
            if not room and leaves_others_alone(spread):
                continue
            score = _score(subset, candidate, room=room)
            if score is not None and (best is None or score > best[0]):
                best = score, subset
        if best is None:
            continue
        subset = best[1]
        taken[candidate.version, subset.name] += 1
        found.append(Adoption(candidate.pod, subset.name, _metadata(spread, subset)))
    return found


def adopt(
    fresh: WorkloadSpread,
    subsets: Sequence[PreparedSubset],
    candidates: Sequence[Candidate],
    counted: Mapping[tuple[str, str], int],
    seen: Collection[str],
    wanted: int,
    now: str,
) -> Ruling[WorkloadSpread, list[Adoption]]:
    """Return the :func:`adoptions` and the status that reserves their places, as for new Pods. [WS-52]

    ``fresh`` is the newest copy; some of its places may be reserved for Pods being created. ``seen`` holds the entry
    keys of existing Pods.
    """
    limits = {one.name: limit_of(one, wanted) for one in fresh.spec.subsets}
    taken = Counter(counted)
    versions = {candidate.version: version_statuses(fresh, candidate.version, wanted) for candidate in candidates}
    # Keep places reserved by an earlier reconcile that failed to write the Pod.
    own = {key for candidate in candidates for key in keys_of(candidate.pod.metadata)}
    for version, statuses in versions.items():
        for status in statuses:
            creating = [key for key in status.creating_pods or () if key not in own]
            to_come = sum(key not in seen for key in creating)
            there = status.replicas + len(creating) - len(status.deleting_pods or ())
            taken[version, status.name] = max(counted.get((version, status.name), 0) + to_come, there)
    found = adoptions(fresh, subsets, candidates, taken, wanted)
    by_uid = {candidate.pod.metadata.uid: candidate.version for candidate in candidates}
    changed = None
    for one in found:
        limit, version = limits[one.subset], by_uid[one.pod.metadata.uid]
        if limit is None:
            continue
        statuses = versions[version]
        index = next(index for index, known in enumerate(statuses) if known.name == one.subset)
        before = statuses[index]
        if any(key in (before.creating_pods or ()) for key in keys_of(one.pod.metadata)):
            continue
        update = {
            "missing_replicas": max(0, before.missing_replicas - 1),
            "creating_pods": {**(before.creating_pods or {}), one.pod.metadata.name: now},
        }
        statuses[index] = before.model_copy(update=update)
        changed = with_version(changed or fresh, version, statuses)
    return Ruling(found, changed, provisional=True)


def _metadata(spread: WorkloadSpread, subset: PreparedSubset) -> Json:
    annotations: dict[str, Any] = {}
    metadata: dict[str, Any] = {}
    ignored = spread.metadata.annotations.get(IGNORE_METADATA, "").lower() == "true"
    given = subset.patch.get("metadata") if isinstance(subset.patch, Mapping) and not ignored else None
    if isinstance(given, Mapping):
        if isinstance(given.get("labels"), Mapping):
            metadata["labels"] = dict(given["labels"])
        if isinstance(given.get("annotations"), Mapping):
            annotations = dict(given["annotations"])
    return {**metadata, "annotations": {**annotations, **SubsetRecord(spread.name, subset.name).annotation()}}


def _score(subset: PreparedSubset, candidate: Candidate, *, room: bool) -> int | None:
    """Score the subset for the Pod, or return None if the Pod's node does not fit. [WS-51]"""
    spec = candidate.raw.get("spec") or {}
    tolerations = [toleration_of(one) for one in tolerations_with(subset, spec)]
    if not all(any(one.tolerates(taint) for one in tolerations) for taint in candidate.node.spec.taints):
        return None
    if subset.required is not None:
        node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        try:
            terms = required_terms(subset.required, node_affinity.get(_REQUIRED) or {})
        except PatchError:
            return None
        if not any(node_term(term).fits(candidate.node) for term in terms):
            return None
    weights = sum(
        int(term.get("weight") or 0)
        for term in subset.preferred
        if node_term(term.get("preference") or {}).fits(candidate.node)
    )
    return 100 * weights + 10 * _is_patched(subset, candidate.raw) + room


def _is_patched(subset: PreparedSubset, pod: Json) -> bool:
    """Return whether the patch would change nothing in the Pod except annotations."""
    patch = subset.patch
    if not patch:
        return True
    if not isinstance(patch, Mapping):
        return False
    wanted: dict[str, Any] = {key: value for key, value in patch.items() if key in ("metadata", "spec")}
    if isinstance(wanted.get("metadata"), Mapping):
        wanted["metadata"] = {key: value for key, value in wanted["metadata"].items() if key != "annotations"}
    before = {key: pod.get(key) or {} for key in ("metadata", "spec")}
    try:
        return same(strategic_merge(before, wanted, POD), before)
    except PatchError:
        return False
