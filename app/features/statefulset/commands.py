"""Commands for Advanced StatefulSets, and the report on migrating a native one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api.fields import ON_DELETE
from app.api.webhooks import stored_model
from app.features.statefulset.defaults import ClaimGates, with_defaults
from app.features.statefulset.kind import STATEFUL_SET
from app.features.statefulset.plan.preview import explain as explained
from app.features.statefulset.plan.preview import preview
from app.features.statefulset.plan.settings import KIND, Gates, ResolvedSpec, resolve_spec, settings_of
from app.features.statefulset.types import StatefulSet
from app.framework.commands import Commands, Migration, Progress, Report, Stored, progress_by_counts, unseen
from app.framework.options import Enabled
from app.kube.client import Client
from app.kube.errors import CommandError
from app.kube.objects import PersistentVolumeClaim, Pod, decode_persistent_volume_claim
from app.kube.resources import PERSISTENTVOLUMECLAIMS, STATEFULSETS
from app.kube.selector_query import SelectorError
from app.pods.ordinals import ordinal_of
from app.pods.revisions import short_hash
from app.workloads import commands as engine
from app.workloads.commands import (
    becomes,
    moved_manifest,
    moving_steps,
    native_workload,
    owned_objects,
    resolved_spec,
    revisions_of,
)
from app.workloads.pods import PodFacts, pod_facts
from app.workloads.report import Preview
from app.workloads.settings import Revisions, UpdatePolicy

RESOURCE: Final = STATEFUL_SET.resource()


def parsed(obj: Mapping[str, Any]) -> StatefulSet:
    """Return the model of a stored (v1beta1) object. Raises CommandError."""
    return stored_model(STATEFUL_SET, StatefulSet, obj, with_defaults(obj, ClaimGates()))


@dataclass(frozen=True, slots=True)
class Situation:
    """Inputs to the plan for one StatefulSet: its resolved spec, Pods, and revisions."""

    resolved: ResolvedSpec
    pods: Sequence[PodFacts]
    revisions: Revisions

    def preview(self, now: float) -> Preview:
        return preview(self.resolved, self.pods, self.revisions, now)


async def situation(client: Client, owner: StatefulSet, gates: Gates) -> Situation:
    """Read the inputs from the cluster. The update revision may not be recorded yet. Raises CommandError."""
    resolved = resolved_spec(KIND, resolve_spec, owner, gates)
    pods, recorded = await owned_objects(client, KIND.owner(owner.metadata), owner.spec.selector)
    revisions = revisions_of(owner.status, resolved.content, recorded)
    return Situation(resolved, [pod_facts(pod, resolved.settings) for pod in pods], revisions)


def progress_of(found: StatefulSet) -> Progress:
    """Return the progress of the rollout according to the status. Pure. [AS-122]"""
    status, settings = found.status, settings_of(found.spec, Gates())
    replicas = settings.replicas
    if status is None or status.observed_generation < found.metadata.generation:
        return unseen(replicas)
    expected = max(0, replicas - settings.partition)
    return progress_by_counts(
        f"statefulset {found.name}",
        status,
        replicas=replicas,
        expected=expected,
        done=status.updated_replicas >= expected and status.available_replicas == status.replicas == replicas,
        on_delete=settings.on_delete,
        paused=settings.paused,
        failures=[one.message for one in status.conditions or () if one.status == "True"],
    )


async def restart(client: Client, stored: Stored) -> str:
    """Replace all Pods with new ones, step by step."""
    owner = parsed(stored)
    settings = settings_of(owner.spec, Gates())
    recreates = not settings.on_delete and settings.update_policy == UpdatePolicy.RECREATE
    return await engine.restart(client, KIND, owner, owner.spec.selector, paused=settings.paused, recreates=recreates)


async def plan(client: Client, stored: Stored, enabled: Enabled) -> Report:
    """Report what would happen to the Pods if this StatefulSet were stored."""
    wanted = parsed(stored)
    found = await situation(client, wanted, Gates.of(enabled))
    coming = found.preview(client.clock.now().timestamp())
    before = wanted.status.update_revision if wanted.status is not None else ""
    return engine.planned(KIND, wanted, before, found.revisions.update, coming)


async def explain(client: Client, pod: Pod, stored: Stored, enabled: Enabled) -> Sequence[str]:
    """Explain the state of a Pod and what happens to it next."""
    owner = parsed(stored)
    found, now = await situation(client, owner, Gates.of(enabled)), client.clock.now().timestamp()
    facts = pod_facts(pod, found.resolved.settings)
    update = short_hash(found.revisions.update.name)
    return explained(facts, found.resolved, found.preview(now), update=update, now=now)


def scale_in(stored: Stored, pods: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Return the patch that reserves the ordinals of these Pods and lowers the replicas. Raises CommandError."""
    owner = parsed(stored)
    reserved = list(stored["spec"].get("reserveOrdinals") or ())
    slots = resolve_spec(owner, Gates()).settings.slots
    ordinals = [ordinal_of(owner.name, pod) for pod in pods]
    for pod, ordinal in zip(pods, ordinals, strict=True):
        if ordinal < 0 or not slots.rank(ordinal):
            raise CommandError(f"StatefulSet {owner.name}: Pod {pod} is already surplus; the controller will delete it")
    changes: list[Mapping[str, Any]] = [{"op": "add", "path": "/spec/replicas", "value": len(slots) - len(ordinals)}]
    if newly_reserved := slots.not_last(ordinals):
        changes.append({"op": "add", "path": "/spec/reserveOrdinals", "value": [*reserved, *newly_reserved]})
    return changes


