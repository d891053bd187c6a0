"""``pykruise serve`` as a process: over TLS, with changing files, until its end."""

import json
import os
import resource
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from typer.testing import CliRunner

from app.cli.main import app
from tests.admission.requests import FIXTURES, patch_of, recorded, review_of
from tests.deadline import Deadline

SAMPLES = Path(__file__).parent.parent.parent / "policies/samples"
ROOT = Path(__file__).parent.parent.parent
JSON = {"Content-Type": "application/json"}


class Serving:
    """A serving process on loopback with its own certificates."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.certs = folder / "certs"
        self.log = (folder / "log").open("w+")
        command = [sys.executable, "-m", "app.cli.main", "serve", "--port", "0", "--certs", str(self.certs)]
        self.process = subprocess.Popen([*command, *arguments], cwd=ROOT, stderr=self.log, stdout=self.log)
        line = self.wait_for_log("serving https://127.0.0.1:")
        self.url = line[line.index("https://") :].split(" ")[0]
        self.wait_for_log("loaded ")

    @property
    def text(self) -> str:
        return Path(self.log.name).read_text("utf-8")

    def wait_for_log(self, text: str) -> str:
        deadline = Deadline(30)
        while not deadline.passed():
            for line in self.text.splitlines():
                if text in line:
                    return line
            assert self.process.poll() is None, self.text
            time.sleep(0.02)
        raise AssertionError(f"{text!r} did not come:\n{self.text}")

    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.url, verify=ssl.create_default_context(cafile=self.certs / "ca-cert.pem"))

    def end(self) -> int:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(20)


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Callable[..., Serving]]:
    started: list[Serving] = []

    def start(*arguments: str) -> Serving:
        started.append(Serving(tmp_path, *arguments))
        return started[-1]

    yield start
    for one in started:
        one.end()
        one.log.close()


def containers(answer: httpx.Response) -> list[str]:
    from app.kube.patches import apply

    patched: Any = apply(patch_of(answer.json()), recorded("pod-create")["request"]["object"])
    return [one["name"] for one in patched["spec"]["containers"]]


def test_a_recorded_review_is_answered_over_tls_with_a_clean_exit(serving: Callable[..., Serving]) -> None:
    service = serving("--policies", str(SAMPLES))
    with service.client() as http:
        answer = http.post("/mutate-pod", content=review_of(), headers=JSON)
        assert answer.json()["response"]["allowed"] is True
        assert containers(answer) == ["log-shipper", "main"]
        assert http.get("/healthz").text == "ok"
        assert http.post("/mutate-pod", content=b"nonsense", headers=JSON).status_code == 400
        metrics = http.get("/metrics").text
        assert 'kruise_admission_decisions_total{outcome="patched",webhook="mpod.kb.io"} 1.0' in metrics
        assert 'kruise_admission_bad_requests_total{reason="not_json",webhook="/mutate-pod"} 1.0' in metrics
        review = recorded("conversion-to-v1alpha1")
        converted = http.post("/convert", content=json.dumps(review), headers=JSON).json()
        assert converted["response"]["result"]["status"] == "Success"
    assert service.end() == 0
    assert "Traceback" not in service.text


def test_several_workers_share_a_port_and_a_dead_one_is_restarted(serving: Callable[..., Serving]) -> None:
    service = serving("--policies", str(SAMPLES), "--workers", "2")
    victim = int(service.wait_for_log("worker 1 is process").rpartition(" ")[2])
    with service.client() as http:
        assert http.post("/mutate-pod", content=review_of(), headers=JSON).json()["response"]["allowed"] is True
    os.kill(victim, signal.SIGKILL)
    service.wait_for_log(f"worker 1 (process {victim}) was killed by SIGKILL")
    deadline = Deadline(20)
    while service.text.count("worker 1 is process") < 2:
        assert not deadline.passed(), service.text
        time.sleep(0.02)
    with service.client() as http:
        assert http.post("/mutate-pod", content=review_of(), headers=JSON).json()["response"]["allowed"] is True
    assert service.end() == 0


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--policies", "/nowhere"], 2, "--policies: /nowhere does not exist"),
        (["--policies", str(FIXTURES), "--feature-gates", "Nope=true"], 2, "unknown feature gate 'Nope'"),
        (
            ["--policies", str(SAMPLES), "--port", "TAKEN"],
            1,
            "--port (PORT= with make serve): 127.0.0.1, port TAKEN is in",
        ),
        (["--policies", str(SAMPLES), "--certs", "FOLDER"], 1, "FOLDER/tls.key: is missing, but FOLDER/tls.crt exists"),
    ],
    ids=["policies", "gate", "port", "certificate"],
)
def test_startup_errors_are_reported_in_one_line(arguments: list[str], code: int, message: str, tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("x")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        given = ["--certs", str(tmp_path / "certs"), "--port", "0", *arguments]
        given = [one.replace("FOLDER", str(tmp_path)).replace("TAKEN", port) for one in given]
        done = CliRunner().invoke(app, ["serve", *given])
    assert done.exit_code == code
    assert message.replace("FOLDER", str(tmp_path)).replace("TAKEN", port) in done.stderr


def test_running_out_of_descriptors_is_survived(serving: Callable[..., Serving], tmp_path: Path) -> None:
    policies = tmp_path / "policies"
    policies.mkdir()
    sample = (SAMPLES / "log-shipper.yaml").read_text("utf-8")
    (policies / "set.yaml").write_text(sample)
    service = serving("--policies", str(policies), "--workers", "1")
    with service.client() as http:
        assert containers(http.post("/mutate-pod", content=review_of(), headers=JSON)) == ["log-shipper", "main"]
    limits = resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    waiting = socket.create_connection(("127.0.0.1", int(service.url.rpartition(":")[2])))
    service.wait_for_log("cannot check the files")
    service.wait_for_log("EMFILE")
    (policies / "set.yaml").write_text(sample.replace("name: log-shipper", "name: log-sender"))
    resource.prlimit(service.process.pid, resource.RLIMIT_NOFILE, limits)
    waiting.close()
    with service.client() as http:
        deadline = Deadline(30)
        while containers(answer := http.post("/mutate-pod", content=review_of(), headers=JSON)) != [
            "log-sender",
            "main",
        ]:
            assert not deadline.passed(), answer.text
            time.sleep(0.1)
    assert service.end() == 0
