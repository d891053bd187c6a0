"""Commands for Advanced DaemonSets: rollout progress, restart, plan and explain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api import names
from app.api.webhooks import stored_model
from app.features.daemonset.defaults import with_defaults
from app.features.daemonset.kind import DAEMON_SET
from app.features.daemonset.plan.preview import preview
from app.features.daemonset.plan.scale import DaemonPod, Observed, daemon_pod, node_facts, observe
from app.features.daemonset.plan.settings import KIND, Gates, ResolvedSpec, resolve_spec
from app.features.daemonset.types import DaemonSet
from app.framework.commands import Commands, Migration, Progress, Report, Stored, counted, unseen
from app.framework.options import Enabled
from app.kube.client import Client
from app.kube.errors import CommandError
from app.kube.objects import Node, Pod, decode_node, decode_pod
from app.kube.resources import DAEMONSETS, NODES, PODS
from app.kube.selectors import to_query
from app.pods.predicates import is_active, is_controlled_by
from app.pods.readiness import has_gate
from app.pods.revisions import Revision, short_hash
from app.workloads.commands import (
    moved_manifest,
    nothing_happens,
    owned_objects,
    refuse_paused,
    resolved_spec,
    restart_by_template,
    revisions_to_come,
    template_change,
)
from app.workloads.pods import InPlaceUpdates, pod_facts
from app.workloads.report import Preview

RESOURCE: Final = DAEMON_SET.resource()


def parsed(obj: Mapping[str, Any]) -> DaemonSet:
    """Return the model of a stored (v1beta1) object. Raises CommandError."""
    return stored_model(DAEMON_SET, DaemonSet, obj, with_defaults(obj))


@dataclass(frozen=True, slots=True)
class Situation:
    """Inputs to the plans for one DaemonSet. ``ordered`` holds all revisions, oldest first, including ``update``."""

    resolved: ResolvedSpec
    observed: Observed
    update: Revision
    ordered: Sequence[Revision]

    def preview(self) -> Preview:
        update = short_hash(self.update.name)
        return preview(self.observed, self.resolved.settings, new=update, obstacle=self.obstacle)

    def obstacle(self, pod: DaemonPod) -> str | None:
        if not has_gate(pod.pod, names.IN_PLACE_UPDATE_READY):
            return f"the Pod has no readiness gate {names.IN_PLACE_UPDATE_READY}"
        settings = self.resolved.settings
        return InPlaceUpdates().obstacle(pod_facts(pod.pod, settings), self.update, self.ordered, settings)


async def situation(client: Client, owner: DaemonSet, gates: Gates) -> Situation:
    """Read the inputs from the cluster. The current revision may not be stored yet. Raises CommandError."""
    resolved = resolved_spec(KIND, resolve_spec, owner, gates)
    pods, known = await owned_objects(client, KIND.owner(owner.metadata), owner.spec.selector)
    nodes: Sequence[Node] = (await client.list(NODES, decode=decode_node)).items
    collisions = (owner.status.collision_count or 0) if owner.status is not None else 0
    revisions = revisions_to_come(resolved.content, known, "", collisions)
    update = revisions.update
    facts = [node_facts(node, resolved.placement, resolved.settings.node_selector) for node in nodes]
    observed = observe(
        {one.node.metadata.name: one.eligibility for one in facts},
        [daemon_pod(pod, resolved.settings) for pod in pods],
        unselected={one.node.metadata.name for one in facts if not one.selected},
        new={short_hash(one.name) for one in (*known, update) if one.data == update.data},
        now=client.clock.now().timestamp(),
    )
    return Situation(resolved, observed, update, revisions.ordered)


def progress_of(daemonset: DaemonSet) -> Progress:
    """Return the progress of the rollout according to the status. Pure."""
    status, settings = daemonset.status, resolved_spec(KIND, resolve_spec, daemonset, Gates()).settings
    if status is None or status.observed_generation < daemonset.metadata.generation:
        return unseen(1)
    desired, updated, available = (
        status.desired_number_scheduled,
        status.updated_number_scheduled,
        status.number_available,
    )
    kept = min(desired, settings.limits(desired).partition)
    selects = settings.node_selector is not None
    # The status does not show how many nodes a selector matches.
    expected = updated if selects else desired - kept
    counts = f"{counted(updated, expected, 'nodes', desired)}, {available} of {desired} available"
    done = updated >= expected and available >= desired
    if done and selects:
        counts += "; only nodes that match the node selector are updated"
    elif done and desired > updated:
        counts += f"; the partition keeps {desired - updated} at the old revision"
    elif not done and settings.on_delete:
        counts += "; OnDelete: Pods are updated when they are deleted"
    elif not done and settings.paused:
        counts += f"; paused: pykruise rollout resume daemonset {daemonset.name}"
    return Progress(updated, min(updated, available), expected, done, "", counts)


async def restart(client: Client, stored: Stored) -> str:
    """Replace all Pods with new ones, step by step."""
    owner = parsed(stored)
    name, settings = owner.name, resolved_spec(KIND, resolve_spec, owner, Gates()).settings
    refuse_paused(RESOURCE, name, paused=settings.paused)
    if settings.in_place:
        why = "Pods are updated in place, so a new annotation would not restart them"
        raise CommandError(f"DaemonSet {name}: {why}; set rollingUpdateType: Standard, or delete its Pods one by one")
    return await restart_by_template(client, RESOURCE, owner)


async def plan(client: Client, stored: Stored, enabled: Enabled) -> Report:
    """Return what the DaemonSet would do to its Pods if it were stored as given."""
    wanted = parsed(stored)
    found = await situation(client, wanted, Gates.of(enabled))
    before, update = (wanted.status.update_revision if wanted.status is not None else ""), short_hash(found.update.name)
    template = template_change(before, update)
    head = f"DaemonSet {wanted.metadata.namespace}/{wanted.name}: {template}, revision {found.update.name}"
    coming = found.preview()
    if not coming.steps:
        return Report(head, notes=[nothing_happens(coming)])
    rows = [(str(one.step), one.node, one.pod, one.action.value, one.reason or "-") for one in coming.steps]
    rest = f"{len(coming.rest)} nodes keep their old Pod: {', '.join(coming.rest)}; {coming.ends}"
    return Report(head, ("step", "node", "pod", "action", "because"), rows, [rest] if coming.rest else [])


async def explain(client: Client, pod: Pod, stored: Stored, enabled: Enabled) -> Sequence[str]:
    """Explain the state of a Pod and what happens to it next."""
    owner = parsed(stored)
    found = await situation(client, owner, Gates.of(enabled))
    mine = daemon_pod(pod, found.resolved.settings)
    node = next((one for one in found.observed.nodes if one.name == mine.node), None)
    lines = [f"on node {mine.node}" if mine.bound else f"not scheduled yet; created for node {mine.node or 'none'}"]
    if not is_active(pod):
        lines.append("not counted: it is terminating or has ended")
    kind = "the current one" if found.observed.is_new(mine) else f"older than {short_hash(found.update.name)}"
    lines.append(f"revision: {mine.revision or 'none'}, {kind}")
    lines.append("available" if found.observed.available(mine) else "not available")
    if node is None:
        lines.append("its node is gone")
    elif not node.eligibility.should_run:
        stays = "it is kept" if node.eligibility.should_continue else "it will be deleted"
        lines.append(f"the node should not run a Pod: {node.eligibility.reason}; {stays}")
    if mine.preparing_delete and mine.hooked:
        lines.append("its deletion waits for the preDelete hook")
    coming = found.preview()
    turn = next((one for one in coming.steps if one.pod == mine.name), None)
    if turn is not None:
        steps = max(one.step for one in coming.steps)
        reason = f": {turn.reason}" if turn.reason else ""
        lines.append(f"next: {turn.action} in step {turn.step} of {steps}{reason}")
    elif mine.node in coming.rest:
        lines.append(f"next: stays at its revision, {coming.ends}")
    else:
        lines.append("next: no change")
    return lines


async def explain_node(client: Client, node: Node, enabled: Enabled) -> Sequence[str]:
    """Return a line for each DaemonSet in the cluster: whether it has or should have a Pod on the node, and why."""
    gates, lines, name = Gates.of(enabled), [], node.metadata.name
    found = await client.list(RESOURCE)
    for stored in sorted(found.items, key=lambda one: (one["metadata"]["namespace"], one["metadata"]["name"])):
        try:
            owner = parsed(stored)
            resolved = resolved_spec(KIND, resolve_spec, owner, gates)
        except CommandError as error:
            lines.append(str(error))
            continue
        called = f"DaemonSet {owner.metadata.namespace}/{owner.name}"
        eligibility = resolved.placement.eligibility(node)
        query = to_query(owner.spec.selector)
        listed = await client.list(PODS, owner.metadata.namespace, label_selector=query, decode=decode_pod)
        here = [
            daemon_pod(pod, resolved.settings)
            for pod in listed.items
            if is_controlled_by(pod.metadata, KIND.owner(owner.metadata)) and pod.spec.target_node == name
        ]
        shown = ", ".join(_state(pod, client.clock.now().timestamp()) for pod in here)
        if eligibility.should_run:
            lines.append(f"{called}: {shown or 'has no Pod yet; one is about to be created'}")
        elif here:
            stays = "may stay" if eligibility.should_continue else "will be deleted"
            lines.append(f"{called}: {shown}, which {stays}: {eligibility.reason}")
        else:
            lines.append(f"{called}: no Pod: {eligibility.reason}")
    return lines


def _state(pod: DaemonPod, now: float) -> str:
    if pod.terminating:
        return f"{pod.name} (terminating)"
    if not pod.bound:
        return f"{pod.name} (not scheduled)"
    return f"{pod.name} ({'available' if pod.available_after < now else 'not available'})"


COMMANDS: Final = Commands(
    DAEMON_SET,
    progress=lambda stored: progress_of(parsed(stored)),
    restart=restart,
    plan=plan,
    explain=explain,
    no_scale_in="runs a Pod on every eligible node; use a node selector, a taint or a label to exclude nodes",
    explain_node=explain_node,
    adoptions=(Migration(DAEMONSETS, lambda native, _: moved_manifest(native, RESOURCE)),),
)
