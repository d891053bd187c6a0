"""Commands defined by features (verbs), and how commands exit."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup

from app.cli.kinds import verb_called, verbs
from app.cli.terminal import Context, DryRun, Kubeconfig, Namespace, complain, with_cluster, write

if TYPE_CHECKING:
    from app.framework.verbs import Option, Verb
    from app.kube.client import Client


def command_of(verb: Verb) -> Any:
    """Return the command for a verb."""

    def run(**given: Any) -> None:
        from app.framework.verbs import Call

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
    parameters += [
        _parameter(_name(one), _annotation(one), default=False if one.flag else one.default) for one in verb.options
    ]
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


def _annotation(option: Option) -> Any:
    names = [f"--{option.name}", *([f"-{option.short}"] if option.short else [])]
    takes = None if option.flag else option.takes
    found = typer.Option(*names, help=option.help, show_default=bool(option.default), metavar=takes)
    return Annotated[bool, found] if option.flag else Annotated[str, found]


def _parameter(name: str, annotation: Any, **more: Any) -> Parameter:
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation, **more)


#: Commands of kubectl-kruise that have other names in pykruise, or that kubectl itself provides.
_INSTEAD: Final[Mapping[str, str]] = {
    "scaledown": "pykruise scale-in KIND NAME --pods NAME,NAME",
    "scale": "kubectl scale KIND NAME --replicas N, or pykruise scale-in KIND NAME --pods NAME,NAME for certain Pods",
    "autoscale": "kubectl autoscale KIND NAME --min N --max N, which uses the kind's scale subresource",
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
    "approve": "kubectl-kruise rollout approve; the steps belong to Kruise Rollouts, another project",
    "env": "kubectl edit KIND NAME; an environment variable cannot be changed in place",
    "resources": "kubectl edit KIND NAME, or kubectl patch",
    "selector": "kubectl edit KIND NAME; most selectors are immutable",
    "serviceaccount": "kubectl edit KIND NAME",
    "subject": "kubectl set subject",
}


#: Commands that ``pykruise -h`` lists first and last; the others are listed between them.
_FIRST: Final = ("rollout", "set", "explain", "plan", "scale-in", "migrate")
_LAST: Final = ("serve", "takeover", "prepare-uninstall", "manager", "daemon", "completion", "version")


def program() -> str:
    """Return the program name: ``pykruise``, or ``kubectl kruise`` when called by kubectl."""
    return "kubectl kruise" if Path(sys.argv[0]).name == "kubectl-kruise" else "pykruise"


class WithVerbs(TyperGroup):
    """Group of the commands declared here and by features; reports all errors the same way."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        found = super().get_command(ctx, cmd_name)
        if found is None and (verb := verbs().get(cmd_name)) is not None:
            return Later(cmd_name, verb["help"])
        return without_types(found)

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, the most used first."""
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
        """Run a command. Exit codes: 0 success, 1 failed, 2 invalid usage, 130 interrupted."""
        from typer.completion import completion_init  # type: ignore[attr-defined]

        completion_init()
        called = prog_name if prog_name not in (None, "main") else program()

        def command() -> Any:
            return super(WithVerbs, self).main(args, called, complete_var, False, windows_expand_args, **extra)

        if not standalone_mode:
            return command()
        sys.exit(run(command))


def without_types(command: Any) -> Any:
    """Remove Python types from the help of a command or of a group's commands."""
    for one in getattr(command, "commands", {}).values():
        without_types(one)
    for parameter in getattr(command, "params", ()):
        if isinstance(parameter, TyperArgument):
            parameter.display_type_rich = lambda **_: ""  # type: ignore[method-assign]
    return command


def instead(name: str) -> str:
    """Return the replacement for a command that does not exist here, or '' if there is none."""
    return _INSTEAD.get(name, "")


class Later(TyperCommand):
    """A feature's command, imported when it is called."""

    def __init__(self, name: str, help_text: str) -> None:
        super().__init__(name, help=help_text)
        self._called = name

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.made().make_context(info_name, args, parent=parent, **extra)

    def made(self) -> Any:
        return without_types(command_of(verb_called(self._called)))


#: Exit code that shells report for a command ended by SIGINT.
INTERRUPTED = 130
#: Parts of pydantic's messages and their replacements.
_PLAINER: Final = (
    ("Value error, ", ""),
    ("Input should be a valid integer, unable to parse string as an integer", "it is not a whole number"),
    ("Input should be greater than or equal to", "it is less than"),
    ("Input should be less than or equal to", "it is more than"),
)
#: Options that kubectl also accepts before its command.
_BEHIND: Final = ("-n", "--namespace", "--kubeconfig", "--context", "-A", "--all-namespaces", "-o", "--output")


def run(command: Callable[[], Any]) -> int:
    """Run the command line and return its exit code."""
    from typer.exceptions import TyperException

    try:
        result = command()
        sys.stdout.flush()
    except TyperException as error:
        if "NoArgsIsHelp" in type(error).__name__:
            write(error.format_message())  # a group without a command prints its help
            return 0
        complain(_sentence(error))
        return 2
    except KeyboardInterrupt:
        # Only an interrupt during the flush ends up here; within a command, Typer handles it and returns this code.
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe.
        _write_no_more()
        return 1
    except OSError as error:
        _write_no_more()
        where = f"{error.filename}: " if error.filename is not None else ""
        complain(f"{where}{error.strerror or error}")
        return 1
    return result if isinstance(result, int) else 0


def _write_no_more() -> None:
    """Discard buffered output, which could not be written on exit."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _sentence(error: Any) -> str:
    """Return the message of a usage error, followed by where to find help."""

    message = " ".join(error.format_message().split())
    for words, plain in _PLAINER:
        message = message.replace(words, plain)
    name = message.removeprefix("No such command '").partition("'")[0] if message.startswith("No such command") else ""
    if other := instead(name):
        return f"there is no command {name} here; use: {other}"
    context = getattr(error, "ctx", None)
    said = f"{message[:1].lower()}{message[1:].rstrip('.')}"
    if context is None:
        return said
    where = f"see {context.command_path} -h"
    if context.parent is None and message.removeprefix("No such option: ").startswith(_BEHIND):
        return f"{said} here; put it after the command, {where}"
    return f"{said} S{where[1:]}" if said.endswith("?") else f"{said}; {where}"
