"""``pykruise completion``: what a shell must be told to complete commands, kinds and names."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from typing import Annotated, Any, Final, Literal

import typer

from app.cli.printing import write

#: A person waits at the keyboard.
_SECONDS: Final = 2.0
#: To kubectl: do not complete names of files.
_NO_FILES: Final = ":4"


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

    write(get_completion_script(prog_name="pykruise", complete_var="_PYKRUISE_COMPLETE", shell=shell))


def objects(ctx: Any, args: list[str], incomplete: str) -> list[str]:
    """What may stand where an object is named: kinds, and behind a kind the names of its objects."""
    from app.cli.index import kinds

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
    """Names of objects in the cluster; none where it does not answer: this is a help, not a command."""
    from app.cli.cluster import cluster
    from app.cli.workloads import kind_of, scope
    from app.kube.errors import CommandError, KubeError

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
    """The program ``kubectl_complete-kruise``: kubectl asks it to complete ``kubectl kruise …``."""
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
