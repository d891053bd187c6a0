"""The grammar that all commands share: how objects, namespaces, durations, outputs and dry runs are named."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import typer

from app.cli.completion import objects
from app.slices.options import parse_duration

#: How what is read is printed.
Output: TypeAlias = Annotated[
    Literal["text", "json", "yaml"], typer.Option("--output", "-o", help="For people, or programs")
]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Default: the namespace of the context")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces")]
Kubeconfig = Annotated[str, typer.Option("--kubeconfig", metavar="FILE", help="kubeconfig file")]
Context = Annotated[str, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Only ask the API server whether it would accept it; change nothing")
]
Gates = Annotated[str, typer.Option("--feature-gates", metavar="GATES", help="A=true,B=false, as the manager has them")]


def words(help_text: str = "KIND NAME, or KIND/NAME", metavar: str = "KIND NAME") -> typer.models.ArgumentInfo:
    """An argument that names an object."""
    argument: typer.models.ArgumentInfo = typer.Argument(
        help=help_text, show_default=False, metavar=metavar, autocompletion=objects
    )
    return argument


What = Annotated[list[str], words()]


def duration(given: str | float) -> float:
    """Seconds in ``5m``, ``1h30m``, ``90s`` or ``90``; a default is seconds already. Raises typer.BadParameter."""
    text = f"{given:g}" if isinstance(given, float) else given
    try:
        seconds = float(text) if text.isascii() and text.isdigit() else parse_duration(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a duration; write it like 90s, 5m or 1h30m") from None
    if seconds < 0 or seconds > 1e9:
        raise typer.BadParameter(f"{text} is no time to wait; write it like 90s, 5m or 1h30m, 0: without end")
    return seconds


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", parser=duration, metavar="DURATION", show_default=False, help="Give up after this, such as 5m"
    ),
]
