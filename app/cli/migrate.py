"""``pykruise migrate``: moves Pods of a built-in workload to a Kruise workload without reducing their number.

If the Pods are interchangeable, the Kruise workload is created next to the source and replicas move as its Pods become
available. If the Kruise kind is the built-in one under another apiVersion, it adopts the running Pods
(``app.cli.migration``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import typer

from app.cli.kinds import parts_of, wanted
from app.cli.terminal import Context, DryRun, Kubeconfig, Namespace, Timeout, What, with_cluster
from app.kube.errors import CommandError, WrongCommandError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from app.framework.commands import Commands, Migration
    from app.kube.client import Client

#: kubectl's short names of built-in kinds.
_SHORT: Final = {"Deployment": "deploy", "StatefulSet": "sts", "DaemonSet": "ds"}


def migrate(
    what: What,
    source: Annotated[str, typer.Option("--from", metavar="KIND/NAME", help="Workload to move replicas from")],
    replicas: Annotated[int | None, typer.Option(min=0, metavar="N", help="Replicas to move; default: all")] = None,
    max_surge: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Number of extra replicas while moving; default: 1")
    ] = None,
    namespace: Namespace = "",
    timeout: Timeout = 0.0,
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Move Pods of a built-in workload to a Kruise workload.

    Replicas of a Deployment move to a CloneSet step by step; the CloneSet is created if it does not exist. A Kruise
    StatefulSet or DaemonSet replaces the built-in one of the same name and adopts its running Pods. The exit code is 1
    after a timeout. After a timeout or an interrupt, run the same command to resume.
    """

    async def work(client: Client, where: str) -> bool:
        limits = Limits(replicas, max_surge, timeout)
        return await moved(client, where, what, source, limits, dry_run=dry_run)

    raise typer.Exit(0 if with_cluster(kubeconfig, context, namespace, work, dry_run=dry_run) else 1)


class Limits:
    """Number of replicas to move (None: all), how many at a time, and the timeout in seconds (0: none)."""

    def __init__(self, replicas: int | None, max_surge: int | None, seconds: float) -> None:
        self.replicas = replicas
        self.max_surge = max_surge or 1
        self.seconds = seconds
        self.given = replicas is not None or max_surge is not None


async def moved(
    client: Client, namespace: str, what: Sequence[str], source: str, limits: Limits, *, dry_run: bool = False
) -> bool:
    """Move replicas, printing a line per step. Return False on timeout. Raises CommandError."""
    from app.cli.migration import adopted, replicas_moved

    commands, name = wanted(what)
    kind, source_name = parts_of([source])
    migration = _migration(commands, kind)
    if migration not in commands.adoptions:
        return await replicas_moved(
            client, commands, migration, namespace, (name, source_name), limits, dry_run=dry_run
        )
    ours = commands.kind.kind
    if name != source_name:
        raise WrongCommandError(f"--from: a {ours} replaces the {migration.source.kind} of the same name, {name}")
    if limits.given:
        raise WrongCommandError(f"{ours} {name}: all Pods move at once; remove --replicas and --max-surge")
    return await adopted(client, commands, migration, namespace, name, seconds=limits.seconds, dry_run=dry_run)


def _migration(commands: Commands, kind: str) -> Migration:
    ways = (*commands.migrations, *commands.adoptions)
    if not ways:
        raise CommandError(f"{commands.kind.kind}: {commands.no_migration}")
    for one in ways:
        named = (one.source.kind.lower(), one.source.plural)
        if kind in (*named, *(f"{name}.{one.source.group}" for name in named), _SHORT.get(one.source.kind)):
            return one
    known = ", ".join(f"{one.source.kind} of {one.source.group}" for one in ways)
    raise WrongCommandError(f"--from {kind}: cannot migrate to a {commands.kind.kind}; supported sources: {known}")
