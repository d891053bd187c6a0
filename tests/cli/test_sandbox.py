"""The command ``pykruise sandbox``: what it prints and serves, how it ends, what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from app.cli import sandbox as command
from app.cli.main import app
from tests.scenarios.minikubectl import MiniKubectl
from tests.scenarios.world import ROOT, eventually


class Running:
    """A running sandbox and its output."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.kubeconfig = folder / "kube"
        command = [sys.executable, "-m", "app.cli.main", "sandbox", f"--kubeconfig={self.kubeconfig}", *arguments]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines: list[str] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def says(self, pattern: str, seconds: float = 60) -> str:
        def look() -> str | None:
            assert self.process.poll() is None or any(re.search(pattern, line) for line in self.lines), self.lines
            return next((line for line in self.lines if re.search(pattern, line)), None)

        return eventually(look, f"it says {pattern}", seconds)


@contextmanager
def sandbox(folder: Path, *arguments: str) -> Iterator[Running]:
    running = Running(folder, *arguments)
    try:
        yield running
    finally:
        running.process.terminate()
        running.process.wait(30)


def test_it_shows_events_and_leaves_nothing_behind(tmp_path: Path) -> None:
    with sandbox(tmp_path, "--nodes=2") as running:
        running.says("It is meant for evaluation and tests")
        running.says(r"^Ready\.")
        authority = next(tmp_path.glob("*-ca.pem"))
        address = re.search(r"https://[\d.]+:\d+", running.says("A sandbox runs at"))
        assert address is not None
        trusted = ssl.create_default_context(cafile=str(authority))
        with urllib.request.urlopen(f"{address[0]}/api/v1/nodes", context=trusted, timeout=120) as answer:
            nodes = json.load(answer)["items"]
        assert [node["metadata"]["name"] for node in nodes] == ["node1", "node2"]
        kubectl = MiniKubectl(running.kubeconfig)
        pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web", "labels": {"app": "web"}}}
        pod["spec"] = {"containers": [{"name": "main", "image": "nginx:1.25"}]}
        kubectl("apply", "-f", "-", stdin=json.dumps(pod))
        running.says(r"default/web on node\d: Ready \[log-shipper ready · main ready\]")
        kubectl("label", "namespace", "shop", "policy.kruise.io/delete-protection=Always")
        refused = kubectl("delete", "namespace", "shop", check=False)
        assert 'webhook "vnamespace.kb.io" denied the request' in refused.stderr
        # A second sandbox is refused with the fix; with its own files it would run.
        second = Running(tmp_path)
        assert second.process.wait(60) == 1
        eventually(lambda: any("another sandbox is running at" in line for line in second.lines), "why", 5)
        assert "stop it, or name another file with --kubeconfig" in " ".join(second.lines)
        kubectl.close()
    assert running.process.returncode == 0
    assert list(tmp_path.iterdir()) == []


def refused(*arguments: str, code: int = 1) -> str:
    done = CliRunner().invoke(app, ["sandbox", *arguments])
    assert done.exit_code == code, done
    return done.output


def test_an_unknown_gate_is_refused_at_startup(tmp_path: Path) -> None:
    text = refused(f"--kubeconfig={tmp_path / 'kube'}", "--feature-gates=Bogus=true", code=2)
    assert text.startswith("pykruise: --feature-gates: unknown feature gate 'Bogus'")
    assert len(text.splitlines()) == 1


def test_scripts_can_run_it_in_the_background(tmp_path: Path) -> None:
    file = f"--kubeconfig={tmp_path / 'kube'}"

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "app.cli.main", "sandbox", file, *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)

    started = run("--detach", "--no-samples", "--nodes=1")
    assert started.returncode == 0, started.stderr
    assert started.stderr == ""
    # It does not mention what requires the samples, and is ready when its kubeconfig exists.
    assert "shop" not in started.stdout
    assert "sidecar" not in started.stdout
    if shutil.which("kubectl"):
        # The suggested commands can be typed in the current directory, even if pykruise is not in the PATH.
        assert "kubectl create -f docs/guides/examples/cloneset.yaml" in started.stdout
    assert (" PATH=" in started.stdout) is (shutil.which("pykruise") is None)
    kubectl = MiniKubectl(tmp_path / "kube")
    pod: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}}
    pod["spec"] = {"containers": [{"name": "main", "image": "nginx:1.25"}]}
    kubectl("apply", "-f", "-", stdin=json.dumps(pod))
    kubectl.close()
    assert run("--wait").returncode == 0
    assert "another sandbox is running at" in run("--detach").stderr
    assert run("--stop").returncode == 0
    assert list(tmp_path.iterdir()) == []
    again = run("--stop")
    assert again.returncode == 1
    assert "no background sandbox wrote" in again.stderr


def test_stopping_a_sandbox_that_was_killed_ends_no_other_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed: list[Any] = []
    monkeypatch.setattr(os, "kill", lambda *given: killed.append(given))
    (tmp_path / "kube.pid").write_text("1\n")
    assert CliRunner().invoke(app, ["sandbox", "--stop", f"--kubeconfig={tmp_path / 'kube'}"]).exit_code == 0
    assert (killed, list(tmp_path.iterdir())) == ([], [])


def test_a_failed_background_start_reports_the_cause(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        text = refused(f"--kubeconfig={tmp_path / 'kube'}", "--detach", f"--port={taken.getsockname()[1]}")
    assert "is in use by another program" in text
    assert list(tmp_path.iterdir()) == []


def test_detach_wait_and_stop_are_mutually_exclusive(tmp_path: Path) -> None:
    assert "are mutually exclusive" in refused(f"--kubeconfig={tmp_path / 'kube'}", "--wait", "--stop", code=2)


def test_a_port_in_use_is_reported_in_one_sentence(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        text = refused(f"--kubeconfig={tmp_path / 'kube'}", f"--port={port}")
    assert f"--port: 127.0.0.1, port {port} is in use by another program" in text


@pytest.mark.parametrize(
    ("file", "text"),
    [
        pytest.param("nowhere/kube", "nowhere does not exist", id="no such folder"),
        pytest.param(".", "is a folder: name a file", id="a folder"),
        pytest.param(
            "mine", "was not written by a sandbox and is left unchanged: name another file", id="somebody else's file"
        ),
    ],
)
def test_an_unusable_file_is_reported_in_one_sentence(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / "mine").write_text("apiVersion: v1\nclusters: []\n")
    assert text in refused(f"--kubeconfig={tmp_path / file}")
    assert (tmp_path / "mine").read_text() == "apiVersion: v1\nclusters: []\n"


def test_without_the_extra_the_command_names_the_package(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The production image lacks the extra, too."""
    monkeypatch.setattr(command, "_NEEDED", ("app.sandbox", "no_such_package"))
    with pytest.raises(typer.Exit) as ended:
        command.sandbox()
    assert ended.value.exit_code == 1
    assert "pip install 'pykruise[sandbox]'" in capsys.readouterr().err
