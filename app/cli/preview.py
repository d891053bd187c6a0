"""``pykruise plan`` and ``pykruise explain``: what the next roll-out would do, and why a Pod is as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.cluster import CommandError, Context, Kubeconfig, Namespace, with_cluster
from app.cli.rollout import table
from app.manager import logging as manager_logging

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.cli.clonesets import Situation
    from app.kube.client import Client
    from app.manager.gates import FeatureGates
    from app.workloads.cloneset.plan.preview import Preview

_Gates = Annotated[str, typer.Option("--feature-gates", help="A=true,B=false, as the manager has them")]


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command()(plan)
    app.command()(explain)


def plan(
    file: Annotated[str, typer.Option("--filename", "-f", help="The CloneSet as it shall be; - for standard input")],
    namespace: Namespace = "",
    feature_gates: _Gates = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what a changed CloneSet would do to each Pod: in which order, in place or not, and why. Changes nothing."""
    gates = _gates(feature_gates)
    manifest = _manifest(file)
    given = str(manifest["metadata"].get("namespace") or "")
    if namespace and given not in ("", namespace):
        manager_logging.fatal(f"{file}: the CloneSet is of namespace {given}, not {namespace}")
        raise typer.Exit(2)

    async def work(client: Client, where: str) -> str:
        return await plan_text(client, given or where, manifest, gates)

    print(with_cluster(kubeconfig, context, namespace, work))


