"""The ``rollout``, ``history``, ``set`` and ``scale-in`` commands."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.kinds import owned, read, wanted
from app.cli.status import Listing, show_all, show_status
from app.cli.terminal import (
    AllNamespaces,
    Context,
    DryRun,
    Format,
    Kubeconfig,
    Namespace,
    Output,
    Timeout,
    What,
    failed,
    items,
    with_cluster,
    words,
    write,
    write_answer,
    written,
)
from app.cli.workload_changes import images_set, restarted, scaled_in, set_paused
from app.framework.commands import CHANGE_CAUSE, Recorded, table
from app.kube.errors import CommandError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.framework.commands import Commands
    from app.kube.client import Client


async def history_text(
    client: Client, namespace: str, what: Sequence[str], number: int, output: Format = "text"
) -> str:
    """Return the table of revisions, or the contents of one. Raises CommandError."""
    commands, name = with_history(what)
    called = f"{commands.kind.kind} {name}"
    stored = await read(client, commands, namespace, name)
    revisions = await recorded(client, commands, stored)
    if number:
        found = revision(revisions, number, called)
        if not found.content:
            raise CommandError(f"{called}: ControllerRevision {found.name} contains no template")
        return written(dict(found.content), "json" if output == "json" else "yaml")
    if output != "text":
        return written(items([_data(one) for one in revisions], "RevisionList"), output)
    rows = [("REVISION", "NAME", "PODS", "ROLE", "CHANGE-CAUSE")]
    return table([*rows, *((str(one.number), one.name, str(one.pods), one.role, one.cause) for one in revisions)])


def _data(one: Recorded) -> dict[str, Any]:
    roles = [] if one.role == "-" else one.role.split(",")
    cause = "" if one.cause == "<none>" else one.cause
    return {"revision": one.number, "name": one.name, "pods": one.pods, "roles": roles, "changeCause": cause}


async def recorded(client: Client, commands: Commands, stored: Mapping[str, Any]) -> Sequence[Recorded]:
    """Return the revisions of an object, oldest first, including unreadable ones."""
    from app.pods.predicates import is_active
    from app.pods.revisions import is_same_revision, recorded_template

    if commands.own_history is not None:
        return await commands.own_history.read(client, stored)
    own, status = await owned(client, stored), stored.get("status") or {}
    labels = [pod.metadata.labels.get("controller-revision-hash", "") for pod in own.pods if is_active(pod)]
    found = []
    for one in own.revisions:
        roles = [role for role in ("current", "update") if one.name == status.get(f"{role}Revision")]
        pods = sum(is_same_revision(label, one.name) for label in labels)
        cause = one.annotations.get(CHANGE_CAUSE, "<none>")
        content = recorded_template(one) or {}
        found.append(Recorded(one.number, one.name, pods, ",".join(roles) or "-", cause, content))
    return found


def with_history(what: Sequence[str]) -> tuple[Commands, str]:
    """Return the requested kind and name. Raises CommandError if the kind has no history."""
    commands, name = wanted(what)
    if not commands.history:
        raise CommandError(f"{commands.kind.kind} {name}: records no revisions")
    return commands, name


def revision(revisions: Sequence[Recorded], number: int, called: str) -> Recorded:
    """Return the revision with this number. Raises CommandError."""
    found = next((one for one in revisions if one.number == number), None)
    if found is None:
        known = ", ".join(str(one.number) for one in revisions) or "none"
        raise CommandError(f"{called}: there is no revision {number}; recorded: {known}")
    return found


async def undone(client: Client, namespace: str, what: Sequence[str], number: int, *, dry_run: bool = False) -> str:
    """Roll back to an earlier revision. Return a one-line summary. Raises CommandError."""
    from app.cli.workload_changes import changed, shown

    commands, name = with_history(what)
    called = f"{commands.kind.kind} {name}"
    stored = await read(client, commands, namespace, name)
    revisions = await recorded(client, commands, stored)
    if not number and len(revisions) < 2:
        raise CommandError(f"{called}: there is no earlier revision to roll back to")
    target = revision(revisions, number or revisions[-2].number, called)
    if not target.content:
        raise CommandError(f"{called}: ControllerRevision {target.name} contains no template")
    if target is revisions[-1]:
        return f"{shown(commands, name)}: revision {target.number} ({target.name}) is already the newest"
    own = commands.own_history
    changes = (
        own.undo(stored, target.content)
        if own is not None
        else [{"op": "replace", "path": "/spec/template", "value": target.content}]
    )
    said = f"rolled back to revision {target.number} ({target.name})"
    return await changed(client, commands, stored, changes, said, dry_run=dry_run)


rollout = typer.Typer(help="Watch and control the rollout of a workload.", no_args_is_help=True)
setting = typer.Typer(help="Change one field of a workload.", no_args_is_help=True)


@rollout.command()
def status(
    what: Annotated[list[str] | None, words("KIND NAME or KIND/NAME; a KIND alone, or no argument, lists all")] = None,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", "-w", help="Wait until the rollout is done")] = True,
    timeout: Timeout = 0.0,
    output: Output = "text",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show the progress of a rollout until it is done.

    Without a name, list all rollouts. Exit code 1: it failed or timed out, or the list omits kinds that you are not
    allowed to list.
    """
    asked = what or []
    of_one = len([part for word in asked for part in word.split("/")]) > 1
    if of_one and all_namespaces:
        raise failed(f"{' '.join(asked)}: --all-namespaces cannot be used with a name; specify a namespace with -n", 2)
    if of_one:
        shown = partial(show_status, what=asked, watch=watch, give_up=timeout, output=output)
        raise typer.Exit(0 if with_cluster(kubeconfig, context, namespace, shown) else 1)

    async def every(client: Client, where: str) -> Listing:
        return await show_all(client, "" if all_namespaces else where, asked, output=output)

    listing = with_cluster(kubeconfig, context, namespace, every)
    write(listing.text)
    if listing.left_out:
        raise failed(listing.left_out)


