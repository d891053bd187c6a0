"""Commands for CloneSets: rollout progress, restart, plan, explain and migration from a Deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.fields import ON_DELETE, RECREATE, ROLLING_UPDATE
from app.api.webhooks import stored_model
from app.features.cloneset.defaults import REPLICAS, with_defaults
from app.features.cloneset.kind import CLONE_SET
from app.features.cloneset.plan.diff import Inputs, counted
from app.features.cloneset.plan.preview import explain as explained
from app.features.cloneset.plan.preview import preview
from app.features.cloneset.plan.scale import has_topology_keys
from app.features.cloneset.plan.settings import KIND, Gates, ResolvedSpec, resolve_spec
from app.features.cloneset.types import CloneSet
from app.framework.commands import Commands, Migration, Progress, Report, Stored, progress_by_counts, unseen
from app.framework.options import Enabled
from app.kube.client import Client
from app.kube.objects import Node, Pod, decode_node
from app.kube.resources import DEPLOYMENTS, NODES
from app.pods.predicates import is_active
from app.workloads import commands as engine
from app.workloads.commands import owned_objects, planned, resolved_spec, revisions_of
from app.workloads.pods import InPlaceUpdates, PodFacts, pod_facts
from app.workloads.report import Preview
from app.workloads.settings import Revisions

RESOURCE: Final = CLONE_SET.resource()


def parsed(obj: Mapping[str, Any]) -> CloneSet:
    """Return the model of a stored (v1beta1) object. Raises CommandError."""
    return stored_model(CLONE_SET, CloneSet, obj, with_defaults(obj))


def progress_of(cloneset: CloneSet) -> Progress:
    """Return the progress of the rollout according to the status. Pure."""
    status, spec = cloneset.status, cloneset.spec
    replicas = REPLICAS if spec.replicas is None else spec.replicas
    if status is None or status.observed_generation < cloneset.metadata.generation:
        return unseen(replicas)
    expected, conditions = status.expected_updated_replicas, status.conditions or ()
    updated, available = status.updated_replicas, status.updated_available_replicas
    rolling = spec.update_strategy.rolling_update
    late = next((one for one in conditions if one.type == "Progressing" and one.status == "False"), None)
    return progress_by_counts(
        f"cloneset {cloneset.name}",
        status,
        replicas=replicas,
        expected=expected,
        done=updated >= expected and available >= expected and status.replicas == replicas,
        on_delete=spec.update_strategy.type == ON_DELETE,
        paused=rolling is not None and rolling.paused,
        failed=late.message or late.reason if late is not None else None,
        failures=[one.message for one in conditions if one.type.startswith("Failed") and one.status == "True"],
    )


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
    """Read the inputs from the cluster. Nodes are read only if the deletion order depends on them.

    The update revision may not be recorded yet. Raises CommandError.
    """
    pods, recorded = await owned_objects(client, KIND.owner(owner.metadata), owner.spec.selector)
    nodes: dict[str, Node] = {}
    if has_topology_keys(owner.spec.template):
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
    return planned(KIND, wanted, before, found.revisions.update, coming)


async def explain(client: Client, pod: Pod, stored: Stored, enabled: Enabled) -> Sequence[str]:
    """Explain the state of a Pod and what happens to it next."""
    owner = parsed(stored)
    found, now = await situation(client, owner, Gates.of(enabled)), client.clock.now().timestamp()
    rollout = counted(Inputs(found.resolved, found.pods, found.revisions, InPlaceUpdates(), now))
    return explained(pod, found.resolved, rollout, found.preview(now), found.revisions.update, found.node_labels)


def scale_in(stored: Stored, pods: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Return the patch that names the Pods to delete and lowers the replicas accordingly."""
    spec = stored["spec"]
    named = list((spec.get("scaleStrategy") or {}).get("podsToDelete") or ())
    replicas = REPLICAS if spec.get("replicas") is None else spec["replicas"]
    strategy = {**(spec.get("scaleStrategy") or {}), "podsToDelete": list(dict.fromkeys([*named, *pods]))}
    return [
        {"op": "add", "path": "/spec/replicas", "value": max(0, replicas - len(set(pods) - set(named)))},
        {"op": "add", "path": "/spec/scaleStrategy", "value": strategy},
    ]


def from_deployment(deployment: Stored, name: str) -> dict[str, Any]:
    """Return a CloneSet that runs the template of a Deployment. It starts with no replicas; the migration scales it up
    while it scales the Deployment down.

    Its Pods carry an additional label, so that the Deployment does not adopt them.
    """
    spec = deployment["spec"]
    label = {names.MIGRATED_FROM: deployment["metadata"]["name"]}
    template = dict(spec["template"])
    metadata = dict(template.get("metadata") or {})
    metadata["labels"] = {**(metadata.get("labels") or {}), **label}
    selector = dict(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), **label}
    wanted: dict[str, Any] = {"replicas": 0, "selector": selector, "template": {**template, "metadata": metadata}}
    for field in ("minReadySeconds", "progressDeadlineSeconds", "revisionHistoryLimit"):
        if spec.get(field) is not None:
            wanted[field] = spec[field]
    wanted["updateStrategy"] = {"type": ROLLING_UPDATE, "rollingUpdate": {"podUpdatePolicy": "InPlaceIfPossible"}}
    return {
        "apiVersion": RESOURCE.api_version,
        "kind": RESOURCE.kind,
        "metadata": {"name": name, "labels": dict(deployment["metadata"].get("labels") or {})},
        "spec": wanted,
    }


COMMANDS: Final = Commands(
    CLONE_SET,
    progress=lambda stored: progress_of(parsed(stored)),
    restart=restart,
    plan=plan,
    explain=explain,
    scale_in=scale_in,
    migrations=(Migration(DEPLOYMENTS, from_deployment),),
)
