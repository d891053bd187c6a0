"""Migration of built-in workloads: adopt their Pods, or move replicas to a new workload step by step."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from app.api import names
from app.cli.terminal import complain, write
from app.framework.commands import left_behind
from app.kube.client import get_or_none
from app.kube.errors import (
    ApiError,
    CommandError,
    InterruptedCommandError,
    KubeError,
    NotFound,
    ServerError,
    sentence,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from app.cli.migrate import Limits
    from app.framework.commands import Commands, Migration
    from app.kube.client import Client
    from app.kube.resources import Resource


# ``pykruise migrate`` with two workloads: replicas move as Pods of the new one become available. An annotation, written
# in the same request as the replicas, records the progress, so that an interrupted command can resume and neither
# workload keeps too many replicas.

_POLL_SECONDS: Final = 1.0
#: Maximum number of replicas (32 bits).
_MOST: Final = 2**31 - 1


@dataclass(frozen=True, slots=True)
class MigrationProgress:
    """Progress of a migration: ``moved`` of ``number`` replicas (None: all) have moved, and the new workload has
    ``owed`` extra replicas that the source must still give up."""

    number: int | None
    moved: int = 0
    owed: int = 0


def progress_annotation(source: Mapping[str, Any], number: int | None, moved: int, target: int) -> str:
    """Return the annotation to write while the source scales to ``target`` replicas, after ``moved`` have moved."""
    there = _replicas(source)
    return orjson.dumps(
        {"uid": source["metadata"].get("uid"), "number": number, "moved": moved, "from": there, "to": target}
    ).decode()


def progress_of(ours: Mapping[str, Any], source: Mapping[str, Any], number: int | None) -> MigrationProgress:
    """Return the progress of an earlier command for the same source and ``number``."""
    try:
        found = orjson.loads((ours["metadata"].get("annotations") or {}).get(names.MIGRATION) or "null")
        if not isinstance(found, dict) or found.get("uid") != source["metadata"].get("uid"):
            return MigrationProgress(number)
        before, after, moved = (found[key] for key in ("from", "to", "moved"))
    except (ValueError, KeyError):
        return MigrationProgress(number)  # not written by this command
    if not all(isinstance(one, int) and 0 <= one <= _MOST for one in (before, after, moved)):
        return MigrationProgress(number)  # not written by this command
    there = _replicas(source)
    owed = max(before - after, 0) if there == before else 0
    if found.get("number") != number:
        return MigrationProgress(number, 0, owed)
    return MigrationProgress(number, moved + (before - after if there == after else 0), owed)


async def replicas_moved(
    client: Client,
    commands: Commands,
    migration: Migration,
    namespace: str,
    pair: tuple[str, str],
    limits: Limits,
    *,
    dry_run: bool,
) -> bool:
    """Move replicas, printing a line per step. Return False on timeout. Raises CommandError."""
    name, source_name = pair
    called = f"{migration.source.kind} {namespace}/{source_name}"
    ours_called = f"{commands.kind.kind} {namespace}/{name}"
    try:
        old: dict[str, Any] = await client.get(migration.source, source_name, namespace)
    except NotFound:
        raise CommandError(f"{called}: not found; use -n to specify another namespace") from None
    resource, made = commands.kind.resource(), migration.made(old, name)
    ours: dict[str, Any] | None = await get_or_none(client, resource, name, namespace)
    progress = progress_of(ours, old, limits.replicas) if ours is not None else MigrationProgress(limits.replicas)
    there = _replicas(old) + progress.moved
    number = there if progress.number is None else progress.number
    if number > there:
        raise CommandError(f"{called}: has only {there} replicas; cannot move {number}")
    if ours is None:
        with left_behind(lambda: f"{ours_called} may have been created, without Pods yet; {_RESUME}"):
            ours = await client.create(resource, made, namespace, field_manager="pykruise")
        write(f"{ours_called} created from {called}{' (dry run)' if dry_run else ''}")
    else:
        _same_pods(ours, made, ours_called, called)
    if dry_run:
        write(f"{number - progress.moved} replicas would move, {limits.max_surge} at a time")
        return True
    if not number:
        write(f"{called}: has no replicas to move")
    elif progress.moved:
        write(f"{progress.moved} of {number} replicas have already moved; {number - progress.moved} left")
    move = _Move(client, commands, migration, namespace, name, source_name, number, progress, limits)
    with left_behind(lambda: f"{move.moved} of {number} replicas have moved; both workloads keep running; {_RESUME}"):
        return await move.run(ours, there)


_RESUME: Final = "run the same command to resume"


@dataclass(slots=True)
class _Move:
    """One run of the command."""

    client: Client
    commands: Commands
    migration: Migration
    namespace: str
    name: str
    source: str
    number: int
    progress: MigrationProgress
    limits: Limits
    moved: int = 0

    async def run(self, ours: Mapping[str, Any], there: int) -> bool:
        """Move step by step; ``there`` is the source's number of replicas before the first step."""
        progress, limits, client = self.progress, self.limits, self.client
        resource = self.commands.kind.resource()
        self.moved = progress.moved
        begun = max(_replicas(ours) - progress.moved - progress.owed, 0)
        deadline = client.clock.monotonic() + (limits.seconds or float("inf"))
        while self.moved < self.number:
            # Replicas added by an interrupted command belong to the first step, whatever step size that command used.
            step = max(limits.max_surge, progress.owed if self.moved == progress.moved else 0)
            moving = min(self.moved + step, self.number)
            # Scale up first, so that there are never fewer replicas than before.
            source = await client.get(self.migration.source, self.source, self.namespace)
            about = progress_annotation(source, progress.number, self.moved, there - moving)
            await self._patch(resource, self.name, begun + moving, about)
            while not _available(await client.get(resource, self.name, self.namespace), begun + moving):
                if client.clock.monotonic() >= deadline:
                    late = f"not available within {limits.seconds:g} s; the source keeps its replicas; {_RESUME}"
                    write(f"{moving} of {self.number} replicas: {late}")
                    return False
                await client.clock.sleep(_POLL_SECONDS)
            body = {"spec": {"replicas": there - moving}}
            await client.patch(self.migration.source, self.source, body, self.namespace, field_manager="pykruise")
            self.moved = moving
            write(f"{moving} of {self.number} replicas moved")
        if self.progress.moved < self.number or (ours["metadata"].get("annotations") or {}).get(names.MIGRATION):
            await self._patch(resource, self.name, None, None)
        return True

    async def _patch(self, resource: Any, name: str, replicas: int | None, about: str | None) -> None:
        body: dict[str, Any] = {"metadata": {"annotations": {names.MIGRATION: about}}}
        if replicas is not None:
            body["spec"] = {"replicas": replicas}
        await self.client.patch(resource, name, body, self.namespace, field_manager="pykruise")


