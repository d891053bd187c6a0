"""Nodes and the Pods on them, as the plans see them (DS-19, DS-26, DS-37). Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf

from app.api import names
from app.kube.objects import Pod
from app.pods.eligibility import Eligibility
from app.pods.lifecycle import LifecycleState, is_hooked, state_of
from app.pods.predicates import FINISHED, is_ready, ready_since
from app.pods.revisions import short_hash
from app.workloads.daemonset.plan.settings import Settings


@dataclass(slots=True, eq=False)
class DaemonPod:
    """One Pod of a DaemonSet, whatever its state; worked out once per resourceVersion and generation."""

    pod: Pod
    name: str
    #: The node it is on, or is meant for.
    node: str
    bound: bool
    #: The short hash of its revision.
    revision: str
    terminating: bool
    #: Its phase is Failed, or Succeeded, which a daemon never should.
    ended: bool
    preparing_delete: bool
    #: A preDelete hook is on it.
    hooked: bool
    ready: bool
    #: POSIX seconds after which it is available; -inf: it is; inf: not as it stands, an update in place included.
    available_after: float
    #: Seconds since the epoch, and its name, by which older Pods come first.
    age: tuple[bool, float, str]


def daemon_pod(pod: Pod, settings: Settings) -> DaemonPod:
    """What follows from the Pod and the settings, but for the time."""
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
        available_after=_available_after(pod, settings.min_ready_seconds) if ready and in_place else inf,
        age=(not pod.spec.node_name, created, metadata.name),
    )


def _available_after(pod: Pod, min_ready_seconds: int) -> float:
    if min_ready_seconds <= 0:
        return -inf
    since = ready_since(pod)
    return inf if since is None else since.timestamp() + min_ready_seconds


@dataclass(eq=False)
class NodePods:
    """One node of the cluster with the DaemonSet's Pods on it, in the order of DS-26: the first stays."""

    name: str
    eligibility: Eligibility
    pods: Sequence[DaemonPod] = ()
    #: Whether the update's node selector takes it.
    selected: bool = True

    @property
    def live(self) -> list[DaemonPod]:
        """Those that are not terminating."""
        return [pod for pod in self.pods if not pod.terminating]


@dataclass(frozen=True, eq=False)
class Observed:
    """What the plans go by. ``nodes``: those of the cluster by ascending name; ``strays``: Pods of no node there is;
    ``new``: the hashes of the present template; ``now``: POSIX seconds."""

    nodes: Sequence[NodePods]
    strays: Sequence[DaemonPod]
    new: Collection[str]
    now: float

    @cached_property
    def desired(self) -> int:
        """How many nodes are eligible."""
        return sum(node.eligibility.should_run for node in self.nodes)

    def is_new(self, pod: DaemonPod) -> bool:
        """DS-37."""
        return pod.revision in self.new

    def available(self, pod: DaemonPod) -> bool:
        """Whether the Pod is available now."""
        return pod.available_after < self.now


def observe(
    eligibilities: Mapping[str, Eligibility],
    pods: Iterable[DaemonPod],
    *,
    unselected: Collection[str],
    new: Collection[str],
    now: float,
) -> Observed:
    """Pods sorted by node. ``eligibilities``: of all nodes there are, by name; ``unselected``: nodes that the update's
    node selector leaves out."""
    by_node: dict[str, list[DaemonPod]] = {}
    strays = []
    for pod in pods:
        if not pod.node:
            continue  # DS-19: made by hand, for no node
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
