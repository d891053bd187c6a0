"""Which subset a Pod belongs to, and what a new Pod of a subset gets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from app.api.gopod import POD
from app.features.workloadspread.plan.places import SubsetRecord, limit_of, record_of, version_statuses, with_version
from app.features.workloadspread.plan.status import keys_of
from app.features.workloadspread.types import WorkloadSpread, WorkloadSpreadSubset
from app.kube.objects import Node, Pod, Taint
from app.kube.patches import PatchError, same, strategic_merge
from app.kube.rulings import Ruling

# What a subset does to a Pod: tolerations, node affinity, patch (WS-31, WS-32). Pure; prepared once per change.

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


# Which subset a Pod belongs to: what its annotation says, else the one that fits its node (WS-50 … WS-53). Pure.

#: The group of Pods that belong to no subset.
NO_SUBSET: Final = "kruise.io/workloadspread-fake-subset-name"
#: WS-53: "true" leaves the metadata of Pods that were there before alone.
IGNORE_METADATA: Final = "workloadspread.kruise.io/ignore-patch-existing-pods-metadata"
_NAME_FIELD: Final = "metadata.name"


@dataclass(frozen=True, slots=True)
class Adoption:
    """A Pod that comes into a subset, and what is merged into its metadata."""

    pod: Pod
    subset: str
    metadata: Json


def recorded_subset(spread: WorkloadSpread, pod: Pod) -> str | None:
    """WS-50: the subset of a Pod that says this WorkloadSpread is its own; None for other Pods."""
    record = record_of(pod.metadata.annotations)
    if record is None or record.spread != spread.name or not record.subset:
        return None
    return record.subset if any(one.name == record.subset for one in spread.spec.subsets) else NO_SUBSET


def leaves_others_alone(spread: WorkloadSpread) -> bool:
    """Return whether Pods beyond the only subset's maxReplicas are not the WorkloadSpread's business. [WS-56]"""
    subsets = spread.spec.subsets
    return len(subsets) == 1 and subsets[0].max_replicas is not None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A Pod without a subset, as JSON, the node it runs on, and its version."""

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
    """WS-51 … WS-53: those that fit a subset. ``counted``: Pods by version and subset that have one."""
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
    """WS-52: :func:`adoptions`, and the status that says their places are taken, as it does for new Pods.

    ``fresh``: the newest copy; its places may have been given to Pods that are on their way. ``seen``: by what entries
    of Pods that are there may be filed.
    """
    limits = {one.name: limit_of(one, wanted) for one in fresh.spec.subsets}
    taken = Counter(counted)
    versions = {candidate.version: version_statuses(fresh, candidate.version, wanted) for candidate in candidates}
    # Places that candidates were given before, in a reconcile that could not write it to the Pod, are theirs still.
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
    """WS-51; None where the Pod could not be on its node."""
    spec = candidate.raw.get("spec") or {}
    tolerations = [*(spec.get("tolerations") or ()), *subset.tolerations]
    if not all(any(_tolerates(one, taint) for one in tolerations) for taint in candidate.node.spec.taints):
        return None
    if subset.required is not None:
        node_affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
        terms = required_terms(subset.required, node_affinity.get(_REQUIRED) or {})
        if not any(matches_term(term, candidate.node) for term in terms):
            return None
    weights = sum(
        int(term.get("weight") or 0)
        for term in subset.preferred
        if matches_term(term.get("preference") or {}, candidate.node)
    )
    return 100 * weights + 10 * _is_patched(subset, candidate.raw) + room


def _is_patched(subset: PreparedSubset, pod: Json) -> bool:
    """Whether the patch, annotations aside, would change nothing."""
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


def _tolerates(toleration: Json, taint: Taint) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint.effect:
        return False
    if toleration.get("key") and toleration["key"] != taint.key:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return bool(toleration.get("key")) and (toleration.get("value") or "") == taint.value


def matches_term(term: Json, node: Node) -> bool:
    """Whether a node selector term holds for a node. One that says nothing matches none."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    labels = node.metadata.labels
    return all(_holds(one, labels) for one in expressions) and all(
        _holds(one, {_NAME_FIELD: node.metadata.name}) for one in fields
    )


def _holds(requirement: Json, values: Mapping[str, str]) -> bool:
    key, operator, wanted = requirement.get("key"), requirement.get("operator"), requirement.get("values") or ()
    value = values.get(str(key))
    match operator:
        case "In":
            return value is not None and value in wanted
        case "NotIn":
            return value is None or value not in wanted
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case "Gt" | "Lt":
            return _compared(str(operator), value, "".join(map(str, wanted)) if len(wanted) == 1 else "")
    return False


def _compared(operator: str, value: str | None, wanted: str) -> bool:
    try:
        mine, theirs = int(str(value)), int(wanted)
    except ValueError:
        return False
    return mine > theirs if operator == "Gt" else mine < theirs
