"""``pykruise plan`` and ``pykruise explain``: what the next rollout would do, and why a Pod is in its state."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer

from app.cli.kinds import commands_for, kind_of, known, owned, parts_of, read, scope, wanted
from app.cli.terminal import Context, Gates, Kubeconfig, Namespace, Output, failed, with_cluster, words, write, written
from app.framework.commands import Report, report
from app.kube.errors import CommandError, Forbidden, NotFound, WrongCommandError, describe, sentence
from app.manager.features import features

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping, Sequence

    from app.framework.commands import Commands, Report
    from app.framework.options import Enabled
    from app.kube.client import Client

T = TypeVar("T")
_PODS: Final = ("pod", "pods", "po")
#: Maximum number of suggestions.
_MOST: Final = 5
_NODES: Final = ("node", "nodes", "no")


def plan(
    what: Annotated[list[str] | None, words("KIND NAME, or KIND/NAME: plan the stored object")] = None,
    file: Annotated[
        str, typer.Option("--filename", "-f", metavar="FILE", help="Manifest to plan; - for standard input")
    ] = "",
    origin: Annotated[
        str, typer.Option("--from", metavar="KIND/NAME", help="Plan the migration of a native StatefulSet")
    ] = "",
    namespace: Namespace = "",
    output: Output = "text",
    feature_gates: Gates = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what a workload would do to each Pod.

    The plan for the manifest in FILE or the stored object lists the Pods in order and says which are updated in place
    and why. Changes nothing.
    """
    enabled = _gates(feature_gates)
    if [bool(what), bool(file), bool(origin)].count(True) != 1:
        expected = "-f FILE for a manifest, KIND NAME for a stored object, or --from KIND/NAME"
        raise failed(f"plan: expected one of {expected}", 2)
    manifest = _manifest(file) if file else {}
    given = str((manifest.get("metadata") or {}).get("namespace") or "")
    if namespace and given not in ("", namespace):
        raise failed(f"{file}: the {manifest['kind']} is in namespace {given}, not {namespace}", 2)

    async def work(client: Client, where: str) -> Report:
        if origin:
            return await moved(client, where, origin, enabled)
        if what:
            return await coming(client, where, what, enabled)
        return await planned(client, given or where, manifest, enabled)

    _print(with_cluster(kubeconfig, context, namespace, work), output)


