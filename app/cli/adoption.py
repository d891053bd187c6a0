"""``pykruise migrate`` where ours is the built-in kind under another apiVersion: it adopts the Pods as they run.

The built-in object is deleted without its Pods, and ours is made under its name; its controller adopts them. What is
asked of the API server before is whether it would take ours, so that nothing is deleted for an object that it refuses.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from app.cli.printing import complain, write
from app.kube.lookup import get_or_none

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.kube.client import Client
    from app.kube.resources import Resource
    from app.slices.commands import Commands, Migration

_POLL_SECONDS: Final = 1.0


async def adopted(
    client: Client,
    commands: Commands,
    migration: Migration,
    namespace: str,
    name: str,
    *,
    seconds: float,
    dry_run: bool,
) -> bool:
    """Move a built-in workload over, a line for each step; whether it was done in time. Raises CommandError."""
    from app.kube.errors import CommandError, InterruptedCommandError
    from app.slices.interrupted import left_behind

    source, resource = migration.source, commands.kind.resource()
    native = f"{source.kind}.{source.group} {namespace}/{name}"
    ours = f"{commands.kind.kind}.{commands.kind.group} {namespace}/{name}"
    deadline = client.clock.monotonic() + (seconds or float("inf"))
    found: dict[str, Any] | None = await get_or_none(client, source, name, namespace)
    if found is None:
        there: dict[str, Any] | None = await get_or_none(client, resource, name, namespace)
        if there is None:
            raise CommandError(f"{native}: not found; name another namespace with -n")
        write(f"{native} is gone, and {ours} is there: nothing is left to do; {_see('rollout status', commands, name)}")
        return True
    # Deleted without its Pods is what a command of ours did that could not go on.
    goes = bool(found["metadata"].get("deletionTimestamp"))
    if goes and "orphan" not in (found["metadata"].get("finalizers") or ()):
        raise CommandError(f"{native}: is being deleted with its Pods")
    made = migration.made(found, name)
    await client.create(resource, made, namespace, dry_run=True, field_manager="pykruise")
    if dry_run:
        write(f"{native} would be deleted without its Pods, and {ours} made, which adopts them (dry run)")
        return True
    replacing = asyncio.ensure_future(_replaced(client, migration, resource, made, found, (native, ours), deadline))
    interrupted = False
    try:
        stored = await asyncio.shield(replacing)
    except asyncio.CancelledError:
        # Whoever interrupts is not left with neither of the two; it is a matter of a second.
        interrupted = True
        complain(f"interrupted; {ours} is made before, since it would be nowhere")
        stored = await replacing
    if stored is None:
        raise CommandError(f"{native}: is not gone within {seconds:g} s; the same command goes on, or {_again(made)}")
    write(f"{ours} made")
    see = _see("rollout status", commands, name)
    if interrupted:
        raise InterruptedCommandError(f"{ours} is made, and the manager lets it adopt the Pods; {see}")
    with left_behind(lambda: f"{ours} is made, and the manager lets it adopt the Pods; {see}"):
        while not _has_pods(stored, found):
            if client.clock.monotonic() >= deadline:
                why = _see("explain", commands, name)
                write(f"{ours}: has not adopted its Pods within {seconds:g} s; {why}")
                return False
            await client.clock.sleep(_POLL_SECONDS)
            stored = await client.get(resource, name, namespace)
    write(f"{ours} has adopted its Pods; {see}")
    return True


async def _replaced(
    client: Client,
    migration: Migration,
    resource: Resource,
    made: Mapping[str, Any],
    native: Mapping[str, Any],
    called: tuple[str, str],
    deadline: float,
) -> dict[str, Any] | None:
    """Ours, made as soon as the built-in one is gone; None where that is there still when time is over. Raises
    CommandError, or KubeError while nothing has been changed."""
    from app.kube.errors import ApiError, CommandError, KubeError, ServerError, sentence

    metadata = native["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], str(metadata["uid"])
    if not metadata.get("deletionTimestamp"):
        try:
            await client.delete(migration.source, name, namespace, propagation_policy="Orphan", uid=uid)
        except (KubeError, OSError) as error:
            if isinstance(error, ApiError) and not isinstance(error, ServerError):
                raise
            # It may be done all the same, and the object nowhere then.
            may = f"may be deleted ({sentence(error)}); if it is there, the same command goes on, if not"
            raise CommandError(f"{called[0]}: {may}, {_again(made)}") from None
        except BaseException:
            write(_again(made))
            raise
    write(f"{called[0]} deleted; its Pods run on")
    try:
        if not await _gone(client, migration, namespace, name, uid, deadline):
            return None
        stored: dict[str, Any] = await client.create(resource, made, namespace, field_manager="pykruise")
    except (KubeError, OSError) as error:
        raise CommandError(f"{called[1]}: not made ({sentence(error)}); {_again(made)}") from None
    except BaseException:
        write(_again(made))  # interrupted a second time: the object is nowhere else
        raise
    return stored


async def _gone(client: Client, migration: Migration, namespace: str, name: str, uid: str, deadline: float) -> bool:
    """Wait until the object is gone; False where it is there still when time is over."""
    while True:
        found: dict[str, Any] | None = await get_or_none(client, migration.source, name, namespace)
        if found is None or found["metadata"]["uid"] != uid:
            return True
        if client.clock.monotonic() >= deadline:
            return False
        await client.clock.sleep(_POLL_SECONDS)


def _has_pods(stored: Mapping[str, Any], native: Mapping[str, Any]) -> bool:
    """Whether the controller has seen the object, and counts no fewer Pods than the built-in one did."""
    now, before = stored.get("status") or {}, native.get("status") or {}
    if now.get("observedGeneration") != stored["metadata"].get("generation"):
        return False
    counts = ("replicas", "currentNumberScheduled")
    return all(int(now.get(count) or 0) >= int(before.get(count) or 0) for count in counts)


def _again(made: Mapping[str, Any]) -> str:
    """What makes the object, for somebody who has to do it by hand."""
    import shlex

    import orjson

    return f"make it with: echo {shlex.quote(orjson.dumps(made).decode())} | kubectl create -f -"


def _see(verb: str, commands: Commands, name: str) -> str:
    return f"see: pykruise {verb} {commands.kind.singular}/{name}"
