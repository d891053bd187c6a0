"""The order in which Pods are deleted and updated. Pure."""

from __future__ import annotations

import math
import re
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, Protocol, TypeAlias

from app.api.fields import UpdatePriorityStrategy, UpdateScatterTerm
from app.api.names import POD_DELETION_COST
from app.kube.objects import OwnerReference, Pod
from app.kube.selector_query import SelectorError
from app.kube.selectors import compile_selector
from app.pods.lifecycle import LifecycleState, state_of
from app.pods.predicates import is_ready, ready_since

# Order in which Pods are deleted, and by default updated. The name breaks ties, so that the same Pods always
# sort the same way. [PM-121 … PM-126, CS-112 … CS-114, CS-125]

#: Pod uid → rank; Pods with a higher rank come first. Missing Pods have rank 0.
Ranks: TypeAlias = Mapping[str, float]
#: Node name → its labels, or None for an unknown node.
NodeLabels: TypeAlias = Callable[[str], Mapping[str, str] | None]

HOSTNAME: Final = "kubernetes.io/hostname"
_COST: Final = re.compile(r"0|[1-9][0-9]{0,18}|-[0-9]{1,19}", re.ASCII)
_INT32: Final = 1 << 31
_PHASES: Final[Mapping[str, int]] = {"Unknown": 1, "Running": 2}


def deletion_cost(pod: Pod) -> int:
    """Return the Pod's deletion cost; 0 if the annotation is missing or the API server would reject it. [PM-122]"""
    text = pod.metadata.annotations.get(POD_DELETION_COST)
    if not text or not _COST.fullmatch(text):
        return 0
    cost = int(text)
    return cost if -_INT32 <= cost < _INT32 else 0


def in_deletion_order(
    pods: Iterable[Pod], *, available: Callable[[Pod], bool] | None = None, ranks: Ranks | None = None
) -> list[Pod]:
    """Return the Pods in deletion order. ``available`` is the workload's own predicate, if any. [PM-121]"""
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
            # An earlier key has already separated ready Pods from the others.
            _newest_first(ready_since(pod)) if ready else (),
            -_restarts(pod),
            _newest_first(pod.metadata.creation_timestamp),
            pod.metadata.name,
        )

    return sorted(pods, key=key)


def same_node_ranks(pods: Iterable[Pod]) -> dict[str, float]:
    """Rank the n Pods of each node from n - 1 (deleted first) to 0. [PM-123]"""
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
    """Rank Pods by topologySpreadConstraints with these keys: Pods in crowded domains rank higher. [PM-124]

    A constraint does not raise the rank of Pods on unknown nodes or on nodes without the label.
    """
    same_node = same_node_ranks(pods)
    ranks: defaultdict[str, float] = defaultdict(float)
    # A template may have thousands of constraints; only those whose key is a node label are matched with each Pod.
    known = set().union(*(node_labels(name) or () for name in {pod.spec.node_name for pod in pods}))
    for topology_key, times in Counter(key for key in topology_keys if key in known).items():
        domains: defaultdict[str, list[Pod]] = defaultdict(list)
        for pod in pods:
            labels = node_labels(pod.spec.node_name) if pod.spec.node_name else None
            if labels is not None and topology_key in labels:
                domains[labels[topology_key]].append(pod)
        weight = math.log(len(domains) + 2) * times
        inner = None if topology_key == HOSTNAME else same_node
        for group in domains.values():
            for index, pod in enumerate(in_deletion_order(group, ranks=inner)):
                ranks[pod.metadata.uid] += (len(group) - index) * weight
    return dict(ranks)


def ranks_of(pods: Sequence[Pod], template: Mapping[str, Any], node_labels: NodeLabels) -> dict[str, float]:
    """Return the ranks by the template's topologySpreadConstraints, or by node if it has none."""
    constraints = (template.get("spec") or {}).get("topologySpreadConstraints") or []
    keys = [str(constraint.get("topologyKey")) for constraint in constraints]
    return spread_ranks(pods, keys, node_labels) if keys else same_node_ranks(pods)


def in_default_update_order(pods: Iterable[Pod]) -> list[Pod]:
    """Sort the Pods in the default update order: those least able to serve come first. [PM-126]"""
    return sorted(pods, key=default_update_key)


def default_update_key(pod: Pod) -> tuple[Any, ...]:
    """Sort key of the default update order; it depends on the Pod alone."""
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
    sidecars = {container.name for container in pod.spec.init_containers if container.restart_policy == "Always"}
    return max(
        (status.restart_count for status in pod.status.init_container_statuses if status.name in sidecars), default=0
    )


# The update order that users configure. Each function reorders the Pods it is given: the result of
# :func:`app.pods.sorting.in_default_update_order` is sorted by priority and scattered, and then Pods already preparing
# for the update are moved to the front. [PM-127 … PM-135, CS-126 … CS-128]


class UpdateOrder(Protocol):
    """Returns the update order of a workload's Pods, for controllers that prepare the Pods' nodes. [IMG-105]

    Every workload kind provides such a function; only that of the owner's kind returns an order.
    """

    def __call__(self, owner: OwnerReference, pods: Sequence[Pod], /) -> Sequence[Pod] | None:
        """Return the owner's Pods in update order; None if the owner is of another kind or was deleted."""
        ...


_TRAILING_NUMBER: Final = re.compile(r"([0-9]+)$", re.ASCII)
_MAX_INT64: Final = 2**63 - 1


