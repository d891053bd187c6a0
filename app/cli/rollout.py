"""The commands that look at and steer workloads: ``rollout``, ``set image``, ``scale-in``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from app.cli.changes import images_set, restarted, scaled_in, set_paused
from app.cli.cluster import failed, with_cluster
from app.cli.grammar import (
    AllNamespaces,
    Context,
    DryRun,
    Kubeconfig,
    Namespace,
    Output,
    Timeout,
    What,
    words,
)
from app.cli.history import history_text, undone
from app.cli.printing import write
from app.cli.status import Listing, show_all, show_status

if TYPE_CHECKING:
    from app.kube.client import Client

rollout = typer.Typer(help="Watch and control the roll-out of a workload.", no_args_is_help=True)
setting = typer.Typer(help="Change one thing in a workload.", no_args_is_help=True)


def register(app: typer.Typer) -> None:
    """Add the groups."""
    app.add_typer(rollout, name="rollout")
    app.add_typer(setting, name="set")
    app.command(name="scale-in")(scale_in)


@rollout.command()
def status(
    what: Annotated[list[str] | None, words("KIND NAME or KIND/NAME; a KIND alone, or nothing: list all")] = None,
    namespace: Namespace = "",
    all_namespaces: AllNamespaces = False,
    watch: Annotated[bool, typer.Option("--watch/--no-watch", "-w", help="Wait until it is done")] = True,
    timeout: Timeout = 0.0,
    output: Output = "text",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show the progress of a roll-out until it is done.

    Without a name: the progress of all. Exit code 1: it failed or took too long, or the list lacks kinds that you may
    not read.
    """
    asked = what or []
    of_one = len([part for word in asked for part in word.split("/")]) > 1
    if of_one and all_namespaces:
        raise failed(f"{' '.join(asked)}: --all-namespaces lists roll-outs; leave the name out, or name a namespace", 2)

    async def one(client: Client, where: str) -> bool:
        return await show_status(client, where, asked, watch=watch, give_up=timeout, output=output)

    async def every(client: Client, where: str) -> Listing:
        return await show_all(client, "" if all_namespaces else where, asked, output=output)

    if of_one:
        raise typer.Exit(0 if with_cluster(kubeconfig, context, namespace, one) else 1)
    listing = with_cluster(kubeconfig, context, namespace, every)
    write(listing.text)
    if listing.left_out:
        raise failed(listing.left_out)


@rollout.command()
def history(
    what: What,
    namespace: Namespace = "",
    revision: Annotated[
        int, typer.Option(min=0, metavar="N", show_default=False, help="Show what this revision holds")
    ] = 0,
    output: Output = "text",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """List the recorded revisions, or show one."""

    async def work(client: Client, where: str) -> str:
        return await history_text(client, where, what, revision, output)

    write(with_cluster(kubeconfig, context, namespace, work))


@rollout.command()
def undo(
    what: What,
    namespace: Namespace = "",
    to_revision: Annotated[
        int,
        typer.Option(
            "--to-revision", min=0, metavar="N", show_default=False, help="Default: the one before the newest"
        ),
    ] = 0,
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Go back to the template of an earlier revision."""

    async def work(client: Client, where: str) -> str:
        return await undone(client, where, what, to_revision, dry_run=dry_run)

    write(with_cluster(kubeconfig, context, namespace, work))


@rollout.command()
def restart(
    what: What, namespace: Namespace = "", dry_run: DryRun = False, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Replace all Pods with new ones, step by step."""

    async def work(client: Client, where: str) -> str:
        return await restarted(client, where, what)

    write(_noted(with_cluster(kubeconfig, context, namespace, work, dry_run=dry_run), dry_run=dry_run))


@rollout.command()
def pause(
    what: What, namespace: Namespace = "", dry_run: DryRun = False, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Hold the roll-out: no further Pod is updated."""
    _pause(what, namespace, kubeconfig, context, paused=True, dry_run=dry_run)


@rollout.command()
def resume(
    what: What, namespace: Namespace = "", dry_run: DryRun = False, kubeconfig: Kubeconfig = "", context: Context = ""
) -> None:
    """Continue a paused roll-out."""
    _pause(what, namespace, kubeconfig, context, paused=False, dry_run=dry_run)


def _pause(what: list[str], namespace: str, kubeconfig: str, context: str, *, paused: bool, dry_run: bool) -> None:
    async def work(client: Client, where: str) -> str:
        return await set_paused(client, where, what, paused=paused)

    write(_noted(with_cluster(kubeconfig, context, namespace, work, dry_run=dry_run), dry_run=dry_run))


@setting.command()
def image(
    what: Annotated[
        list[str],
        words("KIND NAME, or KIND/NAME, and the images; * is every container", "KIND NAME CONTAINER=IMAGE..."),
    ],
    namespace: Namespace = "",
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Change the images of containers.

    Those of a workload's template, or of a SidecarSet.
    """

    async def work(client: Client, where: str) -> str:
        return await images_set(client, where, what, dry_run=dry_run)

    write(with_cluster(kubeconfig, context, namespace, work))


def scale_in(
    what: What,
    pods: Annotated[list[str], typer.Option("--pods", metavar="NAME,NAME", help="The Pods to delete")],
    namespace: Namespace = "",
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Delete exactly these Pods.

    The replicas are lowered by as many.
    """

    async def work(client: Client, where: str) -> str:
        return await scaled_in(client, where, what, pods, dry_run=dry_run)

    write(with_cluster(kubeconfig, context, namespace, work))


def _noted(text: str, *, dry_run: bool) -> str:
    return f"{text} (dry run)" if dry_run else text
