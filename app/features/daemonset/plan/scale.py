"""Scaling of a DaemonSet: the nodes on which to create and delete Pods now. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import inf

from app.api import names
from app.features.daemonset.plan.settings import Settings
from app.kube.objects import Node, Pod
from app.kube.selectors import Selector
from app.pods.lifecycle import LifecycleState, is_hooked, state_of
from app.pods.node_fit import Eligibility, Placement
from app.pods.predicates import FINISHED, available_after, is_ready
from app.pods.revisions import short_hash

# Nodes and their Pods as inputs to the plans. [DS-19, DS-26, DS-37]


@dataclass(slots=True, eq=False)
class DaemonPod:
    """Facts about one Pod of a DaemonSet, computed once per resourceVersion and generation; the Pod may have ended."""

    pod: Pod
    name: str
    #: The node it runs on or was created for.
    node: str
    bound: bool
    #: Short hash of its revision.
    revision: str
    terminating: bool
    #: Whether its phase is Failed or Succeeded; a daemon should never finish.
    ended: bool
    preparing_delete: bool
    #: Whether it has a preDelete hook.
    hooked: bool
    ready: bool
    #: POSIX time from which it is available; -inf if it already is, inf if it is not ready or being updated in place.
    available_after: float
    #: Sort key: Pods on a node first, then by creation time and name.
    age: tuple[bool, float, str]


def daemon_pod(pod: Pod, settings: Settings) -> DaemonPod:
    """Derive the time-independent facts of a Pod."""
    metadata, ready = pod.metadata, is_ready(pod)
    condition = pod.condition(names.IN_PLACE_UPDATE_READY)
    in_place = condition is None or condition.status == "True"
    created = metadata.creation_timestamp.timestamp() if metadata.creation_timestamp is not None else 0.0
    lifecycle = settings.lifecycle
    return DaemonPod(
        pod=pod,
        name=metadata.name,
        node=pod.spec.target_node,
        bound=bool(pod.spec.node_name),
        revision=short_hash(metadata.labels.get(names.CONTROLLER_REVISION_HASH, "")),
        terminating=metadata.deletion_timestamp is not None,
        ended=pod.status.phase in FINISHED,
        preparing_delete=state_of(pod) == LifecycleState.PREPARING_DELETE,
        hooked=lifecycle is not None and is_hooked(lifecycle.pre_delete, pod),
        ready=ready,
        available_after=available_after(pod, settings.min_ready_seconds) if ready and in_place else inf,
        age=(not pod.spec.node_name, created, metadata.name),
    )


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about a node for one DaemonSet: its eligibility, and whether it matches the update's node selector."""

    node: Node
    eligibility: Eligibility
    selected: bool

    @property
    def relevant(self) -> tuple[bool, bool, bool]:
        """The facts whose change requires a reconcile. [DS-71]"""
        return self.eligibility.should_run, self.eligibility.should_continue, self.selected


def node_facts(node: Node, placement: Placement, selector: Selector | None) -> NodeFacts:
    """Return the facts about a node, given the Pods' requirements and the update's node selector."""
    selected = selector is None or selector.matches(node.metadata.labels)
    return NodeFacts(node, placement.eligibility(node), selected)


@dataclass(eq=False)
class NodePods:
    """A node of the cluster and the DaemonSet's Pods on it; the first Pod is the one to keep. [DS-26]"""

    name: str
    eligibility: Eligibility
    pods: Sequence[DaemonPod] = ()
    #: Whether the node matches the update's node selector.
    selected: bool = True

    @property
    def live(self) -> list[DaemonPod]:
        return [pod for pod in self.pods if not pod.terminating]


@dataclass(frozen=True, eq=False)
class Observed:
    """Inputs to the plans. ``nodes`` contains all nodes of the cluster, sorted by name; ``strays`` contains the Pods
    whose node does not exist; ``new`` contains the hashes of the current template; ``now`` is in POSIX seconds."""

    nodes: Sequence[NodePods]
    strays: Sequence[DaemonPod]
    new: Collection[str]
    now: float

    @cached_property
    def desired(self) -> int:
        return sum(node.eligibility.should_run for node in self.nodes)

    def is_new(self, pod: DaemonPod) -> bool:
        """Return whether the Pod matches the current template. [DS-37]"""
        return pod.revision in self.new

    def available(self, pod: DaemonPod) -> bool:
        return pod.available_after < self.now


