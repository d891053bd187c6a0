"""What a feature adds to the command line: commands about its kinds, and how they report progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from app.kube.errors import InterruptedCommandError
from app.kube.text import one_line, quoted

if TYPE_CHECKING:
    from app.api.kind import KindDefinition
    from app.framework.options import Enabled
    from app.kube.client import Client
    from app.kube.objects import Node, Pod
    from app.kube.resources import Resource


# What the command line has to know of a kind: how far its roll-out is, how to start it anew, what it would do next.
#
# ``pykruise rollout``, ``plan`` and ``explain`` take any kind whose feature has commands. They are imported only when a
# command is given, so a feature names a function that returns them.

#: An object of the kind as it is stored.
Stored: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a roll-out is: Pods at the update revision and available, of as many as are wanted there."""

    updated: int
    available: int
    expected: int
    done: bool
    failed: str
    text: str

    @property
    def part(self) -> float:
        """How much of it is done, from 0 to 1."""
        return min(self.available, self.expected) / self.expected if self.expected else 1.0

    @property
    def state(self) -> str:
        """In a word."""
        return "failed" if self.failed else "done" if self.done else "under way"

    def data(self) -> dict[str, Any]:
        """For programs."""
        counts = {"updated": self.updated, "available": self.available, "expected": self.expected}
        return {"state": self.state, **counts, "message": self.failed or self.text}


def counted(updated: int, expected: int, things: str, total: int) -> str:
    """``2 of 5 Pods updated``. More may be than the partition asks for: at creation all are."""
    if updated > expected:
        return f"{updated} of {total} {things} updated (the partition asks for {expected})"
    return f"{updated} of {expected} {things} updated"


#: Bytes of a cell of a table.
LONGEST_CELL: Final = 1000
#: The table of a plan.
PLAN_COLUMNS: Final = ("step", "pod", "action", "because")


@dataclass(frozen=True, slots=True)
class Report:
    """What a command found: a sentence, a table, and what else there is to say.

    ``columns`` are the keys of the rows for programs, in capitals the heads of the table for people.
    """

    head: str
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    notes: Sequence[str] = ()
    #: What a person can do now, a sentence or a command each.
    todo: Sequence[str] = ()

    def text(self) -> str:
        """For people."""
        parts = [one_line(self.head)] if self.head else []
        if self.rows:
            parts.append(table([tuple(name.upper() for name in self.columns), *self.rows]))
        return "\n".join([*parts, *map(one_line, (*self.notes, *(f"to do: {one}" for one in self.todo)))])

    def data(self) -> dict[str, Any]:
        """For programs."""
        named = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"summary": self.head, "items": named, "notes": list(self.notes), "toDo": list(self.todo)}


def report(found: Report | str | Sequence[str], todo: Sequence[str] = ()) -> Report:
    """What a command of a feature returned, as a report. ``todo``: what a person can do, where it is text."""
    if isinstance(found, Report):
        return found
    head, *notes = found.split("\n") if isinstance(found, str) else found
    return Report(head, notes=notes, todo=todo)


@dataclass(frozen=True, slots=True)
class Verb:
    """A command of its own: ``pykruise NAME ARGUMENTS``, with the options that all commands about a cluster have.

    ``run`` is given the client, the namespace and the arguments, and returns what is printed. It raises CommandError or
    KubeError.
    """

    name: str
    help: str
    arguments: str
    run: Callable[[Client, str, Sequence[str]], Awaitable[Report | str]]
    #: Whether it only reads: it can print JSON and YAML then.
    reads: bool = False


