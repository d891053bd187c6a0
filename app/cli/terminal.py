"""Options, completion, cluster access and output, shared by all commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, TypeAlias, TypeVar

import typer

from app.cli.kinds import kind_of, kinds, scope
from app.kube.errors import CommandError, ConfigError, KubeError, sentence
from app.kube.fielderrors import parse_duration
from app.kube.text import one_line, printable

if TYPE_CHECKING:
    from app.kube.client import Client
    from app.kube.config import ClusterConfig
    from app.kube.wire import Transport


Format: TypeAlias = Literal["text", "json", "yaml"]


def written(data: Mapping[str, Any] | Sequence[Any], output: Format, *, one_line: bool = False) -> str:
    """Return data as JSON or YAML without a final newline; terminal control characters are escaped."""
    if output == "json":
        import orjson

        return printable(orjson.dumps(data, option=0 if one_line else orjson.OPT_INDENT_2).decode())
    import yaml

    text: str = yaml.safe_dump(data, sort_keys=False, allow_unicode=True)
    if printable(text) != text:
        text = yaml.safe_dump(data, sort_keys=False)
    return f"---\n{text.rstrip()}" if one_line else text.rstrip()


def write(text: str) -> None:
    """Print text from the cluster; escape control characters and replace characters that the terminal cannot show."""
    encoding = sys.stdout.encoding or "utf-8"
    print(printable(text).encode(encoding, "replace").decode(encoding), flush=True)


def items(found: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """Return a list in kubectl's format."""
    return {"kind": kind, "items": [dict(one) for one in found]}


def complain(message: str) -> None:
    """Print one line to standard error, in the style of all commands."""
    _to_stderr(f"pykruise: {one_line(message)}")


def warn(message: str) -> None:
    """Print a warning from the API server to standard error, as kubectl does."""
    _to_stderr(f"Warning: {one_line(message)}")


def _to_stderr(line: str) -> None:
    with contextlib.suppress(OSError):  # the exit code still reports the failure
        sys.stderr.write(f"{line}\n")
        sys.stderr.flush()


#: Completion times out early, because a user is waiting.
_SECONDS: Final = 2.0
#: Tells kubectl not to complete file names.
_NO_FILES: Final = ":4"


def completion(
    shell: Annotated[Literal["bash", "zsh", "fish"], typer.Argument(help="The shell", show_default=False)],
) -> None:
    """Print the completion script for a shell.

    bash and zsh: source <(pykruise completion bash); fish: pykruise completion fish | source.
    """
    from typer.completion import get_completion_script  # type: ignore[attr-defined]

    write(get_completion_script(prog_name="pykruise", complete_var="_PYKRUISE_COMPLETE", shell=shell))


def objects(ctx: Any, args: list[str], incomplete: str) -> list[str]:
    """Complete an object: kinds first, then the names of objects of the kind."""
    kind, slash, name = incomplete.partition("/")
    given = [*(ctx.params.get("what") or ()), *args]
    words = [word for one in kinds() for word in one["words"]]
    if slash:
        return [f"{kind}/{found}" for found in _names(ctx, kind) if found.startswith(name)]
    before = next((word for word in reversed(given) if word in words), "")
    if before:
        return [found for found in _names(ctx, before) if found.startswith(incomplete)]
    return sorted(one["singular"] for one in kinds() if one["singular"].startswith(incomplete))


def _names(ctx: Any, word: str) -> list[str]:
    """Return names of objects in the cluster, or none if it cannot be read: completion must not print errors."""

    async def listed() -> list[str]:
        commands = kind_of(word.lower())
        async with cluster(ctx.params.get("kubeconfig") or "", ctx.params.get("context") or "") as (client, default):
            namespace = scope(commands, ctx.params.get("namespace") or default)
            found = await client.list(commands.kind.resource(), namespace)
        return [str(one["metadata"]["name"]) for one in found.items]

    async def in_time() -> list[str]:
        return await asyncio.wait_for(listed(), _SECONDS)

    try:
        return asyncio.run(in_time())
    except (CommandError, KubeError, OSError, TimeoutError):
        return []


def for_kubectl() -> None:
    """Run as ``kubectl_complete-kruise``, which kubectl calls to complete ``kubectl kruise …``."""
    words = sys.argv[1:]
    asked = {
        "COMP_WORDS": " ".join(("pykruise", *words)),
        "COMP_CWORD": str(len(words)),
        "_PYKRUISE_COMPLETE": "complete_bash",
    }
    program = [sys.executable, "-c", "import sys; sys.argv = ['pykruise']; from app.cli.main import main; main()"]
    found = subprocess.run(program, env=os.environ | asked, capture_output=True, text=True, check=False)  # noqa: S603 - ourselves
    write(found.stdout.rstrip("\n"))
    write(_NO_FILES)


