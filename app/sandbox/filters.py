"""Scheduler filters: which nodes a Pod may run on, and why it may not run on the others. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

from app.kube.objects import Taint
from app.kube.quantities import QuantityError, parse
from app.kube.selectors import Operator, Requirement, Selector, compile_selector
from app.sandbox.objects import (
    Container,
    Node,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
)


class Amounts(dict[str, int]):
    """Resource name → amount."""

    def add(self, other: Mapping[str, int]) -> None:
        """Add these amounts."""
        for name, amount in other.items():
            self[name] = self.get(name, 0) + amount

    def subtract(self, other: Mapping[str, int]) -> None:
        """Subtract these amounts."""
        for name, amount in other.items():
            self[name] = self.get(name, 0) - amount

    def lacking(self, wanted: Mapping[str, int], capacity: Mapping[str, int]) -> Iterator[str]:
        """Yield kube-scheduler's message for each resource with less than ``wanted`` left."""
        for name, amount in wanted.items():
            if amount and self.get(name, 0) + amount > capacity.get(name, 0):
                yield "Too many pods" if name == "pods" else f"Insufficient {name}"


@lru_cache(maxsize=4096)
def _amount(name: str, text: str) -> int:
    try:
        quantity = parse(text)
    except QuantityError:
        return 0
    return quantity.milli_value() if name == "cpu" else quantity.value()


def amounts(quantities: Mapping[str, Any]) -> Amounts:
    """Parse a resource list. Invalid quantities count as zero."""
    return Amounts((name, _amount(name, str(text))) for name, text in quantities.items())


def allocatable(node: Node) -> Amounts:
    """Return the node's allocatable resources."""
    return amounts(node.status.allocatable)


def requests(pod: Pod) -> Amounts:
    """Return the Pod's requests: the sum over its containers and sidecars, or those of its largest init container if
    higher."""
    total = amounts(pod.spec.overhead)
    for container in pod.spec.containers:
        total.add(_requests(container))
    sidecars = Amounts()
    largest = Amounts()
    for container in pod.spec.init_containers:
        own = _requests(container)
        if container.restart_policy == "Always":
            sidecars.add(own)
            own = sidecars
        else:
            own.add(sidecars)
        for name, amount in own.items():
            largest[name] = max(largest.get(name, 0), amount)
    total.add(sidecars)
    for name, amount in largest.items():
        total[name] = max(total.get(name, 0), amount)
    total["pods"] = 1
    return total


def _requests(container: Container) -> Amounts:
    return amounts(container.resources.get("requests") or {})


# The filters find the nodes a Pod may run on, and give kube-scheduler's messages for the others. They run in the
# scheduler's order: cordons, taints, node selector and affinity, host ports, resources, spreading, Pod affinity and
# anti-affinity.

UNSCHEDULABLE: Final = "node(s) were unschedulable"
NO_MATCH: Final = "node(s) didn't match Pod's node affinity/selector"
NO_PORTS: Final = "node(s) didn't have free ports for the requested pod ports"
NO_AFFINITY: Final = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY: Final = "node(s) didn't match pod anti-affinity rules"
OTHERS_ANTI_AFFINITY: Final = "node(s) didn't satisfy existing pods anti-affinity rules"
SPREAD: Final = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL: Final = f"{SPREAD} (missing required label)"
_NOBODY: Final = Selector.of([Requirement("pod", Operator.IN, ())])
#: Reasons that could be resolved by evicting other Pods.
_PREEMPTION_MAY_HELP: Final = frozenset({NO_PORTS, ANTI_AFFINITY, OTHERS_ANTI_AFFINITY, SPREAD, "Too many pods"})


@dataclass(slots=True)
class NodeInfo:
    """A node and its Pods. The caller keeps it up to date."""

    node: Node
    pods: dict[str, Pod] = field(default_factory=dict)
    #: Pods with anti-affinity.
    loners: dict[str, Pod] = field(default_factory=dict)
    used: Amounts = field(default_factory=Amounts)
    capacity: Amounts = field(default_factory=Amounts)

    def __post_init__(self) -> None:
        self.capacity = allocatable(self.node)

    def add(self, pod: Pod) -> None:
        """Add a Pod (once per UID)."""
        if pod.metadata.uid not in self.pods:
            self.used.add(requests(pod))
        self.pods[pod.metadata.uid] = pod
        if pod.spec.affinity is not None and pod.spec.affinity.pod_anti_affinity is not None:
            self.loners[pod.metadata.uid] = pod

    def remove(self, uid: str) -> None:
        """Remove a Pod."""
        self.loners.pop(uid, None)
        if (pod := self.pods.pop(uid, None)) is not None:
            self.used.subtract(requests(pod))


#: Returns the labels of a namespace, for affinity terms that select namespaces by label.
NamespaceLabels = Mapping[str, Mapping[str, str]]