def explain(
    what: Annotated[list[str], words("pod NAME, node NAME, or KIND NAME of a Kruise kind")],
    namespace: Namespace = "",
    output: Output = "text",
    feature_gates: Gates = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Explain the state of a Pod, a node or a workload.

    The output says what a Pod waits for, its next step, and what you can do; which Pods a node is missing; or which
    Pods are missing a sidecar.
    """
    # Reading the gates imports every kind, so the default gates are read only when needed.
    enabled = _gates(feature_gates) if feature_gates else (lambda gate: _gates("")(gate))
    try:
        word, name = parts_of(what)
        commands = None if word in (*_PODS, *_NODES) else kind_of(word)
    except CommandError as error:
        raise failed(f"explain: {error}; or use pod NAME or node NAME", error.exit_code) from None
    if not name:
        raise failed(f"explain {' '.join(what)}: expected KIND NAME or KIND/NAME", 2)

    async def work(client: Client, where: str) -> Report:
        if commands is not None:
            return await whole(client, commands, where, name, enabled)
        if word in _NODES:
            return await of_node(client, name, enabled)
        return await of_pod(client, where, name, enabled)

    _print(with_cluster(kubeconfig, context, namespace, work), output)


def _print(found: Report, output: Any) -> None:
    write(found.text() if output == "text" else written(found.data(), output))


def _gates(text: str) -> Enabled:
    from app.manager.gates import FeatureGateError, parse_gates

    try:
        return parse_gates(text).enabled
    except FeatureGateError as error:
        raise failed(str(error), 2) from None


def _manifest(file: str) -> dict[str, Any]:
    from app.manager.manifests import ManifestError, parse_manifests, read_manifests

    try:
        found = parse_manifests(sys.stdin.read(), "standard input") if file == "-" else read_manifests(Path(file))
    except ManifestError as error:
        raise failed(str(error), 2) from None
    ours = [
        one.object for one in found if _is_planned(commands_for(one.object.get("apiVersion"), one.kind), one.object)
    ]
    if len(ours) != 1:
        kinds = " or ".join(one.kind.kind for one in known() if one.plan is not None)
        others = ", ".join(f"{one.kind} of {one.object.get('apiVersion')}" for one in found)
        raise failed(f"{file}: expected one {kinds}, found {len(ours) or others or 'nothing'}", 2)
    if problem := _unusable(ours[0]):
        raise failed(f"{file}: {problem}", 2)
    return dict(ours[0])


def _is_planned(commands: Commands | None, manifest: Mapping[str, Any]) -> bool:
    """Return whether this kind has a plan and serves the manifest's version."""
    return (
        commands is not None and commands.plan is not None and commands.kind.version(manifest["apiVersion"]) is not None
    )


def _unusable(manifest: Mapping[str, Any]) -> str:
    """Return why a manifest is unusable, or '' if it is usable."""
    kind, metadata = manifest["kind"], manifest.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name:
        return f"the {kind} has no metadata.name"
    return "" if isinstance(manifest.get("spec"), dict) else f"{kind} {name} has no spec"


async def coming(client: Client, namespace: str, what: Sequence[str], enabled: Enabled) -> Report:
    """Return the plan of a stored object. Raises CommandError."""
    commands, name = wanted(what)
    if commands.plan is None:
        raise CommandError(f"{commands.kind.kind} {name}: objects of this kind have no plan")
    return report(await commands.plan(client, await read(client, commands, namespace, name), enabled))


async def moved(client: Client, namespace: str, origin: str, enabled: Enabled) -> Report:
    """Return the plan of migrating a built-in workload to the Kruise kind. Raises CommandError."""
    word, name = parts_of([origin])
    ours = {one.kind.kind.lower(): one.moving for one in known() if one.moving is not None}
    kind = {"sts": "statefulset"}.get(word, word.removesuffix(".apps").removesuffix("s"))
    move = ours.get(kind)
    if move is None or not name:
        expected = " or ".join(f"{one}/NAME" for one in ours)
        raise WrongCommandError(f"--from {origin}: expected {expected}, a built-in workload")
    return await move(client, namespace, name, enabled)


async def planned(client: Client, namespace: str, manifest: dict[str, Any], enabled: Enabled) -> Report:
    """Return the plan of a manifest. Raises CommandError, or KubeError if the API server rejects it."""
    commands = commands_for(manifest.get("apiVersion"), manifest.get("kind"))
    if commands is None or commands.plan is None:
        raise CommandError(f"{manifest.get('kind')}: objects of this kind have no plan")
    try:
        stored = await _as_it_would_be(client, commands, namespace, manifest)
    except Forbidden as error:
        raise CommandError(f"{sentence(error)} (a dry run stores nothing, but requires write permission)") from None
    return report(await commands.plan(client, stored, enabled))


async def _as_it_would_be(
    client: Client, commands: Commands, namespace: str, manifest: dict[str, Any]
) -> dict[str, Any]:
    """Return the object, in the stored version, after a server-side dry run, which calls the webhooks."""
    from app.api.conversion import convert
    from app.kube.client import PatchType

    features()  # registers the kinds, which conversion needs
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
        # Fields missing from the manifest may be managed by another component, such as an autoscaler.
        if "replicas" in live["spec"]:
            spec.setdefault("replicas", live["spec"]["replicas"])
        # A patch of the spec alone does not conflict with the status that the controller writes meanwhile.
        change = [{"op": "add", "path": "/spec", "value": spec}]
        answer = await client.patch(resource, name, change, namespace, kind=PatchType.JSON, dry_run=True)
    return answer if version == kind.hub.name else convert(answer, kind.resource().api_version)


async def of_pod(client: Client, namespace: str, name: str, enabled: Enabled) -> Report:
    """Return the explanation of one Pod. Raises CommandError."""
    from app.kube.objects import decode_pod
    from app.kube.resources import PODS
    from app.pods.not_ready_reasons import Obstacle, obstacles

    try:
        pod = await client.get(PODS, name, namespace, decode=decode_pod)
    except NotFound:
        raise CommandError(f"Pod {namespace}/{name}: not found; use -n to specify another namespace") from None
    reference = pod.metadata.controller
    commands = commands_for(reference.api_version, reference.kind) if reference is not None else None
    asked = [
        line
        for one in known()
        if one.explain_any is not None
        for line in await _allowed(one.explain_any(client, pod, enabled), one.kind.kind)
    ]
    found = obstacles(pod)
    waits = [f"  {one.what}" for one in found]
    todo = [one.way_out for one in (*found, *asked) if isinstance(one, Obstacle)]
    beside = [one.what if isinstance(one, Obstacle) else one for one in asked]
    head = f"Pod {namespace}/{name}"
    if reference is None or commands is None or commands.explain is None:
        if not beside and not waits:
            kinds = " or ".join(one.kind.kind for one in known() if one.explain is not None)
            raise CommandError(f"Pod {namespace}/{name}: no {kinds} controls it, and there is nothing to explain")
        return Report(head, notes=[*waits, *beside], todo=list(dict.fromkeys(todo)) or ["nothing"])
    stored = await read(client, commands, namespace, reference.name)
    lines = await commands.explain(client, pod, stored, enabled)
    todo += _held(commands, stored)
    head = f"{head} of {commands.kind.kind} {reference.name}"
    return Report(head, notes=[*lines, *waits, *beside], todo=list(dict.fromkeys(todo)) or ["nothing"])


def _held(commands: Commands, stored: Mapping[str, Any]) -> list[str]:
    """Return the command that resumes an object's rollout, if it is paused."""
    found: Any = stored
    try:
        where = commands.paused_of(stored)
    except CommandError:
        return []  # its Pods cannot be paused
    for key in where:
        found = found.get(key) if isinstance(found, dict) else None
    if commands.pausable and isinstance(found, dict) and found.get("paused") is True:
        return [f"pykruise rollout resume {commands.kind.singular} {stored['metadata']['name']}"]
    return []


async def of_node(client: Client, name: str, enabled: Enabled) -> Report:
    """Return which DaemonSet Pods a node has or is missing and why, and the state of its agent. Raises CommandError."""
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
        for line in await _allowed(one.explain_node(client, node, enabled), one.kind.kind)
    ]
    lines = lines or ["the cluster has no Kruise DaemonSets"]
    for asked in (explain for one in features() for explain in one.explain_node()):
        lines += await asked(client, node, enabled)
    return Report(f"Node {name}", notes=lines)