# ``pykruise plan --from statefulset/NAME``: what happens to the Pods, claims and revisions of a native StatefulSet when
# it is migrated [AS-38, PM-80].

COLUMNS: Final = ("pod", "revision", "claims", "becomes")


async def moving(client: Client, namespace: str, name: str, enabled: Enabled) -> Report:
    """Report what would happen, without changing anything. Raises CommandError, or KubeError for any API error."""
    try:
        native = await native_workload(client, STATEFULSETS, RESOURCE, namespace, name)
        resolved = resolve_spec(parsed(native.stored), Gates.of(enabled))
    except SelectorError as error:
        raise CommandError(f"StatefulSet {namespace}/{name}: spec.selector: {error}") from None
    pods = [pod for pod in native.pods if ordinal_of(name, pod.metadata.name) >= 0]
    facts = [pod_facts(pod, resolved.settings) for pod in pods]
    revisions = native.revisions_to_come(resolved.content)
    coming = preview(resolved, facts, revisions, client.clock.now().timestamp())
    claims = (await client.list(PERSISTENTVOLUMECLAIMS, namespace, decode=decode_persistent_volume_claim)).items
    templates = [str(one["metadata"]["name"]) for one in native.object["spec"].get("volumeClaimTemplates") or ()]
    pods.sort(key=lambda pod: ordinal_of(name, pod.metadata.name))
    return moving_report(namespace, name, pods, templates, claims, coming)


def moving_report(
    namespace: str,
    name: str,
    pods: Sequence[Pod],
    templates: Sequence[str],
    claims: Sequence[PersistentVolumeClaim],
    coming: Preview,
) -> Report:
    """Return the report. Pure. ``templates`` are the names of claim templates; ``claims`` are all claims in the
    namespace."""
    present = {claim.metadata.name for claim in claims if claim.metadata.deletion_timestamp is None}
    rows = []
    for pod in pods:
        found = [f"{template}-{pod.metadata.name}" for template in templates]
        names = ", ".join(claim if claim in present else f"{claim} (missing: recreated)" for claim in found) or "-"
        revision = short_hash(pod.metadata.labels.get("controller-revision-hash", "-"))
        rows.append((pod.metadata.name, revision, names, becomes(coming, pod.metadata.name)))
    there = {pod.metadata.name for pod in pods}
    kept = sum(coming.of(pod) is None for pod in there)
    new = [one.pod for one in coming.steps if one.pod not in there]
    notes = [f"{', '.join(new)}: created, because the StatefulSet has fewer Pods than replicas"] if new else []
    if templates:
        notes.append(
            "claims keep their names, and Pods find them by name; no claim is created or deleted for a Pod that is kept"
        )
    notes.append("afterwards, change autoscalers and budgets that refer to apps/v1 to apps.kruise.io/v1beta1")
    todo = moving_steps(STATEFULSETS, RESOURCE, namespace, name)
    if kept < len(pods):
        held = max(ordinal_of(name, pod.metadata.name) for pod in pods) + 1
        hold = f"set spec.updateStrategy.rollingUpdate.partition: {held} in {name}.yaml"
        todo.insert(1, f"{hold}: no Pod is changed until you lower it")
    stay = "all of its Pods are kept" if kept == len(pods) else f"{kept} of its {len(pods)} Pods are kept"
    head = f"native StatefulSet {namespace}/{name}, moved to {RESOURCE.api_version}: {stay}"
    return Report(head, COLUMNS, rows, notes, todo)


COMMANDS: Final = Commands(
    STATEFUL_SET,
    progress=lambda stored: progress_of(parsed(stored)),
    restart=restart,
    plan=plan,
    moving=moving,
    explain=explain,
    scale_in=scale_in,
    adoptions=(Migration(STATEFULSETS, lambda native, _: moved_manifest(native, RESOURCE)),),
    without_rollout=ON_DELETE,
)
