"""``pykruise serve`` as a process: over TLS, with changing files, until its end."""

import json
import os
import resource
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import Popen
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import app
from app.kube.patches import apply
from tests.admission.requests import patch_of, recorded, review_of
from tests.scenarios.world import ROOT, eventually, printed, running

SAMPLES = ROOT / "policies/samples"
JSON = {"Content-Type": "application/json"}


class Serving:
    """A serving process on loopback with its own certificates."""

    def __init__(self, process: Popen[bytes], folder: Path) -> None:
        self.process, self.certs, self.log = process, folder / "certs", folder / "log"
        self.url = self.says("serving https://127.0.0.1:").partition("serving ")[2].split()[0]
        self.says("loaded ")

    @property
    def text(self) -> str:
        return self.log.read_text("utf-8")

    def says(self, words: str, *, times: int = 1) -> str:
        """Return the line of the log in which these words appear for this time, once it does."""

        def look(text: str) -> list[str]:
            return [one for one in text.splitlines() if words in one][times - 1 :]

        return printed(self.process, self.log, look, words, 30)[0]

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, verify=ssl.create_default_context(cafile=self.certs / "ca-cert.pem"))

    def containers(self) -> list[str]:
        """Return the containers of the recorded Pod after a review on a new connection."""
        with self.client() as http:
            answer = http.post("/mutate-pod", content=review_of(), headers=JSON).json()
        assert answer["response"]["allowed"] is True
        patched: Any = apply(patch_of(answer), recorded("pod-create")["request"]["object"])
        return [one["name"] for one in patched["spec"]["containers"]]


@contextmanager
def serving(folder: Path, *arguments: str) -> Iterator[Serving]:
    """Run the service, which must end without an error on SIGTERM."""
    command = ["app.cli.main", "serve", "--port", "0", "--certs", str(folder / "certs"), *arguments]
    with running(command, folder / "log") as process:
        yield (service := Serving(process, folder))
    assert (process.returncode, "Traceback" in service.text) == (0, False), service.text


def test_a_recorded_review_is_answered_over_tls_with_a_clean_exit(tmp_path: Path) -> None:
    with serving(tmp_path, "--policies", str(SAMPLES)) as service:
        assert service.containers() == ["log-shipper", "main"]
        with service.client() as http:
            assert http.get("/healthz").text == "ok"
            assert http.post("/mutate-pod", content=b"nonsense", headers=JSON).status_code == 400
            metrics = http.get("/metrics").text
            assert 'kruise_admission_decisions_total{outcome="patched",webhook="mpod.kb.io"} 1.0' in metrics
            assert 'kruise_admission_bad_requests_total{reason="not_json",webhook="/mutate-pod"} 1.0' in metrics
            review = recorded("conversion-to-v1alpha1")
            converted = http.post("/convert", content=json.dumps(review), headers=JSON).json()
            assert converted["response"]["result"]["status"] == "Success"


def test_several_workers_share_a_port_and_a_dead_one_is_restarted(tmp_path: Path) -> None:
    with serving(tmp_path, "--policies", str(SAMPLES), "--workers", "2") as service:
        victim = int(service.says("worker 1 is process").rpartition(" ")[2])
        assert service.containers() == ["log-shipper", "main"]
        os.kill(victim, signal.SIGKILL)
        service.says(f"worker 1 (process {victim}) was killed by SIGKILL")
        service.says("worker 1 is process", times=2)
        assert service.containers() == ["log-shipper", "main"]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--policies", "/nowhere"], 2, "--policies: /nowhere does not exist"),
        (["--feature-gates", "Nope=true"], 2, "unknown feature gate 'Nope'"),
        (["--port", "TAKEN"], 1, "--port (PORT= with make serve): 127.0.0.1, port TAKEN is in"),
        (["--certs", "FOLDER"], 1, "FOLDER/tls.key: is missing, but FOLDER/tls.crt exists"),
    ],
    ids=["policies", "gate", "port", "certificate"],
)
def test_startup_errors_are_reported_in_one_line(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("x")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        given = ["--policies", str(SAMPLES), "--certs", str(tmp_path / "certs"), "--port", "0", *arguments]
        given = [one.replace("FOLDER", str(tmp_path)).replace("TAKEN", port) for one in given]
        done = CliRunner().invoke(app, ["serve", *given])
    assert done.exit_code == code
    assert message.replace("FOLDER", str(tmp_path)).replace("TAKEN", port) in done.stderr


def test_running_out_of_descriptors_is_survived(tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    sample = (SAMPLES / "log-shipper.yaml").read_text("utf-8")
    (policies / "set.yaml").write_text(sample)
    with serving(tmp_path, "--policies", str(policies), "--workers", "1") as service:
        assert service.containers() == ["log-shipper", "main"]
        limits = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
        waiting = socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])))
        service.says("cannot check the files")
        service.says("EMFILE")
        (policies / "set.yaml").write_text(sample.replace("name: log-shipper", "name: log-sender"))
        resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, limits)
        waiting.close()
        eventually(lambda: service.containers() == ["log-sender", "main"], "the new file is read", 30)
