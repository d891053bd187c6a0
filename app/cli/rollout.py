"""``pykruise rollout``: look at the roll-out of a workload, hold it, let it go on, take it back, start it anew."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from app.cli.cluster import CommandError, Context, Kubeconfig, Namespace, with_cluster

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.kube.client import Client
    from app.pods.revisions import Revision
    from app.slices.commands import Commands, Recorded

    Found = TypeVar("Found", Recorded, Revision, "Recorded | Revision")

POLL_SECONDS = 1.0
CHANGE_CAUSE = "kubernetes.io/change-cause"

rollout = typer.Typer(help="Look at and steer the roll-out of a workload.", no_args_is_help=True)
_What = Annotated[list[str], typer.Argument(help="KIND NAME, or KIND/NAME", show_default=False, metavar="KIND NAME")]


def register(app: typer.Typer) -> None:
    """Add the group."""
    app.add_typer(rollout, name="rollout")


# ---- status


@rollout.command()
def status(
    what: _What,
    namespace: Namespace = "",
    watch: Annotated[bool, typer.Option("--watch/--no-watch", "-w", help="Wait until it is done")] = True,
    timeout: Annotated[float, typer.Option(help="Give up after so many seconds; 0: never")] = 0.0,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show how far the roll-out is, until it is done. Exit code 1: it failed or took too long."""

    async def work(client: Client, where: str) -> bool:
        return await show_status(client, where, what, watch=watch, give_up=timeout)

    raise typer.Exit(0 if with_cluster(kubeconfig, context, namespace, work) else 1)


async def show_status(client: Client, namespace: str, what: list[str], *, watch: bool, give_up: float) -> bool:
    """Print the progress as it changes; whether the roll-out is done, or nobody wants to wait."""
    from app.cli.workloads import read, wanted

    commands, name = wanted(what)
    if commands.progress is None:
        raise CommandError(f"{commands.kind.kind} {name}: has no roll-out to look at")
    called = f"{commands.kind.kind} {namespace}/{name}" if commands.kind.namespaced else f"{commands.kind.kind} {name}"
    deadline = client.clock.monotonic() + give_up if give_up else float("inf")
    live, last = sys.stdout.isatty(), ""
    while True:
        progress = commands.progress(await read(client, commands, namespace, name))
        line = progress.line()
        if line != last:
            _print_over(line, live, last)
            last = line
        if progress.done or progress.failed or not watch:
            break
        if client.clock.monotonic() >= deadline:
            print("\n" * live + f"{called}: not rolled out within {give_up:g} s")
            return False
        await client.clock.sleep(POLL_SECONDS)
    if live:
        print()
    if progress.failed:
        print(f"{called}: {progress.failed}")
        return False
    if progress.done:
        print(f'{commands.kind.singular} "{name}" successfully rolled out')
    return True


def _print_over(line: str, live: bool, before: str) -> None:
    if live:
        sys.stdout.write("\r" + line.ljust(len(before)))
        sys.stdout.flush()
    else:
        print(line, flush=True)


# ---- history


