"""A feature's commands for its kinds, and how they report progress."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias

from app.kube.errors import InterruptedCommandError
from app.kube.text import one_line, quoted

if TYPE_CHECKING:
    from app.api.kind import KindDefinition
    from app.framework.options import Enabled
    from app.kube.client import Client
    from app.kube.objects import Node, Pod
    from app.kube.resources import Resource
    from app.pods.not_ready_reasons import Obstacle


# Command-line support for a kind: rollout progress, restarts, and what the controller will do next.
#
# ``pykruise rollout``, ``plan`` and ``explain`` support any kind whose feature has commands. A kind's commands are
# imported only when one of them runs, so the feature declares a function that returns them.

#: kubectl's annotations: the time of the last restart (in a Pod template), and the change cause of a revision.
RESTARTED_AT: Final = "kubectl.kubernetes.io/restartedAt"
CHANGE_CAUSE: Final = "kubernetes.io/change-cause"

#: An object as stored in the cluster.
Stored: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress of a rollout: Pods updated, updated Pods available, and Pods expected at the update revision."""

    updated: int
    available: int
    expected: int
    done: bool
    failed: str
    text: str

    @property
    def part(self) -> float:
        """The completed fraction, from 0 to 1."""
        return min(self.available, self.expected) / self.expected if self.expected else 1.0

    @property
    def state(self) -> Literal["done", "under way", "failed"]:
        return "failed" if self.failed else "done" if self.done else "under way"

    def data(self) -> dict[str, Any]:
        """Return the progress as JSON."""
        counts = {"updated": self.updated, "available": self.available, "expected": self.expected}
        return {"state": self.state, **counts, "message": self.failed or self.text}


def counted(updated: int, expected: int, things: str, total: int) -> str:
    """Return text such as ``2 of 5 Pods updated``. More Pods than the partition requires may be updated, such as all
    Pods of a new workload."""
    if updated > expected:
        return f"{updated} of {total} {things} updated (the partition requires {expected})"
    return f"{updated} of {expected} {things} updated"


#: Maximum length of a table cell in bytes.
LONGEST_CELL: Final = 1000
#: Columns of a plan's table.
PLAN_COLUMNS: Final = ("step", "pod", "action", "because")


@dataclass(frozen=True, slots=True)
class Report:
    """Result of a command: a sentence, a table, notes and suggestions.

    ``columns`` are the keys of the rows in JSON; in upper case, they are the table's headings.
    """

    head: str
    columns: tuple[str, ...] = ()
    rows: Sequence[tuple[str, ...]] = ()
    notes: Sequence[str] = ()
    #: Suggestions for the user, each a sentence or a command.
    todo: Sequence[str] = ()

    def text(self) -> str:
        parts = [one_line(self.head)] if self.head else []
        if self.rows:
            parts.append(table([tuple(name.upper() for name in self.columns), *self.rows]))
        return "\n".join([*parts, *map(one_line, (*self.notes, *(f"to do: {one}" for one in self.todo)))])

    def data(self) -> dict[str, Any]:
        """Return the report as JSON."""
        named = [dict(zip(self.columns, row, strict=True)) for row in self.rows]
        return {"summary": self.head, "items": named, "notes": list(self.notes), "toDo": list(self.todo)}


def report(found: Report | str | Sequence[str], todo: Sequence[str] = ()) -> Report:
    """Return the result of a feature's command as a report. ``todo`` adds suggestions if the result is text."""
    if isinstance(found, Report):
        return found
    head, *notes = found.split("\n") if isinstance(found, str) else found
    return Report(head, notes=notes, todo=todo)


#: Returns lines that explain how a feature's objects affect a node.
ExplainNode: TypeAlias = "Callable[[Client, Node, Enabled], Awaitable[Sequence[str]]]"


@dataclass(frozen=True, slots=True)
class Recorded:
    """One recorded revision, and how the object and its Pods use it."""

    number: int
    name: str
    pods: int
    role: str
    cause: str
    #: The content; empty if it cannot be read.
    content: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class History:
    """The history of a kind whose revisions do not record a Pod template. Revisions are ordered from oldest to
    newest."""

    read: Callable[[Client, Stored], Awaitable[Sequence[Recorded]]]
    #: The JSON patch operations that restore a revision.
    undo: Callable[[Stored, Mapping[str, Any]], Sequence[Mapping[str, Any]]]


