"""Helpers for workload commands: read Pods and revisions, restart workloads, and migrate from built-in kinds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from app.api import names
from app.api.model import KubeObject
from app.framework.commands import PLAN_COLUMNS, RESTARTED_AT, Report
from app.kube.client import Client
from app.kube.clock import rfc3339
from app.kube.errors import CommandError, NotFound
from app.kube.objects import Pod, decode_controller_revision, decode_pod
from app.kube.resources import CONTROLLERREVISIONS, PODS, Resource
from app.kube.selector_query import SelectorError
from app.kube.selectors import to_query
from app.pods.predicates import Owner, is_active, is_controlled_by
from app.pods.revisions import Create, Revision, current_revision, in_order, of_owner, plan_revision, revision_of
from app.workloads.report import PASSIVE, Preview
from app.workloads.settings import Content, Revisions, WorkloadKind

W = TypeVar("W", bound=KubeObject)
G = TypeVar("G")
R = TypeVar("R")


class OwnedObjects(NamedTuple):
    """The Pods and revisions that one object controls, revisions oldest first."""

    pods: Sequence[Pod]
    revisions: Sequence[Revision]


async def owned_objects(client: Client, owner: Owner, selector: Mapping[str, Any] | None) -> OwnedObjects:
    """Read the Pods and revisions that ``owner`` controls and ``selector`` matches."""
    query = to_query(selector)
    pods = await client.list(PODS, owner.namespace, label_selector=query, decode=decode_pod)
    revisions = await client.list(
        CONTROLLERREVISIONS, owner.namespace, label_selector=query, decode=decode_controller_revision
    )
    return OwnedObjects(
        [pod for pod in pods.items if is_controlled_by(pod.metadata, owner)],
        in_order(of_owner(map(revision_of, revisions.items), owner)),
    )


def revisions_to_come(content: Content, recorded: Sequence[Revision], current: str, collisions: int) -> Revisions:
    """Return the revisions as they will be once ``content`` is recorded. ``current`` is the current revision in the
    status."""
    plan = plan_revision(content.name, content.data, list(recorded), collisions, content.digest)
    update = Revision(plan.name, plan.number, plan.data) if isinstance(plan, Create) else plan.revision
    ordered = [*(one for one in recorded if one.name != update.name), update]
    return Revisions(current_revision(current, ordered, update), update, ordered, collisions)


class RecordedStatus(Protocol):
    """The part of a status that names revisions."""

    @property
    def current_revision(self) -> str: ...
    @property
    def collision_count(self) -> int | None: ...


def revisions_of(status: RecordedStatus | None, content: Content, recorded: Sequence[Revision]) -> Revisions:
    """Return the revisions as they will be once ``content`` is recorded, using the workload's status if it has one."""
    if status is None:
        return revisions_to_come(content, recorded, "", 0)
    return revisions_to_come(content, recorded, status.current_revision, status.collision_count or 0)


_MANAGER: Final = "pykruise"


def planned(kind: WorkloadKind, owner: KubeObject, before: str, update: Revision, coming: Preview) -> Report:
    """Return the report of a preview, one row per Pod. ``before`` is the update revision in the status."""
    template = template_change(before, update.name if update.uid else "")
    called = f"{kind.resource.kind} {owner.metadata.namespace}/{owner.name}"
    head = f"{called}: {template}, update revision {update.name}"
    if not coming.steps:
        return Report(head, notes=[nothing_happens(coming)])
    rows = [(str(one.step), one.pod, one.action.value, one.reason or "-") for one in coming.steps]
    notes = [f"{len(coming.rest)} Pods keep their revision: {', '.join(coming.rest)}"] if coming.rest else []
    return Report(head, PLAN_COLUMNS, rows, [*notes, *([coming.ends] if coming.ends else [])])


def template_change(before: str, update: str) -> str:
    """Return how the template changes. ``before`` is the update revision in the status, '' for a new workload."""
    if not before:
        return "it is new"
    return "the template is unchanged" if update == before else "the template changes"


def nothing_happens(coming: Preview) -> str:
    """Return the line for a preview without steps."""
    return f"no Pods are affected{f': {coming.ends}' if coming.ends else ''}"


def refuse_paused(resource: Resource, name: str, *, paused: bool) -> None:
    """Raise CommandError if the rollout is paused, because the change would have no effect yet."""
    if paused:
        word = resource.kind.lower()
        raise CommandError(f"{resource.kind} {name}: is paused; resume it with: pykruise rollout resume {word} {name}")


def resolved_spec(kind: WorkloadKind, resolve: Callable[[W, G], R], owner: W, gates: G) -> R:
    """Return the resolved spec of the workload. Raises CommandError if its selector is invalid."""
    try:
        return resolve(owner, gates)
    except SelectorError as error:
        raise CommandError(f"{kind.resource.kind} {owner.name}: spec.selector: {error}") from None


