"""``pykruise migrate``: Pods of a built-in workload come to one of ours, step by step, never too few of them.

For workloads whose Pods are all alike: ours is made beside the source, and replicas move over as ours become available.
Where ours is the built-in kind under another apiVersion, it adopts the Pods as they run (``app.cli.adoption``).
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
#: What kubectl calls built-in kinds for short.
_SHORT: Final = {"Deployment": "deploy", "StatefulSet": "sts", "DaemonSet": "ds"}


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(migrate)


def migrate(
    what: What,
    source: Annotated[str, typer.Option("--from", metavar="KIND/NAME", help="The workload whose replicas move")],
    replicas: Annotated[int | None, typer.Option(min=0, help="How many move; default: all")] = None,
    max_surge: Annotated[
        int | None, typer.Option(min=1, help="How many move at a time, beside those that run; default: 1")
    ] = None,
    namespace: Namespace = "",
    timeout: Timeout = 0.0,
    dry_run: DryRun = False,
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Move Pods of a built-in workload to one of ours.

    Replicas of a Deployment move to a CloneSet step by step; it is made where it is not there yet. A StatefulSet or
    DaemonSet of ours takes the place of the built-in one of its name, and adopts its Pods as they run. Exit code 1: it
    took too long.
    """

    async def work(client: Client, where: str) -> bool:
        limits = Limits(replicas, max_surge, timeout)
        return await moved(client, where, what, source, limits, dry_run=dry_run)

    raise typer.Exit(0 if with_cluster(kubeconfig, context, namespace, work, dry_run=dry_run) else 1)


class Limits:
    """How many replicas move (None: all), how many at a time, and within how many seconds (0: no limit)."""

    def __init__(self, replicas: int | None, max_surge: int | None, seconds: float) -> None:
        self.replicas = replicas
        self.max_surge = max_surge or 1
        self.seconds = seconds
        self.given = replicas is not None or max_surge is not None


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
    if migration in commands.adoptions:
        return await _adopted(client, commands, migration, namespace, (name, source_name), limits, dry_run=dry_run)
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

    ways = (*commands.migrations, *commands.adoptions)
    if not ways:
        raise CommandError(f"{commands.kind.kind}: {commands.no_migration}")
    for one in ways:
        named = (one.source.kind.lower(), one.source.plural)
        if kind in (*named, *(f"{name}.{one.source.group}" for name in named), _SHORT.get(one.source.kind)):
            return one
    known = ", ".join(f"{one.source.kind} of {one.source.group}" for one in ways)
    raise WrongCommandError(f"--from {kind}: Pods of a {commands.kind.kind} come from: {known}")


async def _adopted(
    client: Client,
    commands: Commands,
    migration: Migration,
    namespace: str,
    names: tuple[str, str],
    limits: Limits,
    *,
    dry_run: bool,
) -> bool:
    from app.cli.adoption import adopted
    from app.slices.commands import WrongCommandError

    name, source = names
    kind = commands.kind.kind
    if not source or name != source:
        raise WrongCommandError(
            f"--from: a {kind} takes the place of the {migration.source.kind} of its own name, {name}"
        )
    if limits.given:
        raise WrongCommandError(
            f"{kind} {name}: all Pods move at once, as they run; leave --replicas and --max-surge out"
        )
    return await adopted(client, commands, migration, namespace, name, seconds=limits.seconds, dry_run=dry_run)


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
