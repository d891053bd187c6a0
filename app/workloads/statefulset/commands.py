"""The commands about StatefulSets: how far a roll-out is, how it is started anew, what comes next and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.api.in_place import ON_DELETE
from app.api.requested import stored_model
from app.api.statefulset import STATEFUL_SET, StatefulSet
from app.api.statefulset.defaults import ClaimGates, with_defaults
from app.kube.client import Client
from app.kube.objects import Pod
from app.kube.resources import STATEFULSETS
from app.kube.selectors import SelectorError
from app.pods.ordinals import ordinal_of
from app.pods.revisions import short_hash
from app.slices.commands import CommandError, Commands, Migration, Progress, Report, Stored
from app.slices.options import Enabled
from app.workloads.engine import commands as engine
from app.workloads.engine.moving import moved_manifest
from app.workloads.engine.pods import PodFacts, pod_facts
from app.workloads.engine.preview import Preview
from app.workloads.engine.progress import progress_by_counts, unseen
from app.workloads.engine.reading import pods_and_revisions, revisions_of
from app.workloads.engine.revisions import Revisions
from app.workloads.statefulset.plan.explain import explain as explained
from app.workloads.statefulset.plan.preview import preview
from app.workloads.statefulset.plan.resolved import KIND, ResolvedSpec, resolve_spec, settings_of
from app.workloads.statefulset.plan.settings import Gates

RESOURCE: Final = STATEFUL_SET.resource()


def parsed(obj: Mapping[str, Any]) -> StatefulSet:
    """The model of a stored (v1beta1) object. Raises CommandError."""
    return stored_model(STATEFUL_SET, StatefulSet, obj, with_defaults(obj, ClaimGates()))


@dataclass(frozen=True, slots=True)
class Situation:
    """A StatefulSet as the plan sees it: its resolved spec, Pods, and revisions."""

    resolved: ResolvedSpec
    pods: Sequence[PodFacts]
    revisions: Revisions

    def preview(self, now: float) -> Preview:
        """What comes, from POSIX seconds ``now`` on."""
        return preview(self.resolved, self.pods, self.revisions, now)


async def situation(client: Client, owner: StatefulSet, gates: Gates) -> Situation:
    """Read it from the cluster; the update revision may be one that is not recorded yet. Raises CommandError."""
    try:
        resolved = resolve_spec(owner, gates)
    except SelectorError as error:
        raise CommandError(f"StatefulSet {owner.name}: spec.selector: {error}") from None
    pods, recorded = await pods_and_revisions(client, KIND, owner, owner.spec.selector)
    revisions = revisions_of(owner.status, resolved.content, recorded)
    return Situation(resolved, [pod_facts(pod, resolved.settings) for pod in pods], revisions)


def progress_of(found: StatefulSet) -> Progress:
    """What the status says about the roll-out (AS-122). Pure."""
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
    return await engine.restart(client, KIND, owner, owner.spec.update_strategy, owner.spec.selector)


async def plan(client: Client, stored: Stored, enabled: Enabled) -> Report:
    """What the StatefulSet as it would be stored does to its Pods."""
    wanted = parsed(stored)
    found = await situation(client, wanted, Gates.of(enabled))
    coming = found.preview(client.clock.now().timestamp())
    before = wanted.status.update_revision if wanted.status is not None else ""
    return engine.planned(engine.template_head(KIND, wanted, before, found.revisions.update), coming)


async def explain(client: Client, pod: Pod, stored: Stored, enabled: Enabled) -> Sequence[str]:
    """Why the Pod is as it is, and what comes next for it."""
    owner = parsed(stored)
    found, now = await situation(client, owner, Gates.of(enabled)), client.clock.now().timestamp()
    facts = pod_facts(pod, found.resolved.settings)
    update = short_hash(found.revisions.update.name)
    return explained(facts, found.resolved, found.preview(now), update=update, now=now)


def scale_in(stored: Stored, pods: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Reserve the ordinals of these Pods, and lower the replicas with them. Raises CommandError."""
    owner = parsed(stored)
    reserved = list(stored["spec"].get("reserveOrdinals") or ())
    slots = resolve_spec(owner, Gates()).settings.slots
    ordinals = [ordinal_of(owner.name, pod) for pod in pods]
    for pod, ordinal in zip(pods, ordinals, strict=True):
        if ordinal < 0 or not slots.rank(ordinal):
            raise CommandError(f"StatefulSet {owner.name}: Pod {pod} is not wanted any more; it goes by itself")
    changes: list[Mapping[str, Any]] = [
        {"op": "add", "path": "/spec/replicas", "value": len(slots) - len(ordinals)},
    ]
    if newly_reserved := slots.not_last(ordinals):
        changes.append({"op": "add", "path": "/spec/reserveOrdinals", "value": [*reserved, *newly_reserved]})
    return changes


async def moving(client: Client, namespace: str, name: str, enabled: Enabled) -> Report:
    """What becomes of a native StatefulSet that is moved over. Raises CommandError or KubeError."""
    from app.workloads.statefulset.moving import moving as moved  # it reads what this module parses

    return await moved(client, namespace, name, enabled)


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
