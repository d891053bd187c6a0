"""The commands about CloneSets: how far a roll-out is, how it is started anew, what comes next and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from pydantic import ValidationError

from app.api import names
from app.api.cloneset import CLONE_SET, CloneSet
from app.api.cloneset.defaults import with_defaults
from app.api.cloneset.types import ON_DELETE, RECREATE, ROLLING_UPDATE
from app.api.requested import unreadable
from app.kube.client import Client
from app.kube.objects import Node, Pod, decode_node
from app.kube.resources import DEPLOYMENTS, NODES
from app.kube.selectors import SelectorError
from app.pods.predicates import is_active
from app.pods.ranking import NodeLabels
from app.pods.revisions import Revision
from app.slices.commands import CommandError, Commands, Migration, Progress, Report, Stored, counted
from app.slices.options import Enabled
from app.workloads.cloneset.plan.explain import explain as explained
from app.workloads.cloneset.plan.orders import topology_keys
from app.workloads.cloneset.plan.preview import preview
from app.workloads.cloneset.plan.resolved import KIND, ResolvedSpec, resolve_spec
from app.workloads.cloneset.plan.rollout import Inputs
from app.workloads.cloneset.plan.rollout import counted as rollout_state
from app.workloads.cloneset.plan.settings import Gates
from app.workloads.engine.commands import planned, refuse_paused, restart_by_template, restart_each
from app.workloads.engine.in_place import InPlaceUpdates
from app.workloads.engine.pods import PodFacts, pod_facts
from app.workloads.engine.preview import Preview
from app.workloads.engine.reading import pods_and_revisions, revisions_to_come
from app.workloads.engine.revisions import Revisions

RESOURCE: Final = CLONE_SET.resource()


def parsed(obj: Mapping[str, Any]) -> CloneSet:
    """The model of a stored (v1beta1) object. Raises CommandError."""
    try:
        return CloneSet.model_validate(with_defaults(obj))
    except ValidationError as error:
        raise CommandError(f"CloneSet {obj['metadata']['name']}: {unreadable(error)}") from None


@dataclass(frozen=True, slots=True)
class RelatedObjects:
    """What belongs to one CloneSet: Pods it controls, and its revisions, oldest first."""

    pods: Sequence[Pod]
    revisions: Sequence[Revision]
    nodes: Mapping[str, Node]

    def node_labels(self, name: str) -> Mapping[str, str] | None:
        """Labels of a node; None where it is not known."""
        node = self.nodes.get(name)
        return node.metadata.labels if node is not None else None


async def related_objects(client: Client, owner: CloneSet) -> RelatedObjects:
    """Read them from the cluster."""
    pods, revisions = await pods_and_revisions(client, KIND, owner, owner.spec.selector)
    nodes: dict[str, Node] = {}
    if topology_keys(owner.spec.template):
        nodes = {node.metadata.name: node for node in (await client.list(NODES, decode=decode_node)).items}
    return RelatedObjects(pods, revisions, nodes)


@dataclass(frozen=True, slots=True)
class Situation:
    """A CloneSet as the plan sees it: its resolved spec, active Pods, and revisions."""

    resolved: ResolvedSpec
    pods: Sequence[PodFacts]
    revisions: Revisions
    node_labels: NodeLabels


def situation(owner: CloneSet, related: RelatedObjects, gates: Gates) -> Situation:
    """Bring together what was read; the update revision may be one that is not recorded yet. Raises CommandError."""
    try:
        resolved = resolve_spec(owner, gates)
    except SelectorError as error:
        raise CommandError(f"CloneSet {owner.name}: spec.selector: {error}") from None
    status = owner.status
    collisions = (status.collision_count or 0) if status is not None else 0
    recorded = status.current_revision if status is not None else ""
    revisions = revisions_to_come(resolved.content, related.revisions, recorded, collisions)
    pods = [
        pod_facts(pod, resolved.settings)
        for pod in related.pods
        if is_active(pod) and resolved.selector.matches(pod.metadata.labels)
    ]
    return Situation(resolved, sorted(pods, key=lambda one: one.name), revisions, related.node_labels)


def progress_of(cloneset: CloneSet) -> Progress:
    """What the status says about the roll-out. Pure."""
    status, spec = cloneset.status, cloneset.spec
    replicas = 1 if spec.replicas is None else spec.replicas
    if status is None or status.observed_generation < cloneset.metadata.generation:
        return Progress(0, 0, replicas, False, "", "waiting for the change to be seen")
    expected = status.expected_updated_replicas
    updated, available = status.updated_replicas, status.updated_available_replicas
    counts = f"{counted(updated, expected, 'Pods', status.replicas)}, {available} available"
    rolling = spec.update_strategy.rolling_update
    late = next((one for one in status.conditions or () if one.type == "Progressing" and one.status == "False"), None)
    complete = updated >= expected and available >= expected and status.replicas == replicas
    failed = ""
    if complete:
        kept = status.replicas - updated
        counts += f"; the partition keeps {kept} at the old revision" if kept > 0 else ""
    elif late is not None:
        failed = late.message or late.reason
    elif spec.update_strategy.type == ON_DELETE:
        counts += "; OnDelete: Pods are updated when somebody deletes them"
    elif rolling is not None and rolling.paused and updated < expected:
        counts += f"; paused: pykruise rollout resume cloneset {cloneset.name}"
    elif status.replicas != replicas:
        counts += f"; {status.replicas} Pods for {replicas} replicas"
    failures = [
        one.message for one in status.conditions or () if one.type.startswith("Failed") and one.status == "True"
    ]
    if failures and not complete:
        counts += f"; {failures[0]}"
    return Progress(updated, available, expected, complete, failed, counts)


async def restart(client: Client, stored: Stored) -> str:
    """Replace all Pods by new ones, step by step."""
    owner = parsed(stored)
    strategy = owner.spec.update_strategy
    rolling = strategy.rolling_update
    refuse_paused(RESOURCE, owner.name, paused=rolling is not None and rolling.paused)
    if strategy.type == ROLLING_UPDATE and (rolling is None or rolling.pod_update_policy in ("", RECREATE)):
        return await restart_by_template(client, RESOURCE, owner)
    return await restart_each(client, owner, (await related_objects(client, owner)).pods)


async def plan(client: Client, stored: Stored, enabled: Enabled) -> Report:
    """What the CloneSet as it would be stored does to its Pods."""
    wanted = parsed(stored)
    found = situation(wanted, await related_objects(client, wanted), Gates.of(enabled))
    coming = _preview(client, found)
    before = wanted.status.update_revision if wanted.status is not None else ""
    update = found.revisions.update
    template = "the template stays" if update.uid and update.name == before else "the template changes"
    head = f"CloneSet {wanted.metadata.namespace}/{wanted.name}: {template}, update revision {update.name}"
    return planned(head, coming)


def _preview(client: Client, found: Situation) -> Preview:
    now = client.clock.now().timestamp()
    return preview(found.resolved, found.pods, found.revisions, now, found.node_labels)


async def explain(client: Client, pod: Pod, stored: Stored, enabled: Enabled) -> Sequence[str]:
    """Why the Pod is as it is, and what comes next for it."""
    owner = parsed(stored)
    found = situation(owner, await related_objects(client, owner), Gates.of(enabled))
    now = client.clock.now().timestamp()
    rollout = rollout_state(Inputs(found.resolved, found.pods, found.revisions, InPlaceUpdates(), now))
    coming = _preview(client, found)
    return explained(pod, found.resolved, rollout, coming, found.revisions.update, found.node_labels)


def scale_in(stored: Stored, pods: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Name the Pods that shall go, and lower the replicas with them (U-13)."""
    spec = stored["spec"]
    named = list((spec.get("scaleStrategy") or {}).get("podsToDelete") or ())
    replicas = 1 if spec.get("replicas") is None else spec["replicas"]
    strategy = {**(spec.get("scaleStrategy") or {}), "podsToDelete": list(dict.fromkeys([*named, *pods]))}
    return [
        {"op": "add", "path": "/spec/replicas", "value": max(0, replicas - len(set(pods) - set(named)))},
        {"op": "add", "path": "/spec/scaleStrategy", "value": strategy},
    ]


def from_deployment(deployment: Stored, name: str) -> dict[str, Any]:
    """A CloneSet that runs what a Deployment runs, with no Pods yet: they come as the Deployment's go.

    Its Pods have a label of their own, so that the Deployment does not see them as its own.
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
