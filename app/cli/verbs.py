"""The group of all commands: those declared here, those that slices bring, and what is said of others."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from app.cli.cluster import with_cluster
from app.cli.grammar import Context, DryRun, Kubeconfig, Namespace, Output
from app.cli.index import verb_called, verbs
from app.cli.longverbs import command_with_options
from app.cli.printing import write, written

if TYPE_CHECKING:
    from app.kube.client import Client
    from app.slices.commands import Verb

#: What kubectl-kruise calls otherwise, or what kubectl does by itself.
_INSTEAD: Final[Mapping[str, str]] = {
    "scaledown": "pykruise scale-in KIND NAME --pods NAME,NAME",
    "scale": "kubectl scale KIND NAME --replicas N, or pykruise scale-in KIND NAME --pods NAME,NAME for certain Pods",
    "autoscale": "kubectl autoscale KIND NAME --min N --max N, by the kind's scale subresource",
    "expose": "kubectl create service, or a Service with the workload's labels as its selector",
    "describe": "pykruise explain KIND NAME, or kubectl describe KIND NAME",
    "create": "kubectl create -f FILE; for a ContainerRecreateRequest: pykruise restart pod/NAME",
    "get": "kubectl get KIND, or pykruise rollout status -A",
    "logs": "kubectl logs",
    "exec": "kubectl exec",
    "status": "pykruise rollout status KIND NAME",
    "history": "pykruise rollout history KIND NAME",
    "undo": "pykruise rollout undo KIND NAME",
    "restart": "pykruise rollout restart KIND NAME",
    "pause": "pykruise rollout pause KIND NAME",
    "resume": "pykruise rollout resume KIND NAME",
    "approve": "the steps of Kruise Rollouts, another project: kubectl-kruise rollout approve",
    "env": "kubectl edit KIND NAME; an environment variable cannot be changed in place",
    "resources": "kubectl edit KIND NAME, or kubectl patch",
    "selector": "kubectl edit KIND NAME; a selector stays as it was made",
    "serviceaccount": "kubectl edit KIND NAME",
    "subject": "kubectl set subject",
}


#: What people look for most, and what they look for least: ``pykruise -h`` lists the others between them.
_FIRST: Final = ("rollout", "set", "explain", "plan", "scale-in", "migrate")
_LAST: Final = ("serve", "takeover", "prepare-uninstall", "manager", "daemon", "completion", "version")


def program() -> str:
    """What the command is called: ``pykruise``, or ``kubectl kruise`` where kubectl calls it."""
    return "kubectl kruise" if Path(sys.argv[0]).name == "kubectl-kruise" else "pykruise"


class WithVerbs(TyperGroup):
    """The commands declared here, and those of slices; it reports what fails in one way."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name; None if there is none."""
        found = super().get_command(ctx, cmd_name)
        if found is None and (verb := verbs().get(cmd_name)) is not None:
            return Later(cmd_name, verb["help"])
        return without_types(found)

    def list_commands(self, ctx: Any) -> list[str]:
        """The names of all, those of every day first."""
        there = [*super().list_commands(ctx), *verbs()]
        daily = [name for name in _FIRST if name in there]
        beside = [name for name in _LAST if name in there]
        return [*daily, *(name for name in there if name not in (*daily, *beside)), *beside]

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> Any:
        """Run a command; its exit code is 0 when done, 1 when not, 2 when not understood, 130 when interrupted."""
        from typer.completion import completion_init  # type: ignore[attr-defined]

        from app.cli.ends import run

        completion_init()
        called = prog_name if prog_name not in (None, "main") else program()

        def command() -> Any:
            return super(WithVerbs, self).main(args, called, complete_var, False, windows_expand_args, **extra)

        if not standalone_mode:
            return command()
        sys.exit(run(command))


def without_types(command: Any) -> Any:
    """The help of a command, or of a group's, names its arguments as people write them, not their types in Python."""
    for one in getattr(command, "commands", {}).values():
        without_types(one)
    for parameter in getattr(command, "params", ()):
        if isinstance(parameter, TyperArgument):
            parameter.display_type_rich = _no_type  # type: ignore[assignment,method-assign]
    return command


def _no_type(**_: Any) -> str:
    return ""


def instead(name: str) -> str:
    """What does the work of a command that is not here; '' for one that nobody knows."""
    return _INSTEAD.get(name, "")


class Later(TyperCommand):
    """The command of a slice, which is imported when it is given."""

    def __init__(self, name: str, help_text: str) -> None:
        super().__init__(name, help=help_text)
        self._called = name

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        """The context of the command that stands there."""
        return self.made().make_context(info_name, args, parent=parent, **extra)

    def made(self) -> Any:
        """The command that stands there."""
        from app.slices.verbs import LongVerb

        verb = verb_called(self._called)
        return without_types(command_with_options(verb) if isinstance(verb, LongVerb) else command_of(verb))


def command_of(verb: Verb) -> Any:
    """A verb as the command line has it: what reads can print JSON, what writes can be tried."""
    arguments = Annotated[list[str], typer.Argument(metavar=verb.arguments, show_default=False)]

    def reading(
        arguments: arguments,
        namespace: Namespace = "",
        output: Output = "text",
        kubeconfig: Kubeconfig = "",
        context: Context = "",
    ) -> None:
        from app.slices.commands import report

        async def work(client: Client, where: str) -> Any:
            return report(await verb.run(client, where, arguments))

        found = with_cluster(kubeconfig, context, namespace, work)
        write(found.text() if output == "text" else written(found.data(), output))

    def writing(
        arguments: arguments,
        namespace: Namespace = "",
        dry_run: DryRun = False,
        kubeconfig: Kubeconfig = "",
        context: Context = "",
    ) -> None:
        from app.slices.commands import report

        async def work(client: Client, where: str) -> Any:
            return report(await verb.run(client, where, arguments))

        said = with_cluster(kubeconfig, context, namespace, work, dry_run=dry_run).text()
        write(f"{said} (dry run)" if dry_run else said)

    run = reading if verb.reads else writing
    run.__doc__ = verb.help
    # The types are values here, not names.
    run.__annotations__["arguments"] = arguments
    single = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    single.command(name=verb.name, context_settings={"help_option_names": ["-h", "--help"]})(run)
    return typer.main.get_command(single)
