"""The command ``pykruise manager``: an error that prevents the start is one line and exit code 1; how it ends."""

import asyncio
import logging
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from typer.testing import CliRunner

from app.cli.main import app
from app.features.cloneset.kind import CLONE_SET
from app.kube.resources import LEASES, PODS
from app.manager.flags import parse_flags
from app.manager.run import bind_all, main, single_process
from app.manager.serving import bind
from app.manager.settings import read_settings
from app.sandbox.run import Options, sandbox, with_manager
from tests.kit import objects
from tests.kit.cluster import Waiting

CLONESETS = CLONE_SET.resource()
ROOT = Path(__file__).parent.parent.parent
NOWHERE = ["--webhook-host=127.0.0.1", "--webhook-port=0", "--health-probe-addr=127.0.0.1:0", "--metrics-addr=0"]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., str]]:
    """Run a manager that cannot start; return the last line of standard error."""
    monkeypatch.setattr(logging, "_srcfile", logging._srcfile)

    def start(*arguments: str) -> str:
        assert main(arguments, {"HOME": "/nonexistent"}) in (1, 2)
        said = capsys.readouterr().err
        assert "Traceback" not in said
        return said.splitlines()[-1]

    yield start
    logging.captureWarnings(capture=False)


def test_a_missing_cluster_is_reported_in_one_line_with_hints(refused: Callable[..., str]) -> None:
    assert "no cluster configuration found: use --kubeconfig FILE" in refused(*NOWHERE)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        (b"\xff", "cannot be read"),
        (b"a: [", "is not YAML"),
        (b"{}", "is not a kubeconfig: it lists no clusters"),
    ],
)
def test_an_unreadable_kubeconfig_is_reported_in_one_line(
    content: bytes | None, message: str, tmp_path: Path, refused: Callable[..., str]
) -> None:
    path = tmp_path / "kubeconfig"
    if content is not None:
        path.write_bytes(content)
    line = refused(*NOWHERE, f"--kubeconfig={path}")
    assert str(path) in line
    assert message in line


@pytest.mark.parametrize("flag", ["--webhook-port", "--health-probe-addr", "--metrics-addr"])
def test_a_port_in_use_is_reported_in_one_line_with_flag_and_hint(flag: str, refused: Callable[..., str]) -> None:
    with bind("127.0.0.1", 0, "--test") as taken:
        port = taken.getsockname()[1]
        line = refused(*NOWHERE, f"{flag}={port if flag == '--webhook-port' else f'127.0.0.1:{port}'}")
    used = f"{flag}: 127.0.0.1, port {port} is in use by another program: choose another port or stop that program"
    assert line.endswith(used)


def test_invalid_overrides_are_reported_in_one_line(tmp_path: Path, refused: Callable[..., str]) -> None:
    (tmp_path / "webhooks.yaml").write_text("webhooks: {nope.kb.io: {}}")
    line = refused(*NOWHERE, f"--policies={tmp_path}", f"--kubeconfig={kubeconfig(tmp_path, 1)}")
    assert f"{tmp_path}/webhooks.yaml: webhooks.nope.kb.io: no webhook has this name" in line


def kubeconfig(folder: Path, port: int) -> Path:
    """A kubeconfig for a loopback address without an API server."""
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(objects.kubeconfig(f"http://127.0.0.1:{port}", token="t")), "utf-8")
    return path


@pytest.mark.behaviour("MGR-1")
def test_without_a_certificate_it_exits_with_the_reason(tmp_path: Path, refused: Callable[..., str]) -> None:
    impatient = ["--webhook-processes=0", "--webhook-initialize-timeout=10ms"]
    line = refused(*NOWHERE, f"--kubeconfig={kubeconfig(tmp_path, 1)}", *impatient)
    assert re.search(r"no serving certificate within 0.01 s: GET .*: cannot connect to http://127.0.0.1", line)


async def test_it_stops_cleanly_while_waiting_for_the_cluster(tmp_path: Path) -> None:
    settings = read_settings(parse_flags([*NOWHERE, f"--kubeconfig={kubeconfig(tmp_path, 1)}"]), {})
    listeners = bind_all(settings)
    manager = single_process(settings, {}, listeners)
    running = asyncio.create_task(manager.run())
    base = f"http://127.0.0.1:{listeners.health.getsockname()[1]}"
    async with asyncio.timeout(120), httpx.AsyncClient() as http:
        assert (await http.get(f"{base}/healthz")).status_code == 200
        assert (await http.get(f"{base}/readyz")).status_code == 503
        manager.stop.set()
        await running


def test_sigterm_during_startup_exits_with_0(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "app.cli.main", "manager", *NOWHERE, f"--kubeconfig={kubeconfig(tmp_path, 1)}"],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if "no serving certificate yet" in line:
            break
    process.send_signal(signal.SIGTERM)
    _, rest = process.communicate(timeout=120)
    assert process.returncode == 0, rest
    assert "Traceback" not in rest


@pytest.mark.behaviour("MGR-22")
async def test_a_single_process_reconciles_again_after_another_held_its_lease(tmp_path: Path) -> None:
    flags = ("--enable-leader-election", "--leader-election-lease-duration=4s", "--leader-election-renew-deadline=3s")
    options = Options(
        tmp_path / "kubeconfig",
        manager_flags=(*flags, "--leader-election-retry-period=500ms"),
        log_file=tmp_path / "log",
    )
    async with sandbox(options) as running, with_manager(running):
        client, waiting = running.client, Waiting(running.client.clock)

        async def pods() -> int:
            return len((await client.list(PODS, "default")).items)

        await client.create(CLONESETS, cloneset("before"), "default")
        await waiting.becomes(pods, 1, 120)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        taken = {"holderIdentity": "another", "acquireTime": now, "renewTime": now, "leaseDurationSeconds": 4}
        await client.patch(LEASES, "kruise-manager", {"spec": taken}, "kruise-system")
        lost = "no longer leading, still serving reviews"
        await waiting.until(lambda: lost in options.log.read_text("utf-8"), 120)
        await client.create(CLONESETS, cloneset("after"), "default")
        await client.patch(CLONESETS, "before", {"spec": {"replicas": 2}}, "default")
        await waiting.becomes(pods, 3, 120)
        lease = await client.get(LEASES, "kruise-manager", "kruise-system")
        assert lease["spec"]["holderIdentity"] != "another"


def cloneset(name: str) -> dict[str, Any]:
    spec = objects.workload_spec(app=name)
    return {"apiVersion": CLONESETS.api_version, "kind": "CloneSet", "metadata": {"name": name}, "spec": spec}


def test_help_is_printed_without_a_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"], {}) == 0
    assert "--webhook-host" in capsys.readouterr().out


def test_the_command_line_keeps_go_flags_unchanged() -> None:
    done = CliRunner().invoke(app, ["manager", "-v=4", "--enable-leader-election", "--nope=1"])
    assert (done.exit_code, done.stderr) == (2, "pykruise: unknown flag --nope (pykruise manager --help lists all)\n")
