"""Plan of a PersistentPodState: what is recorded, for which workloads, and what is added to a recreated Pod. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from app.api import names
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.types import PersistentPodState, PersistentPodStateSpec, PodState
from app.features.persistentpodstate.validation import LEAST_WEIGHT, MOST_WEIGHT
from app.features.statefulset.defaults import REPLICAS
from app.features.statefulset.types import StatefulSet
from app.kube.jsonvalues import as_object
from app.kube.objects import Pod
from app.kube.objects import Workload as NativeWorkload
from app.kube.patches import merge_difference
from app.pods.custom_workloads import GroupKind, ListedKind, listed_kinds
from app.pods.ordinals import Slots, reserved_intervals
from app.pods.predicates import FINISHED, Owner, is_active, is_controlled_by, is_ready, refers_to

# Workloads of any kind, reduced to what PersistentPodState needs. [PPS-4, PPS-11]

_ADVANCED: Final = f"{names.APPS_GROUP}/{names.V1BETA1}"
#: Relevant annotations of a workload.
ANNOTATIONS: Final = (
    names.AUTO_GENERATE_PERSISTENT_POD_STATE,
    names.REQUIRED_PERSISTENT_TOPOLOGY,
    names.PREFERRED_PERSISTENT_TOPOLOGY,
    names.PERSISTENT_POD_ANNOTATIONS,
)


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload. ``slots`` are the ordinals that must have a Pod."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    deleting: bool
    annotations: Mapping[str, str]
    slots: Slots

    @property
    def owner(self) -> Owner:
        """Return the workload in the form used in owner references."""
        return Owner(self.api_version, self.kind, self.name, self.namespace, self.uid)

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


def native(found: NativeWorkload) -> Workload:
    """Read a native StatefulSet."""
    spec = found.spec
    replicas = 1 if spec.replicas is None else spec.replicas
    start = spec.ordinals.start if spec.ordinals is not None else 0
    metadata = found.metadata
    return Workload(
        "apps/v1",
        "StatefulSet",
        metadata.namespace,
        metadata.name,
        metadata.uid,
        metadata.deletion_timestamp is not None,
        _relevant(metadata.annotations),
        Slots.of(replicas, start, ()),
    )


def advanced(found: StatefulSet, *, start_ordinal: bool) -> Workload:
    """Read an Advanced StatefulSet. ``start_ordinal`` is set if spec.ordinals.start is respected."""
    spec, metadata = found.spec, found.metadata
    replicas = REPLICAS if spec.replicas is None else spec.replicas
    start = spec.ordinals.start if start_ordinal and spec.ordinals is not None else 0
    return Workload(
        _ADVANCED,
        "StatefulSet",
        metadata.namespace,
        metadata.name,
        metadata.uid,
        found.deleting,
        _relevant(metadata.annotations),
        Slots.of(replicas, start, reserved_intervals(spec.reserve_ordinals or ())),
    )


def listed(found: Mapping[str, Any], api_version: str, kind: str) -> Workload:
    """Read a workload of a kind on the operator's list. Missing and invalid numbers count as 0. [PPS-11]"""
    metadata, spec = as_object(found.get("metadata")), as_object(found.get("spec"))
    reserved = spec.get("reserveOrdinals")
    ordinals: Iterable[int | str] = [
        one
        for one in (reserved if isinstance(reserved, list) else ())
        if isinstance(one, int | str) and not isinstance(one, bool)
    ]
    start = _number(as_object(spec.get("ordinals")), "start")
    return Workload(
        api_version,
        kind,
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
        str(metadata.get("uid") or ""),
        bool(metadata.get("deletionTimestamp")),
        _relevant(as_object(metadata.get("annotations"))),
        Slots.of(_number(spec, "replicas"), start, reserved_intervals(ordinals)),
    )


def _relevant(annotations: Mapping[str, Any]) -> Mapping[str, str]:
    return {key: str(annotations[key]) for key in ANNOTATIONS if key in annotations}


def _number(obj: Mapping[str, Any], field: str) -> int:
    value = obj.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