async def _allowed(asked: Awaitable[Sequence[T]], about: str) -> Sequence[T | str]:
    """Return the lines about one kind, or a line that says that the user may not read it."""
    try:
        return await asked
    except Forbidden as error:
        return [f"{about}: not checked: {sentence(error)}"]


async def whole(client: Client, commands: Commands, namespace: str, name: str, enabled: Enabled) -> Report:
    """Return the state of an object's Pods and suggestions. Raises CommandError."""
    from dataclasses import replace

    stored = await read(client, commands, namespace, name)
    if commands.explain_object is None and commands.progress is None:
        raise CommandError(f"{commands.kind.kind} {name}: only its Pods can be explained: pykruise explain pod NAME")
    try:
        if commands.explain_object is None:
            return await _standing(client, commands, stored)
        found = report(await commands.explain_object(client, stored, enabled))
    except Forbidden as error:
        rest = f"the rest was not checked: {sentence(error)}"
        return Report(_head(commands, stored), notes=[rest], todo=_held(commands, stored))
    todo = list(dict.fromkeys([*found.todo, *_held(commands, stored)]))[:_MOST]
    return replace(found, todo=todo or ["nothing"])


def _head(commands: Commands, stored: Mapping[str, Any]) -> str:
    """Return the name of an object and its progress."""
    metadata = stored["metadata"]
    called = describe(commands.kind.kind, metadata.get("namespace") or "", metadata["name"])
    return called if commands.progress is None else f"{called}: {commands.progress(stored).text}"


async def _standing(client: Client, commands: Commands, stored: Mapping[str, Any]) -> Report:
    """Return the progress of an object and why Pods are not ready."""
    from app.pods.not_ready_reasons import obstacles
    from app.pods.predicates import is_ready

    progress = commands.progress(stored) if commands.progress is not None else None
    rows, todo = [], list[str]()
    for pod in sorted((await owned(client, stored)).pods, key=lambda pod: pod.metadata.name):
        found = obstacles(pod)
        revision = pod.metadata.labels.get("controller-revision-hash", "-")
        state = "ready" if is_ready(pod) else "not ready"
        rows.append((pod.metadata.name, revision, state, found[0].what if found else "-"))
        todo += [one.way_out for one in found]
    notes = [progress.failed] if progress is not None and progress.failed else []
    todo += _held(commands, stored)
    first = list(dict.fromkeys(todo))[:_MOST]
    return Report(_head(commands, stored), ("pod", "revision", "state", "because"), rows, notes, first or ["nothing"])
