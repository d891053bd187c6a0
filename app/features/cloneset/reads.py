"""Cluster reads for the CloneSet commands, and the plans computed from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from app.api.fields import RECREATE, ROLLING_UPDATE
from app.features.cloneset.commands import parsed
from app.features.cloneset.plan.diff import Inputs, counted
from app.features.cloneset.plan.preview import explain as explained
from app.features.cloneset.plan.preview import preview
from app.features.cloneset.plan.scale import topology_keys
from app.features.cloneset.plan.settings import KIND, Gates, ResolvedSpec, resolve_spec
from app.features.cloneset.types import CloneSet
from app.framework.commands import Report, Stored
from app.framework.options import Enabled
from app.kube.client import Client
from app.kube.objects import Node, Pod, decode_node
from app.kube.resources import NODES
from app.pods.predicates import is_active
from app.workloads import commands as engine
from app.workloads.commands import owned_objects, resolved_spec, revisions_of
from app.workloads.pods import InPlaceUpdates, PodFacts, pod_facts
from app.workloads.report import Preview
from app.workloads.settings import Revisions


@dataclass(frozen=True, slots=True)
class Situation:
    """Inputs to the plan for one CloneSet: its resolved spec, active Pods by name, revisions and nodes by name."""

    resolved: ResolvedSpec
    pods: Sequence[PodFacts]
    revisions: Revisions
    nodes: Mapping[str, Node]

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        node = self.nodes.get(name)
        return node.metadata.labels if node is not None else None

    def preview(self, now: float) -> Preview:
        return preview(self.resolved, self.pods, self.revisions, now, self.node_labels)


async def situation(client: Client, owner: CloneSet, gates: Gates) -> Situation:
    """Read the inputs from the cluster; nodes only if the deletion order depends on them.

    The update revision may not be recorded yet. Raises CommandError.
    """
    pods, recorded = await owned_objects(client, KIND.owner(owner.metadata), owner.spec.selector)
    nodes: dict[str, Node] = {}
    if topology_keys(owner.spec.template):
        nodes = {node.metadata.name: node for node in (await client.list(NODES, decode=decode_node)).items}
    resolved = resolved_spec(KIND, resolve_spec, owner, gates)
    facts = [
        pod_facts(pod, resolved.settings)
        for pod in pods
        if is_active(pod) and resolved.selector.matches(pod.metadata.labels)
    ]
    revisions = revisions_of(owner.status, resolved.content, recorded)
    return Situation(resolved, sorted(facts, key=lambda one: one.name), revisions, nodes)


async def restart(client: Client, stored: Stored) -> str:
    """Replace all Pods with new ones, step by step."""
    owner = parsed(stored)
    strategy = owner.spec.update_strategy
    rolling = strategy.rolling_update
    recreates = strategy.type == ROLLING_UPDATE and (rolling is None or rolling.pod_update_policy in ("", RECREATE))
    paused = rolling is not None and rolling.paused
    return await engine.restart(client, KIND, owner, owner.spec.selector, paused=paused, recreates=recreates)


async def plan(client: Client, stored: Stored, enabled: Enabled) -> Report:
    """Report what would happen to the Pods if this CloneSet were stored."""
    wanted = parsed(stored)
    found = await situation(client, wanted, Gates.of(enabled))
    coming = found.preview(client.clock.now().timestamp())
    before = wanted.status.update_revision if wanted.status is not None else ""
    return engine.planned(KIND, wanted, before, found.revisions.update, coming)


async def explain(client: Client, pod: Pod, stored: Stored, enabled: Enabled) -> Sequence[str]:
    """Explain the state of a Pod and what happens to it next."""
    owner = parsed(stored)
    found, now = await situation(client, owner, Gates.of(enabled)), client.clock.now().timestamp()
    rollout = counted(Inputs(found.resolved, found.pods, found.revisions, InPlaceUpdates(), now))
    return explained(pod, found.resolved, rollout, found.preview(now), found.revisions.update, found.node_labels)
