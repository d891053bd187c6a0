"""``pykruise sandbox``: a simulated cluster for evaluation and tests."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import typer

from app.cli.terminal import failed, write
from app.kube import logs
from app.kube.errors import KubeError

#: Packages absent in production: the simulated control plane and CEL.
_NEEDED = ("app.sandbox", "cel")
_ROOT = Path(__file__).resolve().parent.parent.parent
_SAMPLES = _ROOT / "policies" / "samples"
_EXAMPLE = _ROOT / "docs" / "guides" / "examples" / "cloneset.yaml"
_GREETING = """\
A sandbox runs at {server}: an API server in memory, {nodes} simulated nodes, and pykruise's manager.
It is meant for evaluation and tests: it stores nothing, has no authentication or authorization,
and does not really run containers.

  export KUBECONFIG={kubeconfig}{path}
"""
#: Suggested commands, and whether they need the samples.
_LINES = (
    ("a Pod gets its sidecar", "kubectl run web --image=nginx:1.25 --labels=app=web && kubectl get pod web -w", True),
    (
        "containers start in order",
        "kubectl run ordered --image=nginx:1.25 --labels=app=web "
        "--annotations=apps.kruise.io/container-launch-priority=Ordered && kubectl describe pod ordered",
        True,
    ),
    (
        "a protected Namespace is not deleted",
        "kubectl label ns shop policy.kruise.io/delete-protection=Always && kubectl delete ns shop",
        True,
    ),
    (
        "a CloneSet with three Pods",
        "kubectl create -f {example} && pykruise rollout status cloneset web",
        False,
    ),
)


def sandbox(
    nodes: Annotated[int, typer.Option(min=1, max=1000, metavar="N", help="Number of simulated nodes")] = 3,
    kubeconfig: Annotated[Path, typer.Option(metavar="FILE", help="kubeconfig to write; removed on exit")] = Path(
        "sandbox.kubeconfig"
    ),
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="N", help="Port of the API server; 0 selects a free one")
    ] = 0,
    quiet: Annotated[bool, typer.Option("--quiet", help="Do not print changes to Pods")] = False,
    with_samples: Annotated[bool, typer.Option("--samples/--no-samples", help="Load policies/samples at start")] = True,
    feature_gates: Annotated[
        str, typer.Option("--feature-gates", metavar="GATES", help="Gates of the manager: A=true,B=false")
    ] = "",
    detach: Annotated[bool, typer.Option("--detach", help="Run in the background; return when ready")] = False,
    wait: Annotated[bool, typer.Option("--wait", help="Wait until a sandbox started elsewhere is ready")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Stop the background sandbox")] = False,
) -> None:
    """Run a simulated cluster in memory until Ctrl-C.

    It consists of an API server, simulated nodes and the manager, and is meant for evaluation and tests.
    """
    if any(find_spec(name) is None for name in _NEEDED):
        raise failed("the sandbox is not part of this installation: pip install 'pykruise[sandbox]'")
    from app.cli import background_sandbox
    from app.manager.gates import FeatureGateError, parse_gates
    from app.manager.serving import StartError
    from app.sandbox.run import Options, check

    file = kubeconfig.absolute()
    # AllAlpha must not enable this gate, because the sandbox has no external certificates.
    flags = (f"--feature-gates={feature_gates},EnableExternalCerts=false",) if feature_gates else ()
    loaded = tuple(samples() if with_samples else ())
    try:
        if sum((detach, wait, stop)) > 1:
            raise failed("--detach, --wait and --stop are mutually exclusive", 2)
        gates = parse_gates(feature_gates)
        if "EnableExternalCerts" in gates.given and gates.enabled("EnableExternalCerts"):
            raise failed("--feature-gates: leave out EnableExternalCerts: the sandbox has no external certificates", 2)
        if stop or wait:
            (background_sandbox.stop if stop else background_sandbox.wait)(file)
            return
        check(file)
        options = Options(file, nodes, port, flags, samples=loaded)
        if detach:
            without = () if with_samples else ("--no-samples",)
            server = background_sandbox.start(file, [f"--nodes={nodes}", f"--port={port}", *flags, *without])
            greeting(print, server, options)
            write(f"The sandbox runs in the background. To stop it: pykruise sandbox --stop --kubeconfig {file}")
            return
        logs.configure("text", 30)
        import uvloop

        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(_run(options, quiet=quiet))
    except FeatureGateError as error:
        raise failed(str(error), 2) from None
    except (StartError, KubeError) as error:
        raise failed(str(error)) from None


def samples() -> list[Mapping[str, Any]]:
    """Return the objects of ``policies/samples``."""
    import yaml

    found: list[Mapping[str, Any]] = []
    for file in sorted(_SAMPLES.glob("*.yaml")):
        found += [one for one in yaml.safe_load_all(file.read_text("utf-8")) if one]
    return found


async def _run(options: Any, *, quiet: bool) -> None:
    from rich.console import Console

    from app.sandbox.run import sandbox as run_sandbox

    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    console = Console(highlight=False, soft_wrap=True, markup=False)
    console.print("Starting a simulated cluster; this takes a few seconds …")
    with TemporaryDirectory(prefix="pykruise-sandbox-") as own:
        # The user's kubeconfig is written once everything is ready. The manager uses a private one.
        async with run_sandbox(replace(options, kubeconfig=Path(own) / "kubeconfig", log_file=options.log)) as running:
            starting = asyncio.create_task(_manager(running, options, stop, console, quiet=quiet))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait((starting, stopping), return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            if not starting.done() and not quiet:
                console.print("Stopping.")
            try:
                await starting
            finally:
                stopping.cancel()


async def _manager(running: Any, options: Any, stop: asyncio.Event, console: Any, *, quiet: bool) -> None:
    """Run the manager and print changes until stopped."""
    from app.sandbox.run import with_manager, written

    private = running.options
    async with with_manager(running):
        files = {
            options.authority: private.authority.read_text("utf-8"),
            options.kubeconfig: private.kubeconfig.read_text("utf-8"),
        }
        try:
            written(files)
            greeting(console.print, running.server.url, options)
            console.print("Ready. Press Ctrl-C to stop.")
            if quiet:
                await stop.wait()
            elif console.is_terminal:
                await _table(running, stop, console)
            else:
                await _lines(running, stop, console.print)
        finally:
            for path in files:
                path.unlink(missing_ok=True)


def greeting(write: Callable[[str], Any], server: str, options: Any) -> None:
    """Print the address and commands to try; curl commands if kubectl is not installed."""
    kubeconfig = shlex.quote(str(options.kubeconfig))
    programs = shlex.quote(str(Path(sys.executable).parent))
    # In a clone of the repository, the command is not on the PATH.
    path = "" if shutil.which("pykruise") else f" PATH={programs}:$PATH"
    write(_GREETING.format(server=server, nodes=options.nodes, kubeconfig=kubeconfig, path=path))
    with_samples = bool(options.samples)
    if shutil.which("kubectl"):
        for what, command, needs_samples in _LINES:
            if (with_samples or not needs_samples) and ("{example}" not in command or _EXAMPLE.exists()):
                write(f"  {command.format(example=_example())}   # {what}")
        write("")
        return
    authority = shlex.quote(str(options.authority))
    curl = f"curl --cacert {authority}"
    body = '{"metadata":{"name":"web","labels":{"app":"web"}},"spec":{"containers":[{"name":"main","image":"nginx"}]}}'
    json = "-H 'Content-Type: application/json'"
    merge = "-H 'Content-Type: application/merge-patch+json'"
    label = '{"metadata":{"labels":{"policy.kruise.io/delete-protection":"Always"}}}'
    write("kubectl is not installed; the same commands with curl:")
    said = "a Pod gets its sidecar" if with_samples else "a Pod"
    lines = [(said, f"{curl} {json} -d '{body}' {server}/api/v1/namespaces/default/pods")]
    lines.append(("the result", f"{curl} {server}/api/v1/namespaces/default/pods/web"))
    if with_samples:
        namespace = f"{server}/api/v1/namespaces/shop"
        protect = f"{curl} -X PATCH {merge} -d '{label}' {namespace}; {curl} -X DELETE {namespace}"
        lines.append(("a protected Namespace is not deleted", protect))
    for what, command in lines:
        write(f"  {command}   # {what}")
    write("")


def _example() -> str:
    """Return the path of the guides' example CloneSet, relative to the working directory if it is below that."""
    here = Path.cwd()
    return shlex.quote(str(_EXAMPLE.relative_to(here) if _EXAMPLE.is_relative_to(here) else _EXAMPLE))


async def _table(running: Any, stop: asyncio.Event, console: Any) -> None:
    from rich.live import Live
    from rich.table import Table

    from app.sandbox.run import rows

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
    from app.sandbox.run import line

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
