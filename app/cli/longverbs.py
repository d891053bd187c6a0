"""Commands of slices that have options of their own, as the command line has them."""

from __future__ import annotations

from inspect import Parameter, Signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from app.cli.cluster import with_cluster
from app.cli.grammar import Context, DryRun, Kubeconfig, Namespace
from app.cli.printing import write

if TYPE_CHECKING:
    from app.kube.client import Client
    from app.slices.verbs import LongVerb, Option


def command_with_options(verb: LongVerb) -> Any:
    """A verb with options as a command."""

    def run(**given: Any) -> None:
        from app.slices.verbs import Call

        options = {one.name: given[_name(one)] for one in verb.options}

        async def work(client: Client, where: str) -> int:
            connection = (given["kubeconfig"], given["context"])
            return await verb.run(Call(client, where, given["arguments"], options, write, connection, tried))

        tried = given["dry_run"]
        code = with_cluster(given["kubeconfig"], given["context"], given["namespace"], work, dry_run=tried)
        if code:
            raise typer.Exit(code)

    words = typer.Argument(metavar=verb.arguments, show_default=False)
    parameters = [_parameter("arguments", Annotated[list[str], words])]
    parameters += [_parameter(_name(one), _annotation(one), default=_default(one)) for one in verb.options]
    parameters.append(_parameter("dry_run", DryRun, default=False))
    shared = {"namespace": Namespace, "kubeconfig": Kubeconfig, "context": Context}
    parameters += [_parameter(name, annotation, default="") for name, annotation in shared.items()]
    run.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    run.__doc__ = verb.help
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name=verb.name, context_settings={"help_option_names": ["-h", "--help"]})(run)
    return typer.main.get_command(single)


def _name(option: Option) -> str:
    return option.name.replace("-", "_")


def _default(option: Option) -> str | bool:
    return False if option.flag else option.default


def _annotation(option: Option) -> Any:
    names = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    takes = None if option.flag else option.takes
    found = typer.Option(*names, help=option.help, show_default=bool(option.default), metavar=takes)
    return Annotated[bool, found] if option.flag else Annotated[str, found]


def _parameter(name: str, annotation: Any, **more: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, **more)
