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
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from app.cli import sandbox as command
from app.cli.main import app
from tests.scenarios.minikubectl import MiniKubectl
from tests.scenarios.world import ROOT, printed, running

POD = """
apiVersion: v1
kind: Pod
metadata: {name: web, labels: {app: web}}
spec: {containers: [{name: main, image: "nginx:1.25"}]}
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "app.cli.main", "sandbox", f"--kubeconfig={folder / 'kube'}", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=90, check=False)


def test_it_shows_events_and_leaves_nothing_behind(tmp_path: Path) -> None:
    log = tmp_path.with_suffix(".log")

    with running(["app.cli.main", "sandbox", f"--kubeconfig={tmp_path / 'kube'}", "--nodes=2"], log) as process:

        def says(pattern: str) -> str:
            return printed(process, log, lambda text: re.search(f"^.*{pattern}.*$", text, re.M), pattern)[0]

        says("It is meant for evaluation and tests")
        says(r"Ready\. Press Ctrl-C")
        authority = next(tmp_path.glob("*-ca.pem"))
        address = re.search(r"https://[\d.]+:\d+", says("A sandbox runs at"))
        assert address is not None
        trusted = ssl.create_default_context(cafile=str(authority))
        with urllib.request.urlopen(f"{address[0]}/api/v1/nodes", context=trusted, timeout=120) as answer:
            nodes = json.load(answer)["items"]
        assert [node["metadata"]["name"] for node in nodes] == ["node1", "node2"]
        kubectl = MiniKubectl(tmp_path / "kube")
        kubectl("apply", "-f", "-", stdin=POD)
        says(r"default/web on node\d: Ready \[log-shipper ready · main ready\]")
        kubectl("label", "namespace", "shop", "policy.kruise.io/delete-protection=Always")
        refused = kubectl("delete", "namespace", "shop", check=False)
        assert 'webhook "vnamespace.kb.io" denied the request' in refused.stderr
        # A second sandbox is refused with the fix; with its own files it would run.
        second = run(tmp_path)
        assert second.returncode == 1
        assert "another sandbox is running at" in second.stderr
        assert "stop it, or name another file with --kubeconfig" in second.stderr
        kubectl.close()
    assert process.returncode == 0
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
    started = run(tmp_path, "--detach", "--no-samples", "--nodes=1")
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
    kubectl("apply", "-f", "-", stdin=POD)
    kubectl.close()
    assert run(tmp_path, "--wait").returncode == 0
    assert "another sandbox is running at" in run(tmp_path, "--detach").stderr
    assert run(tmp_path, "--stop").returncode == 0
    assert list(tmp_path.iterdir()) == []
    again = run(tmp_path, "--stop")
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


def test_detach_wait_and_stop_are_mutually_exclusive() -> None:
    assert "are mutually exclusive" in refused("--wait", "--stop", code=2)


@pytest.mark.parametrize("beside", [[], ["--detach"]], ids=["in the foreground", "in the background"])
def test_a_port_in_use_is_reported_in_one_sentence(tmp_path: Path, beside: list[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refused(f"--kubeconfig={tmp_path / 'kube'}", f"--port={port}", *beside)
    assert f"--port: 127.0.0.1, port {port} is in use by another program" in text
    assert list(tmp_path.iterdir()) == []


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
