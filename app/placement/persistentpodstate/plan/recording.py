"""What is remembered of the Pods of a workload (PPS-21 … PPS-29, PPS-43, PPS-46). Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api.persistentpodstate import PersistentPodStateSpec
from app.kube.objects import Pod
from app.placement.persistentpodstate.plan.targets import Workload
from app.pods.predicates import FINISHED, is_active, is_ready

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