def _same_pods(ours: Mapping[str, Any], made: Mapping[str, Any], called: str, source: str) -> None:
    """Raise CommandError if the two workloads run different images."""
    images = [[one.get("image") for one in each["spec"]["template"]["spec"]["containers"]] for each in (ours, made)]
    if images[0] != images[1]:
        raise CommandError(
            f"{called}: exists and runs different images than {source}; set the same images on both first"
        )


def _replicas(obj: Mapping[str, Any]) -> int:
    given = obj["spec"].get("replicas")
    return 1 if given is None else int(given)


def _available(stored: Mapping[str, Any], wanted: int) -> bool:
    status = stored.get("status") or {}
    seen = status.get("observedGeneration") == stored["metadata"]["generation"]
    return seen and int(status.get("availableReplicas") or 0) >= wanted


# ``pykruise migrate`` to a Kruise kind that is the built-in one under another apiVersion. The built-in object is
# deleted without its Pods, the Kruise object is created under its name, and its controller adopts the Pods. First,
# a dry-run request checks that the API server accepts the new object.


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
    """Migrate a built-in workload, printing each step. Return False on timeout. Raises CommandError."""
    source, resource = migration.source, commands.kind.resource()
    native = f"{source.kind}.{source.group} {namespace}/{name}"
    ours = f"{commands.kind.kind}.{commands.kind.group} {namespace}/{name}"
    deadline = client.clock.monotonic() + (seconds or float("inf"))
    found: dict[str, Any] | None = await get_or_none(client, source, name, namespace)
    if found is None:
        there: dict[str, Any] | None = await get_or_none(client, resource, name, namespace)
        if there is None:
            raise CommandError(f"{native}: not found; use -n to specify another namespace")
        write(f"{native} is deleted and {ours} exists: nothing to do; {_see('rollout status', commands, name)}")
        return True
    # An interrupted migration may have started a deletion that keeps the Pods.
    goes = bool(found["metadata"].get("deletionTimestamp"))
    if goes and "orphan" not in (found["metadata"].get("finalizers") or ()):
        raise CommandError(f"{native}: is being deleted with its Pods")
    made = migration.made(found, name)
    await client.create(resource, made, namespace, dry_run=True, field_manager="pykruise")
    if dry_run:
        write(f"{native} would be deleted without its Pods, and {ours} created to adopt them (dry run)")
        return True
    replacing = asyncio.ensure_future(_replaced(client, migration, resource, made, found, (native, ours), deadline))
    interrupted = False
    try:
        stored = await asyncio.shield(replacing)
    except asyncio.CancelledError:
        # An interrupt must not leave the user without either object. Waiting takes about a second.
        interrupted = True
        complain(f"interrupted; creating {ours} first, because otherwise neither object would exist")
        stored = await replacing
    if stored is None:
        raise CommandError(f"{native}: not deleted within {seconds:g} s; {_RESUME}, or {_again(made)}")
    write(f"{ours} created")
    see = _see("rollout status", commands, name)
    if interrupted:
        raise InterruptedCommandError(f"{ours} was created, and its controller will adopt the Pods; {see}")
    with left_behind(lambda: f"{ours} was created, and its controller will adopt the Pods; {see}"):
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
    """Create the new object as soon as the built-in one is deleted. Return None on timeout. Raises CommandError, or
    KubeError if nothing has been changed yet."""
    metadata = native["metadata"]
    name, namespace, uid = metadata["name"], metadata["namespace"], str(metadata["uid"])
    if not metadata.get("deletionTimestamp"):
        try:
            await client.delete(migration.source, name, namespace, propagation_policy="Orphan", uid=uid)
        except (KubeError, OSError) as error:
            if isinstance(error, ApiError) and not isinstance(error, ServerError):
                raise
            # The request may have succeeded anyway, leaving neither object.
            may = f"may be deleted ({sentence(error)}); if it still exists, {_RESUME}; if not"
            raise CommandError(f"{called[0]}: {may}, {_again(made)}") from None
        except BaseException:
            write(_again(made))
            raise
    write(f"{called[0]} deleted; its Pods keep running")
    try:
        if not await _gone(client, migration, namespace, name, uid, deadline):
            return None
        stored: dict[str, Any] = await client.create(resource, made, namespace, field_manager="pykruise")
    except (KubeError, OSError) as error:
        raise CommandError(f"{called[1]}: not created ({sentence(error)}); {_again(made)}") from None
    except BaseException:
        write(_again(made))  # interrupted a second time: print the object, which exists nowhere else
        raise
    return stored


