"""A proxy for the cluster's registry with faults, and an agent process on a node.

The name of the registry in a request selects the behaviour: credentials required, slow, hanging or invalid responses.
"""

from __future__ import annotations

import base64
import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from tests.cluster.cluster import Cluster
from tests.cluster.network import HOST_ADDRESS
from tests.cluster.nodes import Node
from tests.cluster.process import ProcessId, wait_until
from tests.deadline import Deadline

ROOT = Path(__file__).resolve().parents[2]
USER, PASSWORD = "jane", "a-word-nobody-may-see"
PRIVATE, SLOW, HANGING, GARBAGE = "private.example", "slow.example", "hanging.example", "garbage.example"


class Front(ThreadingHTTPServer):
    """``open``: whether the slow registry serves blobs; ``asked``: paths requested, by registry."""

    daemon_threads = True

    def __init__(self, registry: str) -> None:
        super().__init__((HOST_ADDRESS, 0), Handler)
        self.registry = registry
        self.open = threading.Event()
        self.ended = threading.Event()
        self.asked: list[tuple[str, str]] = []

    @property
    def address(self) -> str:
        return f"{HOST_ADDRESS}:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: Front
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        name = parse_qs(urlsplit(self.path).query).get("ns", [""])[0]
        self.server.asked.append((name, self.path))
        if name == HANGING:
            self.server.ended.wait(600)
            return
        if name == GARBAGE:
            self.wfile.write(b"\x00\xff nonsense\r\n\r\n")
            self.close_connection = True
            return
        wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if name == PRIVATE and self.headers.get("Authorization") != wanted:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="private"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        if name == SLOW and "/blobs/" in self.path:
            while not (self.server.open.wait(0.2) or self.server.ended.is_set()):
                pass
        connection = http.client.HTTPConnection(self.server.registry, timeout=120)
        connection.request(self.command, self.path, headers={"Accept": self.headers.get("Accept", "*/*")})
        answer = connection.getresponse()
        body = answer.read()
        self.send_response(answer.status)
        for header in ("Content-Type", "Docker-Content-Digest"):
            if value := answer.getheader(header):
                self.send_header(header, value)
        self.send_header("Content-Length", answer.getheader("Content-Length") or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def front(cluster: Cluster) -> Iterator[Front]:
    """Start the registry and configure it on every node."""
    server = Front(cluster.registry.address)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for node in cluster.nodes:
        for name in (PRIVATE, SLOW, HANGING, GARBAGE):
            hosts = node.directory / "registry" / name
            hosts.mkdir(exist_ok=True)
            url = f"http://{server.address}"
            hosts.joinpath("hosts.toml").write_text(
                f'server = "{url}"\n[host."{url}"]\n  capabilities = ["pull", "resolve"]\n'
            )
    try:
        yield server
    finally:
        server.ended.set()
        server.shutdown()


class AgentProcess:
    """``pykruise daemon`` on a node, started as a DaemonSet would start it."""

    def __init__(self, node: Node, kubeconfig: Path, log: Path, *flags: str) -> None:
        self._node = node
        self._log = log
        self._command = [
            *(sys.executable, "-m", "app.cli.entry", "daemon"),
            *(f"--kubeconfig={kubeconfig}", "--addr=127.0.0.1:10221", "--v=5", *flags),
        ]
        self._outer: subprocess.Popen[bytes] | None = None
        self._starts = 0

    def start(self, line: str = "", folder: Path = ROOT) -> None:
        """``line``: another command to run in a directory on the node."""
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = os.environ | {"PYTHONPATH": str(ROOT), "MALLOC_ARENA_MAX": "1", "PATH": path}
        command = ["bash", "-c", f"cd {folder} && exec env {line}"] if line else self._command
        if not line:
            environment["NODE_NAME"] = self._node.name
        with self._log.open("ab") as log:
            self._outer = subprocess.Popen(
                self._node.enter_command(*command), env=environment, cwd=folder, stdout=log, stderr=log
            )
        outer = ProcessId.of(self._outer.pid)
        assert outer is not None
        self._starts += 1
        wait_until(self._runs, "the agent runs", alive={"agent": (outer, self._log)})

    def _runs(self) -> bool:
        return self._log.read_text().count("node agent started") == self._starts

    @property
    def process(self) -> ProcessId:
        assert self._outer is not None
        found = ProcessId.of(self._outer.pid)
        assert found is not None
        (child,) = found.children()
        return child

    @property
    def resident(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("no VmRSS")

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        if self._outer is not None and self._outer.poll() is None:
            self._end(signal.SIGTERM)

    def _end(self, number: int) -> None:
        assert self._outer is not None
        os.kill(self.process.pid, number)
        self._outer.wait(timeout=120)


def until(look: object, what: str, seconds: float = 60.0) -> object:
    end = Deadline(seconds)
    while True:
        found = look()  # type: ignore[operator]
        if found:
            return found
        assert not end.passed(), f"not within {seconds:.0f} s: {what}"
        time.sleep(0.1)
