"""The plan of a PersistentPodState: what is recorded, for which workloads, and what a new Pod gets. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from app.api import names
from app.features.persistentpodstate.kind import PERSISTENT_POD_STATE
from app.features.persistentpodstate.types import PersistentPodState, PersistentPodStateSpec, PodState
from app.features.persistentpodstate.validation import LEAST_WEIGHT, MOST_WEIGHT
from app.features.statefulset.types import StatefulSet
from app.kube.objects import Pod
from app.kube.objects import Workload as NativeWorkload
from app.kube.patches import merge_difference
from app.pods.custom_workloads import GroupKind, ListedKind, listed_kinds
from app.pods.ordinals import Slots, reserved_intervals
from app.pods.predicates import FINISHED, Owner, is_active, is_controlled_by, is_ready, refers_to

# Workloads as PersistentPodState sees them, of whatever kind (PPS-11, PPS-12). Pure.

_ADVANCED: Final = f"{names.APPS_GROUP}/{names.V1BETA1}"
#: Of the annotations of a workload those that count.
ANNOTATIONS: Final = (
    names.AUTO_GENERATE_PERSISTENT_POD_STATE,
    names.REQUIRED_PERSISTENT_TOPOLOGY,
    names.PREFERRED_PERSISTENT_TOPOLOGY,
    names.PERSISTENT_POD_ANNOTATIONS,
)


@dataclass(frozen=True, slots=True)
class Workload:
    """One workload. ``slots``: the ordinals that shall have a Pod."""

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
        """The workload, as its dependents refer to it."""
        return Owner(self.api_version, self.kind, self.name, self.namespace, self.uid)

    @property
    def group(self) -> str:
        """Its API group."""
        return self.api_version.rpartition("/")[0]


def native(found: NativeWorkload) -> Workload:
    """A native StatefulSet."""
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
    """An Advanced StatefulSet. ``start_ordinal``: whether its first ordinal is the one that it names."""
    spec, metadata = found.spec, found.metadata
    replicas = 1 if spec.replicas is None else spec.replicas
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
    """PPS-11: a workload of a kind that the operator lists; whatever is not there, or no number, counts as 0."""
    metadata, spec = _mapping(found, "metadata"), _mapping(found, "spec")
    reserved = spec.get("reserveOrdinals")
    ordinals: Iterable[int | str] = [
        one
        for one in (reserved if isinstance(reserved, list) else ())
        if isinstance(one, int | str) and not isinstance(one, bool)
    ]
    start = _number(_mapping(spec, "ordinals"), "start")
    return Workload(
        api_version,
        kind,
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
        str(metadata.get("uid") or ""),
        bool(metadata.get("deletionTimestamp")),
        _relevant(_mapping(metadata, "annotations")),
        Slots.of(_number(spec, "replicas"), start, reserved_intervals(ordinals)),
    )


def _relevant(annotations: Mapping[str, Any]) -> Mapping[str, str]:
    return {key: str(annotations[key]) for key in ANNOTATIONS if key in annotations}


def _mapping(obj: Mapping[str, Any], field: str) -> Mapping[str, Any]:
    value = obj.get(field)
    return value if isinstance(value, Mapping) else {}


def _number(obj: Mapping[str, Any], field: str) -> int:
    value = obj.get(field)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


# What is remembered of the Pods of a workload (PPS-21 … PPS-29, PPS-43, PPS-46). Pure.

Labels = Mapping[str, str]
#: The state of one Pod as the status has it.
Record = Mapping[str, Any]

WHEN_DELETED: Final = "WhenDeleted"
_ordinal = re.compile(r"-([0-9]{1,18})\Z", re.ASCII).search


@dataclass(frozen=True, slots=True)
class Recording:
    """What shall be remembered, by the names of Pods; and the nodes of ready Pods that are not known (yet)."""

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
    """What becomes of what is ``known``.

    ``pods``: those the workload controls. ``gone``: those that went since, as they were when they were ready (PPS-46).
    ``labels_of``: the labels of a node; None for one that is not known.
    """
    if workload is None or workload.deleting:
        return Recording({})  # PPS-21
    considered = list(pods) if len(workload.slots) else []
    present = {pod.metadata.name for pod in considered if is_active(pod)}
    leaving = [pod for pod in considered if not is_active(pod) and pod.metadata.name not in present]
    states, unknown = dict(known), set()
    for pod in (*gone, *leaving, *(pod for pod in considered if is_active(pod))):
        name = pod.metadata.name
        # A name without an ordinal does not come back.
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
    """PPS-23: where the Pod is, and what is remembered of it."""
    found: dict[str, Any] = {"nodeName": pod.spec.node_name}
    if topology := {key: labels[key] for key in topology_keys(spec) if key in labels}:
        found["nodeTopologyLabels"] = topology
    annotations = pod.metadata.annotations
    keys = [one.key for one in spec.persistent_pod_annotations or ()]
    if remembered := {key: annotations[key] for key in keys if key in annotations}:
        found["annotations"] = remembered
    return found


def topology_keys(spec: PersistentPodStateSpec) -> Sequence[str]:
    """Labels of nodes that matter, required or preferred."""
    keys = list(spec.required_persistent_topology.keys) if spec.required_persistent_topology is not None else []
    for term in spec.preferred_persistent_topology or ():
        keys += term.preference.keys
    return list(dict.fromkeys(keys))


def status_of(recorded: Recording, generation: int) -> Record:
    """The status that says so."""
    return {"observedGeneration": generation, **({"podStates": recorded.states} if recorded.states else {})}


def required_labels(spec: PersistentPodStateSpec, one: Record) -> Labels:
    """The labels that a node must have for the Pod of this record."""
    required, labels = spec.required_persistent_topology, one.get("nodeTopologyLabels") or {}
    return {key: labels[key] for key in required.keys if key in labels} if required is not None else {}


def lost(
    spec: PersistentPodStateSpec,
    states: Mapping[str, Record],
    ready: Collection[str],
    labels_of: Callable[[str], Labels | None],
    nodes: Iterable[Labels],
    most: int,
) -> Mapping[str, Labels]:
    """PPS-43: Pods that no node can take any more, with what they are bound to; at most so many.

    ``ready``: Pods that run. ``nodes``: the labels of all nodes, which are looked at once for each node that is gone.
    """
    found: dict[str, Labels] = {}
    tried: dict[tuple[tuple[str, str], ...], bool] = {}
    all_nodes: list[Labels] | None = None
    for name, one in states.items():
        bound = required_labels(spec, one)
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
    """PPS-26: whether a Pod of this name shall be there; of a name without an ordinal nobody can say."""
    found = _ordinal(name)
    return found is None or int(found[1]) in workload.slots


# PersistentPodStates made from the annotations of a workload (PPS-13 … PPS-19, PPS-41). Pure.

Json = Mapping[str, Any]

#: The weight of what is preferred.
WEIGHT: Final = 100
#: The fields that annotations decide. The rest of a generated object is the user's.
_FIELDS: Final = ("requiredPersistentTopology", "preferredPersistentTopology", "persistentPodAnnotations")


class Step(StrEnum):
    """What is to be done about a workload's annotations."""

    NOTHING = "nothing"
    CREATE = "create"
    CHANGE = "change"
    DELETE = "delete"
    #: Its name is taken by an object that is not this workload's.
    TAKEN = "taken"
    #: Its name is taken by the object of a workload of this name that is gone; the garbage collector takes it away.
    WAIT = "wait"