#: What a feature's objects are to a node, a line each.
ExplainNode: TypeAlias = "Callable[[Client, Node, Enabled], Awaitable[Sequence[str]]]"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded revision, and what it is to the object and to Pods."""

    number: int
    name: str
    pods: int
    role: str
    cause: str
    #: What it holds, as it is shown; empty where it cannot be read.
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    """The history of a kind whose revisions are not those of a Pod template. Revisions come oldest first."""

    read: Callable[[Client, Stored], Awaitable[Sequence[Recorded]]]
    #: The JSON patch operations that bring a content back.
    undo: Callable[[Stored, Mapping[str, Any]], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Migration:
    """How Pods of a built-in workload come to the kind."""

    source: Resource
    #: The object of the kind that runs what the source runs, under this name and with no Pods yet.
    made: Callable[[Stored, str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands about one kind. What is None is refused for it. All raise CommandError or KubeError.

    Unless the kind says otherwise, history and undo go by ``spec.selector``, ``spec.template`` and
    ControllerRevisions; pause and resume by ``spec.updateStrategy.rollingUpdate.paused``.
    """

    kind: KindDefinition
    #: How far the roll-out of a stored object is.
    progress: Callable[[Stored], Progress] | None = None
    #: Replace all Pods; says what came of it, behind the object's name.
    restart: Callable[[Client, Stored], Awaitable[str]] | None = None
    #: What becomes of the Pods of the built-in workload of the same name for a kind, if it is moved over: in a
    #: namespace, the one of a name.
    moving: Callable[[Client, str, str, Enabled], Awaitable[Report]] | None = None
    #: What the object as it would be stored does to its Pods, as text.
    plan: Callable[[Client, Stored, Enabled], Awaitable[Report | str]] | None = None
    #: Why a Pod of the object is as it is, a line each.
    explain: Callable[[Client, Pod, Stored, Enabled], Awaitable[Sequence[str]]] | None = None
    #: What the kind's objects are to a node, a line each.
    explain_node: Callable[[Client, Node, Enabled], Awaitable[Sequence[str]]] | None = None
    pausable: bool = True
    history: bool = True
    #: A history of its own.
    own_history: History | None = None
    #: Where ``paused`` stands.
    paused_at: tuple[str, ...] = ("spec", "updateStrategy", "rollingUpdate")
    #: The same where it depends on the object; raises CommandError for one that cannot be paused.
    paused_in: Callable[[Stored], tuple[str, ...]] | None = None
    #: The update type that has nothing to pause.
    without_rollout: str = "OnDelete"
    #: How the object's Pods stand, as text.
    explain_object: Callable[[Client, Stored, Enabled], Awaitable[Report | str]] | None = None
    #: What there is to say about any Pod, whoever controls it, a line each.
    explain_any: Callable[[Client, Pod, Enabled], Awaitable[Sequence[str]]] | None = None

    #: Its Pods, where others control them.
    pods: Callable[[Client, Stored], Awaitable[Sequence[Pod]]] | None = None
    #: Where its containers stand: every list of them that there may be.
    containers_at: tuple[tuple[str, ...], ...] = (
        ("spec", "template", "spec", "containers"),
        ("spec", "template", "spec", "initContainers"),
    )
    #: The changes (JSON patch operations) that take exactly these Pods away and lower the replicas with them.
    scale_in: Callable[[Stored, Sequence[str]], Sequence[Mapping[str, Any]]] | None = None
    #: Why there is none, with what to do instead.
    no_scale_in: str = "its number of Pods is not its own to lower"
    #: The built-in workloads whose Pods it can take over.
    migrations: tuple[Migration, ...] = ()
    #: The built-in workloads that it is under another apiVersion: their Pods are adopted as they run.
    adoptions: tuple[Migration, ...] = ()
    #: Why there are none, with what to do instead.
    no_migration: str = "replicas of another workload cannot move to it"

    def paused_of(self, stored: Stored) -> tuple[str, ...]:
        """Where ``paused`` stands in an object. Raises CommandError."""
        return self.paused_in(stored) if self.paused_in is not None else self.paused_at

    @property
    def words(self) -> frozenset[str]:
        """What a person may call the kind."""
        kind = self.kind
        named = (kind.singular, kind.plural)
        return frozenset((*named, *kind.short_names, *(f"{name}.{kind.group}" for name in named)))


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as kubectl prints them; a cell is one line, whatever somebody wrote into his objects, and no longer than
    one can read."""
    shown = [tuple(quoted(cell, LONGEST_CELL) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(rows[0]))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown
    )


@contextmanager
def left_behind(left: Callable[[], str]) -> Iterator[None]:
    """Whoever interrupts the block is told what it leaves behind, as it is at that moment."""
    try:
        yield
    except asyncio.CancelledError:
        raise InterruptedCommandError(f"interrupted; {left()}") from None


class CountedStatus(Protocol):
    """Of a status the counts that are asked."""

    @property
    def replicas(self) -> int: ...
    @property
    def updated_replicas(self) -> int: ...
    @property
    def updated_available_replicas(self) -> int: ...


def unseen(replicas: int) -> Progress:
    """Of a workload whose present generation no controller has seen."""
    return Progress(0, 0, replicas, False, "", "waiting for the change to be seen")


def progress_by_counts(
    name: str,
    status: CountedStatus,
    *,
    replicas: int,
    expected: int,
    done: bool,
    on_delete: bool,
    paused: bool,
    failed: str | None = None,
    failures: Sequence[str] = (),
) -> Progress:
    """Of a workload with replicas. ``name``: as the command line takes it; ``expected``: how many Pods are wanted at
    the update revision; ``failed``: why it will not end by itself; ``failures``: what its conditions say went wrong."""
    updated, available = status.updated_replicas, status.updated_available_replicas
    text = f"{counted(updated, expected, 'Pods', status.replicas)}, {available} available"
    if done:
        kept = status.replicas - updated
        text += f"; the partition keeps {kept} at the old revision" if kept > 0 else ""
        return Progress(updated, available, expected, done, "", text)
    if failed is not None:
        pass  # it is said apart
    elif on_delete:
        text += "; OnDelete: Pods are updated when they are deleted"
    elif paused and updated < expected:
        text += f"; paused: pykruise rollout resume {name}"
    elif status.replicas != replicas:
        text += f"; {status.replicas} Pods for {replicas} replicas"
    if failures:
        text += f"; {failures[0]}"
    return Progress(updated, available, expected, done, failed or "", text)
