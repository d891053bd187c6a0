"""What a Pod made anew gets from where it ran before (PPS-32 … PPS-36). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from app.api import names
from app.api.persistentpodstate import PersistentPodState, PodState
from app.api.persistentpodstate.validation import LEAST_WEIGHT, MOST_WEIGHT

Json = Mapping[str, Any]

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def node_selector_with(state: PersistentPodState, record: PodState, spec: Json) -> Json | None:
    """PPS-33: the Pod's node selector with what is required; None if nothing is."""
    required, labels = state.spec.required_persistent_topology, record.node_topology_labels or {}
    added = {key: labels[key] for key in required.keys if key in labels} if required is not None else {}
    return {**(spec.get("nodeSelector") or {}), **added} if added else None


def affinity_with(state: PersistentPodState, record: PodState, spec: Json) -> Json | None:
    """PPS-34: the Pod's affinity with what is preferred; None if nothing is. A term is not repeated."""
    labels = record.node_topology_labels or {}
    terms: list[Json] = []
    for preferred in state.spec.preferred_persistent_topology or ():
        expressions = [
            {"key": key, "operator": "In", "values": [labels[key]]}
            for key in preferred.preference.keys
            if key in labels
        ]
        if expressions:
            # What OpenKruise let through: a Pod with such a weight would be refused.
            weight = min(max(preferred.weight, LEAST_WEIGHT), MOST_WEIGHT)
            terms.append({"weight": weight, "preference": {"matchExpressions": expressions}})
    if not terms:
        return None
    affinity = spec.get("affinity") or {}
    node = affinity.get("nodeAffinity") or {}
    present = node.get(_PREFERRED) or []
    new = [term for term in terms if term not in present]
    return {**affinity, "nodeAffinity": {**node, _PREFERRED: [*present, *new]}}


def restored_annotations(
    state: PersistentPodState, record: PodState, annotations: Mapping[str, str]
) -> Mapping[str, str]:
    """PPS-36: remembered annotations that the Pod lacks, if the object asks for it."""
    if state.metadata.annotations.get(names.RESTORE_POD_ANNOTATIONS) != "true":
        return {}
    wanted = {one.key for one in state.spec.persistent_pod_annotations or ()}
    remembered = record.annotations or {}
    return {key: value for key, value in remembered.items() if key in wanted and key not in annotations}
