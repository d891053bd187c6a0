"""Commands that slices bring: looked up when one is given that is not known here, or when all are listed."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from app.cli.cluster import Context, Kubeconfig, Namespace, with_cluster

if TYPE_CHECKING:
    from app.kube.client import Client
    from app.slices.commands import Verb


class WithVerbs(TyperGroup):
    """The commands declared here, and those of slices."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name; None if there is none."""
        return super().get_command(ctx, cmd_name) or _verbs().get(cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all."""
        return [*super().list_commands(ctx), *_verbs()]


def _verbs() -> Mapping[str, Any]:
    from app.manager.slices import slices

    return {verb.name: command_of(verb) for one in slices() for verb in one.verbs()}


def command_of(verb: "Verb") -> Any:
    """A verb as the command line has it."""
    words = typer.Argument(metavar=verb.arguments, show_default=False)

    def run(
        arguments: Annotated[list[str], words],
        namespace: Namespace = "",
        kubeconfig: Kubeconfig = "",
        context: Context = "",
    ) -> None:
        async def work(client: "Client", where: str) -> str:
            return await verb.run(client, where, arguments)

        print(with_cluster(kubeconfig, context, namespace, work))

    run.__doc__ = verb.help
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    single.command(name=verb.name)(run)
    return typer.main.get_command(single)
