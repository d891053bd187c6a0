"""Which Pods go first: in a scale-in, and by default in an update (§ 4.9). Pure.

Pods are sorted, first to go first. Where all keys are equal the name decides, so that the same Pods always give the
same order. Rules PM-121 … PM-126, CS-112 … CS-114, CS-125.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, TypeAlias

from app.api.names import POD_DELETION_COST
from app.kube.objects import Pod
from app.pods.predicates import is_ready, ready_since

#: Pod uid → rank; higher goes first. Pods that are not in it have rank 0.
Ranks: TypeAlias = Mapping[str, float]
#: Node name → its labels, None for a node nobody knows.
NodeLabels: TypeAlias = Callable[[str], Mapping[str, str] | None]

HOSTNAME: Final = "kubernetes.io/hostname"
_COST: Final = re.compile(r"0|[1-9][0-9]{0,18}|-[0-9]{1,19}", re.ASCII)
_INT32: Final = 1 << 31
_PHASES: Final[Mapping[str, int]] = {"Unknown": 1, "Running": 2}


def deletion_cost(pod: Pod) -> int:
    """PM-122: the annotation's number; 0 where it is missing or is none the API server would take."""
    text = pod.metadata.annotations.get(POD_DELETION_COST)
    if not text or not _COST.fullmatch(text):
        return 0
    cost = int(text)
    return cost if -_INT32 <= cost < _INT32 else 0


def in_deletion_order(
    pods: Iterable[Pod], *, available: Callable[[Pod], bool] | None = None, ranks: Ranks | None = None
) -> list[Pod]:
    """PM-121: the Pods, first to be deleted first. ``available``: the workload's own predicate, if it has one."""
    ranks = ranks or {}

    def key(pod: Pod) -> tuple[Any, ...]:
        ready = is_ready(pod)
        return (
            bool(pod.spec.node_name),
            _PHASES.get(pod.status.phase, 0),
            available(pod) if available is not None else False,
            ready,
            deletion_cost(pod),
            -ranks.get(pod.metadata.uid, 0.0),
            # Both are ready or neither is: the key before has told them apart otherwise.
            _newest_first(ready_since(pod)) if ready else (),
            -_restarts(pod),
            _newest_first(pod.metadata.creation_timestamp),
            pod.metadata.name,
        )

    return sorted(pods, key=key)


def same_node_ranks(pods: Iterable[Pod]) -> dict[str, float]:
    """PM-123: of n Pods on one node the first to go has rank n - 1, the last 0."""
    nodes: defaultdict[str, list[Pod]] = defaultdict(list)
    for pod in pods:
        if pod.spec.node_name:
            nodes[pod.spec.node_name].append(pod)
    return {
        pod.metadata.uid: float(len(group) - 1 - index)
        for group in nodes.values()
        if len(group) > 1
        for index, pod in enumerate(in_deletion_order(group))
    }


def spread_ranks(pods: Sequence[Pod], topology_keys: Iterable[str], node_labels: NodeLabels) -> dict[str, float]:
    """PM-124: for each topologySpreadConstraint (given by its key), Pods of crowded domains rank higher.

    Pods on unknown nodes, or on nodes without the label, get nothing from a constraint.
    """
    same_node = same_node_ranks(pods)
    ranks: defaultdict[str, float] = defaultdict(float)
    for topology_key in topology_keys:
        domains: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            labels = node_labels(pod.spec.node_name) if pod.spec.node_name else None
            if labels is not None and topology_key in labels:
                domains[labels[topology_key]].append(pod)
        weight = math.log(len(domains) + 2)
        inner = None if topology_key == HOSTNAME else same_node
        for group in domains.values():
            for index, pod in enumerate(in_deletion_order(group, ranks=inner)):
                ranks[pod.metadata.uid] += (len(group) - index) * weight
    return dict(ranks)


def ranks_of(pods: Sequence[Pod], template: Mapping[str, Any], node_labels: NodeLabels) -> dict[str, float]:
    """The ranks by the template's topologySpreadConstraints, or by nodes where it has none."""
    constraints = (template.get("spec") or {}).get("topologySpreadConstraints") or []
    keys = [str(constraint.get("topologyKey")) for constraint in constraints]
    return spread_ranks(pods, keys, node_labels) if keys else same_node_ranks(pods)


def in_default_update_order(pods: Iterable[Pod]) -> list[Pod]:
    """PM-126: the Pods, first to be updated first: those that have least to lose."""
    return sorted(pods, key=default_update_key)


def default_update_key(pod: Pod) -> tuple[Any, ...]:
    """By what Pods are sorted so; it depends on the Pod alone."""
    ready = is_ready(pod)
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase, 0),
        ready,
        _newest_first(ready_since(pod)) if ready else (),
        -_restarts(pod),
        -_sidecar_restarts(pod),
        _newest_first(pod.metadata.creation_timestamp),
        pod.metadata.name,
    )


def _newest_first(moment: datetime | None) -> tuple[int, float]:
    return (0, 0.0) if moment is None else (1, -moment.timestamp())


def _restarts(pod: Pod) -> int:
    return max((status.restart_count for status in pod.status.container_statuses), default=0)


def _sidecar_restarts(pod: Pod) -> int:
    """Restarts of init containers that keep running."""
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    return max(
        (status.restart_count for status in pod.status.init_container_statuses if status.name in sidecars), default=0
    )