async def _gone(client: Client, migration: Migration, namespace: str, name: str, uid: str, deadline: float) -> bool:
    """Wait until the object is deleted. Return False on timeout."""
    while True:
        found: dict[str, Any] | None = await get_or_none(client, migration.source, name, namespace)
        if found is None or found["metadata"]["uid"] != uid:
            return True
        if client.clock.monotonic() >= deadline:
            return False
        await client.clock.sleep(_POLL_SECONDS)


def _has_pods(stored: Mapping[str, Any], native: Mapping[str, Any]) -> bool:
    """Return whether the controller has observed the new object and reports at least as many Pods as the built-in
    object did."""
    now, before = stored.get("status") or {}, native.get("status") or {}
    if now.get("observedGeneration") != stored["metadata"].get("generation"):
        return False
    counts = ("replicas", "currentNumberScheduled")
    return all(int(now.get(count) or 0) >= int(before.get(count) or 0) for count in counts)


def _again(made: Mapping[str, Any]) -> str:
    """Return the command that creates the object by hand."""
    return f"create it with: echo {shlex.quote(orjson.dumps(made).decode())} | kubectl create -f -"


def _see(verb: str, commands: Commands, name: str) -> str:
    return f"see: pykruise {verb} {commands.kind.singular}/{name}"
