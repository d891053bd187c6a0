"""What the commands about workloads have in common: the report of a plan, and how Pods are started anew."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

from app.api import names
from app.api.in_place import RECREATE, ROLLING_UPDATE
from app.api.model import KubeObject
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.objects import Pod
from app.kube.resources import PODS, Resource
from app.pods.predicates import is_active
from app.pods.revisions import Revision
from app.slices.commands import PLAN_COLUMNS, CommandError, Report
from app.workloads.engine.kind import WorkloadKind
from app.workloads.engine.preview import Preview
from app.workloads.engine.reading import pods_and_revisions


class RollingUpdate(Protocol):
    """Of a roll-out what a restart asks."""

    @property
    def paused(self) -> bool: ...
    @property
    def pod_update_policy(self) -> str: ...


class UpdateStrategy(Protocol):
    """Of an update strategy what a restart asks."""

    @property
    def type(self) -> str: ...
    @property
    def rolling_update(self) -> RollingUpdate | None: ...


RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
_MANAGER: Final = "pykruise"


def planned(head: str, coming: Preview) -> Report:
    """The report of a preview, a row per turn; ``head``: what is to become of the workload itself."""
    if not coming.steps:
        return Report(head, notes=[nothing_happens(coming)])
    rows = [(str(one.step), one.pod, one.action.value, one.reason or "-") for one in coming.steps]
    notes = [f"{len(coming.rest)} Pods keep their revision: {', '.join(coming.rest)}"] if coming.rest else []
    return Report(head, PLAN_COLUMNS, rows, [*notes, *([coming.ends] if coming.ends else [])])


def template_head(kind: WorkloadKind, owner: KubeObject, before: str, update: Revision) -> str:
    """What is to become of the workload itself; ``before``: the update revision that its status names."""
    template = "the template stays" if update.uid and update.name == before else "the template changes"
    called = f"{kind.resource.kind} {owner.metadata.namespace}/{owner.name}"
    return f"{called}: {template}, update revision {update.name}"


def nothing_happens(coming: Preview) -> str:
    """Of a preview without turns."""
    return f"nothing happens to any Pod{f': {coming.ends}' if coming.ends else ''}"


def refuse_paused(resource: Resource, name: str, *, paused: bool) -> None:
    """Raises CommandError for a roll-out that is paused: what is asked for would only wait."""
    if paused:
        word = resource.kind.lower()
        raise CommandError(f"{resource.kind} {name}: is paused; pykruise rollout resume {word} {name}")


async def restart_by_template(client: Client, resource: Resource, owner: KubeObject) -> str:
    """Change the template's annotation as kubectl does, so that all Pods are replaced; what was done, in a word."""
    annotations = {RESTARTED_AT: rfc3339(client.clock.now())}
    patch: dict[str, Any] = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    await client.patch(resource, owner.name, patch, owner.metadata.namespace, field_manager=_MANAGER)
    return "restarted"


async def restart(
    client: Client, kind: WorkloadKind, owner: KubeObject, strategy: UpdateStrategy, selector: Mapping[str, Any]
) -> str:
    """Replace all Pods with new ones, step by step. Raises CommandError."""
    rolling = strategy.rolling_update
    refuse_paused(kind.resource, owner.name, paused=rolling is not None and rolling.paused)
    if strategy.type == ROLLING_UPDATE and (rolling is None or rolling.pod_update_policy in ("", RECREATE)):
        return await restart_by_template(client, kind.resource, owner)
    pods, _ = await pods_and_revisions(client, kind, owner, selector)
    return await restart_each(client, owner, pods)


async def restart_each(client: Client, owner: KubeObject, pods: Sequence[Pod]) -> str:
    """Ask for each active Pod to be replaced: an annotation of the template would be updated in place, and nothing
    would restart (U-13)."""
    active = [pod for pod in pods if is_active(pod)]
    for pod in active:
        body = {"metadata": {"uid": pod.metadata.uid, "labels": {names.SPECIFIED_DELETE: "true"}}}
        await client.patch(PODS, pod.metadata.name, body, owner.metadata.namespace, field_manager=_MANAGER)
    return f"restarted: {len(active)} Pods will be replaced as maxUnavailable allows"
