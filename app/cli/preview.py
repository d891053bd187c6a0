"""``pykruise plan`` and ``pykruise explain``: what the next roll-out would do, and why a Pod is as it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.cluster import CommandError, Context, Kubeconfig, Namespace, with_cluster
from app.manager import logging as manager_logging

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.kube.client import Client
    from app.manager.gates import FeatureGates
    from app.slices.commands import Commands

_Gates = Annotated[str, typer.Option("--feature-gates", help="A=true,B=false, as the manager has them")]


def register(app: typer.Typer) -> None:
    """Add both commands."""
    app.command()(plan)
    app.command()(explain)


def plan(
    file: Annotated[str, typer.Option("--filename", "-f", help="The object as it shall be; - for standard input")],
    namespace: Namespace = "",
    feature_gates: _Gates = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what a changed workload would do to each Pod: in which order, in place or not, and why. Changes nothing."""
    gates = _gates(feature_gates)
    manifest = _manifest(file)
    given = str(manifest["metadata"].get("namespace") or "")
    if namespace and given not in ("", namespace):
        manager_logging.fatal(f"{file}: the {manifest['kind']} is of namespace {given}, not {namespace}")
        raise typer.Exit(2)

    async def work(client: Client, where: str) -> str:
        return await plan_text(client, given or where, manifest, gates)

    print(with_cluster(kubeconfig, context, namespace, work))


