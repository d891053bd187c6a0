"""``pykruise rollout status``: progress of one rollout until it is done, or of all rollouts."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import contextmanager
from dataclasses import dataclass
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Any, Final, TypeVar

from app.cli.kinds import kind_of, known, owned, read, wanted
from app.cli.terminal import Format, items, write, written
from app.framework.commands import table
from app.kube.errors import CommandError, Forbidden, NotFound, describe, sentence
from app.kube.text import first_of, one_line

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from app.framework.commands import Commands, Progress
    from app.kube.client import Client

POLL_SECONDS: Final = 1.0
#: Number of polls without progress before the Pods are checked for the reasons, and number of polls between checks.
STALLED: Final = 3
#: Maximum number of reasons, and of Pods named for each; the rest are counted.
NAMED: Final = 3
#: Terminals narrower than this get lines instead of a bar.
MIN_COLUMNS: Final = 60
T = TypeVar("T")

_Show = Callable[["Progress", str], None]


async def show_status(
    client: Client, namespace: str, what: Sequence[str], *, watch: bool, give_up: float, output: Format = "text"
) -> bool:
    """Print progress as it changes. Return True when the rollout is done or ``watch`` is off. Raises CommandError."""
    commands, name = wanted(what)
    called = describe(commands.kind.kind, namespace if commands.kind.namespaced else "", name)
    if commands.progress is None:
        raise CommandError(f"{called}: has no rollout; see: pykruise explain {commands.kind.singular}/{name}")
    deadline = client.clock.monotonic() + give_up if give_up else float("inf")
    with _shown(output, {"kind": commands.kind.kind, "namespace": namespace, "name": name}, watch=watch) as show:
        seen: tuple[Progress, str] | None = None
        looks, reasons = 0, ""
        while True:
            stored = await _in_time(read(client, commands, namespace, name), client, deadline, called)
            progress = commands.progress(stored)
            looks = looks + 1 if seen is not None and seen[0] == progress else 0
            if looks == 0:
                reasons = ""
            ended = progress.done or bool(progress.failed) or client.clock.monotonic() >= deadline
            if not progress.done and (ended or not watch or looks % STALLED == STALLED - 1):
                reasons = await _in_time(_reasons(client, commands, stored), client, deadline, called)
            if seen != (progress, reasons):
                show(progress, reasons)
                seen = progress, reasons
            if ended or not watch:
                break
            await client.clock.sleep(POLL_SECONDS)
    if output != "text":
        return progress.done or not ended
    if progress.failed:
        write(f"{called}: {one_line(progress.failed)}")
        return False
    if progress.done:
        write(f'{commands.kind.singular} "{name}" successfully rolled out')
        return True
    if ended:
        write(f"{called}: not rolled out within {give_up:g} s")
    return not ended


async def _in_time(work: Awaitable[T], client: Client, deadline: float, called: str) -> T:
    """Return the result if it arrives by the deadline or shortly after. Raises CommandError."""
    left = deadline - client.clock.monotonic()
    try:
        async with asyncio.timeout(None if left == float("inf") else max(left, POLL_SECONDS)):
            return await work
    except TimeoutError:
        raise CommandError(f"{called}: the API server did not respond in time") from None


@contextmanager
def _shown(output: Format, about: Mapping[str, Any], *, watch: bool) -> Iterator[_Show]:
    """Yield a function that shows progress: as a bar on a terminal, as a line per change in a pipe, or as data."""
    if output != "text":
        yield lambda progress, reasons: write(
            written({**about, **progress.data(), "reasons": reasons}, output, one_line=watch)
        )
    elif sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and get_terminal_size().columns >= MIN_COLUMNS:
        with _bar() as show:
            yield show
    else:
        yield lambda progress, reasons: write(_sentence(progress, reasons))


def _sentence(progress: Progress, reasons: str) -> str:
    return one_line(f"{progress.text}; {reasons}" if reasons else progress.text)


@contextmanager
def _bar() -> Iterator[_Show]:
    from rich.console import Console
    from rich.progress import BarColumn, TaskProgressColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars
    from rich.table import Column

    columns = (
        BarColumn(bar_width=30),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[said]}", markup=False, table_column=Column(overflow="fold")),
    )
    with Bars(*columns, console=Console(highlight=False)) as bars:
        task = bars.add_task("", total=1.0, said="")
        yield lambda progress, reasons: bars.update(
            task, completed=progress.part, said=_sentence(progress, reasons), refresh=True
        )


async def _reasons(client: Client, commands: Commands, stored: Mapping[str, Any]) -> str:
    """Return why Pods of the object are not ready: the first few reasons, each with its Pods."""
    from app.pods.not_ready_reasons import obstacles

    if not commands.kind.namespaced or "selector" not in stored["spec"]:
        return ""
    found: dict[str, list[str]] = {}
    try:
        pods = await commands.pods(client, stored) if commands.pods is not None else (await owned(client, stored)).pods
    except Forbidden as error:
        return f"cannot list the Pods that are not ready: {sentence(error)}"
    for pod in sorted(pods, key=lambda pod: pod.metadata.name):
        if in_the_way := obstacles(pod):
            found.setdefault(in_the_way[0].what, []).append(pod.metadata.name)
    reasons = [f"{first_of(names, NAMED)}: {what}" for what, names in found.items()]
    return first_of(reasons, NAMED, "; ")


@dataclass(frozen=True, slots=True)
class Listing:
    """Rollouts the user may list, and a message about omitted kinds ('' if none)."""

    text: str
    left_out: str = ""


async def show_all(client: Client, namespace: str, words: Sequence[str], *, output: Format = "text") -> Listing:
    """List the rollouts of all kinds, or of one, in a namespace ('' for all). Raises CommandError."""
    asked = [kind_of(word.lower()) for word in words] or [one for one in known() if one.progress is not None]
    rows, data = [("NAMESPACE", "KIND", "NAME", "STATE", "PROGRESS", "DETAILS")], []
    refused = dict[str, Forbidden]()
    for commands in asked:
        if commands.progress is None:
            raise CommandError(f"{commands.kind.kind}: has no rollout")
        within = namespace if commands.kind.namespaced else ""
        try:
            listed = await client.list(commands.kind.resource(), within)
        except NotFound:
            continue  # the kind is not installed
        except Forbidden as error:
            refused[commands.kind.kind] = error
            data.append({"kind": commands.kind.kind, "namespace": within, "message": sentence(error)})
            continue
        for stored in listed.items:
            metadata = stored["metadata"]
            where, name = str(metadata.get("namespace") or ""), str(metadata["name"])
            try:
                progress = commands.progress(stored)
            except CommandError as error:
                rows.append((where or "-", commands.kind.kind, name, "unreadable", "-", str(error)))
                data.append({"kind": commands.kind.kind, "namespace": where, "name": name, "message": str(error)})
                continue
            said = progress.failed or progress.text
            rows.append((where or "-", commands.kind.kind, name, progress.state, f"{progress.part:.0%}", said))
            data.append({"kind": commands.kind.kind, "namespace": where, "name": name, **progress.data()})
    place = f"namespace {namespace}" if namespace else "the cluster"
    if refused and len(refused) == len(asked):
        if len(refused) == 1:
            raise next(iter(refused.values()))
        where, way_out = (
            (place, "use -n to specify another") if namespace else ("all namespaces", "use -n to specify one")
        )
        raise CommandError(f"you are not allowed to list {', '.join(refused)} in {where}; {way_out}")
    left_out = f"not shown, because you are not allowed to list them: {', '.join(refused)}" if refused else ""
    if output != "text":
        return Listing(written(items(data, "RolloutStatusList"), output), left_out)
    readable = "no workloads that you are allowed to list in" if refused else "no workloads in"
    return Listing(table(rows) if len(rows) > 1 else f"{readable} {place}", left_out)