def explain(
    what: Annotated[list[str], typer.Argument(help="pod NAME, or pod/NAME", show_default=False, metavar="pod NAME")],
    namespace: Namespace = "",
    feature_gates: _Gates = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Tell why a Pod of a CloneSet is as it is, and what comes next for it."""
    gates = _gates(feature_gates)
    parts = [part for word in what for part in word.split("/")]
    if len(parts) != 2 or parts[0].lower() not in ("pod", "pods", "po") or not parts[1]:
        manager_logging.fatal(f"explain {' '.join(what)}: only Pods are explained: pykruise explain pod NAME")
        raise typer.Exit(2)

    async def work(client: Client, where: str) -> str:
        return await explanation(client, where, parts[1], gates)

    print(with_cluster(kubeconfig, context, namespace, work))


def _gates(text: str) -> FeatureGates:
    from app.manager.gates import FeatureGateError, parse_gates

    try:
        return parse_gates(text)
    except FeatureGateError as error:
        manager_logging.fatal(str(error))
        raise typer.Exit(2) from None


def _manifest(file: str) -> dict[str, Any]:
    import sys

    from app.api.cloneset import CLONE_SET
    from app.manager.manifests import ManifestError, parse_manifests, read_manifests

    try:
        found = parse_manifests(sys.stdin.read(), "standard input") if file == "-" else read_manifests(Path(file))
    except ManifestError as error:
        manager_logging.fatal(str(error))
        raise typer.Exit(2) from None
    ours = [one.object for one in found if CLONE_SET.version(str(one.object.get("apiVersion"))) is not None]
    ours = [one for one in ours if one.get("kind") == CLONE_SET.kind]
    if len(ours) != 1:
        manager_logging.fatal(f"{file}: expected one CloneSet, found {len(ours)}")
        raise typer.Exit(2)
    if problem := _unusable(ours[0]):
        manager_logging.fatal(f"{file}: {problem}")
        raise typer.Exit(2)
    return dict(ours[0])


def _unusable(manifest: Mapping[str, Any]) -> str:
    """What keeps a manifest from being looked up at all; '' if nothing."""
    metadata = manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        return "the CloneSet has no metadata.name"
    return "" if isinstance(manifest.get("spec"), dict) else f"CloneSet {name} has no spec"


async def plan_text(client: Client, namespace: str, manifest: dict[str, Any], features: FeatureGates) -> str:
    """The table of what would happen. Raises CommandError, or KubeError with what the API server refuses."""
    from app.cli.clonesets import parsed, situation, surroundings
    from app.workloads.cloneset.plan.settings import Gates

    name = str(manifest["metadata"]["name"])
    wanted = parsed(await _as_it_would_be(client, namespace, name, manifest))
    found = situation(wanted, await surroundings(client, wanted), Gates.of(features.enabled))
    coming = _preview(client, found)
    before = wanted.status.update_revision if wanted.status is not None else ""
    update = found.revisions.update
    template = "the template stays" if update.uid and update.name == before else "the template changes"
    head = f"CloneSet {namespace}/{name}: {template}, update revision {update.name}"
    if not coming.steps:
        return f"{head}\nnothing happens to any Pod{f': {coming.ends}' if coming.ends else ''}"
    rows = [("STEP", "POD", "ACTION", "BECAUSE")]
    rows += [(str(one.step), one.pod, one.action.value, one.reason or "-") for one in coming.steps]
    lines = [head, table(rows)]
    if coming.rest:
        lines.append(f"{len(coming.rest)} Pods keep their revision: {', '.join(coming.rest)}")
    if coming.ends:
        lines.append(coming.ends)
    return "\n".join(lines)


async def _as_it_would_be(client: Client, namespace: str, name: str, manifest: dict[str, Any]) -> dict[str, Any]:
    """The object (v1beta1) as the API server would store it: it and the webhooks are asked, and nothing is stored."""
    from app.api.cloneset import CLONE_SET
    from app.api.conversion import convert
    from app.cli.clonesets import RESOURCE
    from app.kube.errors import NotFound

    version = str(manifest["apiVersion"]).rpartition("/")[2]
    resource = CLONE_SET.resource(version)
    try:
        live: dict[str, Any] = await client.get(resource, name, namespace)
    except NotFound:
        answer: dict[str, Any] = await client.create(resource, manifest, namespace, dry_run=True)
    else:
        spec = dict(manifest.get("spec") or {})
        # Somebody else, such as an autoscaler, may see to what the manifest leaves out.
        spec.setdefault("replicas", live["spec"].get("replicas"))
        answer = await client.replace(resource, name, {**live, "spec": spec}, namespace, dry_run=True)
    return answer if version == CLONE_SET.hub.name else convert(answer, RESOURCE.api_version)


def _preview(client: Client, found: Situation) -> Preview:
    from app.workloads.cloneset.plan.preview import preview

    now = client.clock.now().timestamp()
    return preview(found.resolved, found.pods, found.revisions, now, found.node_labels)


async def explanation(client: Client, namespace: str, name: str, features: FeatureGates) -> str:
    """Everything about one Pod. Raises CommandError."""
    from app.cli.clonesets import parsed, read_cloneset, situation, surroundings
    from app.kube.errors import NotFound
    from app.kube.objects import decode_pod
    from app.kube.resources import PODS
    from app.workloads.cloneset.plan.explain import explain as explained
    from app.workloads.cloneset.plan.resolved import KIND
    from app.workloads.cloneset.plan.rollout import Inputs, counted
    from app.workloads.cloneset.plan.settings import Gates
    from app.workloads.engine.in_place import InPlaceUpdates

    try:
        pod = await client.get(PODS, name, namespace, decode=decode_pod)
    except NotFound:
        raise CommandError(f"Pod {namespace}/{name}: not found; name another namespace with -n") from None
    reference = KIND.managing_reference(pod.metadata)
    if reference is None:
        raise CommandError(f"Pod {namespace}/{name}: no CloneSet controls it")
    owner = parsed(await read_cloneset(client, namespace, reference.name))
    found = situation(owner, await surroundings(client, owner), Gates.of(features.enabled))
    now = client.clock.now().timestamp()
    rollout = counted(Inputs(found.resolved, found.pods, found.revisions, InPlaceUpdates(), now))
    coming = _preview(client, found)
    lines = explained(pod, found.resolved, rollout, coming, found.revisions.update, found.node_labels)
    return "\n".join([f"Pod {namespace}/{name} of CloneSet {owner.name}", *lines])
