"""The ``pykruise`` command."""

from __future__ import annotations

import gc
import os
from typing import Annotated

import typer
from typer.core import TyperCommand

from app.cli import dashboard, migrate, plan, protect, review, rollout, sandbox, serve, takeover, terminal
from app.cli.terminal import Output, write, written
from app.cli.verbs import WithVerbs

app = typer.Typer(
    name="pykruise",
    cls=WithVerbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 success, 1 failed or refused, 2 invalid usage, 130 interrupted.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        write(f"pykruise {installed_version()}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version")
    ] = False,
) -> None:
    """OpenKruise's workloads, sidecars and protection for Kubernetes."""


class _Untouched(TyperCommand):
    """A command that parses its own arguments: flags in Go's syntax."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        ctx.args = list(args)
        return []


@app.command(cls=_Untouched, add_help_option=False)
def manager(ctx: typer.Context) -> None:
    """Run the admission webhooks and the controllers."""
    gc.disable()  # imports leave no garbage; garbage collection took a tenth of the start-up time
    from app.manager.run import main as run_manager

    gc.enable()
    raise typer.Exit(run_manager(ctx.args, os.environ))


@app.command(cls=_Untouched, add_help_option=False)
def daemon(ctx: typer.Context) -> None:
    """Run the node agent."""
    from app.daemon.main import main as run_daemon

    raise typer.Exit(run_daemon(ctx.args, os.environ))


@app.command(name="version")
def show_version(output: Output = "text") -> None:
    """Print the version."""
    text = installed_version()
    write(f"pykruise {text}" if output == "text" else written({"name": "pykruise", "version": text}, output))


def installed_version() -> str:
    """Return the installed version."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pykruise")
    except PackageNotFoundError:
        return "unknown (not installed)"


app.add_typer(rollout.rollout, name="rollout")
app.add_typer(rollout.setting, name="set")
for command in (
    serve.serve,
    review.review,
    rollout.scale_in,
    migrate.migrate,
    plan.plan,
    plan.explain,
    sandbox.sandbox,
    protect.protect,
    protect.unprotect,
    takeover.prepare_uninstall,
    takeover.takeover,
    dashboard.dashboard,
    terminal.completion,
):
    app.command()(command)


def main() -> None:
    """Run the command."""
    app()


if __name__ == "__main__":
    main()