# Recorded state of the Pods of a workload. [PPS-21 … PPS-29, PPS-43, PPS-46]

Labels = Mapping[str, str]
#: State of one Pod in the status.
Record = Mapping[str, Any]

WHEN_DELETED: Final = "WhenDeleted"
_ordinal = re.compile(r"-([0-9]{1,18})\Z", re.ASCII).search


@dataclass(frozen=True, slots=True)
class Recording:
    """The states to record, by Pod name, and those nodes of ready Pods that are not in the cache."""

    states: Mapping[str, Record]
    unknown_nodes: Collection[str] = ()


def recording(
    spec: PersistentPodStateSpec,
    known: Mapping[str, Record],
    workload: Workload | None,
    pods: Iterable[Pod],
    gone: Iterable[Pod],
    labels_of: Callable[[str], Labels | None],
) -> Recording:
    """Return the updated recording.

    ``pods`` are the Pods controlled by the workload. ``gone`` are Pods deleted since the last recording, in their last
    ready state. ``labels_of`` returns the labels of a node, or None if it is unknown. [PPS-46]
    """
    if workload is None or workload.deleting:
        return Recording({})  # [PPS-21]
    considered = list(pods) if len(workload.slots) else []
    present = {pod.metadata.name for pod in considered if is_active(pod)}
    leaving = [pod for pod in considered if not is_active(pod) and pod.metadata.name not in present]
    states, unknown = dict(known), set()
    for pod in (*gone, *leaving, *(pod for pod in considered if is_active(pod))):
        name = pod.metadata.name
        # A Pod without an ordinal is never recreated with the same name.
        if not _is_placed(pod) or (not _ordinal(name) and name not in known):
            continue
        labels = labels_of(pod.spec.node_name)
        if labels is None:
            unknown.add(pod.spec.node_name)
        else:
            states[name] = record(spec, pod, labels)
    if spec.persistent_pod_state_retention_policy != WHEN_DELETED:
        states = {name: one for name, one in states.items() if name in present or _is_wanted(name, workload)}
    return Recording(states, unknown)


def record(spec: PersistentPodStateSpec, pod: Pod, labels: Labels) -> Record:
    """Return the record of a Pod: its node, and the node labels and annotations to record. [PPS-23]"""
    found: dict[str, Any] = {"nodeName": pod.spec.node_name}
    if topology := {key: labels[key] for key in topology_keys(spec) if key in labels}:
        found["nodeTopologyLabels"] = topology
    annotations = pod.metadata.annotations
    keys = [one.key for one in spec.persistent_pod_annotations or ()]
    if remembered := {key: annotations[key] for key in keys if key in annotations}:
        found["annotations"] = remembered
    return found


def topology_keys(spec: PersistentPodStateSpec) -> Sequence[str]:
    """Return the node label keys of the required and preferred topology."""
    keys = list(spec.required_persistent_topology.keys) if spec.required_persistent_topology is not None else []
    for term in spec.preferred_persistent_topology or ():
        keys += term.preference.keys
    return list(dict.fromkeys(keys))


def status_of(recorded: Recording, generation: int) -> Record:
    """Return the status for a recording."""
    return {"observedGeneration": generation, **({"podStates": recorded.states} if recorded.states else {})}


def required_labels(spec: PersistentPodStateSpec, recorded: Labels | None) -> Labels:
    """Return the recorded node labels that are required of the new node."""
    required, labels = spec.required_persistent_topology, recorded or {}
    return {key: labels[key] for key in required.keys if key in labels} if required is not None else {}


def lost(
    spec: PersistentPodStateSpec,
    states: Mapping[str, Record],
    ready: Collection[str],
    labels_of: Callable[[str], Labels | None],
    nodes: Iterable[Labels],
    most: int,
) -> Mapping[str, Labels]:
    """Return the recorded Pods that no longer fit any node, with their required labels. [PPS-43]

    ``ready`` holds the names of ready Pods; ``nodes`` are the labels of all nodes. At most ``most`` distinct sets of
    labels are compared with the nodes.
    """
    found: dict[str, Labels] = {}
    tried: dict[tuple[tuple[str, str], ...], bool] = {}
    all_nodes: list[Labels] | None = None
    for name, one in states.items():
        bound = required_labels(spec, one.get("nodeTopologyLabels"))
        own = labels_of(str(one.get("nodeName") or ""))
        if not bound or name in ready or (own is not None and _has(own, bound)):
            continue
        place = tuple(sorted(bound.items()))
        if place not in tried:
            if len(tried) >= most:
                break
            all_nodes = list(nodes) if all_nodes is None else all_nodes
            tried[place] = any(_has(labels, bound) for labels in all_nodes)
        if not tried[place]:
            found[name] = bound
    return found