@rollout.command()
def history(
    what: What,
    namespace: Namespace = "",
    revision: Annotated[
        int, typer.Option(min=0, metavar="N", show_default=False, help="Show the contents of this revision")
    ] = 0,
    output: Output = "text",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """List the recorded revisions, or show one."""
    write_answer(kubeconfig, context, namespace, partial(history_text, what=what, number=revision, output=output))


@rollout.command()
def undo(
    what: What,
    namespace: Namespace = "",
    to_revision: Annotated[
        int,
        typer.Option("--to-revision", min=0, metavar="N", show_default=False, help="Default: the previous revision"),
    ] = 0,
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Roll back to the template of an earlier revision."""
    write_answer(kubeconfig, context, namespace, partial(undone, what=what, number=to_revision, dry_run=dry_run))


@rollout.command()
def restart(
    what: What, namespace: Namespace = "", dry_run: DryRun = False, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Replace all Pods step by step."""
    write_answer(kubeconfig, context, namespace, partial(restarted, what=what), dry_run=dry_run)


@rollout.command()
def pause(
    what: What, namespace: Namespace = "", dry_run: DryRun = False, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Pause the rollout: no more Pods are updated."""
    write_answer(kubeconfig, context, namespace, partial(set_paused, what=what, paused=True), dry_run=dry_run)


@rollout.command()
def resume(
    what: What, namespace: Namespace = "", dry_run: DryRun = False, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Resume a paused rollout."""
    write_answer(kubeconfig, context, namespace, partial(set_paused, what=what, paused=False), dry_run=dry_run)


@setting.command()
def image(
    what: Annotated[
        list[str],
        words("KIND NAME, or KIND/NAME, and the images; * means every container", "KIND NAME CONTAINER=IMAGE..."),
    ],
    namespace: Namespace = "",
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Set the images of containers.

    The object is a workload with a Pod template, or a SidecarSet.
    """
    write_answer(kubeconfig, context, namespace, partial(images_set, words=what, dry_run=dry_run))


def scale_in(
    what: What,
    pods: Annotated[list[str], typer.Option("--pods", metavar="NAME,NAME", help="The Pods to delete")],
    namespace: Namespace = "",
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Delete exactly these Pods.

    The number of replicas is reduced accordingly.
    """
    write_answer(kubeconfig, context, namespace, partial(scaled_in, what=what, pods=pods, dry_run=dry_run))