def explain(
    what: Annotated[
        list[str],
        typer.Argument(
            help="pod NAME, node NAME, or a kind whose Pods are told of", show_default=False, metavar="KIND NAME"
        ),
    ],
    namespace: Namespace = "",
    feature_gates: _Gates = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Tell why a Pod is as it is, and what comes next for it; how the Pods of a SidecarSet stand; what a node lacks."""
    from app.cli.workloads import known

    gates = _gates(feature_gates)
    parts = [part for word in what for part in word.split("/")]
    word = parts[0].lower() if parts else ""
    of_node = word in ("node", "nodes", "no")
    whole = next((one for one in known() if word in one.words and one.explain_object is not None), None)
    if len(parts) != 2 or not parts[1] or (word not in ("pod", "pods", "po") and whole is None and not of_node):
        others = " or ".join(one.kind.singular for one in known() if one.explain_object is not None)
        text = f"explain {' '.join(what)}: only Pods and nodes are explained, and how Pods of others stand"
        manager_logging.fatal(f"{text}: pykruise explain pod NAME, node NAME, or {others} NAME")
        raise typer.Exit(2)

    async def work(client: Client, where: str) -> str:
        if of_node:
            return await node_explanation(client, parts[1], gates)
        if whole is not None:
            return await whole_explanation(client, whole, where, parts[1], gates)
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

    from app.cli.workloads import commands_for, known
    from app.manager.manifests import ManifestError, parse_manifests, read_manifests

    try:
        found = parse_manifests(sys.stdin.read(), "standard input") if file == "-" else read_manifests(Path(file))
    except ManifestError as error:
        manager_logging.fatal(str(error))
        raise typer.Exit(2) from None
    ours = [
        one.object for one in found if _is_planned(commands_for(one.object.get("apiVersion"), one.kind), one.object)
    ]
    if len(ours) != 1:
        kinds = " or ".join(one.kind.kind for one in known() if one.plan is not None)
        manager_logging.fatal(f"{file}: expected one {kinds}, found {len(ours)}")
        raise typer.Exit(2)
    if problem := _unusable(ours[0]):
        manager_logging.fatal(f"{file}: {problem}")
        raise typer.Exit(2)
    return dict(ours[0])


def _is_planned(commands: Commands | None, manifest: Mapping[str, Any]) -> bool:
    """Whether there are plans for objects of this kind, and its version is served."""
    return (
        commands is not None and commands.plan is not None and commands.kind.version(manifest["apiVersion"]) is not None
    )


def _unusable(manifest: Mapping[str, Any]) -> str:
    """What keeps a manifest from being looked up at all; '' if nothing."""
    kind, metadata = manifest["kind"], manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        return f"the {kind} has no metadata.name"
    return "" if isinstance(manifest.get("spec"), dict) else f"{kind} {name} has no spec"


async def plan_text(client: Client, namespace: str, manifest: dict[str, Any], features: FeatureGates) -> str:
    """The table of what would happen. Raises CommandError, or KubeError with what the API server refuses."""
    from app.cli.workloads import commands_for

    commands = commands_for(manifest.get("apiVersion"), manifest.get("kind"))
    if commands is None or commands.plan is None:
        raise CommandError(f"{manifest.get('kind')}: there is no plan for objects of this kind")
    stored = await _as_it_would_be(client, commands, namespace, manifest)
    return await commands.plan(client, stored, features.enabled)


async def _as_it_would_be(
    client: Client, commands: Commands, namespace: str, manifest: dict[str, Any]
) -> dict[str, Any]:
    """The object (in its stored version) as the API server would store it: it and the webhooks are asked, and nothing
    is stored."""
    from app.api.conversion import convert
    from app.cli.workloads import scope
    from app.kube.errors import NotFound

    kind, name = commands.kind, str(manifest["metadata"]["name"])
    namespace = scope(commands, namespace)
    version = str(manifest["apiVersion"]).rpartition("/")[2]
    resource = kind.resource(version)
    try:
        live: dict[str, Any] = await client.get(resource, name, namespace)
    except NotFound:
        answer: dict[str, Any] = await client.create(resource, manifest, namespace, dry_run=True)
    else:
        spec = dict(manifest.get("spec") or {})
        # Somebody else, such as an autoscaler, may see to what the manifest leaves out.
        if "replicas" in live["spec"]:
            spec.setdefault("replicas", live["spec"]["replicas"])
        answer = await client.replace(resource, name, {**live, "spec": spec}, namespace, dry_run=True)
    return answer if version == kind.hub.name else convert(answer, kind.resource().api_version)


async def explanation(client: Client, namespace: str, name: str, features: FeatureGates) -> str:
    """Everything about one Pod. Raises CommandError."""
    from app.cli.workloads import commands_for, known, read
    from app.kube.errors import NotFound
    from app.kube.objects import decode_pod
    from app.kube.resources import PODS

    try:
        pod = await client.get(PODS, name, namespace, decode=decode_pod)
    except NotFound:
        raise CommandError(f"Pod {namespace}/{name}: not found; name another namespace with -n") from None
    reference = pod.metadata.controller
    commands = commands_for(reference.api_version, reference.kind) if reference is not None else None
    beside = [
        line
        for one in known()
        if one.explain_any is not None
        for line in await one.explain_any(client, pod, features.enabled)
    ]
    if reference is None or commands is None or commands.explain is None:
        if beside:
            return "\n".join([f"Pod {namespace}/{name}", *beside])
        kinds = " or ".join(one.kind.kind for one in known() if one.explain is not None)
        raise CommandError(f"Pod {namespace}/{name}: no {kinds} controls it")
    stored = await read(client, commands, namespace, reference.name)
    lines = await commands.explain(client, pod, stored, features.enabled)
    return "\n".join([f"Pod {namespace}/{name} of {commands.kind.kind} {reference.name}", *lines, *beside])


async def node_explanation(client: Client, name: str, features: FeatureGates) -> str:
    """Which Pods that belong on every node it has, which it lacks, and why. Raises CommandError."""
    from app.cli.workloads import known
    from app.kube.errors import NotFound
    from app.kube.objects import decode_node
    from app.kube.resources import NODES

    try:
        node = await client.get(NODES, name, "", decode=decode_node)
    except NotFound:
        raise CommandError(f"Node {name}: not found") from None
    lines = [
        line
        for one in known()
        if one.explain_node is not None
        for line in await one.explain_node(client, node, features.enabled)
    ]
    return "\n".join([f"Node {name}", *(lines or ["nothing runs on every node"])])


async def whole_explanation(
    client: Client, commands: Commands, namespace: str, name: str, features: FeatureGates
) -> str:
    """How the Pods of an object stand. Raises CommandError."""
    from app.cli.workloads import read

    stored = await read(client, commands, namespace, name)
    if commands.explain_object is None:
        raise CommandError(f"{commands.kind.kind} {name}: only its Pods are explained: pykruise explain pod NAME")
    return await commands.explain_object(client, stored, features.enabled)
