"""What the command line has to know of a kind: how far its roll-out is, how to start it anew, what it would do next.

``pykruise rollout``, ``plan`` and ``explain`` take any kind whose slice has commands. They are imported only when a
command is given, so a slice names a function that returns them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from app.api.kind import KindDefinition
from app.kube.client import Client
from app.kube.errors import CommandError as CommandError
from app.kube.objects import Node, Pod
from app.slices.controllers import Enabled

_BAR = 30
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

    def line(self) -> str:
        """The progress bar and the sentence behind it."""
        part = min(self.available, self.expected) / self.expected if self.expected else 1.0
        full = round(part * _BAR)
        return f"[{'#' * full}{'.' * (_BAR - full)}] {part:4.0%}  {self.text}"


@dataclass(frozen=True, slots=True)
class Verb:
    """A command of its own: ``pykruise NAME ARGUMENTS``, with the options that all commands about a cluster have.

    ``run`` is given the client, the namespace and the arguments, and returns what is printed. It raises CommandError or
    KubeError.
    """

    name: str
    help: str
    arguments: str
    run: Callable[[Client, str, Sequence[str]], Awaitable[str]]


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
    #: What the object as it would be stored does to its Pods, as text.
    plan: Callable[[Client, Stored, Enabled], Awaitable[str]] | None = None
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
    #: The update type that has nothing to pause.
    without_rollout: str = "OnDelete"
    #: How the object's Pods stand, as text.
    explain_object: Callable[[Client, Stored, Enabled], Awaitable[str]] | None = None
    #: What there is to say about any Pod, whoever controls it, a line each.
    explain_any: Callable[[Client, Pod, Enabled], Awaitable[Sequence[str]]] | None = None

    @property
    def words(self) -> frozenset[str]:
        """What a person may call the kind."""
        kind = self.kind
        named = (kind.singular, kind.plural)
        return frozenset((*named, *kind.short_names, *(f"{name}.{kind.group}" for name in named)))


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Columns as kubectl prints them."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(
        "   ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