@rollout.command()
def history(
    what: _What,
    namespace: Namespace = "",
    revision: Annotated[int, typer.Option(help="Show the template of this revision")] = 0,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """List the recorded revisions, or show one."""

    async def work(client: Client, where: str) -> str:
        return await history_text(client, where, what, revision)

    print(with_cluster(kubeconfig, context, namespace, work))


async def history_text(client: Client, namespace: str, what: list[str], number: int) -> str:
    """The table of revisions, or one template as YAML. Raises CommandError."""
    import yaml

    from app.cli.workloads import belongings, read
    from app.pods.predicates import is_active
    from app.pods.revisions import is_same_revision

    commands, name = _with_history(what)
    called = f"{commands.kind.kind} {name}"
    stored = await read(client, commands, namespace, name)
    if commands.own_history is not None:
        return _own_history(await commands.own_history.read(client, stored), number, called)
    around = await belongings(client, stored)
    if number:
        found = _revision(around.revisions, number, called)
        return yaml.safe_dump(_template(found, called), sort_keys=False).rstrip()
    recorded = stored.get("status") or {}
    labels = [pod.metadata.labels.get("controller-revision-hash", "") for pod in around.pods if is_active(pod)]
    rows = [("REVISION", "NAME", "PODS", "ROLE", "CHANGE-CAUSE")]
    for one in around.revisions:
        roles = []
        if one.name == recorded.get("currentRevision"):
            roles.append("current")
        if one.name == recorded.get("updateRevision"):
            roles.append("update")
        pods = sum(is_same_revision(label, one.name) for label in labels)
        cause = one.annotations.get(CHANGE_CAUSE, "<none>")
        rows.append((str(one.number), one.name, str(pods), ",".join(roles) or "-", cause))
    from app.slices.commands import table

    return table(rows)


def _own_history(revisions: Sequence[Recorded], number: int, called: str) -> str:
    import yaml

    from app.slices.commands import table

    if number:
        found = _revision(revisions, number, called)
        return yaml.safe_dump(dict(found.content), sort_keys=False).rstrip()
    rows = [("REVISION", "NAME", "PODS", "ROLE", "CHANGE-CAUSE")]
    return table([*rows, *((str(one.number), one.name, str(one.pods), one.role, one.cause) for one in revisions)])


def _with_history(what: list[str]) -> tuple[Commands, str]:
    from app.cli.workloads import wanted

    commands, name = wanted(what)
    if not commands.history:
        raise CommandError(f"{commands.kind.kind} {name}: records no revisions")
    return commands, name


def _revision(revisions: Sequence[Found], number: int, called: str) -> Found:
    found = next((one for one in revisions if one.number == number), None)
    if found is None:
        known = ", ".join(str(one.number) for one in revisions) or "none"
        raise CommandError(f"{called}: there is no revision {number}; there are {known}")
    return found


def _template(revision: Revision, called: str) -> Mapping[str, Any]:
    from app.pods.templates import recorded_template

    found = recorded_template(revision)
    if found is None:
        raise CommandError(f"{called}: ControllerRevision {revision.name} holds no template")
    return found


# ---- changes


@rollout.command()
def undo(
    what: _What,
    namespace: Namespace = "",
    to_revision: Annotated[int, typer.Option("--to-revision", help="Default: the one before the newest")] = 0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing")] = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Take the template of an earlier revision again."""

    async def work(client: Client, where: str) -> str:
        return await undone(client, where, what, to_revision, dry_run=dry_run)

    print(with_cluster(kubeconfig, context, namespace, work))


async def undone(client: Client, namespace: str, what: list[str], number: int, *, dry_run: bool) -> str:
    """What came of it, in a line. Raises CommandError."""
    from app.cli.workloads import belongings, read, scope
    from app.kube.client import PatchType
    from app.slices.commands import Recorded

    commands, name = _with_history(what)
    called, shown = f"{commands.kind.kind} {name}", _shown(commands, name)
    stored = await read(client, commands, namespace, name)
    own = commands.own_history
    revisions: Sequence[Recorded | Revision] = (
        await own.read(client, stored) if own is not None else (await belongings(client, stored)).revisions
    )
    if not number and len(revisions) < 2:
        raise CommandError(f"{called}: there is no earlier revision to go back to")
    target = _revision(revisions, number or revisions[-2].number, called)
    changes: Sequence[Mapping[str, Any]]
    if not isinstance(target, Recorded):
        changes = [{"op": "replace", "path": "/spec/template", "value": _template(target, called)}]
    elif target.content and own is not None:
        changes = own.undo(stored, target.content)
    else:
        raise CommandError(f"{called}: ControllerRevision {target.name} holds nothing that can be read")
    if target is revisions[-1]:
        return f"{shown}: revision {target.number} ({target.name}) is the newest already"
    version = stored["metadata"]["resourceVersion"]
    operations = [{"op": "test", "path": "/metadata/resourceVersion", "value": version}, *changes]
    await client.patch(
        commands.kind.resource(),
        name,
        operations,
        scope(commands, namespace),
        kind=PatchType.JSON,
        dry_run=dry_run,
        field_manager="pykruise",
    )
    return f"{shown} rolled back to revision {target.number} ({target.name}){_dry(dry_run)}"


def _shown(commands: Commands, name: str) -> str:
    """An object as kubectl names it behind a change."""
    return f"{commands.kind.singular}.{commands.kind.group}/{name}"


def _dry(dry_run: bool) -> str:
    return " (dry run)" if dry_run else ""


@rollout.command()
def restart(what: _What, namespace: Namespace = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Replace all Pods by new ones, step by step."""

    async def work(client: Client, where: str) -> str:
        return await restarted(client, where, what)

    print(with_cluster(kubeconfig, context, namespace, work))


async def restarted(client: Client, namespace: str, what: list[str]) -> str:
    """What came of it, in a line."""
    from app.cli.workloads import read, wanted

    commands, name = wanted(what)
    if commands.restart is None:
        raise CommandError(f"{commands.kind.kind} {name}: cannot be restarted")
    done = await commands.restart(client, await read(client, commands, namespace, name))
    return f"{_shown(commands, name)} {done}"


@rollout.command()
def pause(what: _What, namespace: Namespace = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Hold the roll-out: no further Pod is updated."""
    _pause(what, namespace, kubeconfig, context, paused=True)


@rollout.command()
def resume(what: _What, namespace: Namespace = "", kubeconfig: Kubeconfig = "", context: Context = "") -> None:
    """Let a paused roll-out go on."""
    _pause(what, namespace, kubeconfig, context, paused=False)


def _pause(what: list[str], namespace: str, kubeconfig: str, context: str, *, paused: bool) -> None:
    async def work(client: Client, where: str) -> str:
        return await set_paused(client, where, what, paused=paused)

    print(with_cluster(kubeconfig, context, namespace, work))


async def set_paused(client: Client, namespace: str, what: list[str], *, paused: bool) -> str:
    """What came of it, in a line. Raises CommandError."""
    from app.cli.workloads import read, scope, wanted

    commands, name = wanted(what)
    called, shown = f"{commands.kind.kind} {name}", _shown(commands, name)
    if not commands.pausable:
        raise CommandError(f"{called}: has no roll-out to pause or resume")
    spec: Mapping[str, Any] = (await read(client, commands, namespace, name))["spec"]
    strategy = spec.get("updateStrategy") or {}
    if strategy.get("type") == commands.without_rollout:
        raise CommandError(f"{called}: {commands.without_rollout} has no roll-out to pause or resume")
    found: Mapping[str, Any] = {"spec": spec}
    patch: dict[str, Any] = {"paused": paused}
    for key in commands.paused_at:
        found = found.get(key) or {}
    for key in reversed(commands.paused_at):
        patch = {key: patch}
    if bool(found.get("paused")) == paused:
        return f"{shown} {'is paused already' if paused else 'is not paused'}"
    await client.patch(commands.kind.resource(), name, patch, scope(commands, namespace), field_manager="pykruise")
    return f"{shown} {'paused' if paused else 'resumed'}"