@dataclass(frozen=True, slots=True)
class Migration:
    """Migration of a built-in workload's Pods to the kind."""

    source: Resource
    #: Returns an object of the kind equivalent to the source, with this name and no replicas yet.
    made: Callable[[Stored, str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands for one kind. Commands that are None are not supported. All may raise CommandError or KubeError.

    By default, history and undo use ``spec.selector``, ``spec.template`` and ControllerRevisions; pause and resume use
    ``spec.updateStrategy.rollingUpdate.paused``.
    """

    kind: KindDefinition
    #: Returns the rollout progress of a stored object.
    progress: Callable[[Stored], Progress] | None = None
    #: Replaces all Pods; returns the result as text that follows the object's name.
    restart: Callable[[Client, Stored], Awaitable[str]] | None = None
    #: Explains what moving a built-in workload to the kind would do to its Pods; takes the workload's namespace and
    #: name.
    moving: Callable[[Client, str, str, Enabled], Awaitable[Report]] | None = None
    #: Describes what the object, once stored, would do to its Pods.
    plan: Callable[[Client, Stored, Enabled], Awaitable[Report | str]] | None = None
    #: Returns lines that explain the state of one of the object's Pods.
    explain: Callable[[Client, Pod, Stored, Enabled], Awaitable[Sequence[str]]] | None = None
    #: Returns lines that explain how the kind's objects affect a node.
    explain_node: Callable[[Client, Node, Enabled], Awaitable[Sequence[str]]] | None = None
    pausable: bool = True
    history: bool = True
    #: The kind's own history, if it has one.
    own_history: History | None = None
    #: Path of the object that holds ``paused``.
    paused_at: tuple[str, ...] = ("spec", "updateStrategy", "rollingUpdate")
    #: Returns that path if it depends on the object; raises CommandError for an object that cannot be paused.
    paused_in: Callable[[Stored], tuple[str, ...]] | None = None
    #: The update type that has no rollout to pause.
    without_rollout: str = "OnDelete"
    #: Describes the state of the object's Pods.
    explain_object: Callable[[Client, Stored, Enabled], Awaitable[Report | str]] | None = None
    #: Returns lines and obstacles that explain a Pod, regardless of its controller.
    explain_any: Callable[[Client, Pod, Enabled], Awaitable[Sequence[str | Obstacle]]] | None = None

    #: Returns the object's Pods; required if another object controls them.
    pods: Callable[[Client, Stored], Awaitable[Sequence[Pod]]] | None = None
    #: Paths of all container lists in an object.
    containers_at: tuple[tuple[str, ...], ...] = (
        ("spec", "template", "spec", "containers"),
        ("spec", "template", "spec", "initContainers"),
    )
    #: Returns the JSON patch operations that remove exactly these Pods and lower the replicas accordingly.
    scale_in: Callable[[Stored, Sequence[str]], Sequence[Mapping[str, Any]]] | None = None
    #: Why scale-in is not supported, with an alternative.
    no_scale_in: str = "its number of replicas cannot be lowered directly"
    #: The built-in workloads whose Pods the kind can take over.
    migrations: tuple[Migration, ...] = ()
    #: The built-in workloads of the same kind in another API group: their running Pods are adopted.
    adoptions: tuple[Migration, ...] = ()
    #: Why migration is not supported, with an alternative.
    no_migration: str = "replicas of another workload cannot move to it"

    def paused_of(self, stored: Stored) -> tuple[str, ...]:
        """Return the path of the object that holds ``paused``. Raises CommandError."""
        return self.paused_in(stored) if self.paused_in is not None else self.paused_at

    @property
    def words(self) -> frozenset[str]:
        """Return the names by which the user may refer to the kind."""
        kind = self.kind
        named = (kind.singular, kind.plural)
        return frozenset((*named, *kind.short_names, *(f"{name}.{kind.group}" for name in named)))


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Return the rows in columns, as kubectl prints them. Each cell is cut to one line of limited length."""
    shown = [tuple(quoted(cell, LONGEST_CELL) for cell in row) for row in rows]
    widths = [max(len(row[column]) for row in shown) for column in range(len(rows[0]))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in shown
    )


@contextmanager
def left_behind(left: Callable[[], str]) -> Iterator[None]:
    """If the block is interrupted, raise InterruptedCommandError; ``left()`` says what remains in the cluster."""
    try:
        yield
    except asyncio.CancelledError:
        raise InterruptedCommandError(f"interrupted; {left()}") from None


class CountedStatus(Protocol):
    """The status counts from which progress is computed."""

    @property
    def replicas(self) -> int: ...
    @property
    def updated_replicas(self) -> int: ...
    @property
    def updated_available_replicas(self) -> int: ...


def unseen(replicas: int) -> Progress:
    """Return the progress of a workload whose current generation has not been observed."""
    return Progress(0, 0, replicas, False, "", "waiting for the controller to observe the change")


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
    failures: Sequence[str],
) -> Progress:
    """Return the progress of a workload with replicas.

    ``name`` is the name on the command line. ``expected`` is the expected number of Pods at the update revision.
    ``failed`` is the reason why the rollout cannot finish by itself. ``failures`` are messages of failed conditions.
    """
    updated, available = status.updated_replicas, status.updated_available_replicas
    text = f"{counted(updated, expected, 'Pods', status.replicas)}, {available} available"
    if done:
        kept = status.replicas - updated
        text += f"; the partition keeps {kept} at the old revision" if kept > 0 else ""
        return Progress(updated, available, expected, done, "", text)
    if failed is not None:
        pass  # reported separately
    elif on_delete:
        text += "; OnDelete: Pods are updated when they are deleted"
    elif paused and updated < expected:
        text += f"; paused: pykruise rollout resume {name}"
    elif status.replicas != replicas:
        text += f"; {status.replicas} Pods for {replicas} replicas"
    if failures:
        text += f"; {failures[0]}"
    return Progress(updated, available, expected, done, failed or "", text)