def _has(labels: Labels, wanted: Labels) -> bool:
    return all(labels.get(key) == value for key, value in wanted.items())


def _is_placed(pod: Pod) -> bool:
    return bool(pod.spec.node_name) and is_ready(pod) and pod.status.phase not in FINISHED


def _is_wanted(name: str, workload: Workload) -> bool:
    """Return whether a Pod of this name should exist. A Pod without an ordinal counts as wanted. [PPS-26]"""
    found = _ordinal(name)
    return found is None or int(found[1]) in workload.slots


# PersistentPodStates generated from the annotations of a workload. [PPS-13 … PPS-19, PPS-41]

Json = Mapping[str, Any]

#: Weight of the preferred topology.
WEIGHT: Final = 100
#: Fields generated from annotations. Other fields of a generated object belong to the user.
_FIELDS: Final = ("requiredPersistentTopology", "preferredPersistentTopology", "persistentPodAnnotations")


class Step(StrEnum):
    """The action that a workload's annotations require."""

    NOTHING = "nothing"
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    #: The name is taken by another object.
    TAKEN = "taken"
    #: The name is taken by the object of a deleted workload. The garbage collector will remove that object.
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Generation:
    """The step, and the body of the object to create or the merge patch for the existing object."""

    step: Step
    body: Json | None = None


_NOTHING: Final = Generation(Step.NOTHING)


def generation(workload: Workload, present: PersistentPodState | None) -> Generation:
    """Return the step for a workload. ``present`` is the object with the workload's name."""
    if workload.deleting or (present is not None and present.deleting):
        return _NOTHING  # dependents are garbage collected [PPS-19]
    switched_on = workload.annotations.get(names.AUTO_GENERATE_PERSISTENT_POD_STATE) == "true"
    wanted = wanted_fields(workload.annotations)
    if present is None:
        return Generation(Step.CREATE, _body(workload, wanted)) if switched_on and wanted else _NOTHING
    owner = present.metadata.controller
    if owner is None or not is_controlled_by(present.metadata, workload.owner):
        if not switched_on or not wanted:
            return _NOTHING
        former = owner is not None and (owner.api_version.rpartition("/")[0], owner.kind, owner.name) == (
            workload.group,
            workload.kind,
            workload.name,
        )
        return Generation(Step.WAIT if former else Step.TAKEN)
    if not switched_on:
        return Generation(Step.DELETE) if is_generated(present, workload) else _NOTHING
    if not wanted:
        return _NOTHING  # [PPS-17]
    found = present.spec.to_dict()
    patch = merge_difference({field: found[field] for field in _FIELDS if field in found}, wanted)
    return Generation(Step.CHANGE, {"spec": patch}) if patch else _NOTHING


def wanted_fields(annotations: Mapping[str, str]) -> dict[str, Any]:
    """Return the fields generated from the annotations, or {} without a topology. [PPS-15]"""
    required = _keys(annotations, names.REQUIRED_PERSISTENT_TOPOLOGY)
    preferred = _keys(annotations, names.PREFERRED_PERSISTENT_TOPOLOGY)
    if not required and not preferred:
        return {}
    found: dict[str, Any] = {}
    if required:
        found["requiredPersistentTopology"] = {"keys": required}
    if preferred:
        found["preferredPersistentTopology"] = [{"weight": WEIGHT, "preference": {"keys": preferred}}]
    if remembered := _keys(annotations, names.PERSISTENT_POD_ANNOTATIONS):
        found["persistentPodAnnotations"] = [{"key": key} for key in remembered]
    return found


