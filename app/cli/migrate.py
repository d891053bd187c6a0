"""``pykruise migrate``: Pods of a built-in workload come to one of ours, step by step, never too few of them.

For workloads whose Pods are all alike: ours is made beside the source, and replicas move over as ours become available.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from app.cli.cluster import with_cluster
from app.cli.grammar import Context, DryRun, Kubeconfig, Namespace, Timeout, What
from app.cli.printing import write

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from app.kube.client import Client
    from app.slices.commands import Commands, Migration

_POLL_SECONDS: Final = 1.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(migrate)


def migrate(
    what: What,
    source: Annotated[str, typer.Option("--from", metavar="KIND/NAME", help="The workload whose replicas move")],
    replicas: Annotated[int | None, typer.Option(min=0, help="How many move; default: all")] = None,
    max_surge: Annotated[int, typer.Option(min=1, help="How many move at a time, beside those that run")] = 1,
    namespace: Namespace = "",
    timeout: Timeout = 0.0,
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Move replicas of a Deployment to a CloneSet.

    The workload that they move to is made from the source where it is not there yet. Exit code 1: it took too long.
    """

    async def work(client: Client, where: str) -> bool:
        limits = Limits(replicas, max_surge, timeout)
        return await moved(client, where, what, source, limits, dry_run=dry_run)

    raise typer.Exit(0 if with_cluster(kubeconfig, context, namespace, work, dry_run=dry_run) else 1)


class Limits:
    """How many replicas move (None: all), how many at a time, and within how many seconds (0: no limit)."""

    def __init__(self, replicas: int | None, max_surge: int, seconds: float) -> None:
        self.replicas = replicas
        self.max_surge = max_surge
        self.seconds = seconds


async def moved(
    client: Client, namespace: str, what: Sequence[str], source: str, limits: Limits, *, dry_run: bool = False
) -> bool:
    """Move replicas over, a line for each step; whether all have moved in time. Raises CommandError."""
    from app.cli.workloads import parts_of, wanted
    from app.kube.errors import NotFound
    from app.slices.commands import CommandError

    commands, name = wanted(what)
    kind, source_name = parts_of([source])
    migration = _migration(commands, kind)
    called = f"{migration.source.kind} {namespace}/{source_name}"
    try:
        old: dict[str, Any] = await client.get(migration.source, source_name, namespace)
    except NotFound:
        raise CommandError(f"{called}: not found; name another namespace with -n") from None
    there = _replicas(old)
    number = there if limits.replicas is None else limits.replicas
    if number > there:
        raise CommandError(f"{called}: has {there} replicas, {number} cannot move")
    resource, made = commands.kind.resource(), migration.made(old, name)
    try:
        ours: dict[str, Any] = await client.get(resource, name, namespace)
    except NotFound:
        ours = await client.create(resource, made, namespace, field_manager="pykruise")
        write(f"{commands.kind.kind} {namespace}/{name} made from {called}{' (dry run)' if dry_run else ''}")
    else:
        _same_pods(ours, made, f"{commands.kind.kind} {namespace}/{name}", called)
    if dry_run:
        write(f"{number} replicas would move, {limits.max_surge} at a time")
        return True
    begun, deadline = _replicas(ours), client.clock.monotonic() + (limits.seconds or float("inf"))
    for step in range(1, -(-number // limits.max_surge) + 1):
        moving = min(step * limits.max_surge, number)
        # Ours come first, so that there are never fewer than before.
        await _scale(client, resource, name, namespace, begun + moving)
        while not _available(await client.get(resource, name, namespace), begun + moving):
            if client.clock.monotonic() >= deadline:
                late = f"not available within {limits.seconds:g} s; those of the source stay"
                write(f"{moving} of {number} replicas: {late}")
                return False
            await client.clock.sleep(_POLL_SECONDS)
        await _scale(client, migration.source, source_name, namespace, there - moving)
        write(f"{moving} of {number} replicas moved")
    return True


def _migration(commands: Commands, kind: str) -> Migration:
    from app.slices.commands import CommandError, WrongCommandError

    if not commands.migrations:
        raise CommandError(f"{commands.kind.kind}: {commands.no_migration}")
    for one in commands.migrations:
        names = (one.source.kind.lower(), one.source.plural, f"{one.source.plural}.{one.source.group}", "deploy")
        if kind in names:
            return one
    known = ", ".join(one.source.kind for one in commands.migrations)
    raise WrongCommandError(f"--from {kind}: replicas of a {commands.kind.kind} come from: {known}")


def _same_pods(ours: Mapping[str, Any], made: Mapping[str, Any], called: str, source: str) -> None:
    """Raises CommandError where the two would not run the same Pods, or not take theirs apart."""
    from app.slices.commands import CommandError

    images = [[one.get("image") for one in each["spec"]["template"]["spec"]["containers"]] for each in (ours, made)]
    if images[0] != images[1]:
        raise CommandError(f"{called}: is there and runs other images than {source}; bring both together first")


async def _scale(client: Client, resource: Any, name: str, namespace: str, replicas: int) -> None:
    await client.patch(resource, name, {"spec": {"replicas": replicas}}, namespace, field_manager="pykruise")


def _replicas(obj: Mapping[str, Any]) -> int:
    given = obj["spec"].get("replicas")
    return 1 if given is None else int(given)


def _available(stored: Mapping[str, Any], wanted: int) -> bool:
    status = stored.get("status") or {}
    seen = status.get("observedGeneration") == stored["metadata"]["generation"]
    return seen and int(status.get("availableReplicas") or 0) >= wanted
