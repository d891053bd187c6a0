"""The ``pykruise`` command."""

from __future__ import annotations

import gc
import os
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal

import typer
from typer.core import TyperCommand

from app.cli import dashboard, migrate, plan, protect, rollout, sandbox, takeover, terminal
from app.cli.terminal import Context, Kubeconfig, Output, failed, with_cluster, write, written
from app.cli.verbs import WithVerbs
from app.kube import logs

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
    gc.disable()  # imports leave no garbage; collections took a tenth of the start-up time
    from app.manager.run import main as run_manager

    gc.enable()
    raise typer.Exit(run_manager(ctx.args, os.environ))


@app.command(cls=_Untouched, add_help_option=False)
def daemon(ctx: typer.Context) -> None:
    """Run the node agent."""
    from app.daemon.main import main as run_daemon

    raise typer.Exit(run_daemon(ctx.args, os.environ))


_Gates = Annotated[str, typer.Option("--feature-gates", metavar="GATES", help="A=true,B=false")]
_Level = Annotated[int, typer.Option("--verbosity", "-v", metavar="N", help="Log verbosity; 5 shows every decision")]


@app.command()
def serve(
    policies: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Directory (or file) with SidecarSets and Namespaces as YAML")
    ],
    host: Annotated[str, typer.Option(metavar="ADDRESS", help="Address to listen on")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="N", help="Port to listen on")] = 9443,
    workers: Annotated[int, typer.Option(min=1, max=64, metavar="N", help="Number of worker processes")] = 1,
    certs: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Directory for the certificates, which are created if missing")
    ] = Path("certs"),
    feature_gates: _Gates = "",
    verbosity: _Level = 0,
    logging_format: Annotated[Literal["text", "json"], typer.Option()] = "text",
) -> None:
    """Serve admission reviews without a cluster.

    SidecarSets and Namespaces are read from YAML files.
    """
    from app.certs.issue import CertificateError
    from app.cli.serve import ServeOptions
    from app.cli.serve import serve as run
    from app.features.deletionprotection.table import TableError
    from app.manager.gates import FeatureGateError, parse_gates
    from app.manager.serving import StartError

    logs.configure(logging_format, logs.level_for(verbosity))
    if not policies.exists():
        raise failed(f"--policies: {policies} does not exist", 2)
    try:
        code = run(ServeOptions(policies, host, port, workers, certs, parse_gates(feature_gates)))
    except FeatureGateError as error:
        raise failed(str(error), 2) from None
    except (StartError, CertificateError, TableError) as error:
        raise failed(str(error)) from None
    raise typer.Exit(code)


@app.command()
def review(
    file: Annotated[
        str,
        typer.Argument(
            metavar="FILE", help="AdmissionReview or manifests, YAML or JSON; a directory of them; - for standard input"
        ),
    ],
    policies: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Directory (or file) with SidecarSets and Namespaces")
    ] = None,
    of_cluster: Annotated[bool, typer.Option("--cluster", help="Use the cluster's objects instead")] = False,
    namespace: Annotated[
        str, typer.Option("--namespace", "-n", metavar="NAME", help="Namespace of manifests without one")
    ] = "default",
    output: Annotated[Literal["diff", "json"], typer.Option("--output", "-o", help="A diff, or the response")] = "diff",
    feature_gates: _Gates = "",
    kubeconfig: Kubeconfig = "",
    context: Context = "",
) -> None:
    """Show what admission would change, and by which rule.

    Reviews are decided locally, without a manager. For a workload, a Pod from its template is reviewed too. Exit
    code 1: denied; 2: the file or the policies are invalid.
    """
    from rich.console import Console

    from app.cli.review import ReviewError, as_json, kept, review_file, show
    from app.features.deletionprotection.table import TableError
    from app.manager.gates import FeatureGateError, parse_gates
    from app.manager.manifests import ManifestError

    try:
        if policies is not None and of_cluster:
            raise ReviewError("specify one of --policies and --cluster")  # noqa: TRY301
        if policies is not None and not policies.exists():
            raise ReviewError(f"--policies: {policies} does not exist")  # noqa: TRY301
        with TemporaryDirectory(prefix="pykruise-review-") as folder:
            if of_cluster:
                policies = with_cluster(kubeconfig, context, "", lambda client, _: kept(client, Path(folder)))
            verdicts = review_file(file, policies, namespace, parse_gates(feature_gates))
    except (ReviewError, ManifestError, FeatureGateError, TableError) as error:
        raise failed(str(error), 2) from None
    console = Console(highlight=False)
    for verdict in verdicts:
        if output == "json":
            write(as_json(verdict).decode())
        else:
            show(verdict, console)
    raise typer.Exit(1 if any(verdict.denied for verdict in verdicts) else 0)


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
