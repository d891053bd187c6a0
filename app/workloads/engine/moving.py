"""A built-in workload as one of ours: the same object under another apiVersion, and what becomes of what it owns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from app.kube.client import Client
from app.kube.errors import NotFound
from app.kube.objects import Pod
from app.kube.resources import Resource
from app.pods.owned import owned_objects
from app.pods.owners import Owner, is_controlled_by
from app.pods.revisions import Revision
from app.slices.commands import CommandError
from app.workloads.engine.preview import Preview
from app.workloads.engine.reading import revisions_to_come
from app.workloads.engine.revisions import Content, Revisions

_KEPT: Final = ("name", "namespace", "labels", "annotations")
#: What the controller of native DaemonSets writes for itself.
_OF_ITS_CONTROLLER: Final = "deprecated.daemonset.template.generation"
#: Fields of the metadata that a new object must not have.
_LEFT_OUT: Final = r"uid\|resourceVersion"


def moved_manifest(native: Mapping[str, Any], resource: Resource) -> dict[str, Any]:
    """The object of ours that a built-in one becomes: its name, labels, annotations and spec. Pure."""
    metadata = {key: native["metadata"][key] for key in _KEPT if key in native["metadata"]}
    if annotations := metadata.pop("annotations", None):
        kept = {key: value for key, value in annotations.items() if key != _OF_ITS_CONTROLLER}
        metadata |= {"annotations": kept} if kept else {}
    return {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, "spec": native["spec"]}


@dataclass(frozen=True, slots=True)
class NativeWorkload:
    """A built-in workload. ``stored``: the object of ours that it would become, as the API server would store it."""

    object: Mapping[str, Any]
    stored: Mapping[str, Any]
    pods: Sequence[Pod]
    revisions: Sequence[Revision]

    def revisions_to_come(self, content: Content) -> Revisions:
        """Its revisions, and the one that ours would record."""
        status = self.object.get("status") or {}
        current, collisions = str(status.get("currentRevision") or ""), int(status.get("collisionCount") or 0)
        return revisions_to_come(content, self.revisions, current, collisions)


async def native_workload(
    client: Client, native: Resource, resource: Resource, namespace: str, name: str
) -> NativeWorkload:
    """Read it; the API server and the webhooks say what they would store, and refuse what cannot be moved. Raises
    CommandError, SelectorError and KubeError."""
    called = f"{native.kind} {namespace}/{name}"
    try:
        found: Mapping[str, Any] = await client.get(native, name, namespace)
    except NotFound:
        way_out = (
            f"kubectl get {native.plural}.{native.group} -n {namespace} shows those there are; name another namespace "
            "with -n"
        )
        raise CommandError(f"{called}: there is no native one of this name; {way_out}") from None
    if found["metadata"].get("deletionTimestamp"):
        raise CommandError(f"{called}: is being deleted")
    stored = await client.create(resource, moved_manifest(found, resource), namespace, dry_run=True)
    owner = Owner(native.api_version, native.kind, name, namespace, str(found["metadata"]["uid"]))
    owned = await owned_objects(client, owner, stored["spec"]["selector"])
    revisions = [revision for revision in owned.revisions if is_controlled_by(revision, owner)]
    return NativeWorkload(found, stored, owned.pods, revisions)


def becomes(coming: Preview, pod: str) -> str:
    """What becomes of a Pod that is adopted, and then has its turn, or none. Pure."""
    turn = coming.of(pod)
    if turn is None:
        return "adopted as it is"
    done = f"adopted, then {turn.action.value}d".replace("update in placed", "updated in place")
    return f"{done}: {turn.reason}" if turn.reason else done


def moving_steps(native: Resource, resource: Resource, namespace: str, name: str) -> list[str]:
    """The commands by which somebody moves a workload, its Pods left alone. Pure."""
    word, where = f"{native.kind.lower()}.{native.group}", f"-n {namespace}"
    rename = f"s|^apiVersion: {native.api_version}$|apiVersion: {resource.api_version}|"
    return [
        f"kubectl get {word} {name} {where} -o yaml"
        rf" | sed -e '{rename}' -e '/^  \({_LEFT_OUT}\):/d' > {name}.yaml",
        f"kubectl delete {word} {name} {where} --cascade=orphan    # its Pods go on without it",
        f"kubectl create -f {name}.yaml    # and are adopted",
    ]
