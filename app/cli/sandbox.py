"""``pykruise sandbox``: a cluster without a cluster, for trying out and for tests."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from app.cli.cluster import failed
from app.manager import logging as manager_logging

#: What production goes without: our own package of it, and the expression language.
_NEEDED = ("app.sandbox", "cel")
_SAMPLES = Path(__file__).resolve().parent.parent.parent / "policies" / "samples"
_GREETING = """\
A sandbox runs at {server}: an API server in memory, {nodes} simulated nodes, and pykruise's manager.
It is for trying out and for tests: nothing is kept, there is no authentication or authorization,
no container really runs.

  export KUBECONFIG={kubeconfig}
"""
_LINES = (
    ("a Pod gets its sidecar", "kubectl run web --image=nginx:1.25 --labels=app=web && kubectl get pod web -w"),
    (
        "containers start in order",
        "kubectl run ordered --image=nginx:1.25 --labels=app=web "
        "--annotations=apps.kruise.io/container-launch-priority=Ordered && kubectl describe pod ordered",
    ),
    (
        "a protected Namespace stays",
        "kubectl label ns shop policy.kruise.io/delete-protection=Always && kubectl delete ns shop",
    ),
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(sandbox)


def sandbox(
    nodes: Annotated[int, typer.Option(min=1, max=1000, help="How many simulated nodes")] = 3,
    kubeconfig: Annotated[Path, typer.Option(help="File to write; removed at the end")] = Path("sandbox.kubeconfig"),
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port of the API server; 0: any that is free")] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not show what happens to Pods")] = False,
    with_samples: Annotated[
        bool, typer.Option("--samples/--no-samples", help="Load policies/samples to begin with")
    ] = True,
    feature_gates: Annotated[str, typer.Option("--feature-gates", help="A=true,B=false, for the manager")] = "",
) -> None:
    """Run an API server in memory, simulated nodes and the manager, until Ctrl-C. For trying out and for tests."""
    if any(find_spec(name) is None for name in _NEEDED):
        raise failed("the sandbox is not part of this installation: pip install 'pykruise[sandbox]'")
    import uvloop

    from app.kube.errors import KubeError
    from app.manager.serving import StartError
    from app.sandbox.run import Options

    manager_logging.configure("text", 30)
    flags = (f"--feature-gates={feature_gates}",) if feature_gates else ()
    options = Options(kubeconfig.absolute(), nodes, port, flags, samples=tuple(samples() if with_samples else ()))
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(options, quiet=quiet))
    except (StartError, KubeError) as error:
        raise failed(str(error)) from None


def samples() -> list[Mapping[str, Any]]:
    """The objects of ``policies/samples``."""
    found: list[Mapping[str, Any]] = []
    for file in sorted(_SAMPLES.glob("*.yaml")):
        found += [one for one in yaml.safe_load_all(file.read_text("utf-8")) if one]
    return found


async def _run(options: Any, *, quiet: bool) -> None:
    from rich.console import Console

    from app.sandbox.run import sandbox as run_sandbox
    from app.sandbox.run import with_manager

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    async with run_sandbox(options) as running:
        greeting(console.print, running.server.url, options)
        starting = asyncio.create_task(_manager(running, with_manager, stop, console, quiet=quiet))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        if not starting.done() and not quiet:
            console.print("Stopping.")
        try:
            await starting
        finally:
            stopping.cancel()


async def _manager(running: Any, with_manager: Any, stop: asyncio.Event, console: Any, *, quiet: bool) -> None:
    """The manager, and what is shown, until told to stop."""
    async with with_manager(running):
        console.print("Ready: admission answers. Ctrl-C ends it.")
        if quiet:
            await stop.wait()
        elif console.is_terminal:
            await _table(running, stop, console)
        else:
            await _lines(running, stop, console.print)


def greeting(write: Callable[[str], Any], server: str, options: Any) -> None:
    """Where it runs, and what to type; as curl where there is no kubectl."""
    path = shlex.quote(str(options.kubeconfig))
    write(_GREETING.format(server=server, nodes=options.nodes, kubeconfig=path))
    if shutil.which("kubectl"):
        for what, command in _LINES:
            write(f"  {command}   # {what}")
        write("")
        return
    authority = shlex.quote(str(options.authority))
    curl = f"curl --cacert {authority}"
    body = '{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"nginx"}]}}'
    json = "-H 'Content-Type: application/json'"
    merge = "-H 'Content-Type: application/merge-patch+json'"
    label = '{"metadata":{"labels":{"policy.kruise.io/delete-protection":"Always"}}}'
    write("There is no kubectl here; the same as curl:")
    for what, command in (
        ("a Pod gets its sidecar", f"{curl} {json} -d '{body}' {server}/api/v1/namespaces/default/pods"),
        ("what became of it", f"{curl} {server}/api/v1/namespaces/default/pods/web"),
        (
            "a protected Namespace stays",
            f"{curl} -X PATCH {merge} -d '{label}' {server}/api/v1/namespaces/shop; "
            f"{curl} -X DELETE {server}/api/v1/namespaces/shop",
        ),
    ):
        write(f"  {command}   # {what}")
    write("")


async def _table(running: Any, stop: asyncio.Event, console: Any) -> None:
    from rich.live import Live
    from rich.table import Table

    from app.sandbox.show import rows

    def draw() -> Table:
        table = Table(title="Pods", title_justify="left", box=None, padding=(0, 2, 0, 0))
        for column in ("Pod", "Node", "State", "Containers"):
            table.add_column(column)
        for row in rows(running.cluster.pods.list()):
            table.add_row(*row)
        return table

    with Live(draw(), console=console, auto_refresh=False) as live:
        changed = asyncio.Event()
        unsubscribe = running.cluster.pods.subscribe(lambda _change: changed.set())
        try:
            while not stop.is_set():
                waiting = [asyncio.create_task(event.wait()) for event in (changed, stop)]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in waiting:
                    task.cancel()
                changed.clear()
                live.update(draw(), refresh=True)
                await asyncio.sleep(0.1)
        finally:
            unsubscribe()


async def _lines(running: Any, stop: asyncio.Event, write: Callable[[str], Any]) -> None:
    from app.sandbox.show import line

    last: dict[str, str] = {}

    def tell(change: Any) -> None:
        uid = change.object.metadata.uid
        text = line(change.object, gone=change.new is None)
        if last.get(uid) != text:
            last[uid] = text
            write(f"{datetime.now(UTC):%H:%M:%S} {text}")
        if change.new is None:
            last.pop(uid, None)

    unsubscribe = running.cluster.pods.subscribe(tell)
    try:
        await stop.wait()
    finally:
        unsubscribe()