Output: TypeAlias = Annotated[Literal["text", "json", "yaml"], typer.Option("--output", "-o", help="Output format")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", metavar="NAME", help="Default: the namespace of the context")
]
AllNamespaces = Annotated[bool, typer.Option("--all-namespaces", "-A", help="In all namespaces")]
Kubeconfig = Annotated[str, typer.Option("--kubeconfig", metavar="FILE", help="kubeconfig file")]
Context = Annotated[str, typer.Option("--context", metavar="NAME", help="kubeconfig context to use")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Check whether the API server would accept the change, without storing it")
]
Gates = Annotated[str, typer.Option("--feature-gates", metavar="GATES", help="Gates of the manager: A=true,B=false")]


def words(help_text: str = "KIND NAME, or KIND/NAME", metavar: str = "KIND NAME") -> typer.models.ArgumentInfo:
    """Return an argument that names an object."""
    argument: typer.models.ArgumentInfo = typer.Argument(
        help=help_text, show_default=False, metavar=metavar, autocompletion=objects
    )
    return argument


What = Annotated[list[str], words()]


def duration(given: str | float) -> float:
    """Parse ``5m``, ``1h30m``, ``90s`` or ``90`` into seconds; numbers are returned unchanged. Raises
    typer.BadParameter."""
    text = f"{given:g}" if isinstance(given, float) else given
    try:
        seconds = float(text) if text.isascii() and text.isdigit() else parse_duration(text)
    except ValueError:
        raise typer.BadParameter(f"{text!r} is not a duration such as 90s, 5m or 1h30m") from None
    if seconds < 0 or seconds > 1e9:
        raise typer.BadParameter(
            f"{text} is not a valid timeout; use a duration such as 90s, 5m or 1h30m, or 0 for no timeout"
        )
    return seconds


Timeout = Annotated[
    float,
    typer.Option(
        "--timeout", parser=duration, metavar="DURATION", show_default=False, help="Give up after this time, such as 5m"
    ),
]


T = TypeVar("T")


@asynccontextmanager
async def cluster(kubeconfig: str, context: str, *, dry_run: bool = False) -> AsyncIterator[tuple[Client, str]]:
    """Yield a client and the namespace of the context."""
    from app.kube.client import Client
    from app.kube.clock import SystemClock
    from app.kube.config import load_config

    config = await load_config(kubeconfig, context or None)
    transport = _transport(config)
    try:
        client = Client(transport, SystemClock(), user_agent="pykruise", dry_run=dry_run, warned=warn)
        yield client, config.namespace or "default"
    finally:
        await transport.close()


def _transport(config: ClusterConfig) -> Transport:
    """Return aiohttp's transport if there is a proxy, else the plain one, which imports five times faster."""
    if config.proxy:
        from app.kube.transport import AiohttpTransport

        return AiohttpTransport(config)
    from app.kube.http1 import PlainTransport

    return PlainTransport(config)


def with_cluster(
    kubeconfig: str,
    context: str,
    namespace: str,
    work: Callable[[Client, str], Awaitable[T]],
    *,
    dry_run: bool = False,
) -> T:
    """Run ``work`` with a client and the effective namespace; report errors and exit.

    With ``dry_run`` the client's writes are not stored.
    """

    async def run() -> T:
        async with cluster(kubeconfig, context, dry_run=dry_run) as (client, default):
            return await work(client, namespace or default)

    try:
        return asyncio.run(run())
    except BrokenPipeError:
        raise
    except CommandError as error:
        raise failed(str(error), error.exit_code) from None
    except ConfigError as error:
        raise failed(str(error), 2) from None
    except (KubeError, OSError) as error:
        raise failed(sentence(error)) from None


def write_answer(
    kubeconfig: str,
    context: str,
    namespace: str,
    work: Callable[[Client, str], Awaitable[str]],
    *,
    dry_run: bool = False,
) -> None:
    """Print what ``work`` returns. See ``with_cluster``."""
    text = with_cluster(kubeconfig, context, namespace, work, dry_run=dry_run)
    write(f"{text} (dry run)" if dry_run else text)


def failed(message: str, code: int = 1) -> typer.Exit:
    """Print the message and return the exception to raise. Exit code 1: failed; 2: invalid usage."""
    complain(message)
    return typer.Exit(code)
