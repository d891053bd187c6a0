"""``pykruise completion``: what a shell must be told to complete commands, kinds and names."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(completion)


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell", show_default=False)],
) -> None:
    """Print the completion script of a shell.

    bash and zsh: source <(pykruise completion bash); fish: pykruise completion fish | source.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    print(get_completion_script(prog_name="pykruise", complete_var="_PYKRUISE_COMPLETE", shell=shell))