def in_update_order(
    candidates: Sequence[Pod],
    workload_pods: Sequence[Pod],
    priority: UpdatePriorityStrategy | None,
    scatter: Sequence[UpdateScatterTerm] | None,
) -> list[Pod]:
    """Apply the strategies to ``candidates``, given in default order. ``workload_pods`` are all Pods of the workload.

    Raises ``SelectorError`` for a selector that validation would have rejected.
    """
    return preparing_first(scattered(by_priority(candidates, priority), workload_pods, scatter))


def by_priority(pods: Sequence[Pod], strategy: UpdatePriorityStrategy | None) -> list[Pod]:
    """Sort by priority, stably; without a strategy the order does not change. [PM-127, PM-128]"""
    if strategy is not None and strategy.weight_priority:
        terms = [(term.weight, compile_selector(term.match_selector)) for term in strategy.weight_priority]
        return sorted(
            pods, key=lambda pod: -sum(weight for weight, selector in terms if selector.matches(pod.metadata.labels))
        )
    if strategy is not None and strategy.order_priority:
        keys = [term.ordered_key for term in strategy.order_priority]
        return sorted(pods, key=lambda pod: _level(pod.metadata.labels, keys))
    return list(pods)


def by_readable_priority(pods: Sequence[Pod], strategy: UpdatePriorityStrategy | None) -> list[Pod]:
    """Like :func:`by_priority`, but keep the order if the strategy has an invalid selector, which admission rejects."""
    try:
        return by_priority(pods, strategy)
    except SelectorError:
        return list(pods)


def _level(labels: Mapping[str, str], keys: Sequence[str]) -> tuple[int, int]:
    """Return the sort key for ``orderPriority``. Pods with none of the label keys come first, as in OpenKruise."""
    for index, key in enumerate(keys):
        if key in labels:
            return index, -trailing_number(labels[key])
    return -1, 0


def trailing_number(text: str) -> int:
    """Return the integer at the end of a label's value; 0 if there is none or it exceeds 64 bits. [PM-128]"""
    found = _TRAILING_NUMBER.search(text)
    number = int(found[1]) if found is not None else 0
    return number if number <= _MAX_INT64 else 0


def preparing_first(pods: Sequence[Pod]) -> list[Pod]:
    """Move Pods already preparing for the update to the front. [PM-135]"""
    return sorted(pods, key=lambda pod: state_of(pod) != LifecycleState.PREPARING_UPDATE)


def scattered(
    pods: Sequence[Pod], workload_pods: Sequence[Pod], terms: Sequence[UpdateScatterTerm] | None
) -> list[Pod]:
    """Apply the terms in sequence, starting with the term that most candidates match. [PM-130]"""
    matchers = [_matcher(term) for term in terms or ()]
    if len(matchers) > 1:
        counts = [_carriers(term, pods) for term in terms or ()]
        ranked = sorted(zip(counts, matchers, strict=True), key=lambda pair: -pair[0])
        matchers = [matches for count, matches in ranked if count]
    ordered = list(pods)
    for matches in matchers:
        ordered = _scattered(ordered, workload_pods, matches)
    return ordered


def _matcher(term: UpdateScatterTerm) -> Callable[[Pod], bool]:
    # An empty value matches both an empty label and a missing one. [PM-7]
    return lambda pod: pod.metadata.labels.get(term.key, "") == term.value


def _carriers(term: UpdateScatterTerm, pods: Sequence[Pod]) -> int:
    """Count the Pods that carry the label; a missing label does not count here. [PM-7]"""
    return sum(pod.metadata.labels.get(term.key) == term.value for pod in pods)


def _scattered(pods: Sequence[Pod], workload_pods: Sequence[Pod], matches: Callable[[Pod], bool]) -> list[Pod]:
    """Distribute matching Pods evenly among the others, with the last one at the very end. [PM-131 … PM-134]"""
    matching = [pod for pod in pods if matches(pod)]
    others = [pod for pod in pods if not matches(pod)]
    if len(matching) <= 1 or len(others) <= 1:
        return list(pods)
    total_matching = sum(map(matches, workload_pods))
    total_others = len(workload_pods) - total_matching
    last = matching.pop()
    total_matching -= 1
    if _single(total_others / total_matching) >= _single(len(others) / len(matching)):
        groups, per_matching, per_others = _groups(len(matching), len(others))
        remainder = 0
    else:
        # Matching Pods are rarer among the candidates than in the workload: use the workload's group sizes, and start
        # with the other Pods that do not fit into groups.
        _, per_matching, per_others = _groups(total_matching, total_others)
        groups = min(len(matching) // per_matching, len(others) // per_others)
        remainder = len(others) - groups * per_others
    ordered = others[:remainder]
    others = others[remainder:]
    for index in range(groups):
        ordered += matching[index * per_matching : (index + 1) * per_matching]
        ordered += others[index * per_others : (index + 1) * per_others]
    return [*ordered, *matching[groups * per_matching :], *others[groups * per_others :], last]


def _groups(matching: int, others: int) -> tuple[int, int, int]:
    """Return the number of groups, and how many matching and other Pods a group has, rounded half up. [PM-132]"""
    groups = min(matching, others)
    return groups, _rounded(matching, groups), _rounded(others, groups)


def _rounded(count: int, groups: int) -> int:
    return (2 * count + groups) // (2 * groups)


def _single(value: float) -> float:
    """Round to single precision, in which the ratios are compared."""
    rounded: float = struct.unpack("f", struct.pack("f", value))[0]
    return rounded