def observe(
    eligibilities: Mapping[str, Eligibility],
    pods: Iterable[DaemonPod],
    *,
    unselected: Collection[str],
    new: Collection[str],
    now: float,
) -> Observed:
    """Group the Pods by node. ``eligibilities`` covers all nodes of the cluster, by name; ``unselected`` names the
    nodes that do not match the update's node selector."""
    by_node: dict[str, list[DaemonPod]] = {}
    strays = []
    for pod in pods:
        if not pod.node:
            continue  # created by hand and not scheduled yet [DS-19]
        if pod.node in eligibilities:
            by_node.setdefault(pod.node, []).append(pod)
        else:
            strays.append(pod)
    nodes = [
        NodePods(
            name,
            eligibilities[name],
            sorted(by_node.get(name, ()), key=lambda pod: pod.age) if name in by_node else (),
            name not in unselected,
        )
        for name in sorted(eligibilities)
    ]
    return Observed(nodes, strays, new, now)


# Where to create Pods and which Pods to delete, independent of a rollout. [DS-24 … DS-31, DS-33]


@dataclass(slots=True)
class ScalePlan:
    """Nodes to create Pods on, and Pods to delete.

    ``create``: nodes that need a Pod. ``delete``: Pods to delete, after their hooks. ``ended``: finished Pods in
    ``delete``. ``waits``: positive numbers of seconds after which to reconcile again.
    """

    create: list[str] = field(default_factory=list)
    delete: list[DaemonPod] = field(default_factory=list)
    ended: list[DaemonPod] = field(default_factory=list)
    waits: list[float] = field(default_factory=list)


def plan_scaling(observed: Observed, settings: Settings, held: Mapping[str, float]) -> ScalePlan:
    """Plan which Pods to create and delete. ``held`` maps nodes to the seconds for which their finished Pods are kept
    because earlier Pods also finished there. [DS-29]"""
    plan = ScalePlan()
    for node in observed.nodes:
        if node.eligibility.should_run and not node.pods:
            plan.create.append(node.name)
        elif node.eligibility.should_continue:
            _keep(node, observed, settings, held, plan)
        else:
            plan.delete += node.live
    # An unbound Pod whose node no longer exists would stay pending forever. [DS-28]
    plan.delete += [pod for pod in observed.strays if not pod.bound and not pod.terminating]
    limits = settings.limits(observed.desired)
    plan.create.sort()
    if settings.partitioned_scaling and not settings.on_delete and limits.partition:
        del plan.create[_missing_new(observed, limits.partition) :]
    del plan.create[limits.burst :]
    del plan.delete[limits.burst :]
    deleted = set(plan.delete)
    plan.ended = [pod for pod in plan.ended if pod in deleted]
    return plan


def _missing_new(observed: Observed, partition: int) -> int:
    """Return how many Pods may be created from the current template. [DS-30]"""
    new = sum(any(map(observed.is_new, node.pods)) for node in observed.nodes)
    return max(0, observed.desired - new - min(partition, observed.desired))


def _keep(node: NodePods, observed: Observed, settings: Settings, held: Mapping[str, float], plan: ScalePlan) -> None:
    """Plan for a node that should run a Pod or may keep its Pods. [DS-25 … DS-27]"""
    running: list[DaemonPod] = []
    waiting = False
    for pod in node.live:
        if pod.ended:
            if node.name in held:
                waiting = True
                plan.waits.append(held[node.name])
            else:
                plan.delete.append(pod)
                plan.ended.append(pod)
        elif pod.preparing_delete:
            plan.delete.append(pod)
        else:
            running.append(pod)
    if not settings.surges:
        plan.delete += running[1:]  # [DS-26]
    elif not running and not waiting and node.eligibility.should_run:
        # A Pod of the current template that waits for its hook still occupies the node. [DS-47]
        if not any(observed.is_new(pod) and not pod.ended for pod in node.live):
            plan.create.append(node.name)
    elif len(running) > 1:
        _end_surge(running, observed, plan)


def _end_surge(running: Sequence[DaemonPod], observed: Observed, plan: ScalePlan) -> None:
    """Keep the oldest Pod of the new template, and one old Pod until the new one is available. Prefer an available old
    Pod, which may be the only one in service. [DS-27]"""
    new = next((pod for pod in running if observed.is_new(pod)), None)
    olds = [pod for pod in running if not observed.is_new(pod)]
    old = next(filter(observed.available, olds), olds[0] if olds else None)
    plan.delete += [pod for pod in running if pod is not new and pod is not old]
    if new is None or old is None:
        return
    if not old.ready or observed.available(new):
        plan.delete.append(old)
    elif new.available_after > observed.now and new.ready:
        plan.waits.append(max(0.001, new.available_after - observed.now + 0.001))
