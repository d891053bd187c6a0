"""``pykruise migrate`` where ours is the built-in kind under another apiVersion: it adopts the Pods as they run.

The built-in object is deleted without its Pods, and ours is made under its name; its controller adopts them. What is
asked of the API server before is whether it would take ours, so that nothing is deleted for an object that it refuses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from app.cli.printing import write

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.kube.client import Client
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
    from app.kube.errors import KubeError, NotFound, sentence
    from app.slices.commands import CommandError

    source, resource = migration.source, commands.kind.resource()
    native = f"{source.kind}.{source.group} {namespace}/{name}"
    ours = f"{commands.kind.kind}.{commands.kind.group} {namespace}/{name}"
    deadline = client.clock.monotonic() + (seconds or float("inf"))
    try:
        found: dict[str, Any] = await client.get(source, name, namespace)
    except NotFound:
        raise CommandError(f"{native}: not found; name another namespace with -n") from None
    if found["metadata"].get("deletionTimestamp"):
        raise CommandError(f"{native}: is being deleted")
    made = migration.made(found, name)
    await client.create(resource, made, namespace, dry_run=True, field_manager="pykruise")
    if dry_run:
        write(f"{native} would be deleted without its Pods, and {ours} made, which adopts them (dry run)")
        return True
    uid = str(found["metadata"]["uid"])
    await client.delete(source, name, namespace, propagation_policy="Orphan", uid=uid)
    write(f"{native} deleted; its Pods run on")
    try:
        gone = await _gone(client, migration, namespace, name, uid, deadline)
        stored: Mapping[str, Any] = (
            await client.create(resource, made, namespace, field_manager="pykruise") if gone else {}
        )
    except (KubeError, OSError) as error:
        raise CommandError(f"{ours}: not made ({sentence(error)}); {_again(made)}") from None
    except BaseException:
        write(_again(made))  # interrupted: the object is nowhere else
        raise
    if not gone:
        raise CommandError(f"{native}: is not gone within {seconds:g} s; {_again(made)}")
    write(f"{ours} made")
    while not _has_pods(stored, found):
        if client.clock.monotonic() >= deadline:
            write(
                f"{ours}: has not adopted its Pods within {seconds:g} s; see: pykruise explain {_named(commands, name)}"
            )
            return False
        await client.clock.sleep(_POLL_SECONDS)
        stored = await client.get(resource, name, namespace)
    write(f"{ours} has adopted its Pods; see: pykruise rollout status {_named(commands, name)}")
    return True


async def _gone(client: Client, migration: Migration, namespace: str, name: str, uid: str, deadline: float) -> bool:
    """Wait until the object is gone; False where it is there still when time is over."""
    from app.kube.errors import NotFound

    while True:
        try:
            found: Mapping[str, Any] = await client.get(migration.source, name, namespace)
        except NotFound:
            return True
        if found["metadata"]["uid"] != uid:
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


def _named(commands: Commands, name: str) -> str:
    return f"{commands.kind.singular}/{name}"
