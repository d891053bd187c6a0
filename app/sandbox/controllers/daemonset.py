"""DaemonSet controller: runs one Pod on every eligible node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from random import Random
from typing import Any, Final

import msgspec

from app.kube.client import Client
from app.kube.controller import Result, Watch
from app.kube.quantities import scaled
from app.kube.resources import DAEMONSETS, ObjectKey
from app.kube.store import Store, key_of
from app.sandbox.controllers.objects import Workload
from app.sandbox.controllers.pods import (
    LABEL,
    Revisions,
    WorkloadController,
    available_in,
    is_ready,
    owner_reference,
    patch_status,
    pod_of,
)
from app.sandbox.filters import suits
from app.sandbox.kubelet.plan import FINISHED
from app.sandbox.objects import Node, Pod, PodSpec

_TOLERATED: Final = (
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
)


@dataclass(frozen=True, slots=True)
class Plan:
    """Nodes on which to create a Pod, and Pods to delete."""

    create: tuple[str, ...] = ()
    delete: tuple[Pod, ...] = ()


def daemon_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the template's spec with the tolerations that all daemon Pods get."""
    added = [{"key": key, "operator": "Exists", "effect": effect} for key, effect in _TOLERATED]
    return {**spec, "tolerations": [*(spec.get("tolerations") or ()), *added]}


def node_of(pod: Pod) -> str:
    """Return the node of a daemon Pod, whether or not it is bound."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    for term in affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.values:
                return field.values[0]
    return pod.spec.node_name


def plan(found: Workload, nodes: Sequence[Node], pods: Sequence[Pod], update: str, now: datetime) -> Plan:
    """Return the nodes without a Pod, and the surplus and outdated Pods to delete."""
    spec = msgspec.convert(daemon_spec(found.spec.template.spec), PodSpec)
    wanted = {node.metadata.name for node in nodes if suits(spec, node)}
    by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        by_node.setdefault(node_of(pod), []).append(pod)
    alive = {name: [one for one in there if one.metadata.deletion_timestamp is None] for name, there in by_node.items()}
    delete = [pod for name, there in alive.items() if name not in wanted for pod in there]
    for name in wanted:
        there = alive.get(name, [])
        over = [pod for pod in there if pod.status.phase in FINISHED]
        delete += over
        kept = sorted((pod for pod in there if pod not in over), key=lambda pod: (not is_ready(pod), pod.metadata.name))
        delete += kept[1:]
    create = [name for name in sorted(wanted) if name not in by_node]
    if found.spec.update_strategy.type != "OnDelete":
        delete += _outdated(found, [one for name in sorted(wanted) for one in by_node.get(name, [])], update, now)
    unique = {pod.metadata.uid: pod for pod in delete}
    return Plan(tuple(create), tuple(unique.values()))


def _outdated(found: Workload, pods: Sequence[Pod], update: str, now: datetime) -> list[Pod]:
    """Return outdated Pods to replace: unavailable ones, and as many available ones as maxUnavailable allows."""
    limit = found.spec.update_strategy.rolling_update.max_unavailable
    room = max(1, scaled(1 if limit is None else limit, len(pods), True))
    chosen = []
    for pod in pods:
        available = not available_in(pod, found.spec.min_ready_seconds, now)
        if pod.metadata.deletion_timestamp is not None or not available:
            room -= 1
    for pod in pods:
        if pod.metadata.deletion_timestamp is not None or pod.metadata.labels.get(LABEL) == update:
            continue
        if available_in(pod, found.spec.min_ready_seconds, now):
            chosen.append(pod)
        elif room > 0:
            room -= 1
            chosen.append(pod)
    return chosen


class DaemonSets(WorkloadController):
    """Controller of DaemonSets."""

    def __init__(self, client: Client, pods: Store[Pod], nodes: Store[Node], revisions: Revisions, rng: Random) -> None:
        others: list[Watch[Any]] = [
            Watch(nodes, lambda _change: [key_of(one) for one in self.sets.list()]),
            Watch(revisions.store, lambda _change: ()),
        ]
        super().__init__(client, pods, DAEMONSETS, rng, workers=2, others=others)
        self._nodes = nodes
        self._revisions = revisions

    async def reconcile(self, key: ObjectKey, found: Workload, pods: Sequence[Pod]) -> Result | None:
        """Take one step towards one up-to-date Pod on every eligible node."""
        update = await self._revisions.record(DAEMONSETS, found)
        now = self.client.clock.now()
        if found.metadata.deletion_timestamp is None:
            todo = plan(found, self._nodes.list(), pods, update, now)
            await self.control.create(key, [self._body(found, node, update) for node in todo.create])
            await self.control.delete(key, todo.delete)
        return await self._report(found, pods, update, now)

    def _body(self, found: Workload, node: str, update: str) -> dict[str, Any]:
        template = found.spec.template
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        affinity = {**(template.spec.get("affinity") or {}), "nodeAffinity": required}
        labels = {LABEL: update, "pod-template-generation": str(found.metadata.generation)}
        name = self.control.new_name(f"{found.metadata.name}-")
        owner = owner_reference(DAEMONSETS, found.metadata)
        return pod_of(template.metadata, daemon_spec(template.spec) | {"affinity": affinity}, name, owner, labels)

    async def _report(self, found: Workload, pods: Sequence[Pod], update: str, now: datetime) -> Result | None:
        spec = msgspec.convert(daemon_spec(found.spec.template.spec), PodSpec)
        wanted = {node.metadata.name for node in self._nodes.list() if suits(spec, node)}
        right = {node_of(pod): pod for pod in pods if node_of(pod) in wanted}
        waits = [available_in(pod, found.spec.min_ready_seconds, now) for pod in right.values()]
        available = sum(wait == 0 for wait in waits)
        status = {
            "desiredNumberScheduled": len(wanted),
            "currentNumberScheduled": len(right),
            "updatedNumberScheduled": sum(pod.metadata.labels.get(LABEL) == update for pod in right.values()),
            "numberReady": sum(map(is_ready, right.values())),
            "numberAvailable": available,
            "numberUnavailable": len(wanted) - available,
            "numberMisscheduled": sum(node_of(pod) not in wanted for pod in pods),
            "observedGeneration": found.metadata.generation,
        }
        await patch_status(self.client, DAEMONSETS, found, status)
        soon = [wait for wait in waits if 0 < wait < float("inf")]
        return Result(requeue_after=max(0.01, min(soon))) if soon else None