async def restart_by_template(client: Client, resource: Resource, owner: KubeObject) -> str:
    """Set the restart annotation on the template as kubectl does, so that all Pods are replaced. Return a one-line
    summary."""
    annotations = {RESTARTED_AT: rfc3339(client.clock.now())}
    patch: dict[str, Any] = {"spec": {"template": {"metadata": {"annotations": annotations}}}}
    await client.patch(resource, owner.name, patch, owner.metadata.namespace, field_manager=_MANAGER)
    return "restarted"


async def restart(
    client: Client, kind: WorkloadKind, owner: KubeObject, selector: Mapping[str, Any], *, paused: bool, recreates: bool
) -> str:
    """Replace all Pods step by step. ``recreates`` says whether the rollout of a changed template replaces them.
    Raises CommandError."""
    refuse_paused(kind.resource, owner.name, paused=paused)
    if recreates:
        return await restart_by_template(client, kind.resource, owner)
    pods, _ = await owned_objects(client, kind.owner(owner.metadata), selector)
    return await restart_each(client, owner, pods)


async def restart_each(client: Client, owner: KubeObject, pods: Sequence[Pod]) -> str:
    """Request replacement of each active Pod; a template annotation would be updated in place, without a restart."""
    active = [pod for pod in pods if is_active(pod)]
    for pod in active:
        body = {"metadata": {"uid": pod.metadata.uid, "labels": {names.SPECIFIED_DELETE: "true"}}}
        await client.patch(PODS, pod.metadata.name, body, owner.metadata.namespace, field_manager=_MANAGER)
    return f"restarted: {len(active)} Pods will be replaced as maxUnavailable allows"


_KEPT: Final = ("name", "namespace", "labels", "annotations")
#: Annotation that the native DaemonSet controller writes.
_OF_ITS_CONTROLLER: Final = "deprecated.daemonset.template.generation"
#: Metadata fields that a new object must not have.
_LEFT_OUT: Final = r"uid\|resourceVersion"


def moved_manifest(native: Mapping[str, Any], resource: Resource) -> dict[str, Any]:
    """Return the Kruise object for a built-in workload: its name, labels, annotations and spec. Pure."""
    metadata = {key: native["metadata"][key] for key in _KEPT if key in native["metadata"]}
    if annotations := metadata.pop("annotations", None):
        kept = {key: value for key, value in annotations.items() if key != _OF_ITS_CONTROLLER}
        metadata |= {"annotations": kept} if kept else {}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": native["spec"]}


@dataclass(frozen=True, slots=True)
class NativeWorkload:
    """A built-in workload. ``stored`` is the Kruise object it would become, as the API server would store it."""

    object: Mapping[str, Any]
    stored: Mapping[str, Any]
    pods: Sequence[Pod]
    revisions: Sequence[Revision]

    def revisions_to_come(self, content: Content) -> Revisions:
        """Return the built-in workload's revisions, and the one that the Kruise workload would record."""
        status = self.object.get("status") or {}
        current, collisions = str(status.get("currentRevision") or ""), int(status.get("collisionCount") or 0)
        return revisions_to_come(content, self.revisions, current, collisions)


async def native_workload(
    client: Client, native: Resource, resource: Resource, namespace: str, name: str
) -> NativeWorkload:
    """Read a built-in workload and dry-run its migration: the API server and the webhooks reject what cannot be
    migrated. Raises CommandError, SelectorError and KubeError."""
    called = f"{native.kind} {namespace}/{name}"
    try:
        found: Mapping[str, Any] = await client.get(native, name, namespace)
    except NotFound:
        listing = f"kubectl get {native.plural}.{native.group} -n {namespace}"
        way_out = f"list the existing ones with: {listing}; or use -n to specify another namespace"
        raise CommandError(f"{called}: not found; {way_out}") from None
    if found["metadata"].get("deletionTimestamp"):
        raise CommandError(f"{called}: is being deleted")
    stored = await client.create(resource, moved_manifest(found, resource), namespace, dry_run=True)
    owner = Owner(native.api_version, native.kind, name, namespace, str(found["metadata"]["uid"]))
    pods, revisions = await owned_objects(client, owner, stored["spec"]["selector"])
    return NativeWorkload(found, stored, pods, [one for one in revisions if is_controlled_by(one, owner)])


def becomes(coming: Preview, pod: str) -> str:
    """Return what happens to an adopted Pod. Pure."""
    turn = coming.of(pod)
    if turn is None:
        return "adopted as it is"
    done = f"adopted, then {PASSIVE[turn.action]}"
    return f"{done}: {turn.reason}" if turn.reason else done


def moving_steps(native: Resource, resource: Resource, namespace: str, name: str) -> list[str]:
    """Return the commands that migrate a workload without touching its Pods. Pure."""
    word, where = f"{native.kind.lower()}.{native.group}", f"-n {namespace}"
    rename = f"s|^apiVersion: {native.api_version}$|apiVersion: {resource.api_version}|"
    return [
        f"kubectl get {word} {name} {where} -o yaml"
        rf" | sed -e '{rename}' -e '/^  \({_LEFT_OUT}\):/d' > {name}.yaml",
        f"kubectl delete {word} {name} {where} --cascade=orphan    # its Pods keep running",
        f"kubectl create -f {name}.yaml    # adopts the Pods",
    ]