def choose_node(pod: Pod, infos: Sequence[NodeInfo], namespaces: NamespaceLabels | None = None) -> tuple[str, str]:
    """Return the name of the best node and "", or "" and a message that explains why no node fits."""
    others = _Neighbors(pod, infos, namespaces or {})
    reasons: Counter[str] = Counter()
    suitable = []
    helpless = 0
    for info in infos:
        found = list(_reasons(pod, info, others))
        if not found:
            suitable.append(info)
            continue
        reasons.update(found)
        helpless += not all(one in _PREEMPTION_MAY_HELP or one.startswith("Insufficient") for one in found)
    if suitable:
        return max(suitable, key=lambda info: _rank(pod, info, others)).node.metadata.name, ""
    return "", _message(len(infos), reasons, helpless)


def _rank(pod: Pod, info: NodeInfo, others: _Neighbors) -> tuple[int, int, int, str]:
    """Return the sort key of a node: by affinity, then soft spreading, then the fewest Pods."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    weight = sum(one.weight for one in affinity.preferred if _holds(one.preference, info.node)) if affinity else 0
    avoided = sum(taint.effect == "PreferNoSchedule" for taint in _untolerated(pod.spec, info.node, prefer=True))
    soft = sum(others.count(one, info) for one in pod.spec.topology_spread_constraints if not _is_hard(one))
    # Characters are complemented so that the first name wins among equal nodes.
    return weight - 100 * avoided, -soft, -len(info.pods), _reverse(info.node.metadata.name)


def _reverse(name: str) -> str:
    return "".join(chr(0x10FFFF - ord(letter)) for letter in name) + chr(0x10FFFF)


def _message(nodes: int, reasons: Mapping[str, int], helpless: int) -> str:
    if not nodes:
        return "no nodes available to schedule pods"
    counted = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    parts = []
    if helpless:
        parts.append(f"{helpless} Preemption is not helpful for scheduling")
    if nodes - helpless:
        parts.append(f"{nodes - helpless} No preemption victims found for incoming pod")
    none = f"0/{nodes} nodes are available"
    return f"{none}: {counted}. preemption: {none}: {', '.join(parts)}."


def _reasons(pod: Pod, info: NodeInfo, others: _Neighbors) -> Iterator[str]:
    """Return why the Pod cannot run on the node: the reasons given by the first filter that rejects it."""
    node, spec = info.node, pod.spec
    if node.spec.unschedulable and not _tolerated(spec, Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")):
        yield UNSCHEDULABLE
        return
    if (taint := next(_untolerated(spec, node), None)) is not None:
        yield f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
        return
    if not _matches_node(spec, node):
        yield NO_MATCH
        return
    if others.ports and others.ports & {port for other in info.pods.values() for port in _ports(other)}:
        yield NO_PORTS
        return
    if missing := list(info.used.lacking(others.wanted, info.capacity)):
        yield from missing
        return
    for constraint in spec.topology_spread_constraints:
        if _is_hard(constraint) and (reason := others.spread_reason(constraint, info)):
            yield reason
            return
    if reason := others.affinity_reason(info):
        yield reason


def _is_hard(constraint: TopologySpreadConstraint) -> bool:
    return constraint.when_unsatisfiable == "DoNotSchedule"


def _ports(pod: Pod) -> set[tuple[str, int]]:
    return {(p.protocol, p.host_port) for one in pod.spec.containers for p in one.ports if p.host_port}


def _matches_node(spec: PodSpec, node: Node) -> bool:
    labels = node.metadata.labels
    if any(labels.get(key) != value for key, value in spec.node_selector.items()):
        return False
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    if affinity is None or affinity.required is None:
        return True
    return any(_holds(term, node) for term in affinity.required.node_selector_terms)


def suits(spec: PodSpec, node: Node) -> bool:
    """Return whether a DaemonSet Pod with this spec may run on the node, regardless of its resources."""
    return _matches_node(spec, node) and next(_untolerated(spec, node), None) is None


def _untolerated(spec: PodSpec, node: Node, *, prefer: bool = False) -> Iterator[Taint]:
    for taint in node.spec.taints:
        if (taint.effect == "PreferNoSchedule") is prefer and not _tolerated(spec, taint):
            yield taint


def _tolerated(spec: PodSpec, taint: Taint) -> bool:
    return any(tolerates(one, taint) for one in spec.tolerations)


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether the toleration tolerates the taint."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    return toleration.operator == "Exists" or (bool(toleration.key) and toleration.value == taint.value)


def _holds(term: NodeSelectorTerm, node: Node) -> bool:
    if not term.match_expressions and not term.match_fields:
        return False  # an empty term matches nothing
    fields = {"metadata.name": node.metadata.name}
    return all(_matches(one, node.metadata.labels) for one in term.match_expressions) and all(
        _matches(one, fields) for one in term.match_fields
    )


def _matches(requirement: NodeSelectorRequirement, labels: Mapping[str, str]) -> bool:
    return Requirement(requirement.key, Operator(requirement.operator), requirement.values).matches(labels)


class _Neighbors:
    """Running Pods, indexed for the affinity and spreading rules of the Pod to schedule."""

    def __init__(self, pod: Pod, infos: Sequence[NodeInfo], namespaces: NamespaceLabels) -> None:
        self._pod = pod
        self._infos = infos
        #: The Pod's own requests and host ports.
        self.wanted = requests(pod)
        self.ports = _ports(pod)
        self._namespaces = namespaces
        affinity = pod.spec.affinity
        near = affinity.pod_affinity.required if affinity is not None and affinity.pod_affinity is not None else ()
        away = (
            affinity.pod_anti_affinity.required
            if affinity is not None and affinity.pod_anti_affinity is not None
            else ()
        )
        self._near = [(term, self._where(term)) for term in near]
        self._away = [(term, self._where(term)) for term in away]
        self._forbidden = self._forbidden_by_others()
        self._spread: dict[int, Counter[str]] = {}

    def affinity_reason(self, info: NodeInfo) -> str:
        """Return why Pod affinity or anti-affinity rejects the node, or ''."""
        labels = info.node.metadata.labels
        for term, values in self._near:
            # The first Pod of a group with affinity to itself may run anywhere.
            alone = not values and self._selects(term, self._pod, self._pod)
            if term.topology_key not in labels or not (alone or labels[term.topology_key] in values):
                return NO_AFFINITY
        for term, values in self._away:
            if labels.get(term.topology_key) in values:
                return ANTI_AFFINITY
        if any((key, labels.get(key)) in self._forbidden for key in labels):
            return OTHERS_ANTI_AFFINITY
        return ""

    def spread_reason(self, constraint: TopologySpreadConstraint, info: NodeInfo) -> str:
        """Return why the spread constraint rejects the node, or ''."""
        if constraint.topology_key not in info.node.metadata.labels:
            return SPREAD_LABEL
        counts = self._counts(constraint)
        here = self.count(constraint, info)
        matches_itself = _compiled(constraint.label_selector).matches(self._pod.metadata.labels)
        skew = here + matches_itself - min(counts.values(), default=0)
        return SPREAD if skew > constraint.max_skew else ""

    def count(self, constraint: TopologySpreadConstraint, info: NodeInfo) -> int:
        """Count the Pods selected by the constraint in the node's topology domain."""
        return self._counts(constraint).get(info.node.metadata.labels.get(constraint.topology_key, ""), 0)

    def _counts(self, constraint: TopologySpreadConstraint) -> Counter[str]:
        found = self._spread.get(id(constraint))
        if found is None:
            selector = _compiled(constraint.label_selector)
            found = Counter()
            for info in self._infos:
                value = info.node.metadata.labels.get(constraint.topology_key)
                if value is None or not _matches_node(self._pod.spec, info.node):
                    continue
                found[value] += sum(
                    selector.matches(other.metadata.labels)
                    for other in info.pods.values()
                    if other.metadata.namespace == self._pod.metadata.namespace
                    and other.metadata.deletion_timestamp is None
                )
            self._spread[id(constraint)] = found
        return found

    def _where(self, term: PodAffinityTerm) -> set[str]:
        """Return the topology domains in which a Pod selected by the term runs."""
        found = set()
        for info in self._infos:
            value = info.node.metadata.labels.get(term.topology_key)
            if value is not None and any(self._selects(term, self._pod, other) for other in info.pods.values()):
                found.add(value)
        return found

    def _forbidden_by_others(self) -> set[tuple[str, str | None]]:
        """Return the topology domains from which other Pods' anti-affinity excludes this Pod."""
        found: set[tuple[str, str | None]] = set()
        for info in self._infos:
            for other in info.loners.values():
                affinity = other.spec.affinity
                if affinity is None or affinity.pod_anti_affinity is None:
                    continue
                for term in affinity.pod_anti_affinity.required:
                    if self._selects(term, other, self._pod) and term.topology_key in info.node.metadata.labels:
                        found.add((term.topology_key, info.node.metadata.labels[term.topology_key]))
        return found

    def _selects(self, term: PodAffinityTerm, owner: Pod, other: Pod) -> bool:
        namespace = other.metadata.namespace
        if term.namespace_selector is not None:
            in_scope = namespace in term.namespaces or _compiled(term.namespace_selector).matches(
                self._namespaces.get(namespace, {})
            )
        else:
            in_scope = namespace in (term.namespaces or (owner.metadata.namespace,))
        return in_scope and _compiled(term.label_selector).matches(other.metadata.labels)


def _compiled(selector: Mapping[str, Any] | None) -> Selector:
    """Compile the label selector of an affinity rule. A missing selector selects no Pod."""
    return compile_selector(selector) if selector is not None else _NOBODY