@dataclass(frozen=True, slots=True)
class Generation:
    """The step, with the body of a new object or the merge patch of a present one."""

    step: Step
    body: Json | None = None


_NOTHING: Final = Generation(Step.NOTHING)


def generation(workload: Workload, present: PersistentPodState | None) -> Generation:
    """``present``: the object that has the workload's name."""
    if workload.deleting or (present is not None and present.deleting):
        return _NOTHING  # PPS-19: what belongs to it goes with it
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
        return _NOTHING  # PPS-17
    found = present.spec.to_dict()
    patch = merge_difference({field: found[field] for field in _FIELDS if field in found}, wanted)
    return Generation(Step.CHANGE, {"spec": patch}) if patch else _NOTHING


def wanted_fields(annotations: Mapping[str, str]) -> dict[str, Any]:
    """PPS-15: what the annotations say; empty without a topology."""
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
    """Whether the workload's object was made from annotations, by us or by OpenKruise, and not by somebody else who
    made the workload its owner."""
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
    """PPS-41: without spaces around, empty parts and repetitions."""
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


# What a Pod made anew gets from where it ran before (PPS-32 … PPS-36). Pure.

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


# Further kinds of workloads whose Pods go back, as the operator lists them in a ConfigMap (PPS-9). Pure.


def parse_kinds(text: str | None) -> Mapping[GroupKind, ListedKind]:
    """The kinds on the list in the ConfigMap; none without one. Raises WhitelistError."""
    return listed_kinds(text, names.PPS_CUSTOM_WORKLOAD_WHITELIST_KEY)