def is_generated(present: PersistentPodState, workload: Workload) -> bool:
    """Return whether the object appears to be generated from annotations, by this controller or OpenKruise. An object
    that a user created with the workload as its owner looks the same."""
    owners, spec = present.metadata.owner_references, present.spec
    preferred = spec.preferred_persistent_topology or []
    return (
        present.name == workload.name
        and len(owners) == 1
        and refers_to(owners[0], present.metadata.namespace, workload.owner)
        and not owners[0].block_owner_deletion
        and (not preferred or [one.weight for one in preferred] == [WEIGHT])
    )


def _keys(annotations: Mapping[str, str], annotation: str) -> list[str]:
    """Return the trimmed, unique, non-empty items of an annotation. [PPS-41]"""
    parts = (part.strip() for part in annotations.get(annotation, "").split(","))
    return list(dict.fromkeys(part for part in parts if part))


def _body(workload: Workload, wanted: Mapping[str, Any]) -> Json:
    target = {"apiVersion": workload.api_version, "kind": workload.kind, "name": workload.name}
    return {
        "apiVersion": f"{PERSISTENT_POD_STATE.group}/{PERSISTENT_POD_STATE.hub.name}",
        "kind": PERSISTENT_POD_STATE.kind,
        "metadata": {
            "name": workload.name,
            "namespace": workload.namespace,
            "ownerReferences": [{**target, "uid": workload.uid, "controller": True}],
        },
        "spec": {"targetRef": target, **wanted},
    }


# What a recreated Pod gets from its record. [PPS-32 … PPS-36]

_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"


def node_selector_with(state: PersistentPodState, record: PodState, spec: Json) -> Json | None:
    """Return the Pod's node selector with the required labels added, or None if no labels are required. [PPS-33]"""
    added = required_labels(state.spec, record.node_topology_labels)
    return {**(spec.get("nodeSelector") or {}), **added} if added else None


def affinity_with(state: PersistentPodState, record: PodState, spec: Json) -> Json | None:
    """Return the Pod's affinity with the preferred terms added, or None if there are no such terms. Existing terms are
    not repeated. [PPS-34]"""
    labels = record.node_topology_labels or {}
    terms: list[Json] = []
    for preferred in state.spec.preferred_persistent_topology or ():
        expressions = [
            {"key": key, "operator": "In", "values": [labels[key]]}
            for key in preferred.preference.keys
            if key in labels
        ]
        if expressions:
            # OpenKruise accepts weights that the API server rejects in a Pod.
            weight = min(max(preferred.weight, LEAST_WEIGHT), MOST_WEIGHT)
            terms.append({"weight": weight, "preference": {"matchExpressions": expressions}})
    if not terms:
        return None
    affinity = spec.get("affinity") or {}
    node = affinity.get("nodeAffinity") or {}
    present = node.get(_PREFERRED) or []
    # Both lists may be long: look terms up in a set of their JSON instead of comparing every pair.
    known = {json.dumps(term, sort_keys=True) for term in present}
    new = [term for term in terms if json.dumps(term, sort_keys=True) not in known]
    return {**affinity, "nodeAffinity": {**node, _PREFERRED: [*present, *new]}}


def restored_annotations(
    state: PersistentPodState, record: PodState, annotations: Mapping[str, str]
) -> Mapping[str, str]:
    """Return the recorded annotations that the Pod lacks, or {} unless the object enables restoring them. [PPS-36]"""
    if state.metadata.annotations.get(names.RESTORE_POD_ANNOTATIONS) != "true":
        return {}
    wanted = {one.key for one in state.spec.persistent_pod_annotations or ()}
    remembered = record.annotations or {}
    return {key: value for key, value in remembered.items() if key in wanted and key not in annotations}


# Custom workload kinds that the operator lists in a ConfigMap. [PPS-9]


def parse_kinds(text: str | None) -> Mapping[GroupKind, ListedKind]:
    """Parse the list in the ConfigMap. Return an empty map if ``text`` is None. Raises WhitelistError."""
    return listed_kinds(text, names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY)
